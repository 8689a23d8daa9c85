//! The record of a machine's guest, and whether its process still exists.
//!
//! A pid alone identifies nothing, because pids are reused: pid, start time and boot id must all
//! agree.

use crate::sys;
use motu_core::Error;
use motu_core::runtime::{Lifeline, Machine, ProcessOfBoot};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

const FILE: &str = "machine.json";
const STAGED: &str = "machine.json.new";
const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    boot_id: String,
    pub process: Process,
    /// The directory of its disks, if they outlive it.
    #[serde(default)]
    pub kept: Option<PathBuf>,
    /// The guest, if `process` is a program around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<Process>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// Clock ticks from the boot of the host to the start of the process.
    pub start_time: u64,
}

/// By what a machine ends: its guest takes along what it has started, a program around it ends with
/// the guest.
pub fn lifeline(machine: &Machine) -> Option<Lifeline> {
    let record = of(machine)?;
    let processes = record.guest.into_iter().chain([record.process]);
    let known = |process: Process| ProcessOfBoot {
        pid: process.pid,
        start_time: process.start_time,
    };
    Some(Lifeline {
        processes: processes.map(known).collect(),
        thaw: Vec::new(),
    })
}

impl Record {
    /// The record of a process that runs.
    pub fn new(pid: i32, kept: Option<PathBuf>) -> Option<Record> {
        let stat = Stat::read(pid)?;
        Some(Record {
            version: VERSION,
            boot_id: boot_id(),
            process: Process {
                pid,
                start_time: stat.start_time,
            },
            kept,
            guest: None,
        })
    }

    pub fn load(dir: &Path) -> Option<Record> {
        let text = std::fs::read(dir.join(FILE)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Written atomically: a reader sees a complete record or none.
    pub fn store(&self, dir: &Path) -> Result<(), Error> {
        let failed = |error: io::Error| Error::io("the machine's record", &error);
        let text = serde_json::to_vec(self).map_err(|error| Error::internal(error.to_string()))?;
        let staged = dir.join(STAGED);
        std::fs::write(&staged, text).map_err(failed)?;
        std::fs::rename(staged, dir.join(FILE)).map_err(failed)
    }

    /// A pidfd of the guest, if that very process still runs.
    pub fn open(&self) -> Option<OwnedFd> {
        (self.boot_id == boot_id()).then(|| self.process.open())?
    }
}

impl Process {
    /// The first child of a process.
    pub fn first_child(&self) -> Option<Process> {
        let children = all()
            .into_iter()
            .filter(|(_, stat)| stat.parent == self.pid);
        let children = children.map(|(pid, stat)| Process {
            pid,
            start_time: stat.start_time,
        });
        children.min_by_key(|child| (child.start_time, child.pid))
    }

    /// A pidfd of the process, if it is still this one and not a zombie.
    pub fn open(&self) -> Option<OwnedFd> {
        // Open the pidfd first: from then on the pid cannot be reused unnoticed.
        let pidfd = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        let now = Stat::read(self.pid)?;
        (now.start_time == self.start_time && !now.zombie).then_some(pidfd)
    }
}

/// The record of a machine, from the engine or from its directory.
pub fn of(machine: &Machine) -> Option<Record> {
    serde_json::from_value(machine.record.clone())
        .ok()
        .or_else(|| Record::load(&machine.dir))
}

/// Waits for the end of a process, named `who` in messages; returns the reason.
pub async fn ended(pidfd: OwnedFd, who: &str) -> String {
    match wait(pidfd, who).await {
        Ok(text) => text,
        Err(error) => format!("{who} could not be watched: {error}"),
    }
}

async fn wait(pidfd: OwnedFd, who: &str) -> io::Result<String> {
    let watched = sys::watch(pidfd)?;
    // Only readiness matters: there is nothing to read from a pidfd.
    drop(watched.readable().await?);
    // Succeeds only in the daemon that started the guest, which has to reap it.
    let status = waitid(
        WaitId::PidFd(watched.get_ref().as_fd()),
        WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
    );
    let status = status.ok().flatten();
    Ok(match status {
        None => format!("{who} ended"),
        Some(status) => match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => format!("{who} was killed by signal {signal}"),
            (_, Some(code)) => format!("{who} exited with code {code}"),
            _ => format!("{who} ended"),
        },
    })
}

/// Checks on this process whether processes can be watched here.
pub fn this_process() -> io::Result<()> {
    pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    match Stat::read(rustix::process::getpid().as_raw_pid()) {
        Some(_) => Ok(()),
        None => Err(io::Error::other("/proc does not show them")),
    }
}

/// The used fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub parent: i32,
    pub start_time: u64,
    pub zombie: bool,
}

impl Stat {
    pub fn read(pid: i32) -> Option<Stat> {
        let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        Stat::parse(&text)
    }

    fn parse(text: &[u8]) -> Option<Stat> {
        // The name may contain anything, even parentheses: the last one ends it.
        let end = text.iter().rposition(|&byte| byte == b')')?;
        let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        // Field 22; the parent was field 4.
        let start_time = fields.nth(17)?.parse().ok()?;
        Some(Stat {
            parent,
            start_time,
            zombie: matches!(state, "Z" | "X"),
        })
    }
}

/// Every process of the host that can be seen.
pub fn all() -> HashMap<i32, Stat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, Stat::read(pid)?)))
        .collect()
}

/// The kernel's id of this boot.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| String::new(), |text| text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_hides_nothing() {
        let tail = "S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 0 0";
        for name in ["(sh)", "(a b)", "(a) R 1 (b)"] {
            let stat = Stat::parse(format!("42 {name} {tail}").as_bytes()).unwrap();
            assert_eq!(
                (stat.parent, stat.start_time, stat.zombie),
                (7, 123_456, false)
            );
        }
        assert_eq!(Stat::parse(b"42 (sh"), None);
    }

    #[test]
    fn a_record_opens_only_its_own_process() {
        let me = std::process::id() as i32;
        let record = Record::new(me, None).unwrap();
        assert!(record.open().is_some());
        let mut other = record.clone();
        other.process.start_time += 1;
        assert!(other.open().is_none());
        let mut rebooted = record.clone();
        rebooted.boot_id = "another".to_string();
        assert!(rebooted.open().is_none());
        let dir = tempfile::tempdir().unwrap();
        record.store(dir.path()).unwrap();
        assert_eq!(Record::load(dir.path()), Some(record));
    }
}
