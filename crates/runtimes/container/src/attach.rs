//! A directory of the host in a machine that runs: read there, and never written.
//!
//! The ids of its files are mapped for this mount alone. The directory's owner is the machine's
//! root, so that what the owner may read can be read inside. Every other owner, and every group, is
//! nobody there: the kernel grants nobody at all to write to a file without a known owner and group,
//! which keeps sockets and pipes closed, for which a read-only mount is no obstacle.

use crate::host::Host;
use crate::launch::LaunchError;
use crate::machine::{self, Maker};
use crate::slots::Slots;
use motu_core::Error;
use motu_core::runtime::Machine;
use motu_launch::{IdMap, IdRange, Mapper, Namespaces, Outer, Plan, RestrictSpec};
use rustix::fs::{FileType, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The first kernel that maps the ids of a mount.
const KERNEL: (u32, u32) = (5, 12);
/// A group that no file has, and the one it is mapped to: a map must have an entry.
const NO_GROUP: u32 = u32::MAX - 2;

/// Whether directories can be attached at all.
pub(crate) fn works(host: &Host) -> bool {
    host.privileged && host.kernel >= KERNEL
}

/// Attaches an open directory at a path of a machine.
pub(crate) fn attach(
    maker: &Maker,
    machine: &Machine,
    directory: OwnedFd,
    at: PathBuf,
) -> Result<(), Error> {
    let gone = || Error::not_found("the machine is gone");
    let record = machine::record_of(machine).ok_or_else(gone)?;
    let process = record.open().ok_or_else(gone)?;
    let slot = record.slot.filter(|_| works(&maker.host));
    let slot = slot.ok_or_else(|| {
        Error::unsupported("directories are attached by a daemon that is root only")
    })?;
    let owner = check(&directory)?;
    let plan = plan(&machine.dir, owner, Slots::first_id(slot), at);
    let result = maker.run(&plan, vec![directory, process]);
    maker.refill();
    result.map_err(|error| explain(&error, &plan))
}

/// Whoever hands over a directory may read it: it is open for that. Gives its owner.
fn check(directory: &OwnedFd) -> Result<u32, Error> {
    let failed = |errno: rustix::io::Errno| Error::io("look at the directory", &errno.into());
    let stat = rustix::fs::fstat(directory.as_fd()).map_err(failed)?;
    let flags = rustix::fs::fcntl_getfl(directory.as_fd()).map_err(failed)?;
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    match is_directory && !flags.contains(OFlags::PATH) {
        true => Ok(stat.st_uid),
        false => Err(Error::invalid(
            "what was handed over is no directory that is open for reading",
        )
        .hint("open it with O_RDONLY and O_DIRECTORY")),
    }
}

/// The plan that attaches a directory. Pure: no I/O.
fn plan(dir: &Path, owner: u32, root: u32, at: PathBuf) -> Plan {
    let one = |inside, outside| {
        vec![IdRange {
            inside,
            outside,
            count: 1,
        }]
    };
    Plan {
        dir: dir.to_path_buf(),
        outer: vec![
            Outer::Clone(Namespaces::User),
            Outer::MapIds(IdMap {
                uids: one(owner, root),
                gids: one(NO_GROUP, NO_GROUP),
                by: Mapper::Direct,
            }),
            Outer::TakeDirectory,
            Outer::EnterMachine,
            Outer::AttachDirectory { at },
            Outer::Release,
        ],
        inner: Vec::new(),
        restrict: RestrictSpec::default(),
    }
}

fn explain(error: &LaunchError, plan: &Plan) -> Error {
    let LaunchError::Step(failure) = error else {
        return machine::explain(error);
    };
    let is = |step: &Outer| failure.step == step.to_string();
    let attaching = plan.outer.iter().find_map(|step| match step {
        Outer::AttachDirectory { at } if is(step) => Some(at.display()),
        _ => None,
    });
    match (attaching, failure.errno) {
        (_, libc::ENOSPC) => {
            Error::unsupported("this host has no place for one more mount (fs.mount-max)")
        }
        (None, libc::EINVAL | libc::EPERM | libc::EACCES | libc::EOPNOTSUPP | libc::ENOSYS)
            if is(&Outer::TakeDirectory) =>
        {
            Error::unsupported(
                "the directory's file system cannot show its files with other owners, or is not \
                 mounted where the daemon is",
            )
        }
        (_, libc::EPERM | libc::EACCES) => {
            Error::unsupported("this host does not let the daemon mount a directory in a machine")
        }
        (Some(at), libc::ENOTDIR | libc::ENOENT | libc::ELOOP) => {
            Error::invalid(format!("{at} is no directory of the sandbox"))
        }
        (Some(at), libc::EBUSY) => {
            Error::invalid(format!("{at} is the sandbox's root")).hint("name a directory below /")
        }
        (Some(at), libc::EXDEV) => Error::unsupported(format!(
            "{at} is not on the root file system of the sandbox"
        )),
        _ => machine::explain(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_restricted_before_the_machine_is_entered() {
        let plan = plan(
            Path::new("/home/machines/sb-1"),
            1000,
            0x2000_0000,
            "/src".into(),
        );
        insta::assert_snapshot!(plan.to_string());
    }

    #[test]
    fn only_an_open_directory_is_taken() {
        let open = |path: &str, flags| {
            let flags = flags | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap()
        };
        assert_eq!(check(&open("/", OFlags::RDONLY)), Ok(0));
        assert!(check(&open("/", OFlags::PATH)).is_err());
        assert!(check(&open("/proc/self/status", OFlags::RDONLY)).is_err());
    }
}
