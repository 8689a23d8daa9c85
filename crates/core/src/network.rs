//! The way out of a machine.
//!
//! A runtime gives a machine a device and hands over where its frames are. Whoever takes them is
//! a process outside of the machine, which decides about every one of them.

use crate::Error;
use std::os::fd::OwnedFd;

/// Where the frames of a machine are.
#[derive(Debug)]
pub enum Frames {
    /// In a network namespace, which has no device but the loopback yet.
    Namespace {
        net: OwnedFd,
        /// The user namespace that owns it, where only its root may change it.
        user: Option<OwnedFd>,
    },
    /// One frame per message of this socket; the machine's device is at its other end.
    Socket(OwnedFd),
}

/// Takes the frames of one machine.
pub trait Uplink: Send + Sync + std::fmt::Debug {
    /// Returns when the device is there and its frames are looked at. Blocks.
    fn attach(&self, frames: Frames) -> Result<Box<dyn Attached>, Error>;
}

/// Frames that are taken for as long as this daemon lives; dropped, they are taken no more.
pub trait Attached: Send + std::fmt::Debug {
    /// From now on for as long as the process behind this pidfd lives, whoever else ends.
    fn hold(self: Box<Self>, machine: OwnedFd) -> Result<(), Error>;
}
