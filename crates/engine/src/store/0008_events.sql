-- What happened, oldest first. AUTOINCREMENT: a number is never given twice, also after the newest
-- rows are gone.
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Everything about it but its number, as JSON.
    event    TEXT NOT NULL
) STRICT;
