//! What needs `unsafe`: work between fork and exec, and watching a descriptor.

use rustix::process::{Resource, getrlimit, setrlimit};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Makes a command start in its own session, as a subreaper, with these descriptors kept open;
/// `files` is its soft limit of open files.
///
/// The descriptors must stay open until the command has been started.
pub fn detach(command: &mut Command, keep: Vec<RawFd>, files: Option<u64>) {
    // SAFETY: between fork and exec the closure only makes system calls; it allocates nothing
    // and takes no lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
            if files.is_some() {
                let mut limit = getrlimit(Resource::Nofile);
                limit.current = files;
                setrlimit(Resource::Nofile, limit)?;
            }
            for fd in &keep {
                // SAFETY: the caller keeps the descriptor open until the command has been started.
                let fd = BorrowedFd::borrow_raw(*fd);
                rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
            }
            Ok::<(), io::Error>(())
        });
    }
}

/// A pidfd that becomes readable when its process has ended.
pub fn watch(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the registration owns the descriptor, so it stays open and the same for as long.
    Ok(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?)
}
