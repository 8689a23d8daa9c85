//! Goes back from a later state to a snapshot, in place.
//!
//! Both states are given as differences from the baseline:
//!
//! ```text
//! now differs    saved differs   then
//!     yes             no         the baseline's file is put back, or the new one removed
//!     no              yes        the saved file is put back, or the baseline's removed
//!     yes             yes        the same, unless nobody has written to it since
//! ```

use std::{ffi::OsStr, fs::File, io, os::unix::ffi::OsStrExt as _, path::Path};

use bytes::Bytes;

use super::manifest::{Entry, State};
use crate::{diff::Kind, tarball::Attributes};

/// Merges two lists sorted by path into pairs.
pub(super) fn pairs<'a>(
    left: &'a [Entry],
    right: &'a [Entry],
) -> Vec<(Option<&'a Entry>, Option<&'a Entry>)> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    let mut pairs = Vec::new();
    loop {
        pairs.push(match (left.peek(), right.peek()) {
            (None, None) => return pairs,
            (Some(a), Some(b)) if a.path == b.path => (left.next(), right.next()),
            (Some(a), Some(b)) if a.path > b.path => (None, right.next()),
            (Some(_), _) => (left.next(), None),
            (None, Some(_)) => (None, right.next()),
        });
    }
}

/// The paths to remove from the present state, and the entries to write then. A file without stored
/// contents is the baseline's.
pub(super) fn differences(now: &[Entry], saved: &[Entry]) -> (Vec<Bytes>, Vec<Entry>) {
    let (mut remove, mut put): (Vec<Bytes>, Vec<Entry>) = (Vec::new(), Vec::new());
    for (a, b) in pairs(now, saved) {
        let Some(path) = a.or(b).map(|entry| &entry.path) else {
            continue;
        };
        let is = a.map_or_else(|| b.and_then(|b| b.before.as_ref()), |a| a.after.as_ref());
        let was = b.map_or_else(|| a.and_then(|a| a.before.as_ref()), |b| b.after.as_ref());
        if a.is_some() && b.is_some() && is.zip(was).is_some_and(|(is, was)| untouched(is, was)) {
            continue;
        }
        let other_kind = |is: &State| was.map(|was| Kind::of(was.mode)) != Some(Kind::of(is.mode));
        if is.is_some_and(other_kind) && !is_below(path, remove.last()) {
            remove.push(Bytes::copy_from_slice(path));
        }
        if let Some(was) = was {
            put.push(Entry {
                path: path.clone(),
                before: None,
                after: Some(was.clone()),
                stored: b.and_then(|b| b.stored),
                attributes: b.map_or_else(Attributes::new, |b| b.attributes.clone()),
            });
        }
    }
    (remove, put)
}

/// Whether this is the very file that was saved, unmodified since.
fn untouched(is: &State, was: &State) -> bool {
    let facts = |state: &State| {
        let owner = (state.uid, state.gid);
        (state.inode, state.stamp_ns, state.size, state.mode, owner)
    };
    is.inode != 0 && facts(is) == facts(was)
}

fn is_below(path: &[u8], above: Option<&Bytes>) -> bool {
    let rest = above.and_then(|above| path.strip_prefix(above.as_ref()));
    rest.is_some_and(|rest| rest.starts_with(b"/"))
}

/// Opens a file of the baseline.
pub(super) fn open_base(baseline: Option<&Path>, path: &[u8]) -> io::Result<File> {
    let Some(baseline) = baseline else {
        return Err(io::Error::other("a file of the list has no contents"));
    };
    // The tree is immutable and private, but symbolic links are still not followed.
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW;
    let full = baseline.join(OsStr::from_bytes(path));
    let file = rustix::fs::open(full, flags, rustix::fs::Mode::empty())?;
    Ok(File::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(mode: u32, inode: u64) -> State {
        State {
            mode,
            uid: 0,
            gid: 0,
            size: 1,
            modified_unix_ns: 1,
            stamp_ns: 1,
            inode,
            symlink_target: Vec::new(),
        }
    }

    fn entry(path: &str, before: Option<State>, after: Option<State>) -> Entry {
        Entry {
            path: path.into(),
            before,
            after,
            stored: None,
            attributes: Attributes::new(),
        }
    }

    const FILE: u32 = 0o100_644;
    const DIRECTORY: u32 = 0o040_755;

    #[test]
    fn only_what_was_changed_since_goes_back() {
        let now = [
            entry("added", None, Some(state(FILE, 1))),
            entry("dir", None, Some(state(DIRECTORY, 2))),
            entry("dir/inside", None, Some(state(FILE, 3))),
            entry("kept", None, Some(state(FILE, 4))),
            entry("lost", Some(state(FILE, 5)), None),
            entry("written", None, Some(state(FILE, 7))),
        ];
        let saved = [
            entry("gone", Some(state(FILE, 8)), None),
            entry("kept", None, Some(state(FILE, 4))),
            entry("written", None, Some(state(FILE, 6))),
        ];
        let (remove, put) = differences(&now, &saved);
        assert_eq!(remove, ["added", "dir", "gone"]);
        let put: Vec<_> = put.iter().map(|entry| entry.path.as_slice()).collect();
        assert_eq!(put, [b"lost".as_slice(), b"written"]);
    }

    #[test]
    fn what_became_something_else_goes_first() {
        let now = [
            entry("x", Some(state(DIRECTORY, 1)), Some(state(FILE, 9))),
            entry("x/y", Some(state(FILE, 2)), None),
        ];
        let (remove, put) = differences(&now, &[]);
        assert_eq!(remove, ["x"]);
        let put: Vec<_> = put.iter().map(|entry| entry.path.as_slice()).collect();
        assert_eq!(put, [b"x".as_slice(), b"x/y"]);
    }
}
