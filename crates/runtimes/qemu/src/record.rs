//! What is remembered of a machine, and whether it is still that machine.
//!
//! A pid alone names nobody: numbers come again. A process is the one we
//! started if its pid, its start time and the boot of the host all agree.

use crate::accel::{Accelerator, boot_id};
use motu_core::Error;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

const FILE: &str = "machine.json";
const VERSION: u32 = 1;

/// Enough to find a machine again, and to copy it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) boot_id: String,
    /// Not there yet while the machine is being made.
    pub(crate) process: Option<Process>,
    pub(crate) shape: Shape,
    /// Which generation of its disks the machine writes to.
    pub(crate) layer: u32,
    /// Where its disks are, if they are kept.
    #[serde(default)]
    pub(crate) kept: Option<PathBuf>,
    /// The cgroups its process is in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cgroups: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Clock ticks from the boot of the host to the start of the process.
    pub(crate) start_time: u64,
}

/// What cannot change during a machine's life, nor between it and its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) accel: Accelerator,
    pub(crate) mem_mib: u64,
    pub(crate) vcpu_count: u64,
    pub(crate) disk_mib: u64,
    /// Size of the root's disk: the environment and the room to write.
    pub(crate) root_bytes: u64,
    /// Its disks outlive it and have a baseline beside them.
    #[serde(default)]
    pub(crate) kept: bool,
    /// It has a network device.
    #[serde(default)]
    pub(crate) network: bool,
}

impl Shape {
    /// Size of the disk of `/workspace`.
    pub(crate) fn work_bytes(&self) -> u64 {
        self.disk_mib << 20
    }
}

impl Record {
    pub(crate) fn new(shape: Shape, layer: u32, kept: Option<PathBuf>) -> Record {
        Record {
            version: VERSION,
            boot_id: boot_id(),
            process: None,
            shape,
            layer,
            kept,
            cgroups: Vec::new(),
        }
    }

    pub(crate) fn load(dir: &Path) -> Option<Record> {
        let text = std::fs::read(dir.join(FILE)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Staged and renamed: a reader sees the old record or the new one.
    pub(crate) fn store(&self, dir: &Path) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::io("the machine's record", &error);
        let text = serde_json::to_vec(self).map_err(|e| Error::internal(e.to_string()))?;
        let staged = dir.join("machine.json.new");
        std::fs::write(&staged, text).map_err(failed)?;
        std::fs::rename(staged, dir.join(FILE)).map_err(failed)
    }

    /// A handle on the machine's process, if that very process still runs.
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        let (pidfd, stat) = self.find()?;
        (!stat.over).then_some(pidfd)
    }

    /// A handle on the machine's process, also when it has ended and was not waited for yet.
    pub(crate) fn open_ended(&self) -> Option<OwnedFd> {
        self.find().map(|(pidfd, _)| pidfd)
    }

    fn find(&self) -> Option<(OwnedFd, Stat)> {
        let process = self.process?;
        if self.boot_id != boot_id() {
            return None;
        }
        // The handle first: once it is held the number cannot change its meaning.
        let pidfd = pidfd_open(Pid::from_raw(process.pid)?, PidfdFlags::empty()).ok()?;
        let stat = stat(process.pid)?;
        (stat.start_time == process.start_time).then_some((pidfd, stat))
    }
}

impl Process {
    /// The process behind a fresh pid, if it has not ended yet.
    pub(crate) fn of(pid: i32) -> Option<Process> {
        Some(Process {
            pid,
            start_time: stat(pid)?.start_time,
        })
    }
}

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    start_time: u64,
    /// It has ended; only its exit status is left.
    over: bool,
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in parentheses may hold spaces and parentheses of its own.
fn parse_stat(stat: &str) -> Option<Stat> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let over = matches!(fields.next()?, "Z" | "X");
    // Field 22 of all; the state was field 3.
    let start_time = fields.nth(18)?.parse().ok()?;
    Some(Stat { start_time, over })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        accel: Accelerator::Tcg,
        mem_mib: 256,
        vcpu_count: 1,
        disk_mib: 64,
        root_bytes: 1 << 30,
        kept: false,
        network: false,
    };

    #[test]
    fn a_record_opens_only_its_own_process() {
        let mut record = Record::new(SHAPE, 1, None);
        assert!(record.open().is_none());
        record.process = Process::of(std::process::id() as i32);
        assert!(record.open().is_some());
        let mut reused = record.clone();
        reused.process = reused.process.map(|process| Process {
            start_time: process.start_time + 1,
            ..process
        });
        assert!(reused.open().is_none());
        record.boot_id = "another".into();
        assert!(record.open().is_none());
    }

    #[test]
    fn start_times_are_found_behind_any_name() {
        let tail = "S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 2";
        let stat = |over| Stat {
            start_time: 12345,
            over,
        };
        for name in ["(qemu)", "(a b)", "(a) R 1 (b)"] {
            assert_eq!(parse_stat(&format!("7 {name} {tail}")), Some(stat(false)));
        }
        let ended = format!("7 (x) Z{}", &tail[1..]);
        assert_eq!(parse_stat(&ended), Some(stat(true)));
        assert_eq!(parse_stat("7 (x"), None);
    }

    #[test]
    fn records_are_stored_whole() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::new(SHAPE, 3, Some("/x".into()));
        record.store(dir.path()).unwrap();
        assert_eq!(Record::load(dir.path()), Some(record));
    }
}
