//! Names of an archive and the places they get.

use super::MAX_DEPTH;
use crate::answer::{Failed, Quoted};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

pub fn failed(path: &[u8], errno: Errno) -> Failed {
    Failed::errno(format!("entry {}", Quoted(path)), errno)
}

pub fn refused(path: &[u8], why: &str) -> Failed {
    Failed::invalid(format!("entry {} {why}", Quoted(path)))
}

/// A path of an archive without empty and `.` parts; refused when it could lead outside.
pub fn clean(path: &[u8]) -> Result<Vec<u8>, Failed> {
    if path.first() == Some(&b'/') {
        return Err(refused(path, "has an absolute name"));
    }
    if path.contains(&0) || path.len() > 4096 {
        return Err(refused(path, "has an impossible name"));
    }
    let mut parts = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(refused(path, "has a name with \"..\"")),
            part => parts.push(part),
        }
    }
    if parts.len() > MAX_DEPTH {
        return Err(refused(path, "is too deep"));
    }
    Ok(parts.join(&b'/'))
}

/// Removes what an entry replaces. A directory is never replaced by something else.
pub fn make_way(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::PERM | Errno::ISDIR) => Err(Errno::ISDIR),
        Err(errno) => Err(errno),
    }
}

pub fn make_file(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600));
    match open() {
        Err(Errno::EXIST) => {
            make_way(parent, name)?;
            open()
        }
        other => other,
    }
}

/// Sets a directory's mode by name, never through a symlink.
pub fn set_mode(parent: &OwnedFd, name: &[u8], mode: u32) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))
}
