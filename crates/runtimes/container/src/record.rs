//! What is remembered of a machine, and whether it is still that machine.
//!
//! A pid alone names nobody: numbers come again. A process is the one we
//! started if its pid, its start time and the boot of the host all agree.

use motu_core::Error;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The record's file in the machine's directory.
const FILE: &str = "machine.json";
const VERSION: u32 = 1;

/// Enough to find a machine again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) boot_id: String,
    /// Where its disks are, if they outlive it.
    #[serde(default)]
    pub(crate) kept: Option<PathBuf>,
    /// Which range of host ids it has, if one of its own.
    pub(crate) slot: Option<u32>,
    /// Pid 1, as the host sees it; not there yet while the machine is being made.
    pub(crate) process: Option<Process>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// Clock ticks from the boot of the host to the start of the process.
    pub start_time: u64,
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

    /// Staged and renamed: a reader sees the old record or the new one.
    pub(crate) fn store(&self, dir: &Path) -> Result<(), Error> {
        let failed = |error: io::Error| Error::io("the machine's record", &error);
        let text = serde_json::to_vec(self).map_err(|e| Error::internal(e.to_string()))?;
        let staged = dir.join("machine.json.new");
        std::fs::write(&staged, text).map_err(failed)?;
        std::fs::rename(staged, dir.join(FILE)).map_err(failed)
    }

    /// A handle on the machine's pid 1, if that very process is still there.
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        let process = self.process?;
        if self.boot_id != boot_id() {
            return None;
        }
        // The handle first: once it is held the number cannot change its meaning.
        let pidfd = pidfd_open(Pid::from_raw(process.pid)?, PidfdFlags::empty()).ok()?;
        (start_time(process.pid)? == process.start_time).then_some(pidfd)
    }
}

/// The start time of a process that runs (a zombie does not).
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_start_time(&stat)
}

/// The name in parentheses may hold spaces and parentheses of its own.
fn parse_start_time(stat: &str) -> Option<u64> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // Field 22 of all; the state was field 3.
    fields.nth(18)?.parse().ok()
}

/// Different after every boot of the host.
pub fn boot_id() -> String {
    static BOOT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    BOOT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        text.map_or_else(|_| String::new(), |id| id.trim().to_string())
    })
    .clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_times_are_found_behind_any_name() {
        let tail = "S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 2";
        for name in ["(sh)", "(a b)", "(a) R 1 (b)"] {
            assert_eq!(parse_start_time(&format!("7 {name} {tail}")), Some(12345));
        }
        assert_eq!(parse_start_time(&format!("7 (x) Z{}", &tail[1..])), None);
        assert_eq!(parse_start_time("7 (x"), None);
    }

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
        assert_eq!(Record::load(dir.path()), Some(record));
    }
}
