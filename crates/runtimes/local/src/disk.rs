//! Disks: file systems of bounded size for a machine's writes.
//!
//! A disk is a sparse ext4 image behind a loop device. Making one takes about ten milliseconds, so
//! a few are prepared: mounted, but not attached anywhere. Such a mount lives as long as its
//! descriptor is open; if the daemon dies, the kernel unmounts it and frees the loop device.
//!
//! The disk of a kept machine is a named image; see `kept`.
//!
//! Other images have no name: the loop device holds the only reference. So their space is freed
//! together with the machine's last process, in the background, and a crash cannot leave an image
//! behind.
//!
//! ```text
//!   template-machine-10240.img ──sparse copy──► nameless file ──loop, mount──► pool ──► machine
//!                                                                               ▲          │
//!                                                                               └─ emptied ┘
//! ```

use crate::mount::{Life, layers, mount_image};
use crate::reuse;
use rustix::fs::{CWD, Mode, OFlags, SeekFrom};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of prepared disks of the usual size.
const POOL: usize = 4;
/// As many may wait that machines have left: while many come and go at once, and afterwards. Each
/// costs the kernel a mounted file system with its threads.
const POOL_MAX: usize = 96;
const POOL_CALM: usize = 16;
/// Journal size of a kept disk; smaller disks use the default of `mke2fs`.
const JOURNAL_MIB: u64 = 16;
const JOURNAL_FROM_MIB: u64 = 512;
/// How the names of templates begin. Templates of older versions are removed.
const TEMPLATES: [&str; 2] = ["template-machine-", "template-kept-"];

/// An empty image of a kept disk.
#[derive(Debug)]
struct Blank {
    mib: u64,
    /// `None`: it is wanted.
    image: Option<PathBuf>,
}

/// Makes disks, or reports why it cannot.
#[derive(Debug)]
pub struct Disks {
    dir: PathBuf,
    usual_mib: u64,
    mke2fs: Option<PathBuf>,
    /// Prepared disks.
    ready: Mutex<VecDeque<OwnedFd>>,
    /// Disks of the usual size that machines have, by machine.
    lent: Mutex<HashMap<String, OwnedFd>>,
    /// The image of a kept disk, prepared for the next one of the last size.
    blank: Mutex<Option<Blank>>,
    serial: AtomicU64,
    /// How many files a new disk of a machine has; ext4 counts its own, too.
    new_files: AtomicU64,
    /// Somebody is about to give up disks that are too many.
    thinning: AtomicBool,
}

impl Disks {
    /// `dir` is private; incomplete templates of an earlier daemon are removed.
    pub fn new(dir: PathBuf, usual_mib: u64) -> Disks {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !TEMPLATES.iter().any(|kind| name.starts_with(kind)) {
                let path = entry.path();
                let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
            }
        }
        Disks {
            dir,
            usual_mib,
            mke2fs: find_mke2fs(),
            ready: Mutex::new(VecDeque::new()),
            lent: Mutex::default(),
            blank: Mutex::new(None),
            serial: AtomicU64::new(0),
            new_files: AtomicU64::new(0),
            thinning: AtomicBool::new(false),
        }
    }

    /// The reason if disks of bounded size cannot be made here.
    pub fn missing(&self) -> Option<&'static str> {
        if self.mke2fs.is_none() {
            return Some("mke2fs is not installed");
        }
        if !Path::new("/dev/loop-control").exists() {
            return Some("there are no loop devices");
        }
        None
    }

    /// A disk for a machine.
    pub fn take(&self, mib: u64) -> io::Result<OwnedFd> {
        let pooled = if mib == self.usual_mib {
            self.pool().pop_front()
        } else {
            None
        };
        match pooled {
            Some(disk) => Ok(disk),
            None => self.make(mib),
        }
    }

    /// A disk for a machine of this daemon's, which says when the machine is gone.
    pub fn lend(&self, mib: u64, machine: &str) -> io::Result<OwnedFd> {
        let disk = self.take(mib)?;
        if mib == self.usual_mib {
            let own = disk.try_clone()?;
            self.lent().insert(machine.to_string(), own);
        }
        Ok(disk)
    }

    /// The disk of a machine that is about to be ended, or has ended by itself. Dropping it unmounts
    /// it, which may be slow.
    pub fn recalled(&self, machine: &str) -> Option<OwnedFd> {
        self.lent().remove(machine)
    }

    /// A machine is gone: its disk is the next one's, if it is soon emptied. Slow; nobody should
    /// wait for it.
    pub fn returned(&self, disk: OwnedFd) {
        if self.pool().len() >= POOL_MAX {
            return;
        }
        match reuse::emptied(&disk, self.new_files.load(Ordering::Relaxed)) {
            Ok(Some(disk)) => self.pool().push_back(disk),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "a disk is not used again"),
        }
    }

    /// Whether more disks wait than a calm host keeps and nobody else is about to [`thin`] them.
    ///
    /// [`thin`]: Disks::thin
    pub fn begin_thinning(&self) -> bool {
        self.pool().len() > POOL_CALM && !self.thinning.swap(true, Ordering::AcqRel)
    }

    /// Gives up the disks that only many machines at once need. Slow.
    pub fn thin(&self) {
        self.thinning.store(false, Ordering::Release);
        let mut pool = self.pool();
        let surplus = pool.len().saturating_sub(POOL_CALM);
        let given_up: Vec<OwnedFd> = pool.drain(..surplus).collect();
        // Unmounting takes its time; others take disks meanwhile.
        drop(pool);
        drop(given_up);
    }

    fn lent(&self) -> MutexGuard<'_, HashMap<String, OwnedFd>> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.pool().len()
    }

    /// Moves the prepared image of a kept disk to `target`; false if there is none of this size, or
    /// `target` is on another file system. Notes the size for the next one.
    pub fn place_blank(&self, mib: u64, target: &Path) -> bool {
        let mut blank = self.blank();
        let found = blank.replace(Blank { mib, image: None });
        let Some(Blank {
            mib: size,
            image: Some(image),
        }) = found
        else {
            return false;
        };
        let moved = size == mib && std::fs::rename(&image, target).is_ok();
        if !moved {
            let _ = std::fs::remove_file(image);
        }
        moved
    }

    /// Makes the image of a kept disk, and has it on the host's disk.
    pub fn copy_blank(&self, mib: u64, target: &Path) -> io::Result<()> {
        let template = self.template(mib, Life::Kept)?;
        let image = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(target)?;
        copy_sparse(&template, &image)?;
        image.sync_all()
    }

    /// Prepares the image of a kept disk, if one was asked for.
    fn prepare_blank(&self) -> io::Result<()> {
        let wanted = |blank: &Blank| blank.image.is_none().then_some(blank.mib);
        let Some(mib) = self.blank().as_ref().and_then(wanted) else {
            return Ok(());
        };
        let image = self.staged();
        self.copy_blank(mib, &image)?;
        let mut blank = self.blank();
        match blank.as_mut() {
            Some(blank) if blank.mib == mib => blank.image = Some(image),
            _ => drop(std::fs::remove_file(image)),
        }
        Ok(())
    }

    fn blank(&self) -> MutexGuard<'_, Option<Blank>> {
        self.blank.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name that nothing has, in a directory where the next daemon removes what it does not know.
    pub fn staged(&self) -> PathBuf {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let name = format!("staged-{}-{serial}", std::process::id());
        self.dir.join(name)
    }

    /// Prepares disks until the pool is full. Slow; run it in the background.
    pub fn refill(&self) -> io::Result<()> {
        self.prepare_blank()?;
        while self.pool().len() < POOL {
            let disk = self.make(self.usual_mib)?;
            self.pool().push_back(disk);
        }
        Ok(())
    }

    fn pool(&self) -> MutexGuard<'_, VecDeque<OwnedFd>> {
        // The queue is consistent between statements, so a panic elsewhere does not matter.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, mib: u64) -> io::Result<OwnedFd> {
        let template = self.template(mib, Life::Machine)?;
        let image = tempfile::tempfile_in(&self.dir)?;
        copy_sparse(&template, &image)?;
        let disk = mount_image(&image, Life::Machine)?;
        self.new_files
            .store(reuse::files(&disk)?, Ordering::Relaxed);
        Ok(disk)
    }

    /// An empty file system of this size, made once. That of a machine has its layers.
    pub fn template(&self, mib: u64, life: Life) -> io::Result<PathBuf> {
        let [machine, kept] = TEMPLATES;
        let kind = match life {
            Life::Machine => machine,
            Life::Kept => kept,
        };
        let template = self.dir.join(format!("{kind}{mib}.img"));
        if template.exists() {
            return Ok(template);
        }
        std::fs::create_dir_all(&self.dir)?;
        let mke2fs = self.mke2fs.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut command = std::process::Command::new(mke2fs);
        command.args(["-q", "-F", "-t", "ext4", "-m", "0", "-I", "256"]);
        let content = tempfile::tempdir_in(&self.dir)?;
        match life {
            Life::Machine => {
                // All of its metadata is in one place and nothing is there twice: so the image has
                // three pieces instead of sixteen to copy, and to free.
                command.args(["-O", "^has_journal,^resize_inode,sparse_super2"]);
                command.args([
                    "-E",
                    "lazy_itable_init=1,nodiscard,num_backup_sb=0,packed_meta_blocks=1",
                ]);
                layers(File::open(content.path())?)?;
                command.arg("-d").arg(content.path());
            }
            Life::Kept => {
                command.args(["-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"]);
                if mib >= JOURNAL_FROM_MIB {
                    command.args(["-J", &format!("size={JOURNAL_MIB}")]);
                }
            }
        }
        let staged = self.staged();
        let output = command.arg(&staged).arg(format!("{mib}M")).output()?;
        if !output.status.success() {
            let _ = std::fs::remove_file(&staged);
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("mke2fs: {}", said.trim())));
        }
        std::fs::rename(&staged, &template)?;
        Ok(template)
    }
}

/// Finds `mke2fs`, which is often not on an unprivileged user's PATH.
pub fn find_mke2fs() -> Option<PathBuf> {
    ["/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"]
        .iter()
        .map(|dir| Path::new(dir).join("mke2fs"))
        .find(|path| path.exists())
}

/// Copies only data segments: an empty disk of 10 GiB has 230 KB.
pub fn copy_sparse(from: &Path, target: &File) -> io::Result<()> {
    let source = File::open(from)?;
    let size = source.metadata()?.len();
    target.set_len(size)?;
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(&source, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(&source, SeekFrom::Hole(start))?;
        let (mut read_at, mut write_at) = (start, start);
        while read_at < end {
            let left = usize::try_from(end - read_at).unwrap_or(usize::MAX);
            let copied = rustix::fs::copy_file_range(
                &source,
                Some(&mut read_at),
                target,
                Some(&mut write_at),
                left,
            )?;
            if copied == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        at = end;
    }
    Ok(())
}

/// A plain directory in place of a disk, for hosts that cannot limit one.
pub fn plain_directory(dir: &Path) -> io::Result<()> {
    std::fs::create_dir(dir)?;
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    layers(rustix::fs::openat(CWD, dir, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn copies_stay_sparse() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("a");
        let file = File::create(&from).unwrap();
        file.set_len(64 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"in the middle", 32 << 20).unwrap();
        let mut copy = tempfile::tempfile_in(dir.path()).unwrap();
        copy_sparse(&from, &copy).unwrap();
        let mut found = Vec::new();
        io::Read::read_to_end(&mut copy, &mut found).unwrap();
        assert_eq!(std::fs::read(&from).unwrap(), found);
        assert!(copy.metadata().unwrap().blocks() < 1000);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_next_kept_disk_of_the_last_size_is_there_already() {
        let (dir, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disks = Disks::new(dir.path().to_path_buf(), 16);
        let at = |name: &str| target.path().join(name);
        let waiting = || {
            let names = std::fs::read_dir(dir.path()).unwrap().flatten();
            let names = names.map(|entry| entry.file_name().into_string().unwrap());
            names.filter(|name| name.starts_with("staged-")).count()
        };
        disks.prepare_blank().unwrap();
        assert_eq!(waiting(), 0, "nobody asked for one");
        assert!(!disks.place_blank(16, &at("first")));
        disks.prepare_blank().unwrap();
        assert!(disks.place_blank(16, &at("second")));
        assert_eq!(at("second").metadata().unwrap().len(), 16 << 20);
        assert_eq!(waiting(), 0);
        // One of another size is not used, and not kept.
        disks.prepare_blank().unwrap();
        assert_eq!(waiting(), 1);
        assert!(!disks.place_blank(32, &at("third")));
        assert_eq!(waiting(), 0);
        // Nor is one that cannot be moved.
        disks.prepare_blank().unwrap();
        assert!(!disks.place_blank(32, Path::new("/proc/nowhere")));
        assert_eq!(waiting(), 0);
    }
}
