//! Mounting ext4 images, attached nowhere.

use crate::sys;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Attempts to get a loop device that another process takes first.
const LOOP_TRIES: u32 = 64;

/// The lifetime of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Ends with its machine: nothing on it is worth flushing to the host's disk.
    Machine,
    /// Used again by the next machine, even after a power cut.
    Kept,
}

/// Mounts an image without attaching it. The loop device keeps the given open file, so a lock on it
/// lasts as long as the mount.
pub fn mount_image(image: &File, life: Life) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let control = rustix::fs::open("/dev/loop-control", flags, Mode::empty())?;
    for _ in 0..LOOP_TRIES {
        let number = sys::free_loop(control.as_fd())?;
        let path = format!("/dev/loop{number}");
        let device = rustix::fs::open(&path, flags, Mode::empty())?;
        match sys::configure_loop(device.as_fd(), image.as_fd()) {
            Ok(()) => return mount_ext4(&path, life),
            // Another process was faster; ask for the next free one.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

pub(crate) fn mount_ext4(device: &str, life: Life) -> io::Result<OwnedFd> {
    let fs = rustix::mount::fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&fs, "source", device)?;
    // Otherwise a kernel thread would fill the sparse image with zeros.
    rustix::mount::fsconfig_set_flag(&fs, "noinit_itable")?;
    if life == Life::Kept {
        // After an error the file system becomes read-only, so that no write is acknowledged that
        // was not kept. `tending` returns the space of deleted files to the host.
        rustix::mount::fsconfig_set_string(&fs, "errors", "remount-ro")?;
    } else {
        // Nothing on it is worth flushing to the host's disk; with barriers the machine's end would
        // wait for a flush.
        rustix::mount::fsconfig_set_flag(&fs, "nobarrier")?;
        // Nor are files that replace others by rename.
        rustix::mount::fsconfig_set_flag(&fs, "noauto_da_alloc")?;
    }
    rustix::mount::fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    Ok(rustix::mount::fsmount(
        &fs,
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// Makes the overlay's `upper` and `work` directories.
pub fn layers(at: impl AsFd) -> io::Result<()> {
    let at = at.as_fd();
    rustix::fs::mkdirat(at, "upper", Mode::from_raw_mode(0o755))?;
    rustix::fs::chmodat(
        at,
        "upper",
        Mode::from_raw_mode(0o755),
        rustix::fs::AtFlags::empty(),
    )?;
    Ok(rustix::fs::mkdirat(at, "work", Mode::from_raw_mode(0o700))?)
}
