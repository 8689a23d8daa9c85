//! The end of a machine: its processes, its cgroups, its directory.

use crate::mapped;
use crate::record::Record;
use motu_core::{Error, ErrorKind, SandboxId};
use motu_local::{Hierarchies, watch};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// How long a killed machine may take to disappear.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// Ends every process of a machine and removes its cgroups. Idempotent.
pub(crate) async fn end(
    cgroups: &Hierarchies,
    id: &SandboxId,
    record: Option<Record>,
) -> Result<(), Error> {
    cgroups.lift_io(id.as_str());
    cgroups.thaw(id.as_str());
    end_all(record.iter().flat_map(Record::remains).collect()).await?;
    // Processes without a record are still in the machine's cgroups. Killed processes may have
    // started others before they died, so repeat.
    loop {
        let members = cgroups.processes(id.as_str()).into_iter();
        let members: Vec<OwnedFd> = members.filter_map(|pid| member(cgroups, id, pid)).collect();
        if members.is_empty() {
            break;
        }
        end_all(members).await?;
    }
    cgroups.remove(id.as_str()).await
}

/// Removes the contents of a machine's directory, but not the directory.
pub(crate) async fn clear(dir: &Path, privileged: bool) -> Result<(), Error> {
    let place = dir.to_path_buf();
    tokio::task::spawn_blocking(move || empty(&place, privileged))
        .await
        .map_err(|_| Error::internal("emptying a directory panicked"))?
        .map_err(|error| {
            let message = format!("{} could not be emptied: {error}", dir.display());
            Error::new(ErrorKind::Cleanup, message)
        })
}

fn empty(dir: &Path, privileged: bool) -> io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true if !privileged => mapped::remove(&entry.path())?,
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// A pidfd of a process that is still in the machine's cgroup after the pidfd was opened.
fn member(cgroups: &Hierarchies, id: &SandboxId, pid: i32) -> Option<OwnedFd> {
    let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let still = cgroups.processes(id.as_str()).contains(&pid);
    still.then_some(pidfd)
}

/// Kills all processes before waiting for the first.
async fn end_all(processes: Vec<OwnedFd>) -> Result<(), Error> {
    for pidfd in &processes {
        match pidfd_send_signal(pidfd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(Error::io("killing the machine", &error.into())),
        }
    }
    for pidfd in processes {
        match tokio::time::timeout(END_PATIENCE, wait(pidfd)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(Error::io("watching the machine end", &error)),
            Err(_) => {
                let message = "a process of the machine does not end";
                return Err(Error::new(ErrorKind::Cleanup, message));
            }
        }
    }
    Ok(())
}

/// Waits for the end of a process.
pub(crate) async fn wait(pidfd: OwnedFd) -> io::Result<OwnedFd> {
    let watched = watch(pidfd)?;
    // The guard borrows `watched`, which is returned below.
    drop(watched.readable().await?);
    Ok(watched.into_inner())
}
