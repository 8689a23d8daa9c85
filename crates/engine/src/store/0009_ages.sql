-- Lists are read by age, a page at a time: when a sandbox was created, in nanoseconds, and whose it
-- is. Rows of earlier versions are given both when the store is opened.
ALTER TABLE sandboxes ADD COLUMN created_ns INTEGER;
ALTER TABLE sandboxes ADD COLUMN owner TEXT NOT NULL DEFAULT '';
-- Only those that are gone are listed from here; the living ones are in the daemon's table.
CREATE INDEX gone_by_age ON sandboxes (created_ns, sandbox_id) WHERE state = 'destroyed';
CREATE INDEX gone_by_owner ON sandboxes (owner, created_ns, sandbox_id) WHERE state = 'destroyed';
