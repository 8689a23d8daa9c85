//! Describing files to the host, and the owner of what is created for it.

use crate::answer::Failed;
use crate::place::{Place, Root};
use crate::state::Guest;
use crate::users::Names;
use bytes::Bytes;
use motu_link::message::{Entries, Entry, FileType as Kind, Version};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::fd::{AsFd, OwnedFd};

/// Describes what a stat result says.
pub fn describe(names: &Names, place: &Place, stat: &Stat, target: Bytes) -> Entry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Other,
    };
    let Version {
        modified_unix_ms,
        size,
        revision,
    } = version(stat);
    Entry {
        path: place.to_bytes(),
        kind: kind as i32,
        size,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        owner: names.user(stat.st_uid),
        group: names.group(stat.st_gid),
        modified_unix_ms,
        symlink_target: target,
        revision,
    }
}

/// Tells one state of a file from the next. A file that replaces another has an inode of its own,
/// since both are there for a moment; times alone are as coarse as the kernel's clock.
pub fn version(stat: &Stat) -> Version {
    let mut hasher = DefaultHasher::new();
    (stat.st_ino, stat.st_mtime_nsec).hash(&mut hasher);
    Version {
        modified_unix_ms: stat
            .st_mtime
            .saturating_mul(1000)
            .saturating_add(stat.st_mtime_nsec as i64 / 1_000_000),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        revision: hasher.finish().max(1),
    }
}

/// Describes a name in an open directory, not following a symlink.
pub fn describe_at(
    names: &Names,
    directory: impl AsFd,
    name: &[u8],
    place: &Place,
) -> Result<Entry, Errno> {
    let directory = directory.as_fd();
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let target = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => rustix::fs::readlinkat(directory, name, Vec::new())
            .map_or_else(|_| Bytes::new(), |target| Bytes::from(target.into_bytes())),
        _ => Bytes::new(),
    };
    Ok(describe(names, place, &stat, target))
}

/// Describes an open file.
pub fn describe_fd(names: &Names, fd: impl AsFd, place: &Place) -> Result<Entry, Failed> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| place.failed(errno))?;
    Ok(describe(names, place, &stat, Bytes::new()))
}

/// Describes a path.
pub fn stat(names: &Names, root: &Root, place: &Place, follow: bool) -> Result<Entry, Failed> {
    stat_within(names, root, place, follow, b"")
}

/// Describes a path that is at or below `within`; an empty `within` allows every path.
pub fn stat_within(
    names: &Names,
    root: &Root,
    place: &Place,
    follow: bool,
    within: &[u8],
) -> Result<Entry, Failed> {
    // The directory itself is entered from above it.
    let is_top = Place::parse(within).is_ok_and(|top| top == *place);
    if follow || is_top || place.split().is_err() {
        let fd = root
            .open_at(place, OFlags::PATH, Mode::empty())
            .map_err(|errno| place.failed(errno))?;
        root.check_within(&fd, within, place)?;
        return describe_fd(names, fd, place);
    }
    let (directory, name) = root.entry(place)?;
    root.check_within(&directory, within, place)?;
    describe_at(names, directory, &name, place).map_err(|errno| place.failed(errno))
}

/// One entry as a note.
pub fn one(entry: Entry) -> Entries {
    Entries {
        entries: vec![entry],
        next: Bytes::new(),
    }
}

/// Who gets what is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl Owner {
    /// The named user, or the machine's default one.
    pub fn find(guest: &Guest, user: &str) -> Result<Owner, Failed> {
        let settings = guest.settings();
        let wanted = if user.is_empty() {
            &settings.default_user
        } else {
            user
        };
        let found = guest.users.find(wanted)?;
        Ok(Owner {
            uid: found.uid,
            gid: found.gid,
        })
    }

    /// Whoever this thread acts as.
    pub fn current() -> Owner {
        Owner {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    /// Whether files we make belong to this owner anyway.
    fn is_us(self) -> bool {
        self.uid == rustix::process::geteuid().as_raw()
            && self.gid == rustix::process::getegid().as_raw()
    }

    pub fn give(self, fd: &OwnedFd) -> Result<(), Errno> {
        if self.is_us() {
            return Ok(());
        }
        rustix::fs::fchown(
            fd,
            Some(Uid::from_raw(self.uid)),
            Some(Gid::from_raw(self.gid)),
        )
    }

    /// Gives a name in a directory away, never what a symlink points to.
    pub fn give_at(self, directory: impl AsFd, name: &[u8]) -> Result<(), Errno> {
        if self.is_us() {
            return Ok(());
        }
        let (uid, gid) = (Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)));
        rustix::fs::chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
    }
}
