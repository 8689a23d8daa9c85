//! Copies a directory, with several threads and few system calls per file.
//!
//! Threads take directories from a shared queue, so many small files and few large ones both keep
//! them busy. Contents are cloned (reflink) where the file system can, else copied by the kernel
//! (`copy_file_range`), else read and written.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use motu_core::sparse::SparseWriter;

use super::{
    Options, SeedError,
    place::{self, attributes, create_file, dress, open_directory, parent},
};
use crate::{archive::Totals, tarball::Meta};

/// More threads would wait for the same disk.
const MAX_THREADS: usize = 8;
/// Up to this size read and write are cheaper than other system calls.
const SMALL_BYTES: u64 = 64 << 10;
const BUFFER_BYTES: usize = 256 << 10;
const CHUNK_BYTES: usize = 1 << 30;

pub(super) fn copy(source: &Path, target: &Path, options: Options) -> Result<Totals, SeedError> {
    let open = |path: &Path| {
        let directory = File::open(path).and_then(|directory| {
            let stat = rustix::fs::fstat(&directory)?;
            Ok((OwnedFd::from(directory), stat))
        });
        directory.map_err(SeedError::io("opening", path))
    };
    let (from, root) = open(source)?;
    let (to, staging) = open(target)?;
    let work = Work {
        from,
        to,
        options,
        staging: (staging.st_dev, staging.st_ino),
        queue: Mutex::new(Queue {
            waiting: vec![Vec::new()],
            busy: 0,
        }),
        changed: Condvar::new(),
        directories: Mutex::new(vec![(Vec::new(), meta_of(&root))]),
        links: Mutex::new(HashMap::new()),
        entries: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        skipped: AtomicU64::new(0),
        can_clone: AtomicBool::new(true),
        can_copy: AtomicBool::new(true),
        failure: Mutex::new(None),
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(2, MAX_THREADS) {
            scope.spawn(|| work.run());
        }
    });
    work.finish(source)
}

/// Why copying stopped.
enum Failure {
    Limit(&'static str, u64),
    Io(Vec<u8>, io::Error),
}

struct Queue {
    waiting: Vec<Vec<u8>>,
    busy: usize,
}

struct Work {
    from: OwnedFd,
    to: OwnedFd,
    options: Options,
    /// Identity of the target directory, which the source may contain.
    staging: (u64, u64),
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Metadata is set last: writing into a directory changes its mtime.
    directories: Mutex<Vec<(Vec<u8>, Meta)>>,
    /// The first copy of each file with several hard links.
    links: Mutex<HashMap<(u64, u64), Vec<u8>>>,
    entries: AtomicU64,
    bytes: AtomicU64,
    skipped: AtomicU64,
    can_clone: AtomicBool,
    can_copy: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

/// A panic of another thread does not invalidate the data.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    /// Takes directories until none are left and no thread can add one.
    fn run(&self) {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut queue = locked(&self.queue);
        loop {
            if let Some(path) = queue.waiting.pop() {
                queue.busy += 1;
                drop(queue);
                let result = self.directory(&path, &mut buffer);
                queue = locked(&self.queue);
                queue.busy -= 1;
                if let Err(failure) = result {
                    queue.waiting.clear();
                    locked(&self.failure).get_or_insert(failure);
                }
                self.changed.notify_all();
            } else if queue.busy == 0 {
                return;
            } else {
                let woken = self.changed.wait(queue);
                queue = woken.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn finish(self, source: &Path) -> Result<Totals, SeedError> {
        let failure = self.failure.into_inner();
        match failure.unwrap_or_else(PoisonError::into_inner) {
            Some(Failure::Limit(what, limit)) => {
                let path = source.display().to_string();
                return Err(SeedError::Limit { path, what, limit });
            }
            Some(Failure::Io(path, error)) => {
                let path = String::from_utf8_lossy(&path);
                return Err(SeedError::io("copying", &source.join(&*path))(error));
            }
            None => {}
        }
        let directories = self.directories.into_inner();
        let mut directories = directories.unwrap_or_else(PoisonError::into_inner);
        directories.sort_by(|a, b| b.0.cmp(&a.0));
        for (path, meta) in &directories {
            let dressed = || {
                let own = attributes(open_directory(&self.from, path)?)?;
                let directory = open_directory(&self.to, path)?;
                dress(directory, (*meta, &own), self.options.owner)
            };
            dressed().map_err(SeedError::io("writing", source))?;
        }
        Ok(Totals {
            entries: self.entries.into_inner(),
            bytes: self.bytes.into_inner(),
            skipped: self.skipped.into_inner(),
        })
    }

    /// Copies the entries of a directory; subdirectories are queued.
    fn directory(&self, path: &[u8], buffer: &mut [u8]) -> Result<(), Failure> {
        let at = |path: &[u8]| {
            let path = path.to_vec();
            move |error: io::Error| Failure::Io(path, error)
        };
        let from = open_directory(&self.from, path).map_err(at(path))?;
        let to = open_directory(&self.to, path).map_err(at(path))?;
        let entries = Dir::read_from(&from).map_err(|error| at(path)(error.into()))?;
        let mut below = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| at(path)(error.into()))?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let here = match path {
                b"" => name.to_vec(),
                path => [path, b"/", name].concat(),
            };
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let stat = rustix::fs::statat(&from, name, AtFlags::SYMLINK_NOFOLLOW);
                    let stat = stat.map_err(|error| at(&here)(error.into()))?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                kind => kind,
            };
            match kind {
                FileType::RegularFile => self.file((&from, &to), name, &here, buffer)?,
                FileType::Directory => {
                    let made = self.subdirectory((&from, &to), name, &here);
                    if made.map_err(at(&here))? {
                        self.count()?;
                        below.push(here);
                    }
                }
                FileType::Symlink => {
                    self.count()?;
                    self.symlink((&from, &to), name).map_err(at(&here))?;
                }
                _ => {
                    self.skipped.fetch_add(1, Relaxed);
                }
            }
        }
        if !below.is_empty() {
            locked(&self.queue).waiting.append(&mut below);
            self.changed.notify_all();
        }
        Ok(())
    }

    fn count(&self) -> Result<(), Failure> {
        let limit = self.options.limits.entries;
        match self.entries.fetch_add(1, Relaxed) < limit {
            true => Ok(()),
            false => Err(Failure::Limit("the number of entries", limit)),
        }
    }

    /// Makes a directory; false if it is the target itself.
    fn subdirectory(
        &self,
        (from, to): (&OwnedFd, &OwnedFd),
        name: &[u8],
        path: &[u8],
    ) -> io::Result<bool> {
        let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (stat.st_dev, stat.st_ino) == self.staging {
            return Ok(false);
        }
        rustix::fs::mkdirat(to, name, Mode::RWXU)?;
        locked(&self.directories).push((path.to_vec(), meta_of(&stat)));
        Ok(true)
    }

    fn symlink(&self, (from, to): (&OwnedFd, &OwnedFd), name: &[u8]) -> io::Result<()> {
        let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let target = rustix::fs::readlinkat(from, name, Vec::new())?;
        place::symlink(
            to,
            name,
            target.as_bytes(),
            meta_of(&stat),
            self.options.owner,
        )
    }

    fn file(
        &self,
        (from, to): (&OwnedFd, &OwnedFd),
        name: &[u8],
        path: &[u8],
        buffer: &mut [u8],
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::Io(path.to_vec(), error);
        let open = || {
            // A pipe that took the name since must not block.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let source = File::from(rustix::fs::openat(from, name, flags, Mode::empty())?);
            let stat = rustix::fs::fstat(&source)?;
            Ok((source, stat))
        };
        let (source, stat) = open().map_err(failed)?;
        self.count()?;
        let several = stat.st_nlink > 1;
        let target = if several {
            let mut links = locked(&self.links);
            let identity = (stat.st_dev, stat.st_ino);
            if let Some(first) = links.get(&identity) {
                return self.link(first, to, name).map_err(failed);
            }
            // From now on other threads may link to it, while it is being filled.
            let target = create_file(to, name).map_err(failed)?;
            links.insert(identity, path.to_vec());
            target
        } else {
            create_file(to, name).map_err(failed)?
        };
        let copied = self
            .contents(&source, &target, buffer, &stat)
            .map_err(failed)?;
        let limit = self.options.limits.bytes;
        if self.bytes.fetch_add(copied, Relaxed) + copied > limit {
            return Err(Failure::Limit("the size of the contents in bytes", limit));
        }
        let own = attributes(&source).map_err(failed)?;
        dress(&target, (meta_of(&stat), &own), self.options.owner).map_err(failed)
    }

    fn link(&self, first: &[u8], to: &OwnedFd, name: &[u8]) -> io::Result<()> {
        let (directory, old) = parent(self.to.as_fd(), first)?;
        Ok(rustix::fs::linkat(
            directory,
            old,
            to,
            name,
            AtFlags::empty(),
        )?)
    }

    /// Copies everything, or stops just beyond the limit. Returns the bytes copied.
    fn contents(
        &self,
        source: &File,
        target: &File,
        buffer: &mut [u8],
        stat: &Stat,
    ) -> io::Result<u64> {
        let limit = self.options.limits.bytes;
        let size = size_of(stat);
        // `copy_file_range` fills holes.
        let sparse = u64::try_from(stat.st_blocks).unwrap_or(0) * 512 < size;
        if size == 0 || size > limit {
            return Ok(size);
        }
        if size > SMALL_BYTES {
            if self.can_clone.load(Relaxed) {
                match rustix::fs::ioctl_ficlone(target, source) {
                    Ok(()) => return Ok(size),
                    Err(_) => self.can_clone.store(false, Relaxed),
                }
            }
            if !sparse
                && self.can_copy.load(Relaxed)
                && let Some(copied) = copy_range(source, target)?
            {
                return Ok(copied);
            }
            if !sparse {
                self.can_copy.store(false, Relaxed);
            }
        }
        let mut source = source;
        let mut target = SparseWriter::new(target);
        let mut copied = 0;
        loop {
            let count = source.read(buffer)?;
            target.write_all(&buffer[..count])?;
            copied += count as u64;
            // The size is known: this saves one read per file.
            if count == 0 || copied > limit || (copied == size && count < buffer.len()) {
                target.finish()?;
                return Ok(copied);
            }
        }
    }
}

/// Copies with `copy_file_range`; `None` if it is not supported between these files.
fn copy_range(source: &File, target: &File) -> io::Result<Option<u64>> {
    let mut copied = 0;
    loop {
        match rustix::fs::copy_file_range(source, None, target, None, CHUNK_BYTES) {
            Ok(0) => return Ok(Some(copied)),
            Ok(count) => copied += count as u64,
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if copied == 0 => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn meta_of(stat: &Stat) -> Meta {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Meta {
        mode: stat.st_mode & 0o777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_unix_ns: stat
            .st_mtime
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds),
    }
}
