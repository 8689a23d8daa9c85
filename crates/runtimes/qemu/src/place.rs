//! A machine's directory: everything its QEMU may see, under plain names.
//!
//! QEMU runs in here as a user of its own that can enter no directory above and
//! write to nothing but its disks and its saved state. What machines share (kernel, images, template) is hard-linked in, readable
//! and not writable, so it also stays while the cache is cleaned.

use crate::accel::{Accelerator, Node};
use crate::disks::{BASELINE, BASELINE_BYTES, DISKS, disk_file};
use crate::error::QemuError;
use crate::qcow2::{self, Below};
use crate::record::Shape;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

pub(crate) const LINK: &str = "link.sock";
pub(crate) const TURN: &str = "turn.sock";
pub(crate) const QMP: &str = "qmp.sock";
pub(crate) const NEWS: &str = "news.sock";
/// The images below all layers of the two disks.
pub(crate) const BASE: &str = "base.ext4";
pub(crate) const BLANK: &str = "blank.ext4";
/// How files that everybody reads and nobody writes are marked.
const FROZEN: u32 = 0o444;
/// Where QEMU saves the state of the devices.
pub(crate) const STATE: &str = "state";

/// Where a machine's files are: in its own directory, and its disks in another one if they are kept.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) own: Place,
    pub(crate) kept: Option<Place>,
}

impl Site {
    pub(crate) fn open(dir: &Path, kept: Option<Place>) -> Result<Site, QemuError> {
        Ok(Site {
            own: Place::open(dir)?,
            kept,
        })
    }

    /// Where the disks are.
    pub(crate) fn disks(&self) -> &Place {
        self.kept.as_ref().unwrap_or(&self.own)
    }
}

/// The first id of machines: above what other runtimes give out.
const FIRST_ID: u32 = 0x9000_0000;
const IDS: u32 = 0x1000_0000;

/// An open machine directory.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    handle: OwnedFd,
}

impl Place {
    pub(crate) fn open(path: &Path) -> Result<Place, QemuError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty())
            .map_err(QemuError::errno("cannot open the machine's directory"))?;
        Ok(Place {
            path: path.to_path_buf(),
            handle,
        })
    }

    /// Opens a directory that only one machine may use. The claim goes with the handle:
    /// a machine that is given it holds it as long as it lives.
    pub(crate) fn claim(path: &Path) -> Result<Place, QemuError> {
        let opening = || QemuError::errno("cannot open the kept disks");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty()).map_err(opening())?;
        match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(QemuError::InUse),
            other => other.map_err(opening())?,
        }
        Ok(Place {
            path: path.to_path_buf(),
            handle,
        })
    }

    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A short way to a socket: their paths have a small limit.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.handle.as_raw_fd()))
    }

    /// Listens before QEMU runs, so whoever connects early only waits.
    pub(crate) fn listen(&self, name: &str) -> Result<UnixListener, QemuError> {
        UnixListener::bind(self.socket(name))
            .map_err(QemuError::io(format!("cannot make the socket {name}")))
    }

    /// Shows a shared file under a name of its own; across file systems that is a copy.
    pub(crate) fn link(&self, from: &Path, name: &str) -> Result<(), QemuError> {
        let to = self.file(name);
        let linked = match std::fs::hard_link(from, &to) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => copy_sparse(from, &to),
            other => other,
        };
        linked.map_err(QemuError::io(format!("cannot link {name}")))
    }

    /// Adds a layer to a disk, above a file that is here already.
    pub(crate) fn add_layer(
        &self,
        disk: &str,
        layer: u32,
        shape: &Shape,
        below: (&str, Below),
    ) -> Result<(), QemuError> {
        let bytes = match disk {
            "root" => shape.root_bytes,
            _ => shape.work_bytes(),
        };
        let path = self.file(&disk_file(disk, layer));
        qcow2::create(&path, bytes, below.0, below.1).map_err(QemuError::io("cannot make a disk"))
    }

    /// Shows a baseline to the machine in this directory.
    pub(crate) fn show_baseline(&self, image: &str) -> Result<(), QemuError> {
        let name = disk_file(BASELINE, 0);
        let path = self.file(&name);
        qcow2::create(&path, BASELINE_BYTES, image, Below::Raw)
            .map_err(QemuError::io("cannot make a disk"))?;
        self.freeze(&name)
    }

    /// The user and group of the machine in this directory: no other directory
    /// of the file system has this number now, so no other machine has them.
    /// Whoever is not root stays who they are. QEMU is never root, nor of root's group.
    pub(crate) fn identity(&self, accel: Accelerator) -> Result<Option<(u32, u32)>, QemuError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let found = self.path.metadata();
        let number = found
            .map_err(QemuError::io("cannot look at the machine's directory"))?
            .ino();
        let map = |name| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        let own = |name| {
            own_id(&map(name), number).ok_or_else(|| QemuError::Unprivileged {
                reason: format!("/proc/self/{name} has no other id than root's"),
            })
        };
        let (user, group) = (own("uid_map")?, own("gid_map")?);
        // In a jail it has a node of its own.
        let group = match accel {
            Accelerator::Kvm if !crate::sys::jail::makes_nodes() => kvm_group(group)?,
            _ => group,
        };
        Ok(Some((user, group)))
    }

    /// Gives files to the machine, made empty where they are missing. The
    /// directory stays ours: QEMU may look names up in it and change none of them,
    /// so what we write here is never somewhere else.
    pub(crate) fn give(
        &self,
        identity: Option<(u32, u32)>,
        names: &[impl AsRef<Path>],
    ) -> Result<(), QemuError> {
        let giving = || QemuError::io("cannot give the machine its files");
        for name in names {
            let path = self.path.join(name);
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(&path)
                .map_err(giving())?;
            if let Some((user, group)) = identity {
                chown(path, Some(user), Some(group)).map_err(giving())?;
            }
        }
        let search = if identity.is_some() { 0o711 } else { 0o700 };
        std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(search))
            .map_err(giving())
    }

    /// Takes a layer away from the machine: from now on everybody reads it and nobody writes.
    pub(crate) fn freeze(&self, name: &str) -> Result<(), QemuError> {
        let path = self.file(name);
        let found = path
            .metadata()
            .map_err(QemuError::io("cannot freeze a disk"))?;
        if found.mode() & 0o777 == FROZEN {
            return Ok(());
        }
        if rustix::process::geteuid().is_root() && found.uid() != 0 {
            chown(&path, Some(0), Some(0)).map_err(QemuError::io("cannot freeze a disk"))?;
        }
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(FROZEN))
            .map_err(QemuError::io("cannot freeze a disk"))
    }

    /// The files a copy of this machine needs below its own layer.
    pub(crate) fn shared_files(&self, except_layer: u32) -> Result<Vec<String>, QemuError> {
        let entries =
            std::fs::read_dir(&self.path).map_err(QemuError::io("cannot list the disks"))?;
        let top: Vec<String> = DISKS
            .iter()
            .map(|disk| disk_file(disk, except_layer))
            .collect();
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        // The view of a baseline belongs to one machine.
        let own = disk_file(BASELINE, 0);
        Ok(names
            .filter(|name| name.ends_with(".ext4") || name.ends_with(".qcow2"))
            .filter(|name| !top.contains(name) && *name != own)
            .collect())
    }
}

/// Copies a shared file, holes included; the copy cannot be written either.
fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let source = std::fs::File::open(from)?;
    let copy = std::fs::File::create(to)?;
    copy.set_len(source.metadata()?.len())?;
    crate::ram::duplicate(&source, &copy).map_err(|error| io::Error::other(error.to_string()))?;
    // The end of the last page may reach beyond the file.
    copy.set_len(source.metadata()?.len())?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(FROZEN))
}

/// Empties a directory but keeps it.
pub(crate) fn clear(dir: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The group with which a machine may use the host's node of KVM.
fn kvm_group(own: u32) -> Result<u32, QemuError> {
    let node = Node::find().ok_or_else(|| QemuError::Kvm {
        reason: crate::sys::kvm::ABSENT.to_string(),
    })?;
    node.group(own)
        .map_err(|reason| QemuError::Unprivileged { reason })
}

/// An id for a machine that exists for this process, never root's: inside a user namespace most
/// ids do not exist.
fn own_id(map: &str, number: u64) -> Option<u32> {
    let extents: Vec<(u64, u64)> = map
        .lines()
        .filter_map(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u64>);
            Some((numbers.next()?.ok()?, numbers.nth(1)?.ok()?))
        })
        .collect();
    let usual = u64::from(FIRST_ID) + number % u64::from(IDS);
    if extents
        .iter()
        .any(|(first, count)| (*first..first + count).contains(&usual))
    {
        return u32::try_from(usual).ok();
    }
    // The upper half of what there is: people and services have the numbers below.
    let (first, count) = extents.into_iter().max_by_key(|(_, count)| *count)?;
    let upper = first + count / 2;
    let id = upper + number % (first + count - upper).max(1);
    u32::try_from(id).ok().filter(|id| *id != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_never_roots() {
        assert_eq!(own_id("0 0 4294967295\n", 5), Some(FIRST_ID + 5));
        assert_eq!(own_id("0 1000 1\n", 5), None);
        assert_eq!(own_id("", 5), None);
        let small = "0 1000 1\n1 100000 65536\n";
        for number in 0..70_000 {
            let id = own_id(small, number).unwrap();
            assert!((32_769..=65_536).contains(&id), "{id}");
        }
    }
}
