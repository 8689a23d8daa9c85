//! Paths below one directory, opened without ever leaving it: no `..`, and no symbolic link is
//! followed, so that a path means the same in the baseline and in the workspace.

use crate::answer::{Failed, Quoted};
use bytes::Bytes;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// The longest path, as in the kernel.
pub const MAX_PATH: usize = 4096;
/// How often a resolution is tried again when renames disturb it.
const RETRIES: usize = 32;

/// A relative path without empty, `.` or `..` parts; empty for the directory itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inside(Vec<u8>);

impl Inside {
    pub fn parse(path: &[u8]) -> Result<Inside, Failed> {
        let refuse = |why: &str| Err(Failed::invalid(format!("path {} {why}", Quoted(path))));
        if path.first() == Some(&b'/') {
            return refuse("is not relative to the workspace");
        }
        if path.contains(&0) {
            return refuse("contains a NUL byte");
        }
        if path.len() > MAX_PATH {
            return refuse("is longer than 4096 bytes");
        }
        let mut clean = Vec::with_capacity(path.len());
        for part in path.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return refuse("leads upwards"),
                part => {
                    if !clean.is_empty() {
                        clean.push(b'/');
                    }
                    clean.extend_from_slice(part);
                }
            }
        }
        Ok(Inside(clean))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }

    pub fn is_top(&self) -> bool {
        self.0.is_empty()
    }

    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
    }

    /// The directory and the name in it; `None` for the top.
    pub fn split(&self) -> Option<(Inside, &[u8])> {
        if self.is_top() {
            return None;
        }
        let (parent, name) = match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (self.0.get(..at)?, self.0.get(at + 1..)?),
            None => (&b""[..], &self.0[..]),
        };
        Some((Inside(parent.to_vec()), name))
    }

    /// Every directory above it but the top, the highest first.
    pub fn parents(&self) -> Vec<Inside> {
        let ends = self.0.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        ends.filter_map(|(at, _)| self.0.get(..at))
            .map(|path| Inside(path.to_vec()))
            .collect()
    }

    pub fn failed(&self, errno: Errno) -> Failed {
        Failed::errno(Quoted(&self.0), errno)
    }

    /// Opens the path below `top`. A symlink anywhere, the end included, is `LOOP`
    /// (at the end, `PATH` with `NOFOLLOW` opens the link itself).
    pub fn open(&self, top: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path: &[u8] = if self.is_top() { b"." } else { &self.0 };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        for _ in 0..RETRIES {
            match rustix::fs::openat2(top.as_fd(), path, flags, Mode::empty(), resolve) {
                // A concurrent rename: the kernel cannot tell whether it matters, so try again.
                Err(Errno::AGAIN) => {}
                Err(Errno::NOSYS) => return self.walk(top, flags),
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens a path one name at a time, where the kernel has no `openat2`.
    fn walk(&self, top: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        let Some((parent, name)) = self.split() else {
            return rustix::fs::openat(top, c".", flags, Mode::empty());
        };
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = rustix::fs::openat(top, c".", step, Mode::empty())?;
        for part in parent.parts() {
            at = rustix::fs::openat(&at, part, step, Mode::empty())?;
        }
        rustix::fs::openat(at, name, flags, Mode::empty())
    }

    /// Opens the directory of the path and names the entry in it.
    pub fn entry(&self, top: impl AsFd) -> Result<(OwnedFd, &[u8]), Errno> {
        let (parent, name) = self.split().ok_or(Errno::ISDIR)?;
        Ok((parent.open(top, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_clean_and_stay_inside() {
        let path = Inside::parse(b"a//b/./c/").unwrap();
        assert_eq!(path.as_bytes(), b"a/b/c");
        let (parent, name) = path.split().unwrap();
        assert_eq!((parent.as_bytes(), name), (&b"a/b"[..], &b"c"[..]));
        assert!(Inside::parse(b"").unwrap().is_top());
        assert!(Inside::parse(b"./").unwrap().split().is_none());
        for bad in [&b"/a"[..], b"a/../b", b"..", b"a\0b", &[b'a'; 5000]] {
            assert!(Inside::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn links_are_not_followed_by_either_way() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::fs::write(dir.path().join("real/file"), "x").unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        let top = std::fs::File::open(dir.path()).unwrap();
        let good = Inside::parse(b"real/file").unwrap();
        assert!(good.open(&top, OFlags::RDONLY).is_ok());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        assert!(good.walk(&top, flags).is_ok());
        let bad = Inside::parse(b"link/file").unwrap();
        assert_eq!(bad.open(&top, OFlags::RDONLY).unwrap_err(), Errno::LOOP);
        assert_eq!(bad.walk(&top, flags).unwrap_err(), Errno::NOTDIR);
    }
}
