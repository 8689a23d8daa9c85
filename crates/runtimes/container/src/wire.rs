//! Connects a machine's network to its uplink.

use crate::launch::Started;
use motu_core::Error;
use motu_core::network::{Attached, Frames, Uplink};
use std::os::fd::OwnedFd;

/// A machine's network while the machine is being made.
#[derive(Debug)]
pub(crate) enum Wire<'a> {
    Attached(Box<dyn Attached>, OwnedFd),
    Later(&'a dyn Uplink, Frames, OwnedFd),
}

impl<'a> Wire<'a> {
    /// Attaches the uplink while the machine is still being made, in parallel. In an unprivileged
    /// user's namespace that must wait until its ids are mapped.
    pub(crate) fn begin(
        uplink: &'a dyn Uplink,
        started: Started,
        privileged: bool,
    ) -> Result<Wire<'a>, Error> {
        let missing = || Error::internal("the machine has no network of its own");
        let [net, user] = started.namespaces.ok_or_else(missing)?;
        let user = (!privileged).then_some(user);
        let frames = Frames::Namespace { net, user };
        Ok(match privileged {
            true => Wire::Attached(uplink.attach(frames)?, started.pidfd),
            false => Wire::Later(uplink, frames, started.pidfd),
        })
    }

    /// The machine is complete; only the guest runs in it yet.
    pub(crate) fn hold(self) -> Result<(), Error> {
        match self {
            Wire::Attached(attached, machine) => attached.hold(machine),
            Wire::Later(uplink, frames, machine) => uplink.attach(frames)?.hold(machine),
        }
    }
}
