-- Who needs a baseline: the sandbox that has it, or is being made with it. A baseline
-- whose only reference has an empty sandbox_id is needed by nobody and being removed.
CREATE TABLE baseline_refs (
    baseline   TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    PRIMARY KEY (baseline, sandbox_id)
) STRICT;
CREATE INDEX baseline_refs_by_sandbox ON baseline_refs (sandbox_id);
