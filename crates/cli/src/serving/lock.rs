//! One daemon per state directory.

use super::Origin;
use crate::home::{LOCK, Place};
use motu_api::socket::ShortPath;
use motu_core::{Error, ErrorKind, Result};
use motu_engine::OwnDirectory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a daemon waits for another one that is on its way out.
const PATIENCE: Duration = Duration::from_secs(45);
/// How long `motu serve --stop` waits.
const STOPPING: Timespec = Timespec {
    tv_sec: 45,
    tv_nsec: 0,
};

/// Held as long as this daemon lives; the kernel lets go of it when it dies.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Who serves this state directory.
#[derive(Debug)]
pub enum Claim {
    Ours(Lock),
    /// Another daemon does, and takes connections.
    OthersAnswer,
}

impl Lock {
    /// Takes the lock, or finds that it is not needed. Waits for a daemon that leaves.
    pub fn claim(place: &Place, home: &OwnDirectory, origin: Origin) -> Result<Claim> {
        let file = home.file(LOCK, OFlags::empty()).map_err(|error| {
            let path = home.path().join(LOCK);
            Error::io(format_args!("open {}", path.display()), &error)
        })?;
        let begin = Instant::now();
        loop {
            let free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
            // A daemon whose lock file was removed holds a lock on a file that nobody finds.
            if free && connect(place).filter(serves).is_none() {
                return Ok(Claim::Ours(Lock { _file: file }));
            }
            // If a daemon was killed between fork and exec of a program, the child still holds its
            // socket for a moment: it accepts connections that nobody answers.
            match (connect(place).filter(serves), origin) {
                (Some(_), Origin::OnDemand) => return Ok(Claim::OthersAnswer),
                (Some(_), Origin::Foreground) => return Err(taken(place)),
                (None, _) if begin.elapsed() > PATIENCE => return Err(stuck(place)),
                // The other daemon is between its lock and its socket, or shutting down: rare and
                // short.
                (None, _) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// Takes the state directory for a command that no daemon may be beside.
pub fn exclusively(place: &Place) -> Result<Lock> {
    match Lock::claim(place, &place.open()?, Origin::Foreground)? {
        Claim::Ours(lock) => Ok(lock),
        Claim::OthersAnswer => Err(taken(place)),
    }
}

fn connect(place: &Place) -> Option<UnixStream> {
    let short = ShortPath::new(&place.socket()).ok()?;
    UnixStream::connect(short.as_path()).ok()
}

/// Whether the process that listens at the other end lives.
fn serves(stream: &UnixStream) -> bool {
    let ended = || -> rustix::io::Result<bool> {
        let peer: Pid = rustix::net::sockopt::socket_peercred(stream)?.pid;
        let daemon = pidfd_open(peer, PidfdFlags::empty())?;
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut wait = [PollFd::new(&daemon, PollFlags::IN)];
        Ok(poll(&mut wait, Some(&now))? > 0)
    };
    match ended() {
        // Where processes have no descriptors (gVisor), that it listens is all there is to know.
        Err(Errno::NOSYS) => true,
        ended => !ended.unwrap_or(true),
    }
}

fn taken(place: &Place) -> Error {
    Error::conflict(format!(
        "a daemon already serves {}",
        place.path().display()
    ))
    .hint("stop it with `motu serve --stop`, or choose another directory with --home")
}

fn stuck(place: &Place) -> Error {
    Error::unavailable("another daemon holds the lock and does not answer")
        .hint(format!("its log is {}", place.log().display()))
}

/// Asks the daemon of this state directory to leave and waits until it has. Says whether there was one.
///
/// The process is found through its socket, not through the API, so that a
/// daemon of any version can be stopped. One whose socket was removed is found by its lock.
pub fn stop(place: &Place) -> Result<bool> {
    let found = match connect(place) {
        Some(stream) => peer(stream),
        None => Ok(holder(&place.path().join(LOCK))),
    };
    let attempt = |daemon: OwnedFd| -> rustix::io::Result<bool> {
        pidfd_send_signal(&daemon, Signal::TERM)?;
        let mut wait = [PollFd::new(&daemon, PollFlags::IN)];
        Ok(poll(&mut wait, Some(&STOPPING))? > 0)
    };
    let left = match found {
        Ok(None) => return Ok(false),
        Ok(Some(daemon)) => attempt(daemon),
        Err(error) => Err(error),
    };
    match left {
        Ok(true) => Ok(true),
        Ok(false) => Err(Error::new(ErrorKind::Timeout, "the daemon does not leave")
            .hint(format!("its log is {}", place.log().display()))),
        // gVisor also gives the caller's own number as that of the other end: no signal may follow it.
        Err(Errno::NOSYS) => Err(Error::unsupported(
            "this kernel has no descriptors of processes, so a daemon cannot be stopped from outside",
        )
        .hint("end the process `motu serve` yourself; without work it leaves on its own")),
        Err(error) => Err(Error::io("stop the daemon", &error.into())),
    }
}

/// The process at the other end.
fn peer(stream: UnixStream) -> rustix::io::Result<Option<OwnedFd>> {
    let peer: Pid = rustix::net::sockopt::socket_peercred(&stream)?.pid;
    pidfd_open(peer, PidfdFlags::empty()).map(Some)
}

/// The process of this user that holds the lock, if there is one.
fn holder(lock: &Path) -> Option<OwnedFd> {
    let lock = lock.metadata().ok()?;
    let is_it = |fd: &std::fs::DirEntry| {
        let same = fd
            .path()
            .metadata()
            .is_ok_and(|found| (found.dev(), found.ino()) == (lock.dev(), lock.ino()));
        // Others have it open too: those that wait for it.
        let number = fd.file_name();
        let place = fd.path();
        let facts = place.parent().and_then(Path::parent);
        let facts = facts.map(|process| process.join("fdinfo").join(number));
        let says =
            |facts: PathBuf| std::fs::read_to_string(facts).is_ok_and(|t| t.contains("FLOCK"));
        same && facts.is_some_and(says)
    };
    std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .find_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            // Opened first: from then on the number cannot become another's unnoticed.
            let daemon = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
            let mut open = std::fs::read_dir(process.path().join("fd")).ok()?.flatten();
            open.any(|fd| is_it(&fd)).then_some(daemon)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_holds_a_lock_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOCK);
        let file = File::create(&path).unwrap();
        assert!(holder(&path).is_none(), "it is only open");
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(holder(&path).is_some());
        drop(file);
        assert!(holder(&path).is_none());
    }
}
