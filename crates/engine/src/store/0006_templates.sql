CREATE TABLE templates (
    name     TEXT PRIMARY KEY,
    -- Everything about it, as JSON. What its setup made is an environment.
    template TEXT NOT NULL
) STRICT;
