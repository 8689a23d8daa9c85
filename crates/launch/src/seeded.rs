//! Copies the seed of a workspace into the overlay's upper layer.
//!
//! On a lower layer directories cannot be renamed, hard links break at the first write, and a
//! process that mapped a file before a write does not see it. So a small seed is copied into the
//! upper layer, with every directory opaque: nothing of the lower layer is visible, and everything
//! behaves as on a plain disk. Diff and reset still compare with the baseline.
//!
//! The time of the completed copy is stored in an attribute of the upper layer's root, which
//! overlayfs hides: a file with an older ctime is unchanged. It may have moved, because moving a
//! directory does not change its contents. So every directory also has an attribute with its
//! original path.

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, UTIME_OMIT,
    Uid, XattrFlags,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Largest seed that is copied. Beyond it the copy and comparisons would cost too much.
pub const MAX_BYTES: u64 = 256 << 20;
pub const MAX_ENTRIES: u64 = 20_000;
/// A copy may use this fraction of the disk's free space (1/4).
const SHARE: u64 = 4;
/// Deepest directory; each level holds two descriptors.
const MAX_DEPTH: usize = 100;
/// Bytes copied at once.
const STEP: usize = 256 * 1024;
/// The longest list of attributes and the longest value, as in the kernel.
const MAX_ATTRIBUTE: usize = 64 * 1024;
/// The prefix of overlayfs attributes that unprivileged processes can read.
const OVERLAY: &[u8] = b"user.overlay.";

/// The attribute namespace of an overlay's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notes {
    User,
    Trusted,
}

impl Notes {
    /// The attribute that marks a directory as opaque.
    fn opaque(self) -> &'static str {
        match self {
            Notes::User => "user.overlay.opaque",
            Notes::Trusted => "trusted.overlay.opaque",
        }
    }

    /// The attribute on the upper layer's root with the time of the copy.
    fn copied(self) -> &'static str {
        match self {
            Notes::User => "user.overlay.motu-copied",
            Notes::Trusted => "trusted.overlay.motu-copied",
        }
    }

    /// The attribute on a copied directory with its original path.
    fn place(self) -> &'static str {
        match self {
            Notes::User => "user.overlay.motu-place",
            Notes::Trusted => "trusted.overlay.motu-place",
        }
    }
}

/// Whether a seed is small enough to be copied to the disk of `upper`.
fn is_small(lower: impl AsFd, upper: impl AsFd) -> io::Result<bool> {
    let room = rustix::fs::fstatvfs(upper)?;
    let free = room.f_bavail.saturating_mul(room.f_frsize) / SHARE;
    let mut left = Budget {
        bytes: MAX_BYTES.min(free),
        entries: MAX_ENTRIES.min(room.f_ffree / SHARE),
    };
    left.spend(&open_directory(lower, c".")?, 0)
}

struct Budget {
    bytes: u64,
    entries: u64,
}

impl Budget {
    /// Counts the contents of a directory; false if they exceed the budget or have an unsupported
    /// type.
    fn spend(&mut self, directory: &OwnedFd, depth: usize) -> io::Result<bool> {
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let bytes = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
            let (Some(bytes), Some(entries)) =
                (self.bytes.checked_sub(bytes), self.entries.checked_sub(1))
            else {
                return Ok(false);
            };
            *self = Budget { bytes, entries };
            let fits = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory if depth < MAX_DEPTH => {
                    self.spend(&open_directory(directory, name)?, depth + 1)?
                }
                FileType::RegularFile | FileType::Symlink => true,
                _ => false,
            };
            if !fits {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Fills `upper`, which is not in use, with a small seed. On failure the copy is removed, and the
/// seed stays in the lower layer.
pub fn own(lower: impl AsFd, upper: impl AsFd, notes: Notes) -> io::Result<()> {
    let (lower, upper) = (lower.as_fd(), upper.as_fd());
    // Remove the remains of an interrupted start.
    clear(&open_directory(upper, c".")?)?;
    if !is_small(lower, upper)? {
        return Ok(());
    }
    copy(lower, upper, notes).or_else(|error| {
        let top = open_directory(upper, c".")?;
        let _ = rustix::fs::fremovexattr(&top, notes.copied());
        clear(&top)?;
        Err(error)
    })
}

/// Removes everything in a directory.
fn clear(directory: &OwnedFd) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {
                clear(&open_directory(directory, name)?)?;
                rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?;
            }
            other => other?,
        }
    }
    Ok(())
}

/// Copies `lower` into the empty `upper`. Everything is synced before the attribute that marks the
/// copy as complete is set.
fn copy(lower: impl AsFd, upper: impl AsFd, notes: Notes) -> io::Result<()> {
    let top = open_directory(upper, c".")?;
    let mut copy = Copy {
        top: &top,
        notes,
        links: HashMap::new(),
        buffer: vec![0; STEP],
    };
    let lower = open_directory(lower, c".")?;
    copy.fill(&lower, &top, &mut Vec::new())?;
    copy.dress(&top, &lower, &rustix::fs::fstat(&lower)?)?;
    // With nothing copied there are no contents that could be missing under the mark.
    let empty = is_empty(&top)?;
    if !empty {
        rustix::fs::syncfs(&top)?;
    }
    // Use the file system's coarse clock: no copied file has a later ctime.
    let done = rustix::fs::fstat(&top)?;
    let done = done.st_ctime.saturating_mul(1_000_000_000) + done.st_ctime_nsec as i64;
    let text = done.to_string();
    rustix::fs::fsetxattr(&top, notes.copied(), text.as_bytes(), XattrFlags::empty())?;
    match empty {
        true => Ok(()),
        false => Ok(rustix::fs::fsync(&top)?),
    }
}

fn is_empty(directory: &OwnedFd) -> io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// When the lower layer was copied into the upper one, in nanoseconds since 1970; `None` if it was
/// not.
pub fn copied_unix_ns(upper: impl AsFd, notes: Notes) -> Option<i64> {
    let mut text = [0u8; 24];
    let top = open_directory(upper, c".").ok()?;
    let length = rustix::fs::fgetxattr(&top, notes.copied(), &mut text[..]).ok()?;
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    // gVisor pads the buffer with zeros and counts them as part of the value.
    text.trim_end_matches('\0').parse().ok()
}

/// A directory's place attribute: an FNV-1a hash of its path, small enough for the inode. Inode
/// numbers cannot be used: gVisor has its own.
fn place(path: &[u8]) -> String {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", path.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

/// Whether a directory of the upper layer is still at the path where the copy made it.
pub fn is_in_place(directory: impl AsFd, path: &[u8], notes: Notes) -> bool {
    let mut note = [0u8; 16];
    let read = rustix::fs::fgetxattr(directory, notes.place(), &mut note[..]);
    read.is_ok() && note == place(path).as_bytes()
}

/// Whether a directory of the upper layer is opaque.
pub fn is_opaque(directory: impl AsFd, notes: Notes) -> bool {
    let mut value = [0u8; 2];
    let read = rustix::fs::fgetxattr(directory, notes.opaque(), &mut value[..]);
    // gVisor pads with zeros, as above.
    read.is_ok() && value == *b"y\0"
}

struct Copy<'a> {
    top: &'a OwnedFd,
    notes: Notes,
    /// The first copy of each file with several hard links.
    links: HashMap<(u64, u64), Vec<u8>>,
    buffer: Vec<u8>,
}

impl Copy<'_> {
    /// Copies the entries of a directory; `path` is its path with a trailing slash unless empty.
    fn fill(&mut self, from: &OwnedFd, to: &OwnedFd, path: &mut Vec<u8>) -> io::Result<()> {
        for entry in Dir::read_from(from)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let length = path.len();
            path.extend_from_slice(name.to_bytes());
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    rustix::fs::mkdirat(to, name, Mode::RWXU)?;
                    let (below, above) = (open_directory(from, name)?, open_directory(to, name)?);
                    path.push(b'/');
                    self.fill(&below, &above, path)?;
                    let opaque = self.notes.opaque();
                    rustix::fs::fsetxattr(&above, opaque, b"y", XattrFlags::empty())?;
                    let note = place(path.strip_suffix(b"/").unwrap_or(path));
                    let key = self.notes.place();
                    rustix::fs::fsetxattr(&above, key, note.as_bytes(), XattrFlags::empty())?;
                    self.dress(&above, &below, &stat)?;
                }
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(from, name, Vec::new())?;
                    rustix::fs::symlinkat(&target, to, name)?;
                    give(to, name, &stat)?;
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    rustix::fs::utimensat(to, name, &times(&stat), flags)?;
                }
                FileType::RegularFile => self.file(from, to, name, path, &stat)?,
                _ => return Err(io::ErrorKind::Unsupported.into()),
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn file(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &std::ffi::CStr,
        path: &[u8],
        stat: &Stat,
    ) -> io::Result<()> {
        if stat.st_nlink > 1 {
            let key = (stat.st_dev, stat.st_ino);
            if let Some(first) = self.links.get(&key) {
                let flags = AtFlags::empty();
                return Ok(rustix::fs::linkat(self.top, &first[..], to, name, flags)?);
            }
            self.links.insert(key, path.to_vec());
        }
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = rustix::fs::openat(from, name, flags | OFlags::RDONLY, Mode::empty())?;
        let fresh = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let target = rustix::fs::openat(to, name, fresh, Mode::RUSR | Mode::WUSR)?;
        self.contents(&source, &target, u64::try_from(stat.st_size).unwrap_or(0))?;
        self.dress(&target, &source, stat)
    }

    /// Copies the data segments of a file, so that holes are preserved.
    fn contents(&mut self, source: &OwnedFd, target: &OwnedFd, size: u64) -> io::Result<()> {
        let mut at = 0;
        while at < size {
            at = match rustix::fs::seek(source, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                // The file system does not support SEEK_DATA.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
                Err(errno) => return Err(errno.into()),
            };
            let end = match rustix::fs::seek(source, SeekFrom::Hole(at)) {
                Ok(end) => end.min(size),
                Err(_) => size,
            };
            while at < end {
                let most = usize::try_from(end - at).unwrap_or(STEP).min(STEP);
                let got = rustix::io::pread(source, &mut self.buffer[..most], at)?;
                if got == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let mut rest = &self.buffer[..got];
                while !rest.is_empty() {
                    let written = rustix::io::pwrite(target, rest, at)?;
                    at += written as u64;
                    rest = rest.get(written..).unwrap_or_default();
                }
            }
        }
        Ok(rustix::fs::ftruncate(target, size)?)
    }

    /// Sets owner, attributes, mode and time; mode after owner, because chown clears mode bits.
    fn dress(&self, target: &OwnedFd, source: &OwnedFd, stat: &Stat) -> io::Result<()> {
        let now = rustix::fs::fstat(target)?;
        if (now.st_uid, now.st_gid) != (stat.st_uid, stat.st_gid) {
            let (uid, gid) = ids(stat);
            rustix::fs::fchown(target, uid, gid)?;
        }
        copy_attributes(source, target)?;
        rustix::fs::fchmod(target, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
        Ok(rustix::fs::futimens(target, &times(stat))?)
    }
}

fn copy_attributes(source: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    let mut names = Vec::with_capacity(MAX_ATTRIBUTE);
    match rustix::fs::flistxattr(source, rustix::buffer::spare_capacity(&mut names)) {
        Ok(_) => {}
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    }
    let wanted = |name: &&[u8]| name.starts_with(b"user.") && !name.starts_with(OVERLAY);
    for name in names.split(|byte| *byte == 0).filter(wanted) {
        let mut value = Vec::with_capacity(MAX_ATTRIBUTE);
        rustix::fs::fgetxattr(source, name, rustix::buffer::spare_capacity(&mut value))?;
        rustix::fs::fsetxattr(target, name, &value, XattrFlags::empty())?;
    }
    Ok(())
}

fn ids(stat: &Stat) -> (Option<Uid>, Option<Gid>) {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    (Some(uid), Some(gid))
}

fn give(directory: &OwnedFd, name: &std::ffi::CStr, stat: &Stat) -> io::Result<()> {
    let now = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if (now.st_uid, now.st_gid) == (stat.st_uid, stat.st_gid) {
        return Ok(());
    }
    let (uid, gid) = ids(stat);
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    Ok(rustix::fs::chownat(directory, name, uid, gid, flags)?)
}

fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: stat.st_mtime_nsec as _,
        },
    }
}

fn open_directory(at: impl AsFd, name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(path: &std::path::Path) -> OwnedFd {
        std::fs::File::open(path).unwrap().into()
    }

    #[test]
    fn a_directory_knows_where_it_was_made() {
        // In the source tree: a tmpfs may not support attributes.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (lower, upper) = (dir.path().join("lower"), dir.path().join("upper"));
        std::fs::create_dir_all(lower.join("a/deep")).unwrap();
        std::fs::create_dir_all(lower.join("b/deep")).unwrap();
        std::fs::create_dir(&upper).unwrap();
        copy(opened(&lower), opened(&upper), Notes::User).unwrap();
        let in_place = |path: &str| {
            let directory = opened(&upper.join(path));
            is_in_place(directory, path.as_bytes(), Notes::User)
        };
        assert!(in_place("a") && in_place("a/deep") && in_place("b/deep"));
        std::fs::rename(upper.join("b"), dir.path().join("aside")).unwrap();
        std::fs::rename(upper.join("a"), upper.join("b")).unwrap();
        assert!(!in_place("b") && !in_place("b/deep"));
        std::fs::create_dir(upper.join("a")).unwrap();
        assert!(!in_place("a"));
        assert!(copied_unix_ns(opened(&upper), Notes::User).is_some());
    }
}
