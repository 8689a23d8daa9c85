//! What lies in a state directory, and what of it a backup has.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a thing in a backup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Names, states, histories, events.
    Store,
    /// The disks, snapshots and records of a workspace or a kept sandbox.
    Workspace,
    Baseline,
    /// The files of an environment, by their digest.
    Environment,
    /// What a name of an environment means.
    EnvironmentName,
    Template,
    /// A machine that was saved with its memory.
    Memory,
    Key,
    Policy,
    Secret,
    /// A terminal session: transcript, recording and log.
    Recording,
    /// Decisions about the traffic of sandboxes.
    Egress,
    Audit,
    /// The keys of the host: of secrets, and of the audit log.
    HostKey,
    Configuration,
}

/// How a part of the state directory is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As one thing.
    Whole,
    /// Each entry is a thing of its own.
    Each,
}

/// One part of a state directory that a backup has.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub path: &'static str,
    pub kind: Kind,
    pub how: How,
    /// What of it is copied follows from what refers to it.
    pub referred: bool,
}

const fn part(path: &'static str, kind: Kind, how: How, referred: bool) -> Part {
    Part {
        path,
        kind,
        how,
        referred,
    }
}

/// In the order in which they are put in place: the store is the last one.
pub const PARTS: [Part; 17] = [
    part("config.toml", Kind::Configuration, How::Whole, false),
    part("environments/blobs", Kind::Environment, How::Each, true),
    part("environments/names", Kind::EnvironmentName, How::Each, true),
    part("baselines", Kind::Baseline, How::Each, true),
    part("saved", Kind::Memory, How::Each, true),
    part("templates", Kind::Template, How::Each, true),
    part("terminals", Kind::Recording, How::Each, false),
    part("egress", Kind::Egress, How::Each, false),
    part("policies", Kind::Policy, How::Each, false),
    part("secrets.key", Kind::HostKey, How::Whole, false),
    part("secrets.key.id", Kind::HostKey, How::Whole, false),
    part("secrets", Kind::Secret, How::Each, false),
    part("audit", Kind::Audit, How::Whole, true),
    part("audit.key", Kind::HostKey, How::Whole, false),
    part("keys", Kind::Key, How::Each, false),
    part("kept", Kind::Workspace, How::Each, true),
    part("motu.db", Kind::Store, How::Whole, true),
];

/// What a backup does not have, because it is made again or belongs to a daemon that runs.
const MADE_AGAIN: [&str; 17] = [
    "aside",
    "cache",
    "daemon.lock",
    "daemon.log",
    "daemon.sock",
    "environments",
    "idempotency.jsonl",
    "machines",
    "motu.db-mark",
    "motu.db-shm",
    "motu.db-wal",
    "names",
    "pool",
    "probes.json",
    "restoring",
    "run",
    "trash",
];

/// An entry of a state directory that no backup has, and why.
pub fn why_not(name: &str) -> Option<&'static str> {
    let first = |part: &Part| {
        Path::new(part.path)
            .iter()
            .next()
            .is_some_and(|one| one == name)
    };
    if PARTS.iter().any(first) || MADE_AGAIN.contains(&name) {
        return None;
    }
    Some(match name {
        "lost" => "what was set aside stays in its home",
        "audit.restored" | "audit.key.restored" => {
            "the audit log of an earlier backup, which was put beside the one of this home"
        }
        _ => "it is none of motu's, or of another version",
    })
}

/// Whether an entry is a thing, and not what a crash left of one.
pub fn is_whole(name: &str) -> bool {
    !name.starts_with('.') && !name.ends_with(".new") && !name.starts_with("new-")
}
