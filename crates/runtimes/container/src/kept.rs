//! Disks that outlive their machine.
//!
//! ```text
//!   DIR/
//!     disk.img            a sparse ext4 image with a journal, where this host can mount one
//!     disk/               else a plain directory
//!     lock                held by the machine that has the directory
//!   on the disk:
//!     upper work          the root's
//!     workspace/upper     /workspace, on its baseline
//!     workspace/work
//! ```
//!
//! Ids on the disk are those inside the machine, so a later machine with another range of host ids
//! finds its files. An image is locked through the open file of its loop device: the lock lasts
//! exactly as long as the mount, across crashes of the daemon, and one image cannot be mounted
//! twice.

use motu_core::runtime::{AtRest, Kept, RestLayer};
use motu_core::{Error, ErrorKind};
use motu_launch::WORKSPACE_LAYERS;
use motu_local::disk::Disks;
use motu_local::mount::{Life, layers, mount_image};
use motu_local::{own_seed, resize_ext4};
use rustix::fs::{AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const IMAGE: &str = "disk.img";
const STAGED: &str = "disk.img.new";
const DIRECTORY: &str = "disk";
/// The lock file of a machine on a plain directory.
const LOCK: &str = "lock";
/// How long the kernel may take to unmount a disk and flush it.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a machine waits for its disk, which one that was abandoned may still have.
const LEAVING: Duration = Duration::from_secs(1);
/// Polling interval: the kernel does not notify about released locks, and a blocking wait has no
/// timeout.
const LOOK: Duration = Duration::from_millis(2);
/// Image sizes are multiples of this.
const MIB: u64 = 1 << 20;

/// The form of a kept disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Nothing,
    Image,
    Directory,
}

/// The file systems to read while no machine runs.
pub(crate) fn at_rest(kept: &Kept, root: &Path) -> Result<AtRest, Error> {
    let layer = |directory: String| match form(&kept.dir) {
        Form::Image => Ok(RestLayer::Disk {
            chain: vec![kept.dir.join(IMAGE)],
            directory,
        }),
        Form::Directory => Ok(RestLayer::Directory(
            kept.dir.join(DIRECTORY).join(directory),
        )),
        Form::Nothing => Err(Error::not_found("the machine was never started")),
    };
    Ok(AtRest {
        root: vec![
            layer("upper".to_string())?,
            RestLayer::Directory(root.to_path_buf()),
        ],
        workspace: vec![
            layer(format!("{WORKSPACE_LAYERS}/upper"))?,
            RestLayer::Directory(kept.baseline.clone()),
        ],
    })
}

pub(crate) fn form(dir: &Path) -> Form {
    if dir.join(IMAGE).exists() {
        Form::Image
    } else if dir.join(DIRECTORY).exists() {
        Form::Directory
    } else {
        Form::Nothing
    }
}

pub(crate) fn image(dir: &Path) -> PathBuf {
    dir.join(IMAGE)
}

pub(crate) fn directory(dir: &Path) -> PathBuf {
    dir.join(DIRECTORY)
}

pub(crate) fn lock_file(dir: &Path) -> PathBuf {
    dir.join(LOCK)
}

pub(crate) fn in_use() -> Error {
    Error::conflict("the disks are in use by another machine")
}

/// A mounted disk and its size.
pub(crate) struct Mounted {
    pub(crate) mount: OwnedFd,
    pub(crate) mib: u64,
}

/// A disk with a seed, mounted and locked, whose image has no place yet.
#[derive(Debug)]
pub(crate) struct Seeded {
    pub(crate) mount: OwnedFd,
    pub(crate) image: PathBuf,
}

/// Mounts the image, creating or growing it first. It never shrinks. A new one is that of `ahead`,
/// if it has one.
pub(crate) fn mount(
    disks: &Disks,
    ahead: impl FnOnce() -> Option<Seeded>,
    kept: &Kept,
    mib: u64,
) -> Result<Mounted, Error> {
    let failed = |error: io::Error| Error::io("the machine's disk", &error);
    let path = kept.dir.join(IMAGE);
    if !path.exists() {
        if let Some(Seeded { mount, image }) = ahead() {
            match std::fs::rename(&image, &path) {
                Ok(()) => {
                    sync_directory(&kept.dir).map_err(failed)?;
                    return Ok(Mounted { mount, mib });
                }
                // It is on another file system, or somebody has emptied the cache.
                Err(error) => tracing::debug!(%error, "a disk that was made ahead is not used"),
            }
            drop(mount);
            let _ = std::fs::remove_file(image);
        }
        make_image(disks, kept, mib).map_err(failed)?;
    }
    let image = open(&path).map_err(failed)?;
    if !lock(&image, LEAVING).map_err(failed)? {
        return Err(in_use());
    }
    let size = image.metadata().map_err(failed)?.len().max(mib * MIB);
    image.set_len(size).map_err(failed)?;
    let mount = mount_image(&image, Life::Kept).map_err(failed)?;
    let superblock = Superblock::read(&image).map_err(failed)?;
    let size = match grow(superblock, &mount, size) {
        Ok(size) => size,
        Err(error) => {
            tracing::warn!(%error, image = %path.display(), "resizing a disk failed");
            superblock.size()
        }
    };
    prepare(&mount, kept).map_err(failed)?;
    Ok(Mounted {
        mount,
        mib: size / MIB,
    })
}

/// A file system's size, from its superblock.
#[derive(Clone, Copy, Debug)]
struct Superblock {
    block: u64,
    blocks: u64,
}

impl Superblock {
    fn read(image: &File) -> io::Result<Superblock> {
        let mut bytes = [0; 0x154];
        image.read_exact_at(&mut bytes, 1024)?;
        let number = |at: usize| {
            let four = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            u32::from_le_bytes(four)
        };
        let block = 1024u64.checked_shl(number(0x18));
        Ok(Superblock {
            block: block.ok_or(io::ErrorKind::InvalidData)?,
            blocks: u64::from(number(0x4)) | u64::from(number(0x150)) << 32,
        })
    }

    fn size(self) -> u64 {
        self.block.saturating_mul(self.blocks)
    }
}

/// A plain directory in place of an image.
pub(crate) fn make_directory(kept: &Kept) -> Result<PathBuf, Error> {
    let failed = |error: io::Error| Error::io("the machine's disk", &error);
    let path = directory(&kept.dir);
    match std::fs::create_dir(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other.map_err(failed)?,
    }
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, &path, flags, Mode::empty());
    prepare(dir.map_err(|errno| failed(errno.into()))?, kept).map_err(failed)?;
    Ok(path)
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// Staged and renamed, so that an image is complete or missing.
fn make_image(disks: &Disks, kept: &Kept, mib: u64) -> io::Result<()> {
    let image = kept.dir.join(IMAGE);
    if !disks.place_blank(mib, &image) {
        let staged = kept.dir.join(STAGED);
        disks.copy_blank(mib, &staged)?;
        std::fs::rename(&staged, image)?;
    }
    sync_directory(&kept.dir)
}

fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// A new disk with a seed, in the cache and locked, for a directory that is not known yet.
pub(crate) fn seeded(disks: &Disks, kept: &Kept, mib: u64) -> io::Result<Seeded> {
    let image = disks.staged();
    let made = (|| {
        disks.copy_blank(mib, &image)?;
        let file = open(&image)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let mount = mount_image(&file, Life::Kept)?;
        prepare(&mount, kept)?;
        Ok(mount)
    })();
    match made {
        Ok(mount) => Ok(Seeded { mount, image }),
        Err(error) => {
            let _ = std::fs::remove_file(&image);
            Err(error)
        }
    }
}

/// Grows the file system to its image. Without `CAP_SYS_RESOURCE` the disk keeps its size.
fn grow(superblock: Superblock, mount: &OwnedFd, size: u64) -> io::Result<u64> {
    let wanted = size / superblock.block;
    if superblock.blocks < wanted {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(mount, c".", flags, Mode::empty())?;
        resize_ext4(top.as_fd(), wanted)?;
    }
    Ok(superblock.size().max(size))
}

/// Makes missing layer directories.
fn prepare(disk: impl AsFd, kept: &Kept) -> io::Result<()> {
    let disk = disk.as_fd();
    if !exists(disk, "upper")? || !exists(disk, "work")? {
        // An interrupted start may have made only one of them.
        let _ = rustix::fs::unlinkat(disk, "upper", AtFlags::REMOVEDIR);
        layers(disk)?;
    }
    if exists(disk, WORKSPACE_LAYERS)? {
        return Ok(());
    }
    let staged = "workspace.new";
    match rustix::fs::mkdirat(disk, staged, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::openat(disk, staged, flags, Mode::empty())?;
    for name in ["upper", "work"] {
        match rustix::fs::mkdirat(&top, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    resemble(&top, "upper", &kept.baseline)?;
    own_seed(&top, "upper", &kept.baseline)?;
    Ok(rustix::fs::renameat(disk, staged, disk, WORKSPACE_LAYERS)?)
}

fn exists(dir: impl AsFd, name: &str) -> io::Result<bool> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Copies owner and mode of the lower directory to the overlay's upper one, which determines those
/// of its root.
fn resemble(dir: impl AsFd, name: &str, like: &Path) -> io::Result<()> {
    let model = std::fs::metadata(like)?;
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(model.uid()), Gid::from_raw(model.gid()));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(&dir, name, Some(uid), Some(gid), flags)?;
    }
    let mode = Mode::from_raw_mode(model.mode() & 0o7777);
    rustix::fs::chmodat(&dir, name, mode, AtFlags::empty())?;
    let time = Timespec {
        tv_sec: model.mtime(),
        tv_nsec: model.mtime_nsec(),
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    Ok(rustix::fs::utimensat(&dir, name, &times, AtFlags::empty())?)
}

/// Locks an image that no machine has mounted; false if one has it for as long as this waits.
fn lock(image: &File, patience: Duration) -> io::Result<bool> {
    let end = Instant::now() + patience;
    loop {
        match rustix::fs::flock(image, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(LOOK),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Waits until no machine uses the disks any more, and everything is flushed to the host's disk.
pub(crate) fn settle(dir: &Path) -> Result<(), Error> {
    let failed = |error: io::Error| Error::io("the machine's disk", &error);
    match form(dir) {
        Form::Nothing => Ok(()),
        Form::Image => {
            let image = open(&dir.join(IMAGE)).map_err(failed)?;
            if !lock(&image, PATIENCE).map_err(failed)? {
                let message = "the machine's disk is not unmounted";
                return Err(Error::new(ErrorKind::Cleanup, message));
            }
            image.sync_all().map_err(failed)
        }
        Form::Directory => {
            let opened = File::open(directory(dir)).map_err(failed)?;
            rustix::fs::syncfs(opened).map_err(|errno| failed(errno.into()))
        }
    }
}
