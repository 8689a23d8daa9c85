//! What is remembered of a machine: enough to find it again, and what its commands begin with.

use motu_core::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The record's file in the machine's directory.
const FILE: &str = "machine.json";
const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    version: u32,
    /// The service that has it.
    pub(crate) url: String,
    /// Its id there; not known yet while it is being made by a service that gives ids itself.
    pub(crate) id: Option<String>,
    /// Where its commands run when nobody says otherwise.
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

    /// `None` where nothing was written down.
    pub(crate) fn load(dir: &Path) -> Result<Option<Record>, Error> {
        let what = "the machine's record";
        let text = match std::fs::read(dir.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(what, &error)),
        };
        let record: Record = serde_json::from_slice(&text)
            .map_err(|error| Error::internal(format!("{what} cannot be read: {error}")))?;
        match record.version {
            VERSION => Ok(Some(record)),
            other => Err(Error::unsupported(format!(
                "{what} is of version {other}; this build knows {VERSION}"
            ))),
        }
    }

    /// Staged, flushed and renamed: a reader sees the old record or the new one, and it is there
    /// before the service is asked for anything. Variables may be secrets: nobody else may look.
    pub(crate) fn store(&self, dir: &Path) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::io("the machine's record", &error);
        let text = serde_json::to_vec(self).map_err(|e| Error::internal(e.to_string()))?;
        let staged = dir.join("machine.json.new");
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&staged)
            .map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(staged, dir.join(FILE)).map_err(failed)
    }

    pub(crate) fn remove(dir: &Path) -> Result<(), Error> {
        match std::fs::remove_file(dir.join(FILE)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("the machine's record", &error))
            }
            _ => Ok(()),
        }
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
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(Record::load(dir.path()).is_err());
        Record::remove(dir.path()).unwrap();
        Record::remove(dir.path()).unwrap();
        assert_eq!(Record::load(dir.path()), Ok(None));
    }
}
