//! The only modules with `unsafe`: starting QEMU, shutting it in, holding it, and trying KVM.

pub(crate) mod jail;
pub(crate) mod kvm;
mod leash;
mod spawn;

pub(crate) use jail::{Jail, Kvm};
pub(crate) use leash::Leash;
pub(crate) use spawn::{Spawn, spawn};

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the async runtime, which owns it from now on.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` always gives the same open descriptor, and the result keeps it open.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}
