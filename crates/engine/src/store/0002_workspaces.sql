-- What a kept sandbox's machine is made from, as JSON; NULL for others.
ALTER TABLE sandboxes ADD COLUMN launch TEXT;

CREATE TABLE workspaces (
    workspace_id TEXT PRIMARY KEY,
    -- Everything about it that is not its sandbox's, as JSON.
    workspace    TEXT NOT NULL
) STRICT;

-- Values are sealed with the key of the state directory.
CREATE TABLE secrets (
    workspace_id TEXT NOT NULL,
    name         TEXT NOT NULL,
    source_kind  TEXT NOT NULL,
    sealed       BLOB NOT NULL,
    PRIMARY KEY (workspace_id, name)
) STRICT;

CREATE TABLE commands (
    workspace_id TEXT NOT NULL,
    sequence     INTEGER NOT NULL,
    command      TEXT NOT NULL,
    PRIMARY KEY (workspace_id, sequence)
) STRICT;

CREATE TABLE services (
    workspace_id TEXT NOT NULL,
    name         TEXT NOT NULL,
    service      TEXT NOT NULL,
    PRIMARY KEY (workspace_id, name)
) STRICT;

CREATE TABLE shells (
    workspace_id TEXT NOT NULL,
    shell_id     TEXT NOT NULL,
    shell        TEXT NOT NULL,
    PRIMARY KEY (workspace_id, shell_id)
) STRICT;
