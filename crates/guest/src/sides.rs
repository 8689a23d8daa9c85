//! The two sides of `/workspace`: what programs see, and its baseline.

use motu_launch::WorkspaceDirs;
use motu_launch::seeded::{self, Notes};
use rustix::fs::{CWD, Mode as FileMode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The two sides of `/workspace`.
#[derive(Debug)]
pub struct Workspace {
    /// What programs see.
    pub top: OwnedFd,
    /// The baseline.
    pub lower: OwnedFd,
    pub mode: Mode,
    /// When the baseline was copied to where it can be changed, if it was: in nanoseconds since
    /// 1970 by the clock of that file system. What has an older change time is as it was.
    pub copied_unix_ns: Option<i64>,
    /// Whoever is behind the kernel keeps the errors of a flush to itself.
    pub errors_hidden: bool,
}

/// How the sides are told apart.
#[derive(Debug)]
pub enum Mode {
    /// An overlay's upper directory has all the differences.
    Overlay { upper: OwnedFd, notes: Notes },
    /// Two trees.
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

    /// Brings everything on the disk behind it to rest.
    pub fn flush(&self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(self.above(), c".", flags, FileMode::empty())?;
        rustix::fs::syncfs(dir)
    }

    /// Where a walk finds what became of the baseline.
    pub fn above(&self) -> &OwnedFd {
        match &self.mode {
            Mode::Overlay { upper, .. } => upper,
            Mode::Compare => &self.top,
        }
    }
}
