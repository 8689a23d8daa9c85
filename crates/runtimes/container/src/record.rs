//! The record of a machine, and whether its process still exists.

use motu_core::Error;
use motu_local::{Process, boot_id};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The record's file in the machine's directory.
const FILE: &str = "machine.json";
const VERSION: u32 = 1;

/// What is needed to find a machine again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) boot_id: String,
    /// The directory of its disks, if they outlive it.
    #[serde(default)]
    pub(crate) kept: Option<PathBuf>,
    /// Its range of host ids, if it has its own.
    pub(crate) slot: Option<u32>,
    /// Pid 1 as seen from the host; `None` while the machine is being made.
    pub(crate) process: Option<Process>,
}

impl Record {
    pub(crate) fn new(slot: Option<u32>) -> Record {
        Record {
            version: VERSION,
            boot_id: boot_id(),
            kept: None,
            slot,
            process: None,
        }
    }

    /// Reads the record a machine was given, or the one in its directory.
    pub(crate) fn load(dir: &Path) -> Option<Record> {
        let text = std::fs::read(dir.join(FILE)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Written at once over what was there: a process that is killed has written all of it or
    /// nothing, and after a power cut there is no machine. A second file that replaces the first
    /// costs an inode for each machine, which ext4 without a journal gives out slowly.
    pub(crate) fn store(&self, dir: &Path) -> Result<(), Error> {
        let failed = |error: io::Error| Error::io("the machine's record", &error);
        let text = serde_json::to_vec(self).map_err(|e| Error::internal(e.to_string()))?;
        let mut options = std::fs::File::options();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(dir.join(FILE)).map_err(failed)?;
        let (new, old) = (text.len(), file.metadata().map_err(failed)?.len() as usize);
        // Spaces after it hide the rest of a longer one.
        let text = [text, vec![b' '; old.saturating_sub(new)]].concat();
        match file.write(&text).map_err(failed)? {
            written if written == text.len() => Ok(()),
            _ => Err(failed(io::ErrorKind::StorageFull.into())),
        }
    }

    /// A pidfd of the machine's pid 1, if that very process still exists.
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        let process = self.process.filter(|_| self.boot_id == boot_id())?;
        process.open()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_local::start_time;

    #[test]
    fn a_record_opens_only_its_own_process() {
        let me = std::process::id() as i32;
        let mut record = Record::new(None);
        assert!(record.open().is_none());
        record.process = Some(Process {
            pid: me,
            start_time: start_time(me).unwrap(),
        });
        assert!(record.open().is_some());

        let mut reused = record.clone();
        reused.process = reused.process.map(|p| Process {
            start_time: p.start_time + 1,
            ..p
        });
        assert!(reused.open().is_none());
        let mut rebooted = record.clone();
        rebooted.boot_id = "another".into();
        assert!(rebooted.open().is_none());
    }

    #[test]
    fn records_are_stored_whole() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::new(Some(3));
        record.store(dir.path()).unwrap();
        assert_eq!(Record::load(dir.path()), Some(record.clone()));
        let longer = Record {
            kept: Some("/a/longer/record".into()),
            ..record.clone()
        };
        for one in [longer, record] {
            one.store(dir.path()).unwrap();
            assert_eq!(Record::load(dir.path()), Some(one));
        }
    }
}
