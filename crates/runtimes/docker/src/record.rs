//! The record of a machine, and whether its process still exists.

use motu_core::Error;
use motu_local::{Process, boot_id, start_time};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The record's file in the machine's directory.
const FILE: &str = "machine.json";
const VERSION: u32 = 1;

/// What is needed to find a machine again, with or without its engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    version: u32,
    boot_id: String,
    /// The socket of the engine that made it.
    pub(crate) socket: PathBuf,
    /// The container's name.
    pub(crate) name: String,
    /// The container's id; `None` while it is being made.
    pub(crate) container: Option<String>,
    /// Pid 1 as seen from the host.
    pub(crate) process: Option<Process>,
    /// The file with the kernel's count of kills by the memory limit.
    #[serde(default)]
    pub(crate) killed: Option<PathBuf>,
}

impl Record {
    pub(crate) fn new(socket: &Path, name: String) -> Record {
        Record {
            version: VERSION,
            boot_id: boot_id(),
            socket: socket.to_path_buf(),
            name,
            container: None,
            process: None,
            killed: None,
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

    /// A pidfd of the machine's first process, if that very process still exists.
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        let process = self.process?;
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
    fn a_record_is_stored_whole_and_opens_only_its_own_process() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record::new(Path::new("/x.sock"), "motu-x".into());
        assert!(record.open().is_none());
        record.process = known(std::process::id() as i32);
        record.store(dir.path()).unwrap();
        let mut found = Record::load(dir.path()).unwrap();
        assert_eq!(found, record);
        assert!(found.open().is_some());
        found.process = found.process.map(|process| Process {
            start_time: process.start_time + 1,
            ..process
        });
        assert!(found.open().is_none());
        record.boot_id = "another".into();
        assert!(record.open().is_none());
    }
}
