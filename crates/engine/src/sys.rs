//! The system calls that need `unsafe`. All unsafe code of this crate is here.

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that can be awaited for readability.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the result and stays open until it is deregistered.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}
