//! Overlays as detached mounts: of the root, and of `/workspace`.

use crate::plan::WORKSPACE_LAYERS;
use crate::sys;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The overlay of `/workspace` as a detached mount, and its upper directory.
pub(crate) struct Workspace {
    pub(crate) mount: OwnedFd,
    pub(crate) upper: OwnedFd,
    pub(crate) lower: OwnedFd,
}

pub(crate) fn open_dir(at: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

/// Makes the overlay of `/workspace` as a detached mount. Its metadata is in `user.*` attributes
/// even if the host's root makes it: the guest reads them, and `trusted.*` cannot be read in a user
/// namespace. They cannot be forged: overlayfs hides them from everyone who accesses files through
/// it.
pub(crate) fn workspace(
    lower: OwnedFd,
    disk: impl AsFd,
    allow_setuid: bool,
) -> io::Result<Workspace> {
    let top = Path::new(WORKSPACE_LAYERS);
    let layers = Layers {
        lower: lower.as_fd(),
        upper: open_dir(&disk, &top.join("upper"))?,
        work: open_dir(&disk, &top.join("work"))?,
    };
    let mount = overlay(&layers, allow_setuid, Xattrs::User, Life::Kept)?;
    let upper = layers.upper;
    Ok(Workspace {
        mount,
        upper,
        lower,
    })
}

/// The layers of a root.
pub(crate) struct Layers<'a> {
    pub(crate) lower: BorrowedFd<'a>,
    pub(crate) upper: OwnedFd,
    pub(crate) work: OwnedFd,
}

/// The extended attributes that overlayfs keeps its metadata in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Xattrs {
    /// `trusted.*`, inaccessible to the machine; needs the host's root.
    Trusted,
    /// `user.*`, for overlays made inside a user namespace.
    User,
}

/// How long an overlay's upper layer matters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// It is thrown away with the machine: nothing on it is ever flushed to the host's disk, not
    /// even when it is unmounted, and `fsync` inside costs nothing.
    Machine,
    /// It is used again.
    Kept,
}

impl Life {
    pub(crate) fn of(thrown_away: bool) -> Life {
        if thrown_away {
            Life::Machine
        } else {
            Life::Kept
        }
    }
}

/// Makes an overlay of the layers, as a detached mount.
pub(crate) fn overlay(
    layers: &Layers<'_>,
    allow_setuid: bool,
    xattrs: Xattrs,
    life: Life,
) -> io::Result<OwnedFd> {
    let fs = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&fs, "source", "motu")?;
    // By descriptor: option values are limited to 255 bytes.
    rustix::mount::fsconfig_set_string(&fs, "lowerdir", sys::fd_path(layers.lower))?;
    rustix::mount::fsconfig_set_string(&fs, "upperdir", sys::fd_path(&layers.upper))?;
    rustix::mount::fsconfig_set_string(&fs, "workdir", sys::fd_path(&layers.work))?;
    if xattrs == Xattrs::User {
        rustix::mount::fsconfig_set_flag(&fs, "userxattr")?;
    }
    if life == Life::Machine {
        // Kernels before 5.10 do not know it; then flushing costs what it costs.
        let _ = rustix::mount::fsconfig_set_flag(&fs, "volatile");
    }
    rustix::mount::fsconfig_create(&fs)?;
    // NOATIME: overlayfs does not check whether an atime update is due, so a diff or a snapshot
    // would write to everything it reads.
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOATIME;
    if !allow_setuid {
        attributes |= MountAttrFlags::MOUNT_ATTR_NOSUID;
    }
    Ok(rustix::mount::fsmount(
        &fs,
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}
