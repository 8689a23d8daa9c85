//! The network of a machine: a namespace that exists before `runsc` starts.

use crate::{mounts, sys};
use motu_core::Error;
use motu_core::network::{Attached, Frames, Uplink};
use motu_core::runtime::MachineSpec;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Without a network the machine's kernel has only a loopback device. With one, it takes over the
/// device in its network namespace.
pub(crate) fn option(spec: &MachineSpec) -> &'static str {
    match spec.network {
        Some(_) => "--network=sandbox",
        None => "--network=none",
    }
}

/// A network namespace for a new machine, and its uplink. `runsc` copies the device's addresses and
/// routes when it starts, so they are configured before.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) namespace: OwnedFd,
    pub(crate) attached: Box<dyn Attached>,
}

impl Network {
    pub(crate) fn new(uplink: &dyn Uplink) -> Result<Network, Error> {
        let failed = |error: io::Error| Error::io("the machine's network", &error);
        // A separate thread makes the namespace: the gateway must be started here, in the host's
        // network.
        let made = std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                sys::private_network()?;
                File::open(sys::own_network()).map(OwnedFd::from)
            });
            let panicked = || io::Error::other("making a network panicked");
            made.join().unwrap_or_else(|_| Err(panicked()))
        });
        let namespace = made.map_err(failed)?;
        let frames = Frames::Namespace {
            net: namespace.try_clone().map_err(failed)?,
            user: None,
        };
        Ok(Network {
            namespace,
            attached: uplink.attach(frames)?,
        })
    }
}

/// Enters a network namespace on the calling thread; returns its path, valid while the thread
/// lives.
pub(crate) fn enter(namespace: &OwnedFd) -> io::Result<PathBuf> {
    sys::enter_network(namespace)?;
    mounts::hide_network_settings()?;
    Ok(sys::own_network())
}
