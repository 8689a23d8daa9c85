//! The record of a machine: what is needed to find it again, the defaults of its commands, and
//! background processes. The agent's token is not stored: the service provides it.

use motu_core::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    version: u32,
    /// The service that has it.
    pub(crate) url: String,
    /// Our own name for it, to find it if its id is unknown.
    pub(crate) name: String,
    /// Its id there; `None` while it is being made.
    pub(crate) id: Option<String>,
    /// The default directory of commands.
    #[serde(default)]
    pub(crate) workdir: String,
    /// The directory for temporary files.
    #[serde(default)]
    pub(crate) tmp: String,
    /// The default user; empty: the template's.
    #[serde(default)]
    pub(crate) user: String,
    /// Variables of every command.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) processes: Vec<Remembered>,
}

/// A background process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    pub(crate) pid: u32,
    /// The mark of its processes.
    pub(crate) mark: String,
    pub(crate) tag: String,
    /// The directory in the machine with its output; a terminal has none.
    pub(crate) spool: Option<String>,
    pub(crate) argv: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) user: String,
    pub(crate) pty: bool,
    pub(crate) started_unix_ms: u64,
    /// When its time limit ends.
    #[serde(default)]
    pub(crate) ends_unix_ms: Option<u64>,
    pub(crate) ended: Option<Ended>,
}

/// How such a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) signal: i32,
    pub(crate) timed_out: bool,
    pub(crate) duration_ms: u64,
    pub(crate) out: u64,
    pub(crate) err: u64,
}

impl Record {
    pub(crate) fn new(url: String, name: String) -> Record {
        Record {
            version: VERSION,
            url,
            name,
            id: None,
            workdir: String::new(),
            tmp: String::new(),
            user: String::new(),
            env: BTreeMap::new(),
            processes: Vec::new(),
        }
    }

    /// `None` if there is no record.
    pub(crate) fn load(dir: &Path) -> Result<Option<Record>, Error> {
        motu_peer::record::load(dir, VERSION)
    }

    pub(crate) fn store(&self, dir: &Path) -> Result<(), Error> {
        motu_peer::record::store(self, dir)
    }

    pub(crate) fn remove(dir: &Path) -> Result<(), Error> {
        motu_peer::record::remove(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_whole_and_no_other_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Record::load(dir.path()), Ok(None));
        let mut record = Record::new("http://127.0.0.1:1".into(), "m".into());
        record.store(dir.path()).unwrap();
        record.id = Some("x".into());
        record.env.insert("A".into(), "b".into());
        record.store(dir.path()).unwrap();
        assert_eq!(Record::load(dir.path()), Ok(Some(record.clone())));
        record.version = 9;
        record.store(dir.path()).unwrap();
        assert!(Record::load(dir.path()).is_err());
        Record::remove(dir.path()).unwrap();
        Record::remove(dir.path()).unwrap();
        assert_eq!(Record::load(dir.path()), Ok(None));
    }
}
