//! Processes that can be identified after a restart.
//!
//! A pid alone identifies nothing, because pids are reused. A process is the one we started if its
//! pid, its start time and the boot id all agree.

use motu_core::runtime::ProcessOfBoot;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// A process of this boot of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// Clock ticks from the boot of the host to the start of the process.
    pub start_time: u64,
}

impl From<Process> for ProcessOfBoot {
    fn from(process: Process) -> ProcessOfBoot {
        ProcessOfBoot {
            pid: process.pid,
            start_time: process.start_time,
        }
    }
}

impl Process {
    /// A pidfd, if that very process still exists.
    pub fn open(&self) -> Option<OwnedFd> {
        // Open the pidfd first: from then on the pid cannot be reused unnoticed.
        let pidfd = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        (start_time(self.pid)? == self.start_time).then_some(pidfd)
    }
}

/// The start time of a running process (not a zombie).
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_start_time(&stat)
}

/// The name in parentheses may contain spaces and parentheses.
fn parse_start_time(stat: &str) -> Option<u64> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // Field 22; the state was field 3.
    fields.nth(18)?.parse().ok()
}

/// The kernel's id of this boot.
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
}
