//! Making an entry exactly what its header says.

use super::make_way;
use crate::files::attributes::{self, Which};
use motu_archive::Header;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Only the time of modification is kept.
fn times(seconds: i64, nanos: u32) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: nanos.into(),
        },
    }
}

/// An id that this machine does not have cannot be given to anything; the file is then ours.
fn owned(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::INVAL) => Ok(()),
        other => other,
    }
}

fn ids(header: &Header) -> (Option<Uid>, Option<Gid>) {
    (
        Some(Uid::from_raw(header.uid)),
        Some(Gid::from_raw(header.gid)),
    )
}

/// Owner, attributes and mode of something open; the mode after the owner, who would clear bits of it.
pub fn attributes_of(fd: &OwnedFd, header: &Header, which: Which) -> Result<(), Errno> {
    let (uid, gid) = ids(header);
    owned(rustix::fs::fchown(fd, uid, gid))?;
    attributes::set(fd, &header.attributes, which)?;
    rustix::fs::fchmod(fd, Mode::from_raw_mode(header.mode))
}

/// The end of a file that has its content.
pub fn file(fd: &OwnedFd, header: &Header, which: Which) -> Result<(), Errno> {
    attributes_of(fd, header, which)?;
    rustix::fs::futimens(fd, &times(header.mtime, header.nanos))
}

/// A directory that exists; its time comes later.
pub fn make_directory(
    parent: &OwnedFd,
    name: &[u8],
    header: &Header,
    (mode, which): (u32, Which),
) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    attributes_of(&fd, header, which)?;
    rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))
}

/// Owner and time of a name that cannot be opened.
pub fn name(parent: &OwnedFd, name: &[u8], header: &Header) -> Result<(), Errno> {
    let (uid, gid) = ids(header);
    owned(rustix::fs::chownat(
        parent,
        name,
        uid,
        gid,
        AtFlags::SYMLINK_NOFOLLOW,
    ))?;
    set_time(parent, name, (header.mtime, header.nanos))
}

pub fn set_time(parent: &OwnedFd, name: &[u8], time: (i64, u32)) -> Result<(), Errno> {
    let times = times(time.0, time.1);
    rustix::fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)
}

pub fn make_pipe(parent: &OwnedFd, at: &[u8], header: &Header) -> Result<(), Errno> {
    make_way(parent, at)?;
    let mode = Mode::from_raw_mode(header.mode);
    rustix::fs::mknodat(parent, at, FileType::Fifo, mode, 0)?;
    // Our own mask must not decide.
    rustix::fs::chmodat(parent, at, mode, AtFlags::empty())?;
    name(parent, at, header)
}
