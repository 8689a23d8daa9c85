CREATE TABLE keys (
    key_id TEXT PRIMARY KEY,
    -- SHA-256 of the whole key. The key itself is nowhere.
    hash   BLOB NOT NULL,
    -- Everything that may be said of it, as JSON.
    key    TEXT NOT NULL
) STRICT;
