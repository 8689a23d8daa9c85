//! A leash: the kernel ends a process when whoever holds the other end is gone.
//!
//! The process keeps the reading end of a pipe; the writing end is ours alone.
//! The reading end is set up to send its holder a signal at the first event,
//! and the only event that can come is that the last writing end was closed, by
//! us or by the kernel after our own end, however that came. The process sets it
//! up itself before it becomes another program: until then it has a copy of the
//! writing end, so there is no moment at which our end would go unnoticed.

use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// `F_SETSIG` of the kernel.
const F_SETSIG: libc::c_int = 10;

/// Our hold on a process.
#[derive(Debug)]
pub(crate) struct Leash {
    reading: OwnedFd,
    _writing: OwnedFd,
}

impl Leash {
    pub(crate) fn new() -> io::Result<Leash> {
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Leash {
            reading,
            _writing: writing,
        })
    }

    /// What the process must hold.
    pub(crate) fn end(&self) -> BorrowedFd<'_> {
        self.reading.as_fd()
    }

    /// Lets the process go: from now on it lives by itself.
    pub(crate) fn release(self) -> io::Result<()> {
        // SAFETY: an open descriptor and integers. The process has the same open file.
        check(unsafe { libc::fcntl(self.reading.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })
    }
}

/// Ties the calling process to whoever holds the other end of a leash. Only makes system calls.
pub(super) fn tie(end: RawFd) -> io::Result<()> {
    // SAFETY: an open descriptor and integers.
    unsafe {
        check(libc::fcntl(end, libc::F_SETOWN, libc::getpid()))?;
        check(libc::fcntl(end, F_SETSIG, libc::SIGKILL))?;
        check(libc::fcntl(
            end,
            libc::F_SETFL,
            libc::O_NONBLOCK | libc::O_ASYNC,
        ))
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Stdio};

    fn tied() -> (Leash, Child) {
        let leash = Leash::new().unwrap();
        let held = leash.end().try_clone_to_owned().unwrap();
        let mut command = motu_needs::command("sleep");
        command.arg("20").stdin(Stdio::from(held));
        // SAFETY: it only makes system calls.
        unsafe { command.pre_exec(|| tie(0)) };
        let child = command.spawn().unwrap();
        (leash, child)
    }

    #[test]
    fn the_end_of_the_holder_is_the_end_of_the_held() {
        let (leash, mut child) = tied();
        assert!(child.try_wait().unwrap().is_none());
        drop(leash);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn who_was_let_go_lives() {
        let (leash, mut child) = tied();
        leash.release().unwrap();
        // A signal would be there by the time another system call has been made.
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
