//! Bringing acknowledged changes to the host's disk.
//!
//! Only where the disks outlive the machine: what goes with it is not worth a
//! flush. A file is flushed before it takes its name, its directory after.

use crate::answer::Failed;
use crate::place::{Place, Root, fresh_name};
use crate::sides::Workspace;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// More files or directories than this are flushed with the whole file system at once.
pub const SEVERAL: usize = 8;

/// Whether and how changes are flushed.
#[derive(Clone, Debug)]
pub struct Flush {
    workspace: Option<Arc<Workspace>>,
    wanted: bool,
}

impl Flush {
    /// For a machine with this workspace; one without has nothing that outlives it.
    pub fn new(workspace: Option<Arc<Workspace>>) -> Flush {
        Flush {
            wanted: workspace.is_some(),
            workspace,
        }
    }

    /// For a caller who asked for it.
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

    /// Whether each file is flushed by itself: behind gVisor, flushing a whole file system is
    /// flushing each file that gVisor still remembers.
    pub fn each(&self) -> bool {
        self.workspace.as_ref().is_some_and(|all| all.errors_hidden)
    }

    /// For many files: behind gVisor the host flushes them all at once.
    pub fn of_trees(self) -> Flush {
        Flush {
            wanted: self.wanted && !self.each(),
            ..self
        }
    }

    /// The content of an open file, and what is known of it.
    pub fn file(&self, fd: impl AsFd) -> Result<(), Errno> {
        match self.wanted() {
            true => ignore_special(rustix::fs::fsync(fd)),
            false => Ok(()),
        }
    }

    /// The names in a directory, of which a handle is enough.
    pub fn directory(&self, handle: impl AsFd) -> Result<(), Errno> {
        if !self.wanted() {
            return Ok(());
        }
        match readable(handle) {
            Ok(dir) => ignore_special(rustix::fs::fsync(dir)),
            // Somebody's own, on the host itself: he may write into it but not read it.
            Err(Errno::ACCESS) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// The names in the directory of a place that was changed.
    pub fn parent(&self, root: &Root, place: &Place) -> Result<(), Failed> {
        if !self.wanted() || place.is_root() {
            return Ok(());
        }
        let (parent, _) = place.split()?;
        match root.directory(&parent) {
            Ok(dir) => self.directory(dir).map_err(|errno| parent.failed(errno)),
            // Gone meanwhile, and the change with it.
            Err(_) => Ok(()),
        }
    }

    /// What is known of a file that may be anything: where it cannot be opened, the whole
    /// file system is flushed.
    pub fn attributes(&self, root: &Root, place: &Place) -> Result<(), Failed> {
        if !self.wanted() {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let flushed = match root.open_at(place, flags, Mode::empty()) {
            Ok(file) => self.file(file),
            Err(_) => self.all(root.directory(&place.split()?.0)?),
        };
        flushed.map_err(|errno| place.failed(errno))
    }

    /// Everything on the file system of a directory.
    pub fn all(&self, handle: impl AsFd) -> Result<(), Errno> {
        if !self.wanted() {
            return Ok(());
        }
        let dir = readable(handle)?;
        if self.each() {
            ignore_special(rustix::fs::fsync(&dir))?;
        }
        ignore_special(rustix::fs::syncfs(dir))
    }

    /// The last step before an answer. gVisor's file server keeps the errors of a flush to itself,
    /// but a disk that met one takes no new directory: ext4 is then read-only.
    pub fn prove(&self) -> Result<(), Errno> {
        let Some(workspace) = self.workspace.as_ref().filter(|all| all.errors_hidden) else {
            return Ok(());
        };
        let name = fresh_name()?;
        let mode = Mode::from_raw_mode(0o700);
        rustix::fs::mkdirat(&workspace.top, &name[..], mode)?;
        rustix::fs::unlinkat(&workspace.top, &name[..], AtFlags::REMOVEDIR)
    }
}

/// A directory is flushed through a descriptor that could read it.
fn readable(handle: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(handle, c".", flags, Mode::empty())
}

/// Some files are on no disk.
fn ignore_special(flushed: Result<(), Errno>) -> Result<(), Errno> {
    match flushed {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}
