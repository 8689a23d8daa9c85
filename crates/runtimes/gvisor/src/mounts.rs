//! The file systems of a machine: a plan, and its execution.
//!
//! Everything is mounted in a mount namespace of `runsc` and its children only. The host sees none
//! of it, and the kernel removes the mounts when the last of these processes has ended.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, mount_bind,
    mount_change, move_mount,
};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// One mount step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Enter a private mount namespace.
    Private,
    /// Attach the disk.
    Disk { at: PathBuf },
    /// Mount an overlay.
    Overlay(Overlay),
    /// Cover `/proc/meminfo`: the memory that `runsc` takes for the host's, and so for the
    /// machine's.
    Memory { file: PathBuf },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overlay {
    pub(crate) lower: PathBuf,
    pub(crate) upper: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) at: PathBuf,
    pub(crate) notes: Notes,
}

/// The attribute namespace of an overlay's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notes {
    /// `trusted.*`, visible to the host's root only.
    Trusted,
    /// `user.*`, which our guest can read through the sandbox.
    User,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Private => write!(f, "take a private view of the mounts"),
            Step::Disk { at } => write!(f, "attach a disk of bounded size at {}", at.display()),
            Step::Overlay(overlay) => write!(
                f,
                "mount {}: reads from {}, writes to {}",
                overlay.at.display(),
                overlay.lower.display(),
                overlay.upper.display()
            ),
            Step::Memory { file } => {
                write!(f, "show the machine its memory limit ({})", file.display())
            }
        }
    }
}

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {error}")]
pub(crate) struct Failure {
    step: String,
    pub(crate) error: io::Error,
}

/// Executes the steps on the calling thread, which must be dedicated to this: it enters its own
/// mount namespace.
pub(crate) fn execute(steps: &[Step], disk: Option<&OwnedFd>) -> Result<(), Failure> {
    for step in steps {
        let done = match step {
            Step::Private => private(),
            Step::Disk { at } => attach(disk, at),
            Step::Overlay(overlay) => overlay.mount(),
            Step::Memory { file } => mount_bind(file, "/proc/meminfo").map_err(io::Error::from),
        };
        done.map_err(|error| Failure {
            step: step.to_string(),
            error,
        })?;
    }
    Ok(())
}

/// Hides settings by which `runsc` recognizes the host's own network namespace, which it refuses.
/// Newer kernels show them in every network namespace. Must be called inside the machine's, because
/// `/proc/sys/net` depends on it.
pub(crate) fn hide_network_settings() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    Ok(mount("none", "/proc/sys/net/core", "tmpfs", flags, None)?)
}

fn private() -> io::Result<()> {
    crate::sys::private_mounts()?;
    let everything = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount_change("/", everything)?)
}

fn attach(disk: Option<&OwnedFd>, at: &Path) -> io::Result<()> {
    let disk = disk.ok_or(io::ErrorKind::NotFound)?;
    let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(disk.as_fd(), "", CWD, at, whole)?)
}

impl Overlay {
    fn mount(&self) -> io::Result<()> {
        let [lower, upper, work] = [&self.lower, &self.upper, &self.work].map(|dir| open(dir));
        let (lower, upper, work) = (lower?, upper?, work?);
        let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&fs, "source", "motu")?;
        // By descriptor: a path may contain characters with a meaning in the option's syntax.
        fsconfig_set_string(&fs, "lowerdir", fd_path(&lower))?;
        fsconfig_set_string(&fs, "upperdir", fd_path(&upper))?;
        fsconfig_set_string(&fs, "workdir", fd_path(&work))?;
        if self.notes == Notes::User {
            fsconfig_set_flag(&fs, "userxattr")?;
        }
        fsconfig_create(&fs)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
        let mount = fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(&mount, "", CWD, &self.at, whole)?)
    }
}

fn open(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty())
        .map_err(|error| io::Error::other(format!("{}: {error}", dir.display())))
}

fn fd_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
