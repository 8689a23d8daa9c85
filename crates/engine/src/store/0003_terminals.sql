CREATE TABLE terminals (
    session_id TEXT PRIMARY KEY,
    -- Everything about it, as JSON. Its output is in files.
    terminal   TEXT NOT NULL
) STRICT;
