//! Metadata of files, and whether two files are equal.

use crate::answer::Failed;
use crate::blocking::Cancel;
use crate::files::attributes::{self, Which};
use bytes::Bytes;
use motu_link::message::Facts;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes compared at a time.
const STEP: usize = 256 * 1024;
/// More than the longest tick of the kernel's coarse clock, which stamps files.
const TICK_NS: i64 = 20_000_000;

pub fn nanoseconds(seconds: i64, nanoseconds: u64) -> i64 {
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds as i64)
}

pub fn modified_ns(stat: &Stat) -> i64 {
    nanoseconds(stat.st_mtime, stat.st_mtime_nsec)
}

pub fn stamp_ns(stat: &Stat) -> i64 {
    nanoseconds(stat.st_ctime, stat.st_ctime_nsec)
}

pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// A name in an open directory and what `stat` says of it.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub directory: &'a OwnedFd,
    pub name: &'a [u8],
    pub stat: &'a Stat,
}

impl Named<'_> {
    /// The metadata at a moment, in nanoseconds since 1970. A file system's clock is coarse: a
    /// change of this very moment may be followed by another with the same stamp. Such a stamp is
    /// replaced by a unique one.
    pub fn facts(&self, moment_ns: i64) -> Facts {
        let stat = self.stat;
        let stamp = match stamp_ns(stat) {
            fresh if fresh >= moment_ns.saturating_sub(TICK_NS) => moment_ns.saturating_neg(),
            old => old,
        };
        Facts {
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: match kind(stat) {
                FileType::Directory => 0,
                _ => u64::try_from(stat.st_size).unwrap_or(0),
            },
            modified_unix_ns: modified_ns(stat),
            stamp_ns: stamp,
            inode: stat.st_ino,
            symlink_target: match kind(stat) {
                FileType::Symlink => Bytes::from(self.target()),
                _ => Bytes::new(),
            },
            links: match kind(stat) {
                FileType::Directory => 1,
                #[cfg_attr(
                    target_arch = "x86_64",
                    expect(clippy::useless_conversion, reason = "32 bits on aarch64")
                )]
                _ => u64::from(stat.st_nlink),
            },
        }
    }

    /// The target of a symbolic link; empty if it is none any more.
    fn target(&self) -> Vec<u8> {
        let target = rustix::fs::readlinkat(self.directory, self.name, Vec::new());
        target.map_or_else(|_| Vec::new(), |target| target.into_bytes())
    }

    /// Whether both are equal. Contents are compared only if the metadata agrees.
    pub fn same(&self, other: &Named<'_>, cancel: &Cancel) -> Result<bool, Failed> {
        let (a, b) = (self.stat, other.stat);
        if (a.st_mode, a.st_uid, a.st_gid) != (b.st_mode, b.st_uid, b.st_gid) {
            return Ok(false);
        }
        match kind(a) {
            FileType::Directory => Ok(self.same_attributes(other)),
            FileType::Symlink => {
                Ok(modified_ns(a) == modified_ns(b) && self.target() == other.target())
            }
            FileType::RegularFile => {
                let equal = a.st_size == b.st_size
                    && modified_ns(a) == modified_ns(b)
                    && a.st_nlink == b.st_nlink
                    && self.same_attributes(other);
                Ok(equal && self.same_content(other, cancel)?)
            }
            _ => Ok(modified_ns(a) == modified_ns(b) && a.st_rdev == b.st_rdev),
        }
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(self.directory, self.name, flags, Mode::empty())
    }

    fn same_attributes(&self, other: &Named<'_>) -> bool {
        let read = |named: &Named<'_>| attributes::read(named.open()?, Which::All);
        // Unreadable attributes count as different: an extra report does no harm.
        matches!((read(self), read(other)), (Ok(a), Ok(b)) if a == b)
    }

    fn same_content(&self, other: &Named<'_>, cancel: &Cancel) -> Result<bool, Failed> {
        let (Ok(a), Ok(b)) = (self.open(), other.open()) else {
            return Ok(false);
        };
        let (mut left, mut right) = (vec![0; STEP], vec![0; STEP]);
        let mut at = 0;
        loop {
            if cancel.is_set() {
                return Err(Failed::cancelled());
            }
            let (Ok(got), Ok(also)) = (fill(&a, &mut left, at), fill(&b, &mut right, at)) else {
                return Ok(false);
            };
            if left.get(..got) != right.get(..also) {
                return Ok(false);
            }
            if got < STEP {
                return Ok(true);
            }
            at += got as u64;
        }
    }
}

/// Reads until the buffer is full or the file ends.
pub fn fill(file: impl AsFd, buffer: &mut [u8], from: u64) -> Result<usize, Errno> {
    let mut got = 0;
    while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(file.as_fd(), rest, from + got as u64) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(got)
}

/// `lstat` of a name; `None` if it does not exist.
pub fn look(directory: &OwnedFd, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}
