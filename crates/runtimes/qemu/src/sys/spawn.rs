//! Starts QEMU: in a session of its own, with nothing but what it is given.

use super::leash;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Descriptors are handed over under numbers below this.
const HANDED: RawFd = 200;

/// What to start.
#[derive(Debug)]
pub(crate) struct Spawn<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [String],
    /// The working directory; its parents need not be open to the new process.
    pub(crate) directory: BorrowedFd<'a>,
    /// The user and group it becomes.
    pub(crate) identity: Option<(u32, u32)>,
    /// Ours, and the number it has over there.
    pub(crate) descriptors: &'a [(BorrowedFd<'a>, RawFd)],
    /// The number over there of a leash's end.
    pub(crate) leash: RawFd,
    /// Where its messages go.
    pub(crate) messages: OwnedFd,
}

/// Starts a process and returns its pid.
pub(crate) fn spawn(what: Spawn<'_>) -> io::Result<i32> {
    let mut command = Command::new(what.program);
    command
        .args(what.arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(what.messages));
    // Copies above every target number: no target can hit a descriptor still to be moved.
    let mut moves: Vec<(OwnedFd, RawFd)> = Vec::with_capacity(what.descriptors.len());
    for (fd, number) in what.descriptors {
        moves.push((rustix::io::fcntl_dupfd_cloexec(fd, HANDED)?, *number));
    }
    let directory = what.directory.as_raw_fd();
    let (identity, leash) = (what.identity, what.leash);
    let raw: Vec<(RawFd, RawFd)> = moves
        .iter()
        .map(|(fd, number)| (fd.as_raw_fd(), *number))
        .collect();
    // SAFETY: the closure runs between fork and exec and only makes system calls;
    // what it uses was made before the fork.
    unsafe {
        command.pre_exec(move || prepare(directory, identity, &raw, leash));
    }
    Ok(command.spawn()?.id() as i32)
}

fn prepare(
    directory: RawFd,
    identity: Option<(u32, u32)>,
    moves: &[(RawFd, RawFd)],
    leash: RawFd,
) -> io::Result<()> {
    // SAFETY: integers only, and one pointer to a live constant structure.
    unsafe {
        check(libc::setsid())?;
        for (from, to) in moves {
            check(libc::dup2(*from, *to))?;
        }
        // As whoever starts it: the signal is sent in that name.
        leash::tie(leash)?;
        // Before the identity changes: afterwards the way to the directory may be closed.
        check(libc::fchdir(directory))?;
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // Memory of a machine must not end up in a core file.
        check(libc::setrlimit(libc::RLIMIT_CORE, &raw const none))?;
        if let Some((user, group)) = identity {
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setresgid(group, group, group))?;
            check(libc::setresuid(user, user, user))?;
        }
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
