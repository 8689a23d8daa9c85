//! Connects a machine's network to its uplink.

use crate::launch::Started;
use motu_core::Error;
use motu_core::network::{Attached, Frames, Uplink};
use motu_local::Process;
use std::fs::File;
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

/// Connects the network of a machine that runs to another uplink. Its device went with the first.
pub(crate) fn join(process: Process, uplink: &dyn Uplink, privileged: bool) -> Result<(), Error> {
    let gone = || Error::not_found("the machine is gone");
    // Opened first: from then on its number cannot become another's unnoticed.
    let machine = process.open().ok_or_else(gone)?;
    let namespace = |kind: &str| {
        File::open(format!("/proc/{}/ns/{kind}", process.pid))
            .map(OwnedFd::from)
            .map_err(|error| Error::io("the machine's network", &error))
    };
    let net = namespace("net")?;
    let user = (!privileged).then(|| namespace("user")).transpose()?;
    let frames = Frames::Namespace { net, user };
    uplink.attach(frames)?.hold(machine)
}
