//! The two sides of `/workspace`: the tree that programs see, and its baseline.

use motu_launch::WorkspaceDirs;
use motu_launch::seeded::{self, Notes};
use rustix::fs::{CWD, Mode as FileMode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The two sides of `/workspace`.
#[derive(Debug)]
pub struct Workspace {
    /// The tree that programs see.
    pub top: OwnedFd,
    /// The baseline.
    pub lower: OwnedFd,
    pub mode: Mode,
    /// When the baseline was copied to a writable place, if it was: nanoseconds since 1970 by the
    /// clock of that file system. Files with an older ctime are unchanged.
    pub copied_unix_ns: Option<i64>,
    /// `fsync` does not report errors (gVisor).
    pub errors_hidden: bool,
}

/// How differences are found.
#[derive(Debug)]
pub enum Mode {
    /// An overlay's upper directory contains all differences.
    Overlay { upper: OwnedFd, notes: Notes },
    /// Both trees are compared.
    Compare,
}

impl Workspace {
    /// Opens both sides.
    pub fn open(dirs: WorkspaceDirs, errors_hidden: bool) -> Result<Workspace, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(CWD, &dirs.path, flags, FileMode::empty())?;
        let (mode, copied_unix_ns) = match dirs.upper {
            Some(upper) => {
                let notes = match upper.user_attributes {
                    true => Notes::User,
                    false => Notes::Trusted,
                };
                let copied = seeded::copied_unix_ns(&upper.dir, notes);
                let mode = Mode::Overlay {
                    upper: upper.dir,
                    notes,
                };
                (mode, copied)
            }
            None => (Mode::Compare, dirs.copied_unix_ns),
        };
        Ok(Workspace {
            top,
            lower: dirs.lower,
            mode,
            copied_unix_ns,
            errors_hidden,
        })
    }

    /// Flushes the file system that holds the workspace.
    pub fn flush(&self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(self.above(), c".", flags, FileMode::empty())?;
        rustix::fs::syncfs(dir)
    }

    /// The directory to walk for changes.
    pub fn above(&self) -> &OwnedFd {
        match &self.mode {
            Mode::Overlay { upper, .. } => upper,
            Mode::Compare => &self.top,
        }
    }
}
