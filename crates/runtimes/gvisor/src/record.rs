//! The record of a machine, and whether its processes still exist.
//!
//! A machine is two processes of the host: the sandbox, which is its kernel, and the gofer, which
//! opens files for it. The end of either is the machine's end.

use motu_core::Error;
use motu_local::{Process, boot_id, start_time};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The record's file in the machine's directory.
const FILE: &str = "machine.json";
const VERSION: u32 = 1;

/// What is needed to find a machine again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    version: u32,
    boot_id: String,
    /// The sandbox process; `None` while the machine is being made.
    pub(crate) process: Option<Process>,
    /// The gofer process.
    #[serde(default)]
    pub(crate) gofer: Option<Process>,
}

impl Record {
    pub(crate) fn new() -> Record {
        Record {
            version: VERSION,
            boot_id: boot_id(),
            process: None,
            gofer: None,
        }
    }

    pub(crate) fn load(dir: &Path) -> Option<Record> {
        let text = std::fs::read(dir.join(FILE)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Written atomically: a reader sees the old record or the new one.
    pub(crate) fn store(&self, dir: &Path) -> Result<(), Error> {
        let failed = |error: io::Error| Error::io("the machine's record", &error);
        let text = serde_json::to_vec(self).map_err(|e| Error::internal(e.to_string()))?;
        let staged = dir.join("machine.json.new");
        std::fs::write(&staged, text).map_err(failed)?;
        std::fs::rename(staged, dir.join(FILE)).map_err(failed)
    }

    /// Pidfds of the sandbox and of its gofer, if known; `None` if one of them is gone.
    pub(crate) fn open(&self) -> Option<(OwnedFd, Option<OwnedFd>)> {
        let sandbox = self.handle(self.process?)?;
        match self.gofer {
            Some(gofer) => Some((sandbox, Some(self.handle(gofer)?))),
            None => Some((sandbox, None)),
        }
    }

    /// Pidfds of the machine's processes that still exist.
    pub(crate) fn remains(&self) -> Vec<OwnedFd> {
        let known = [self.process, self.gofer].into_iter().flatten();
        known.filter_map(|process| self.handle(process)).collect()
    }

    /// A pidfd of a process, if it is still the recorded one.
    fn handle(&self, process: Process) -> Option<OwnedFd> {
        if self.boot_id != boot_id() {
            return None;
        }
        // Open the pidfd first: from then on the pid cannot be reused unnoticed.
        let pidfd = pidfd_open(Pid::from_raw(process.pid)?, PidfdFlags::empty()).ok()?;
        (start_time(process.pid)? == process.start_time).then_some(pidfd)
    }
}

/// The record of a running process.
pub(crate) fn known(pid: i32) -> Option<Process> {
    let start_time = start_time(pid)?;
    Some(Process { pid, start_time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_opens_only_its_own_processes() {
        let me = known(std::process::id() as i32);
        let mut record = Record::new();
        record.process = me;
        assert!(matches!(record.open(), Some((_, None))));
        assert_eq!(record.remains().len(), 1);
        record.gofer = me;
        assert!(matches!(record.open(), Some((_, Some(_)))));

        let mut reused = record.clone();
        reused.gofer = me.map(|p| Process {
            start_time: p.start_time + 1,
            ..p
        });
        assert!(reused.open().is_none());
        record.boot_id = "another".into();
        assert!(record.remains().is_empty());
    }

    #[test]
    fn records_are_stored_whole() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::new();
        record.store(dir.path()).unwrap();
        assert_eq!(Record::load(dir.path()), Some(record));
    }
}
