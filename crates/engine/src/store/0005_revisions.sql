-- Counts the changes of a row; the record beside a kept sandbox's disks has the same count.
ALTER TABLE sandboxes ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;

-- Facts about the store itself.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
