//! Kills a machine with everything it has started.
//!
//! A process belongs to a machine if it descends from the machine's guest or has the machine's mark
//! in its environment; the mark finds what is left if the guest died first. All members are stopped
//! before any is killed, and searched again until no new one appears, so that none can fork away.

use crate::record::{self, Process, Record, ended};
use motu_core::{Error, ErrorKind};
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The variable that names a machine's directory in all of its processes.
pub const MARK: &str = "MOTU_MACHINE";
/// Passes that stop members before everything found is killed regardless.
const STOP_PASSES: usize = 16;
/// Rounds of killing before an error is returned.
const ROUNDS: usize = 20;
/// How long killed processes may take to disappear.
const PATIENCE: Duration = Duration::from_secs(30);

/// Kills every process of a machine. Idempotent.
pub async fn end(dir: &Path, record: Option<Record>) -> Result<(), Error> {
    let guest = record.map(|record| record.process);
    let dir = dir.to_path_buf();
    for _ in 0..ROUNDS {
        let (place, guest) = (dir.clone(), guest);
        let stopped = tokio::task::spawn_blocking(move || stop_all(&place, guest))
            .await
            .map_err(|_| Error::internal("looking for processes panicked"))?;
        if stopped.is_empty() {
            return Ok(());
        }
        kill(stopped).await?;
    }
    Err(left())
}

/// Stops all members, repeatedly until no new one appears.
fn stop_all(dir: &Path, guest: Option<Process>) -> HashMap<i32, OwnedFd> {
    let mut stopped = HashMap::new();
    for _ in 0..STOP_PASSES {
        let before = stopped.len();
        for member in members(dir, guest) {
            if stopped.contains_key(&member.pid) {
                continue;
            }
            if let Some(pidfd) = member.open() {
                // A process that is gone already is no error.
                let _ = pidfd_send_signal(&pidfd, Signal::STOP);
                stopped.insert(member.pid, pidfd);
            }
        }
        if stopped.len() == before {
            break;
        }
    }
    stopped
}

/// Kills the stopped processes and waits for them.
async fn kill(stopped: HashMap<i32, OwnedFd>) -> Result<(), Error> {
    for pidfd in stopped.values() {
        match pidfd_send_signal(pidfd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(Error::io("killing the machine", &error.into())),
        }
    }
    for pidfd in stopped.into_values() {
        let gone = tokio::time::timeout(PATIENCE, ended(pidfd, "a process")).await;
        gone.map_err(|_| left())?;
    }
    Ok(())
}

fn left() -> Error {
    Error::new(ErrorKind::Cleanup, "processes of the machine do not end")
}

/// Every living process of a machine.
fn members(dir: &Path, guest: Option<Process>) -> Vec<Process> {
    let all = record::all();
    let mark = [MARK.as_bytes(), b"=", dir.as_os_str().as_bytes()].concat();
    let mut todo: Vec<i32> = all
        .iter()
        .filter(|(pid, stat)| {
            let started = guest
                .is_some_and(|guest| guest.pid == **pid && guest.start_time == stat.start_time);
            started || marked(**pid, &mark)
        })
        .map(|(pid, _)| *pid)
        .collect();
    let mut found: HashSet<i32> = todo.iter().copied().collect();
    while let Some(parent) = todo.pop() {
        for (pid, stat) in &all {
            if stat.parent == parent && found.insert(*pid) {
                todo.push(*pid);
            }
        }
    }
    found
        .into_iter()
        .filter_map(|pid| Some((pid, all.get(&pid)?)))
        .filter(|(_, stat)| !stat.zombie)
        .map(|(pid, stat)| Process {
            pid,
            start_time: stat.start_time,
        })
        .collect()
}

/// Whether a process has the mark. Other users' processes cannot be read, and are not ours.
fn marked(pid: i32, mark: &[u8]) -> bool {
    let path = PathBuf::from(format!("/proc/{pid}/environ"));
    std::fs::read(path).is_ok_and(|env| env.split(|&byte| byte == 0).any(|line| line == mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_carries_the_mark_is_ended_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = motu_needs::command("sh")
            .args(["-c", "sleep 600 & env -i sleep 600"])
            .env(MARK, dir.path())
            .spawn()
            .unwrap();
        while members(dir.path(), None).len() < 3 {
            tokio::task::yield_now().await;
        }
        end(dir.path(), None).await.unwrap();
        assert!(members(dir.path(), None).is_empty());
        // Reaped by `end` already, or here.
        let _ = child.wait();
        end(dir.path(), None).await.unwrap();
    }
}
