//! A ceiling for QEMU itself: cgroups of its own, entered before it starts.
//!
//! The machine's memory and processors are what QEMU was told; this bounds a QEMU that was taken
//! over, or leaks. The groups are named after the machine's directory, which keeps its number
//! when it is moved, and are in the machine's record.

use crate::error::QemuError;
use crate::record::Shape;
use motu_core::runtime::{Ask, MachineLimits, Usage};
use motu_local::{Hierarchies, Kind};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The group all machines of this host are in.
const GROUP: &str = "motu-qemu";
/// How often a page of a machine may count. One that was zero when the template was saved is a hole in the saved memory: the
/// first machine that touches it fills the hole, for all of its kind, and has a copy of its own besides.
const COPIES: u64 = 2;
/// What QEMU needs beside the machine's memory: translated code, devices, buffers.
const OVERHEAD_MIB: u64 = 512;
/// Threads: processors, devices and at most 64 that wait for disks.
const THREADS: u64 = 256;
/// How often removing a group is tried: a process leaves it when its memory has been given back, which takes seconds for
/// a large machine on a busy host.
const REMOVE_TRIES: u32 = 1000;
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

fn hierarchies() -> &'static Hierarchies {
    static FOUND: OnceLock<Hierarchies> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut found = Hierarchies::detect(GROUP);
        // Machines are paused by QEMU.
        found.controllers.retain(|one| one.kind != Kind::Freezer);
        // And QEMU limits their disks.
        found.io = Err("QEMU limits disks");
        found
    })
}

/// The cgroups the machine in a directory has or would have.
pub(crate) fn dirs(dir: &Path) -> Result<Vec<PathBuf>, QemuError> {
    Ok(hierarchies().dirs(&name(dir)?))
}

/// What the machine in a directory uses, QEMU included.
pub(crate) fn usage(dir: &Path, before: Option<Usage>) -> Option<Usage> {
    hierarchies().usage(&name(dir).ok()?, before)
}

fn name(dir: &Path) -> Result<String, QemuError> {
    let found = dir.metadata().map_err(making())?;
    Ok(format!("vm-{:x}-{:x}", found.dev(), found.ino()))
}

fn making() -> impl FnOnce(std::io::Error) -> QemuError {
    QemuError::io("cannot make the machine's cgroup")
}

/// Makes the cgroups of the machine in a directory, where this host has cgroups we may use; the
/// files a process enters them by.
pub(crate) fn make(dir: &Path, shape: &Shape) -> Result<Vec<OwnedFd>, QemuError> {
    let ask = |value| Ask {
        value,
        explicit: false,
    };
    let limits = MachineLimits {
        // One more than it has: what QEMU does for the machine is not the machine's time.
        vcpu_count: ask(shape.vcpu_count + 1),
        mem_mib: ask(COPIES * shape.mem_mib + OVERHEAD_MIB),
        disk_mib: ask(shape.disk_mib),
        pids_max: ask(THREADS + shape.vcpu_count),
        nofile: ask(0),
        io_mbps: Ask::NONE,
        iops: Ask::NONE,
    };
    let made = match hierarchies().make(&name(dir)?, &limits) {
        Ok(made) => made,
        Err(error) => {
            tracing::warn!(%error, "a virtual machine has no cgroup of its own");
            return Ok(Vec::new());
        }
    };
    let mut doors = Vec::new();
    for entry in &made.entries {
        match File::options().write(true).open(entry) {
            Ok(door) => doors.push(door.into()),
            Err(error) => {
                remove(&made.dirs);
                return Err(making()(error));
            }
        }
    }
    Ok(doors)
}

/// Removes the cgroups of a machine whose process is gone.
pub(crate) fn remove(dirs: &[PathBuf]) {
    for dir in dirs {
        let mut tries = 0;
        loop {
            match std::fs::remove_dir(dir) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
                Err(_) if tries < REMOVE_TRIES => {
                    tries += 1;
                    std::thread::sleep(REMOVE_PAUSE);
                }
                Err(error) => {
                    tracing::warn!(dir = %dir.display(), %error, "a cgroup is left behind");
                    break;
                }
                Ok(()) => break,
            }
        }
        // The group goes with its last machine.
        if let Some(group) = dir.parent() {
            let _ = std::fs::remove_dir(group);
        }
    }
}
