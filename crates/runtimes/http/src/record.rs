//! The record of a machine: what is needed to find it again, and the defaults of its commands.

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
    /// Its id there; `None` while it is being made by a service that chooses ids itself.
    pub(crate) id: Option<String>,
    /// The default directory of commands.
    #[serde(default)]
    pub(crate) workdir: String,
    /// Variables of every command.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
}

impl Record {
    pub(crate) fn new(url: String, id: Option<String>) -> Record {
        Record {
            version: VERSION,
            url,
            id,
            workdir: String::new(),
            env: BTreeMap::new(),
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
        let mut record = Record::new("http://127.0.0.1:1".into(), None);
        record.store(dir.path()).unwrap();
        record.id = Some("pv-x".into());
        record.env.insert("A".into(), "b".into());
        record.store(dir.path()).unwrap();
        assert_eq!(Record::load(dir.path()), Ok(Some(record.clone())));
        record.version = 9;
        record.store(dir.path()).unwrap();
        assert!(Record::load(dir.path()).is_err());
        std::fs::write(dir.path().join("machine.json"), "{").unwrap();
        assert!(Record::load(dir.path()).is_err());
        Record::remove(dir.path()).unwrap();
        Record::remove(dir.path()).unwrap();
        assert_eq!(Record::load(dir.path()), Ok(None));
    }
}
