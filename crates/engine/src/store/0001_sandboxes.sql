CREATE TABLE sandboxes (
    sandbox_id   TEXT PRIMARY KEY,
    state        TEXT NOT NULL,
    runtime      TEXT NOT NULL,
    -- The sandbox as callers see it, as JSON.
    sandbox      TEXT NOT NULL,
    -- The runtime's own record, as JSON; NULL until the machine exists.
    machine      TEXT,
    updated_unix INTEGER NOT NULL
) STRICT;
CREATE INDEX sandboxes_by_state ON sandboxes (state, updated_unix);
