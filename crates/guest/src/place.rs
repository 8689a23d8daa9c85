//! Paths and the root they are resolved below.
//!
//! The kernel resolves paths (`openat2` with `RESOLVE_IN_ROOT`), so `..` and symbolic links never
//! lead out of the root, not even while directories are renamed concurrently. Nothing here compares
//! strings to decide what is inside.

use crate::answer::{Failed, Quoted};
use bytes::Bytes;
use motu_link::message::Failure;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The longest path, as in the kernel.
const MAX_PATH: usize = 4096;
/// How often a resolution is tried again when renames disturb it.
const RETRIES: usize = 32;
/// Symlinks followed by hand before giving up, as in the kernel.
const MAX_LINKS: usize = 40;

/// An absolute path without empty or `.` parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(Vec<u8>);

impl Place {
    pub fn parse(path: &[u8]) -> Result<Place, Failed> {
        let refuse = |why: &str| Err(Failed::invalid(format!("path {} {why}", Quoted(path))));
        if path.first() != Some(&b'/') {
            return refuse("is not absolute");
        }
        if path.contains(&0) {
            return refuse("contains a NUL byte");
        }
        if path.len() > MAX_PATH {
            return refuse("is longer than 4096 bytes");
        }
        let mut clean = Vec::with_capacity(path.len());
        for part in path.split(|byte| *byte == b'/') {
            if !part.is_empty() && part != b"." {
                clean.push(b'/');
                clean.extend_from_slice(part);
            }
        }
        if clean.is_empty() {
            clean.push(b'/');
        }
        Ok(Place(clean))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }

    pub fn is_root(&self) -> bool {
        self.0 == b"/"
    }

    /// The place of a directory entry.
    pub fn join(&self, name: &[u8]) -> Place {
        let mut path = self.0.clone();
        if !self.is_root() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Place(path)
    }

    /// The parent directory and the name in it, for operations on the name itself.
    pub fn split(&self) -> Result<(Place, &[u8]), Failed> {
        let at = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let name = self.0.get(at + 1..).unwrap_or_default();
        if name.is_empty() || name == b".." {
            return Err(Failed::invalid(format!(
                "path {} names no entry of a directory",
                Quoted(&self.0)
            )));
        }
        let parent = match at {
            0 => b"/".to_vec(),
            at => self.0.get(..at).unwrap_or_default().to_vec(),
        };
        Ok((Place(parent), name))
    }

    /// All ancestors, the root first and the place itself last.
    pub fn ancestry(&self) -> Vec<Place> {
        let ends = self
            .0
            .iter()
            .enumerate()
            .skip(1)
            .filter(|(_, byte)| **byte == b'/')
            .map(|(at, _)| at);
        let mut all: Vec<Place> = vec![Place(b"/".to_vec())];
        all.extend(
            ends.filter_map(|at| self.0.get(..at))
                .map(|path| Place(path.to_vec())),
        );
        if !self.is_root() {
            all.push(self.clone());
        }
        all
    }

    pub fn failed(&self, errno: Errno) -> Failed {
        Failed::errno(Quoted(&self.0), errno)
    }
}

/// The directory that all file operations stay below.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    /// True for the machine's own root, where ordinary resolution stays inside as well.
    whole: bool,
}

impl Root {
    pub fn open(path: &[u8]) -> Result<Root, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Root {
            fd,
            whole: path == b"/",
        })
    }

    /// Opens a path, following symlinks within the root unless `NOFOLLOW` is set.
    pub fn open_at(&self, place: &Place, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        // `openat2` refuses flags that are meaningless with `O_PATH`.
        let extra = if flags.contains(OFlags::PATH) {
            OFlags::CLOEXEC
        } else {
            OFlags::CLOEXEC | OFlags::NOCTTY
        };
        let flags = flags | extra;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..RETRIES {
            match rustix::fs::openat2(&self.fd, place.as_bytes(), flags, mode, resolve) {
                // A concurrent rename: the kernel cannot tell whether it matters, so try again.
                Err(Errno::AGAIN) => {}
                Err(Errno::NOSYS) if self.whole => {
                    return rustix::fs::openat(CWD, place.as_bytes(), flags, mode);
                }
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Refuses an open file that is not at or below `within`, because a symbolic link led out of
    /// it. An empty `within` allows everything. `/proc/self/fd` tells where the file really is.
    pub fn check_within(&self, fd: impl AsFd, within: &[u8], place: &Place) -> Result<(), Failed> {
        if within.is_empty() {
            return Ok(());
        }
        let top = self.directory(&Place::parse(within)?)?;
        let really = |fd: BorrowedFd<'_>| {
            let handle = format!("/proc/self/fd/{}", fd.as_raw_fd());
            rustix::fs::readlinkat(CWD, handle, Vec::new())
                .map(std::ffi::CString::into_bytes)
                .map_err(|errno| place.failed(errno))
        };
        let (top, found) = (really(top.as_fd())?, really(fd.as_fd())?);
        let below = found.strip_prefix(&top[..]);
        if top == b"/" || below.is_some_and(|rest| matches!(rest.first(), None | Some(b'/'))) {
            return Ok(());
        }
        Err(Failed::new(
            Failure::Denied,
            format!(
                "path {} leads out of {}",
                Quoted(place.as_bytes()),
                Quoted(within)
            ),
        ))
    }

    /// An `O_PATH` handle of a directory.
    pub fn directory(&self, place: &Place) -> Result<OwnedFd, Failed> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        self.open_at(place, flags, Mode::empty())
            .map_err(|errno| place.failed(errno))
    }

    /// Opens the directory of an entry and names the entry in it.
    pub fn entry(&self, place: &Place) -> Result<(OwnedFd, Vec<u8>), Failed> {
        let (parent, name) = place.split()?;
        Ok((self.directory(&parent)?, name.to_vec()))
    }

    /// Resolves symbolic links at the end of a path: the entry that a write would really change.
    pub fn final_entry(&self, place: &Place) -> Result<(OwnedFd, Place), Failed> {
        let mut place = place.clone();
        for _ in 0..MAX_LINKS {
            let (parent, name) = place.split()?;
            let directory = self.directory(&parent)?;
            let target = match rustix::fs::readlinkat(&directory, name, Vec::new()) {
                Ok(target) => target.into_bytes(),
                // Not a symbolic link, or missing.
                Err(_) => return Ok((directory, place)),
            };
            let mut next = Vec::new();
            if target.first() != Some(&b'/') {
                next.extend_from_slice(parent.as_bytes());
                next.push(b'/');
            }
            next.extend_from_slice(&target);
            place = Place::parse(&next)?;
        }
        Err(place.failed(Errno::LOOP))
    }
}

/// A random temporary name.
pub fn fresh_name() -> Result<Vec<u8>, Errno> {
    fresh_name_after(b".motu-")
}

/// A random temporary name with a given prefix.
pub fn fresh_name_after(beginning: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let end = format!("{:016x}.tmp", u64::from_ne_bytes(random));
    Ok([beginning, end.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_clean_and_split() {
        let place = Place::parse(b"//a/./b//c/").unwrap();
        assert_eq!(place.as_bytes(), b"/a/b/c");
        assert_eq!(place.split().unwrap().0.as_bytes(), b"/a/b");
        assert_eq!(place.split().unwrap().1, b"c");
        let ancestry: Vec<_> = place
            .ancestry()
            .iter()
            .map(|place| place.as_bytes().to_vec())
            .collect();
        assert_eq!(ancestry, [&b"/"[..], b"/a", b"/a/b", b"/a/b/c"]);
        assert!(Place::parse(b"/").unwrap().split().is_err());
        assert!(Place::parse(b"/a/..").unwrap().split().is_err());
        assert!(Place::parse(b"a").is_err());
        assert!(Place::parse(b"/a\0b").is_err());
        assert!(Place::parse(b"").is_err());
        assert!(Place::parse(&[b'/'; 5000]).is_err());
    }
}
