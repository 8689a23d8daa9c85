//! Finds the differences from the baseline, sorted by path.
//!
//! With an overlay only its upper directory is walked: a name in it is a change or was copied up
//! without one, and all other names are unchanged. Only in an opaque directory, and without an
//! overlay, the names of both sides are compared.
//!
//! A directory's own entry is at `a`, what is in it at `a/…`, and `a.txt` is
//! between the two: so every directory is two items of its parent's list.

use super::facts::{Named, kind, look, modified_ns, stamp_ns};
use super::inside::{Inside, MAX_PATH};
use super::leftovers::now_ns;
use super::undo::is_stage;
use crate::answer::{Failed, Quoted};
use crate::blocking::Cancel;
use crate::sides::{Mode as WorkspaceMode, Workspace};
use bytes::Bytes;
use motu_launch::seeded::{Notes, is_in_place, is_opaque};
use motu_link::message::{Changed, ChangedEntry, Failure};
use prost::Message as _;
use rustix::fs::{Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Approximate size of one page of changes; a frame holds more.
const PAGE_BYTES: usize = 128 * 1024;
/// Names examined per page, so that a page without changes ends too.
const PAGE_NAMES: usize = 20_000;
/// The most changes of one workspace.
const MAX_CHANGES: u64 = 4_000_000;
/// Deepest directory; each level holds two descriptors.
const MAX_DEPTH: usize = 200;

/// The sides on which a directory exists, and whose names are examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sides {
    /// On both; a name that is missing above is unchanged.
    Overlaid,
    /// On both; a name that is missing above was removed.
    Both,
    Above,
    Below,
}

#[derive(Debug)]
struct Level {
    sides: Sides,
    above: Option<OwnedFd>,
    below: Option<OwnedFd>,
    /// Whether `above` and all its parents are where the copy of the baseline put them: then an old
    /// ctime means unchanged.
    in_place: bool,
    /// The path, with a trailing slash unless empty.
    prefix: Vec<u8>,
    /// Items left to do, the next one last.
    items: Vec<Item>,
}

#[derive(Debug, PartialEq, Eq)]
struct Item {
    /// The name; with a trailing slash for the directory's contents.
    key: Vec<u8>,
    enter: Option<Sides>,
}

/// A walk over all differences.
#[derive(Debug)]
pub struct Walk {
    workspace: Arc<Workspace>,
    cancel: Cancel,
    stack: Vec<Level>,
    /// Names left on the way to the wanted path, the first one last.
    way: Vec<Vec<u8>>,
    found: u64,
    begun: bool,
    /// When the walk began, in nanoseconds since 1970.
    moment_ns: i64,
}

impl Walk {
    pub fn new(workspace: Arc<Workspace>, path: &Inside, cancel: Cancel) -> Walk {
        let mut way: Vec<Vec<u8>> = path.parts().map(<[u8]>::to_vec).collect();
        way.reverse();
        Walk {
            workspace,
            cancel,
            stack: Vec::new(),
            way,
            found: 0,
            begun: false,
            moment_ns: now_ns(),
        }
    }

    /// The next page, possibly empty; `None` after the last.
    pub fn next_page(&mut self) -> Result<Option<Changed>, Failed> {
        let mut page = Changed::default();
        let mut size = 0;
        if !self.begun {
            self.begun = true;
            if let Some(entry) = self.begin()? {
                size += entry.encoded_len();
                page.entries.push(entry);
            }
        }
        for _ in 0..PAGE_NAMES {
            if self.cancel.is_set() {
                return Err(Failed::cancelled());
            }
            if size > PAGE_BYTES {
                return Ok(Some(page));
            }
            let Some(level) = self.stack.last_mut() else {
                return Ok((!page.entries.is_empty()).then_some(page));
            };
            let Some(item) = level.items.pop() else {
                self.stack.pop();
                continue;
            };
            match item.enter {
                Some(sides) => self.enter(&item.key, sides)?,
                None => {
                    if let Some(entry) = self.visit(&item.key)? {
                        size += entry.encoded_len() + 8;
                        page.entries.push(entry);
                        self.count()?;
                    }
                }
            }
        }
        Ok(Some(page))
    }

    fn count(&mut self) -> Result<(), Failed> {
        self.found += 1;
        if self.found > MAX_CHANGES {
            let message = format!("more than {MAX_CHANGES} changes");
            return Err(Failed::new(Failure::Limit, message));
        }
        Ok(())
    }

    /// Opens both roots; their own difference is an entry with an empty path.
    fn begin(&mut self) -> Result<Option<ChangedEntry>, Failed> {
        let failed = |errno| Failed::errno("the workspace", errno);
        let top = Inside::default();
        let (above, below) = (self.workspace.above(), &self.workspace.lower);
        let open = |fd: &OwnedFd| top.open(fd, OFlags::RDONLY | OFlags::DIRECTORY);
        let (above, below) = (open(above).map_err(failed)?, open(below).map_err(failed)?);
        let stats = |fd: &OwnedFd| rustix::fs::fstat(fd).map_err(failed);
        let (after, before) = (stats(&above)?, stats(&below)?);
        let entry = match self.way.is_empty() {
            true => self.compare(
                b"",
                named(&below, b".", &before),
                named(&above, b".", &after),
                true,
            )?,
            false => None,
        };
        let sides = self.sides_of_pair(&above, true);
        self.push(sides, (Some(above), Some(below)), true, Vec::new())
            .map_err(failed)?;
        Ok(entry)
    }

    /// Whether a directory on both sides is opaque.
    fn sides_of_pair(&self, above: &OwnedFd, in_place: bool) -> Sides {
        match self.workspace.mode {
            WorkspaceMode::Compare => Sides::Both,
            WorkspaceMode::Overlay { notes, .. } => {
                let stat = rustix::fs::fstat(above).ok();
                let untouched = in_place && stat.is_some_and(|stat| self.untouched(&stat));
                match is_opaque(above, notes) && !untouched {
                    true => Sides::Both,
                    // The directory itself is unchanged, so no name was added or removed.
                    false => Sides::Overlaid,
                }
            }
        }
    }

    /// Whether the ctime alone proves that an entry is as the copy of the baseline made it. Not in
    /// a machine with its own kernel, where root can set the clock back.
    fn untouched(&self, stat: &Stat) -> bool {
        let hosts_clock = matches!(
            self.workspace.mode,
            WorkspaceMode::Overlay {
                notes: Notes::User,
                ..
            }
        );
        let copied = self.workspace.copied_unix_ns;
        hosts_clock && copied.is_some_and(|copied| stamp_ns(stat) < copied)
    }

    /// Whether a directory at this path is where the copy put it.
    fn is_in_place(&self, above: &OwnedFd, path: &[u8]) -> bool {
        let Some(copied) = self.workspace.copied_unix_ns else {
            return false;
        };
        match self.workspace.mode {
            WorkspaceMode::Overlay { notes, .. } => is_in_place(above, path, notes),
            // Without an overlay there are no attributes to tell, but moving a directory changes
            // its ctime.
            WorkspaceMode::Compare => {
                rustix::fs::fstat(above).is_ok_and(|stat| stamp_ns(&stat) < copied)
            }
        }
    }

    fn push(
        &mut self,
        sides: Sides,
        (above, below): (Option<OwnedFd>, Option<OwnedFd>),
        in_place: bool,
        prefix: Vec<u8>,
    ) -> Result<(), Errno> {
        let mut names = BTreeSet::new();
        match self.way.pop() {
            Some(name) => {
                names.insert(name);
            }
            None => {
                let listed = match sides {
                    Sides::Overlaid | Sides::Above => [above.as_ref(), None],
                    Sides::Both => [above.as_ref(), below.as_ref()],
                    Sides::Below => [below.as_ref(), None],
                };
                for fd in listed.into_iter().flatten() {
                    list(fd, &mut names)?;
                }
                if let Some(above) = above.as_ref().filter(|_| prefix.is_empty()) {
                    // Stages are not part of the workspace.
                    names.retain(|name| !is_stage(above, name));
                }
            }
        }
        let items = names
            .into_iter()
            .rev()
            .map(|key| Item { key, enter: None })
            .collect();
        self.stack.push(Level {
            sides,
            above,
            below,
            in_place,
            prefix,
            items,
        });
        Ok(())
    }

    fn enter(&mut self, key: &[u8], sides: Sides) -> Result<(), Failed> {
        let depth = self.stack.len();
        let Some(level) = self.stack.last() else {
            return Ok(());
        };
        let prefix = [&level.prefix[..], key].concat();
        if depth >= MAX_DEPTH {
            return Err(Failed::new(
                Failure::Limit,
                format!("{} is deeper than {MAX_DEPTH} directories", Quoted(&prefix)),
            ));
        }
        let failed = |errno| Failed::errno(Quoted(&prefix), errno);
        let name = key.strip_suffix(b"/").unwrap_or(key);
        let open = |fd: &Option<OwnedFd>, wanted: bool| match fd {
            Some(fd) if wanted => open_directory(fd, name),
            _ => Ok(None),
        };
        let above = open(&level.above, sides != Sides::Below).map_err(failed)?;
        let below = open(&level.below, sides != Sides::Above).map_err(failed)?;
        let path = prefix.strip_suffix(b"/").unwrap_or(&prefix);
        let in_place = level.in_place
            && above
                .as_ref()
                .is_some_and(|above| self.is_in_place(above, path));
        let sides = match (&above, &below) {
            (Some(above), Some(_)) => self.sides_of_pair(above, in_place),
            (Some(_), None) => Sides::Above,
            (None, Some(_)) if sides == Sides::Below => Sides::Below,
            // Removed concurrently.
            _ => return Ok(()),
        };
        self.push(sides, (above, below), in_place, prefix.clone())
            .map_err(failed)
    }

    /// Examines one name: whether it differs, and whether to descend.
    fn visit(&mut self, name: &[u8]) -> Result<Option<ChangedEntry>, Failed> {
        let Some(level) = self.stack.last() else {
            return Ok(None);
        };
        let path = [&level.prefix[..], name].concat();
        if path.len() > MAX_PATH {
            // A longer path could not be used in any request.
            let message = format!("{} is longer than {MAX_PATH} bytes", Quoted(&path));
            return Err(Failed::new(Failure::Limit, message));
        }
        let failed = |errno| Failed::errno(Quoted(&path), errno);
        let side = |fd: &Option<OwnedFd>| match fd {
            Some(fd) => look(fd, name),
            None => Ok(None),
        };
        let found = side(&level.above).map_err(failed)?;
        if found.is_none() && level.sides == Sides::Overlaid {
            return Ok(None);
        }
        let overlay = matches!(self.workspace.mode, WorkspaceMode::Overlay { .. });
        let after = found.filter(|stat| !(overlay && is_whiteout(stat)));
        let known = level.in_place && level.below.is_some();
        let same = known && after.as_ref().is_some_and(|stat| self.untouched(stat));
        let before = match level.below {
            // Unchanged: the baseline's entry need not be examined.
            Some(_) if same => after,
            Some(_) => side(&level.below).map_err(failed)?,
            None => None,
        };
        let wanted = self.way.is_empty();
        let entry = match (&level.below, &level.above, before, after) {
            _ if !wanted || same => None,
            (Some(below), Some(above), Some(before), Some(after)) => self.compare(
                &path,
                named(below, name, &before),
                named(above, name, &after),
                level.in_place,
            )?,
            (Some(below), _, Some(before), None) => {
                Some(self.entry(&path, Some(named(below, name, &before)), None))
            }
            (_, Some(above), None, Some(after)) => {
                Some(self.entry(&path, None, Some(named(above, name, &after))))
            }
            _ => None,
        };
        let directory = |stat: &Option<Stat>| {
            stat.as_ref()
                .is_some_and(|stat| kind(stat) == FileType::Directory)
        };
        let enter = match (directory(&before), directory(&after)) {
            (true, true) => Sides::Both,
            (true, false) => Sides::Below,
            (false, true) => Sides::Above,
            (false, false) => return Ok(entry),
        };
        if let Some(level) = self.stack.last_mut() {
            level.later([name, b"/"].concat(), enter);
        }
        Ok(entry)
    }

    fn compare(
        &self,
        path: &[u8],
        before: Named<'_>,
        after: Named<'_>,
        in_place: bool,
    ) -> Result<Option<ChangedEntry>, Failed> {
        if let Some(copied) = self.workspace.copied_unix_ns
            && in_place
            && stamp_ns(after.stat) < copied
            && looks_same(before.stat, after.stat)
        {
            return Ok(None);
        }
        match after.same(&before, &self.cancel)? {
            true => Ok(None),
            false => Ok(Some(self.entry(path, Some(before), Some(after)))),
        }
    }

    fn entry(
        &self,
        path: &[u8],
        before: Option<Named<'_>>,
        after: Option<Named<'_>>,
    ) -> ChangedEntry {
        ChangedEntry {
            path: Bytes::copy_from_slice(path),
            before: before.map(|named| named.facts(self.moment_ns)),
            after: after.map(|named| named.facts(self.moment_ns)),
        }
    }
}

impl Level {
    /// Inserts an item in order.
    fn later(&mut self, key: Vec<u8>, sides: Sides) {
        let at = self.items.partition_point(|item| item.key > key);
        let enter = Some(sides);
        self.items.insert(at, Item { key, enter });
    }
}

fn named<'a>(directory: &'a OwnedFd, name: &'a [u8], stat: &'a Stat) -> Named<'a> {
    Named {
        directory,
        name,
        stat,
    }
}

/// Whether the metadata is equal without opening the files; setting the clock back does not hide a
/// change.
fn looks_same(before: &Stat, after: &Stat) -> bool {
    let plain = |stat: &Stat| (stat.st_mode, stat.st_uid, stat.st_gid);
    let content = |stat: &Stat| (stat.st_size, modified_ns(stat), stat.st_nlink);
    plain(before) == plain(after)
        && (kind(before) == FileType::Directory || content(before) == content(after))
}

/// Whether an entry is an overlayfs whiteout, which hides a removed entry of the lower directory.
fn is_whiteout(stat: &Stat) -> bool {
    kind(stat) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// Opens a directory; `None` if it is none any more.
fn open_directory(at: &OwnedFd, name: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(at, name, flags, Mode::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn list(directory: &OwnedFd, names: &mut BTreeSet<Vec<u8>>) -> Result<(), Errno> {
    for found in Dir::read_from(directory)? {
        let found = found?;
        let name = found.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.insert(name.to_vec());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_directory_comes_in_its_turn() {
        let item = |key: &[u8]| Item {
            key: key.to_vec(),
            enter: None,
        };
        let mut level = Level {
            sides: Sides::Both,
            above: None,
            below: None,
            in_place: false,
            prefix: Vec::new(),
            items: vec![item(b"b"), item(b"a0"), item(b"a.txt")],
        };
        level.later(b"a/".to_vec(), Sides::Both);
        let order: Vec<_> = level.items.iter().rev().map(|i| i.key.clone()).collect();
        assert_eq!(order, [&b"a.txt"[..], b"a/", b"a0", b"b"]);
    }
}
