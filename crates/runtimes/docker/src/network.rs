//! The network of a machine: the container has a network namespace with only a loopback device, and
//! the gateway creates its device in there.

use crate::record::Record;
use motu_core::Error;
use motu_core::hint;
use motu_core::hint::field;
use motu_core::network::Frames;
use motu_core::runtime::MachineSpec;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;

/// Attaches the machine's uplink, before anything but the guest runs in it.
pub(crate) async fn attach(spec: &MachineSpec, record: &Record) -> Result<(), Error> {
    let Some(uplink) = spec.network.clone() else {
        return Ok(());
    };
    let record = record.clone();
    let work = move || {
        let failed = |error: io::Error| Error::io("the machine's network", &error);
        let gone = || Error::unavailable("the machine's first process is gone already");
        // Open the pidfd first: from then on the pid cannot be reused unnoticed.
        let machine = record.open().ok_or_else(gone)?;
        let pid = record.process.ok_or_else(gone)?.pid;
        let net = namespace(pid, "net").map_err(failed)?;
        if is_ours(&net, "net").map_err(failed)? || !is_closed(pid).map_err(failed)? {
            return Err(Error::unsupported(
                "the engine gave the container a network that was not asked for",
            )
            .hint(hint!["choose another ", field("runtime")]));
        }
        let user = namespace(pid, "user").map_err(failed)?;
        let user = match is_ours(&user, "user").map_err(failed)? {
            true => None,
            false => Some(user),
        };
        uplink
            .attach(Frames::Namespace { net, user })?
            .hold(machine)
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Error::internal("attaching a network panicked"))?
}

fn namespace(pid: i32, kind: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let path = format!("/proc/{pid}/ns/{kind}");
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Whether a namespace is the one this process is in.
fn is_ours(namespace: &OwnedFd, kind: &str) -> io::Result<bool> {
    let own = rustix::fs::stat(format!("/proc/self/ns/{kind}"))?;
    let found = rustix::fs::fstat(namespace)?;
    Ok((own.st_dev, own.st_ino) == (found.st_dev, found.st_ino))
}

/// Whether a process sees only the loopback device.
fn is_closed(pid: i32) -> io::Result<bool> {
    let devices = std::fs::read_to_string(format!("/proc/{pid}/net/dev"))?;
    Ok(only_loopback(&devices))
}

fn only_loopback(devices: &str) -> bool {
    let names = devices.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim()).all(|name| name == "lo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_beside_the_loopback_is_seen() {
        let heads = "Inter-|   Receive\n face |bytes\n";
        assert!(only_loopback(&format!("{heads}    lo:  0 0 0\n")));
        assert!(!only_loopback(&format!("{heads}    lo:  0\n  eth0: 1 2\n")));
    }

    #[test]
    fn ones_own_namespace_is_known() {
        let own = namespace(std::process::id() as i32, "net").unwrap();
        assert!(is_ours(&own, "net").unwrap());
        assert!(!is_ours(&own, "user").unwrap());
    }
}
