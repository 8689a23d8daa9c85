-- Whose an event is: each project's are forgotten on their own, and read on their own.
ALTER TABLE events ADD COLUMN project TEXT NOT NULL DEFAULT 'local';
UPDATE events SET project = json_extract(event, '$.project')
    WHERE json_valid(event) AND json_type(event, '$.project') = 'text';
CREATE INDEX events_by_project ON events (project, sequence);
