//! Removes temporary files that an earlier machine left when it ended.
//!
//! Files for the host are written under a temporary name beside their target. A machine that ends
//! in between leaves that name behind, anywhere in `/workspace`: the next machine searches for them
//! in the background.

use super::facts::{kind, look, nanoseconds, stamp_ns};
use super::inside::Inside;
use crate::sides::Workspace;
use motu_link::message::RESTORING;
use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Prefix and suffix of our temporary names; between them are sixteen hexadecimal digits.
const BEGINNING: &[u8] = b".motu-";
const END: &[u8] = b".tmp";
const DIGITS: usize = 16;
/// Deepest directory searched; each level holds a descriptor.
const MAX_DEPTH: usize = 200;
/// More than the longest tick of the kernel's coarse clock, which stamps files.
const TICK_NS: i64 = 20_000_000;

/// Removes temporary files older than `started_ns`, in nanoseconds since 1970.
pub fn remove(workspace: &Workspace, started_ns: i64) {
    let top = Inside::default();
    // With an overlay all of them are in the upper directory, which may be mounted read-only.
    let opened = top.open(workspace.above(), OFlags::RDONLY | OFlags::DIRECTORY);
    let mut search = Search {
        workspace,
        before_ns: started_ns.saturating_sub(TICK_NS),
    };
    if let Err(errno) = opened.and_then(|fd| search.directory(&fd, &mut Vec::new(), 0)) {
        // They stay until the next start.
        eprintln!("motu-guest: unfinished files could not be looked for: {errno}");
    }
}

pub fn now_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    nanoseconds(now.tv_sec, now.tv_nsec as u64)
}

struct Search<'a> {
    workspace: &'a Workspace,
    before_ns: i64,
}

impl Search<'_> {
    fn directory(&mut self, fd: &OwnedFd, path: &mut Vec<u8>, depth: usize) -> Result<(), Errno> {
        for found in Dir::read_from(fd)? {
            let found = found?;
            let name = found.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let length = path.len();
            path.extend_from_slice(name);
            match found.file_type() {
                FileType::Directory if depth < MAX_DEPTH => {
                    path.push(b'/');
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                    let flags = flags | OFlags::CLOEXEC;
                    match rustix::fs::openat(fd, name, flags, rustix::fs::Mode::empty()) {
                        Ok(below) => self.directory(&below, path, depth + 1)?,
                        // Removed or replaced concurrently.
                        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                        Err(errno) => return Err(errno),
                    }
                }
                FileType::RegularFile | FileType::Unknown if is_ours(name) => {
                    self.file(fd, name, path)?;
                }
                _ => {}
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn file(&self, fd: &OwnedFd, name: &[u8], path: &[u8]) -> Result<(), Errno> {
        let old = look(fd, name)?.is_some_and(|stat| {
            kind(&stat) == FileType::RegularFile && stamp_ns(&stat) < self.before_ns
        });
        let Ok(inside) = Inside::parse(path) else {
            return Ok(());
        };
        if !old {
            return Ok(());
        }
        let (directory, name) = inside.entry(&self.workspace.top)?;
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// Whether a name is one of our temporary names.
fn is_ours(name: &[u8]) -> bool {
    let rest = match name.strip_prefix(RESTORING) {
        Some(rest) => Some(rest),
        None => name.strip_prefix(BEGINNING),
    };
    let digits = rest.and_then(|rest| rest.strip_suffix(END));
    digits.is_some_and(|digits| {
        digits.len() == DIGITS && digits.iter().all(|digit| digit.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_are_ours() {
        for name in [
            &b".motu-0123456789abcdef.tmp"[..],
            b".motu-restoring-0123456789abcdef.tmp",
        ] {
            assert!(is_ours(name));
        }
        for name in [
            &b".motu-0123456789abcdef"[..],
            b".motu-0123456789abcde.tmp",
            b".motu-0123456789abcdeg.tmp",
            b"motu-0123456789abcdef.tmp",
            b".motu-notes.tmp",
        ] {
            assert!(!is_ours(name));
        }
        assert!(is_ours(&crate::place::fresh_name().unwrap()));
    }
}
