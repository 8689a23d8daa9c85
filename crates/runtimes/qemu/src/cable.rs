//! The network of a machine: a pair of sockets, QEMU at one end and a gateway at the other.

use crate::blocking::blocking;
use crate::error::QemuError;
use motu_core::network::{Attached, Frames};
use motu_core::runtime::MachineSpec;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

/// A network whose gateway is there already and whose machine is not.
#[derive(Debug)]
pub(crate) struct Cable {
    end: OwnedFd,
    attached: Box<dyn Attached>,
}

impl Cable {
    /// The network that a machine is to have, if any.
    pub(crate) async fn of(spec: &MachineSpec) -> Result<Option<Cable>, QemuError> {
        let Some(uplink) = spec.network.clone() else {
            return Ok(None);
        };
        let attach = move || {
            let (end, other) = ends()?;
            let attached = uplink
                .attach(Frames::Socket(other))
                .map_err(QemuError::Network)?;
            Ok(Some(Cable { end, attached }))
        };
        blocking(attach).await
    }

    /// QEMU's end.
    pub(crate) fn end(&self) -> &OwnedFd {
        &self.end
    }

    /// Keeps the gateway for as long as this process of QEMU lives.
    pub(crate) fn hold(self, pidfd: OwnedFd) -> Result<(), QemuError> {
        self.attached.hold(pidfd).map_err(QemuError::Network)
    }
}

/// An end with nobody at the other: for machines that are made ahead of their network.
pub(crate) fn unplugged() -> Result<OwnedFd, QemuError> {
    ends().map(|(end, _)| end)
}

/// Each message is a frame.
fn ends() -> Result<(OwnedFd, OwnedFd), QemuError> {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(QemuError::errno("cannot make a socket"))
}
