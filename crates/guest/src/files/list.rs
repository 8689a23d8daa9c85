//! Listing directories in pages.
//!
//! Entries come in tree order: a directory, then what is in it, names compared
//! byte by byte. The cursor is the last path of the page before. However large a
//! directory is, only one page of names is ever kept.

use super::entry;
use crate::answer::Failed;
use crate::blocking::Cancel;
use crate::place::{Place, Root};
use crate::users::Names;
use bytes::Bytes;
use motu_link::message::{Entries, FileType as Kind};
use prost::Message as _;
use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;

/// Entries of a page when the host does not say.
pub const DEFAULT_PAGE: usize = 1000;
/// The most entries of a page.
pub const MAX_PAGE: usize = 10_000;
/// The deepest listing.
pub const MAX_DEPTH: u32 = 64;
/// Bytes of a page, so that it fits into one frame; the rest comes with the next page.
pub const PAGE_BYTES: usize = 192 * 1024;

/// The page size for a request.
pub fn page_size(limit: u32) -> usize {
    match limit as usize {
        0 => DEFAULT_PAGE,
        limit => limit.min(MAX_PAGE),
    }
}

/// What to list.
#[derive(Debug)]
pub struct Listing<'a> {
    pub root: &'a Root,
    pub names: &'a Names,
    pub place: Place,
    pub depth: u32,
    /// Empty: from the beginning.
    pub after: Vec<u8>,
    pub limit: usize,
    pub cancel: Cancel,
}

/// A directory on the way down, with the names still to visit, last first.
struct Level {
    fd: OwnedFd,
    place: Place,
    names: Vec<Vec<u8>>,
    /// The directory has more names than fit a page.
    cut: bool,
}

impl Listing<'_> {
    pub fn run(&self) -> Result<Entries, Failed> {
        let depth = self.depth.max(1);
        if depth > MAX_DEPTH {
            return Err(Failed::invalid(format!(
                "depth {depth} is more than {MAX_DEPTH}"
            )));
        }
        let cursor = self.cursor()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let top = self.root.open_at(&self.place, flags, Mode::empty());
        let top = top.map_err(|errno| self.place.failed(errno))?;
        let first = self
            .level(top, self.place.clone(), &cursor)
            .map_err(|errno| self.place.failed(errno))?;
        let mut stack = vec![first];
        let mut page = Entries::default();
        let mut size = 0;
        while let Some(level) = stack.last_mut() {
            if self.cancel.is_set() {
                return Err(Failed::cancelled());
            }
            let Some(name) = level.names.pop() else {
                if level.cut {
                    return Ok(more(page));
                }
                stack.pop();
                continue;
            };
            let place = level.place.join(&name);
            // A name that was removed meanwhile is simply not there.
            let Ok(found) = entry::describe_at(self.names, &level.fd, &name, &place) else {
                continue;
            };
            let is_directory = found.kind == Kind::Directory as i32;
            if order(place.as_bytes(), &self.after, &self.place).is_gt() || self.after.is_empty() {
                size += found.encoded_len() + 8;
                if page.entries.len() >= self.limit
                    || (size > PAGE_BYTES && !page.entries.is_empty())
                {
                    return Ok(more(page));
                }
                page.entries.push(found);
            }
            if is_directory && (stack.len() as u32) < depth {
                stack.extend(self.descend(&stack, &name, place, &cursor));
            }
        }
        Ok(page)
    }

    /// The parts of the cursor below the listed directory.
    fn cursor(&self) -> Result<Vec<Vec<u8>>, Failed> {
        if self.after.is_empty() {
            return Ok(Vec::new());
        }
        match below(&self.after, &self.place) {
            Some(rest) => Ok(rest
                .split(|byte| *byte == b'/')
                .map(<[u8]>::to_vec)
                .collect()),
            None => Err(Failed::invalid(
                "the page's start is not below the listed directory",
            )),
        }
    }

    /// Opens a directory found on the way; one that cannot be read is listed but not entered.
    fn descend(
        &self,
        stack: &[Level],
        name: &[u8],
        place: Place,
        cursor: &[Vec<u8>],
    ) -> Option<Level> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&stack.last()?.fd, name, flags, Mode::empty()).ok()?;
        // The cursor only matters along its own path.
        let on_path = below(place.as_bytes(), &self.place).is_some_and(|rest| {
            rest.split(|byte| *byte == b'/')
                .eq(cursor.iter().take(stack.len()).map(|part| &part[..]))
        });
        let rest = if on_path {
            cursor.get(stack.len()..).unwrap_or_default()
        } else {
            &[]
        };
        self.level(fd, place, rest).ok()
    }

    /// Reads the smallest names that are not before the cursor, as many as a page may need.
    fn level(&self, fd: OwnedFd, place: Place, cursor: &[Vec<u8>]) -> Result<Level, Errno> {
        let from: &[u8] = cursor.first().map_or(b"", |part| part);
        // One more than a page for the cursor itself, and one to know that there is more.
        let most = self.limit + 2;
        let mut smallest: BinaryHeap<Vec<u8>> = BinaryHeap::new();
        let mut cut = false;
        for found in Dir::read_from(&fd)? {
            let found = found?;
            let name = found.file_name().to_bytes();
            if name == b"." || name == b".." || name < from {
                continue;
            }
            if smallest.len() < most {
                smallest.push(name.to_vec());
                continue;
            }
            cut = true;
            if smallest.peek().is_some_and(|largest| name < &largest[..]) {
                smallest.pop();
                smallest.push(name.to_vec());
            }
            if self.cancel.is_set() {
                break;
            }
        }
        let mut names = smallest.into_sorted_vec();
        names.reverse();
        Ok(Level {
            fd,
            place,
            names,
            cut,
        })
    }
}

/// Marks a page as not the last one.
fn more(mut page: Entries) -> Entries {
    page.next = page
        .entries
        .last()
        .map_or_else(Bytes::new, |entry| entry.path.clone());
    page
}

/// A path without the directory it is below.
fn below<'a>(path: &'a [u8], directory: &Place) -> Option<&'a [u8]> {
    if directory.is_root() {
        return path.strip_prefix(b"/");
    }
    path.strip_prefix(directory.as_bytes())?.strip_prefix(b"/")
}

/// Tree order: part by part, so that a directory comes right before its contents.
fn order(left: &[u8], right: &[u8], directory: &Place) -> std::cmp::Ordering {
    let parts = |path| {
        below(path, directory)
            .unwrap_or_default()
            .split(|byte: &u8| *byte == b'/')
    };
    parts(left).cmp(parts(right))
}
