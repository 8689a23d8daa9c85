//! Flushes acknowledged changes to the host's disk.
//!
//! Only for disks that outlive the machine. A file is flushed before it is renamed into place, its
//! directory after. The guest flushes as itself: whoever may change a file may not always read it.

use crate::answer::Failed;
use crate::credentials::own;
use crate::place::{Place, Root, fresh_name};
use crate::sides::Workspace;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Above this number of files or directories the whole file system is flushed instead.
pub const SEVERAL: usize = 8;

/// Whether and how changes are flushed.
#[derive(Clone, Debug)]
pub struct Flush {
    workspace: Option<Arc<Workspace>>,
    wanted: bool,
}

impl Flush {
    /// For a machine with this workspace; without one no data outlives the machine.
    pub fn new(workspace: Option<Arc<Workspace>>) -> Flush {
        Flush {
            wanted: workspace.is_some(),
            workspace,
        }
    }

    /// For a caller that asked for a flush.
    pub fn always(workspace: Option<Arc<Workspace>>) -> Flush {
        Flush {
            wanted: true,
            workspace,
        }
    }

    /// Whether anything is flushed at all.
    pub fn wanted(&self) -> bool {
        self.wanted
    }

    /// Whether files are flushed one by one: in gVisor, `syncfs` flushes every file that it has
    /// cached.
    pub fn each(&self) -> bool {
        self.workspace.as_ref().is_some_and(|all| all.errors_hidden)
    }

    /// For many files: in gVisor the host flushes them all at once instead.
    pub fn of_trees(self) -> Flush {
        Flush {
            wanted: self.wanted && !self.each(),
            ..self
        }
    }

    /// Flushes an open file's data and metadata.
    pub fn file(&self, fd: impl AsFd) -> Result<(), Errno> {
        match self.wanted() {
            true => ignore_special(own(|| rustix::fs::fsync(fd))),
            false => Ok(()),
        }
    }

    /// Flushes a directory's entries; an `O_PATH` handle suffices.
    pub fn directory(&self, handle: impl AsFd) -> Result<(), Errno> {
        if !self.wanted() {
            return Ok(());
        }
        match own(|| readable(handle)) {
            Ok(dir) => ignore_special(rustix::fs::fsync(dir)),
            // A user's directory on the host itself that is writable but not readable.
            Err(Errno::ACCESS) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Flushes the entries of a changed path's parent.
    pub fn parent(&self, root: &Root, place: &Place) -> Result<(), Failed> {
        if !self.wanted() || place.is_root() {
            return Ok(());
        }
        let (parent, _) = place.split()?;
        match own(|| root.directory(&parent)) {
            Ok(dir) => self.directory(dir).map_err(|errno| parent.failed(errno)),
            // The parent was removed meanwhile, and the change with it.
            Err(_) => Ok(()),
        }
    }

    /// Flushes the metadata of any kind of file; one that cannot be opened needs `syncfs`.
    pub fn attributes(&self, root: &Root, place: &Place) -> Result<(), Failed> {
        if !self.wanted() {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let flushed = match own(|| root.open_at(place, flags, Mode::empty())) {
            Ok(file) => self.file(file),
            Err(_) => self.all(own(|| root.directory(&place.split()?.0))?),
        };
        flushed.map_err(|errno| place.failed(errno))
    }

    /// Flushes the file system of a directory.
    pub fn all(&self, handle: impl AsFd) -> Result<(), Errno> {
        if !self.wanted() {
            return Ok(());
        }
        let dir = own(|| readable(handle))?;
        if self.each() {
            ignore_special(rustix::fs::fsync(&dir))?;
        }
        ignore_special(rustix::fs::syncfs(dir))
    }

    /// The last check before an answer. gVisor's gofer hides errors of a flush, but ext4 becomes
    /// read-only after one, so creating a directory fails.
    pub fn prove(&self) -> Result<(), Errno> {
        let Some(workspace) = self.workspace.as_ref().filter(|all| all.errors_hidden) else {
            return Ok(());
        };
        let name = fresh_name()?;
        let mode = Mode::from_raw_mode(0o700);
        own(|| {
            rustix::fs::mkdirat(&workspace.top, &name[..], mode)?;
            rustix::fs::unlinkat(&workspace.top, &name[..], AtFlags::REMOVEDIR)
        })
    }
}

/// A directory is flushed through a descriptor that could read it.
fn readable(handle: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(handle, c".", flags, Mode::empty())
}

/// Special files cannot be flushed: not an error.
fn ignore_special(flushed: Result<(), Errno>) -> Result<(), Errno> {
    match flushed {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}
