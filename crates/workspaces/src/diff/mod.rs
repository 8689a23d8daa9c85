//! Differences between two states of `/workspace`, for people and programs.
//!
//! ```text
//! ChangedEntry ──wants()──► caller fetches contents ──push()──► … ──finish()──► Report
//! ```
//!
//! Owns the report: names of changes, when a file counts as text, how much text the report may
//! hold. A rename is reported as a deletion and an addition. The patches in a report can be applied
//! by [`crate::patch`]: together they turn the text files of one state into those of the other.

mod text;

use motu_core::limits;
use motu_link::message::{ChangedEntry, Facts};
use serde::{Deserialize, Serialize};

pub use text::is_binary;

/// Most patch text in one report.
pub const MAX_REPORT_BYTES: usize = limits::DIFF_BYTES.max as usize;
/// Largest file that is compared line by line.
pub const MAX_COMPARED_BYTES: u64 = limits::DIFF_FILE_BYTES.max;

const TYPE_MASK: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
/// Permission bits that count as a change.
const PERMISSIONS: u32 = 0o7777;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Added,
    Modified,
    Deleted,
    /// The name now has another type of file.
    TypeChanged,
    /// Only permissions or owner differ.
    ModeChanged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Other,
}

impl Kind {
    pub fn of(mode: u32) -> Kind {
        match mode & TYPE_MASK {
            REGULAR => Kind::File,
            DIRECTORY => Kind::Directory,
            SYMLINK => Kind::Symlink,
            _ => Kind::Other,
        }
    }
}

/// One side of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<String>,
}

/// One path that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Relative to `/workspace`; invalid UTF-8 is replaced.
    pub path: String,
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Side>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Side>,
    /// Not text on at least one side.
    pub binary: bool,
    pub added_lines: usize,
    pub removed_lines: usize,
    /// The change as a git patch; absent for anything but text files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// The file or the report is too large: there is no patch, lines are not counted, and equal
    /// contents may not have been noticed.
    pub truncated: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub added: usize,
    pub modified: usize,
    pub deleted: usize,
    pub type_changed: usize,
    pub mode_changed: usize,
    /// Lines of the compared files.
    pub added_lines: usize,
    pub removed_lines: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub entries: Vec<Entry>,
    pub totals: Totals,
    /// At least one entry is truncated.
    pub truncated: bool,
}

impl Report {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All patches concatenated.
    pub fn patch(&self) -> String {
        let patches = self
            .entries
            .iter()
            .filter_map(|entry| entry.patch.as_deref());
        patches.collect()
    }
}

/// The sides of a change whose contents the report needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    pub before: bool,
    pub after: bool,
}

/// Builds a report.
#[derive(Debug)]
pub struct Builder {
    report: Report,
    /// Patch text that still fits.
    left: usize,
}

impl Builder {
    /// A report with at most `max_bytes` of patch text.
    pub fn new(max_bytes: usize) -> Builder {
        Builder {
            report: Report::default(),
            left: max_bytes.min(MAX_REPORT_BYTES),
        }
    }

    /// The contents to fetch before [`Builder::push`]; none once the report is full.
    pub fn wants(&self, entry: &ChangedEntry) -> Wants {
        if self.left == 0 {
            return Wants::default();
        }
        let small = |facts: &Option<Facts>| match facts {
            None => true,
            Some(facts) => Kind::of(facts.mode) != Kind::File || facts.size <= MAX_COMPARED_BYTES,
        };
        if !small(&entry.before) || !small(&entry.after) {
            return Wants::default();
        }
        let file = |facts: &Option<Facts>| {
            let file = facts
                .as_ref()
                .filter(|facts| Kind::of(facts.mode) == Kind::File);
            file.is_some()
        };
        let other = |facts: &Option<Facts>| facts.is_some() && !file(facts);
        Wants {
            before: file(&entry.before) && !other(&entry.after),
            after: file(&entry.after) && !other(&entry.before),
        }
    }

    /// Adds a change, with the contents that [`Builder::wants`] asked for.
    pub fn push(&mut self, entry: &ChangedEntry, before: Option<&[u8]>, after: Option<&[u8]>) {
        let change = Change {
            before: entry.before.as_ref(),
            after: entry.after.as_ref(),
            old: before,
            new: after,
        };
        let Some(status) = change.status() else {
            return;
        };
        let path = &entry.path;
        let mut entry = Entry {
            path: String::from_utf8_lossy(path).into_owned(),
            status,
            before: change.before.map(side),
            after: change.after.map(side),
            binary: false,
            added_lines: 0,
            removed_lines: 0,
            patch: None,
            truncated: false,
        };
        change.describe(path, &mut entry, &mut self.left);
        self.add(entry);
    }

    fn add(&mut self, entry: Entry) {
        let totals = &mut self.report.totals;
        *match entry.status {
            Status::Added => &mut totals.added,
            Status::Modified => &mut totals.modified,
            Status::Deleted => &mut totals.deleted,
            Status::TypeChanged => &mut totals.type_changed,
            Status::ModeChanged => &mut totals.mode_changed,
        } += 1;
        totals.added_lines += entry.added_lines;
        totals.removed_lines += entry.removed_lines;
        self.report.truncated |= entry.truncated;
        self.report.entries.push(entry);
    }

    pub fn finish(self) -> Report {
        self.report
    }
}

/// A change with its contents, as far as they are known.
struct Change<'a> {
    before: Option<&'a Facts>,
    after: Option<&'a Facts>,
    old: Option<&'a [u8]>,
    new: Option<&'a [u8]>,
}

impl Change<'_> {
    /// The kind of change; `None` if only times differ.
    fn status(&self) -> Option<Status> {
        let (before, after) = match (self.before, self.after) {
            (None, None) => return None,
            (None, Some(_)) => return Some(Status::Added),
            (Some(_), None) => return Some(Status::Deleted),
            (Some(before), Some(after)) => (before, after),
        };
        if Kind::of(before.mode) != Kind::of(after.mode) {
            return Some(Status::TypeChanged);
        }
        let modified = match Kind::of(after.mode) {
            Kind::File => match (self.old, self.new) {
                (Some(old), Some(new)) => old != new,
                // Contents not read: size or stamp tell that the file was written.
                _ => before.size != after.size || before.stamp_ns != after.stamp_ns,
            },
            Kind::Symlink => before.symlink_target != after.symlink_target,
            Kind::Directory | Kind::Other => false,
        };
        let moded = (before.mode ^ after.mode) & PERMISSIONS != 0
            || (before.uid, before.gid) != (after.uid, after.gid);
        match (modified, moded) {
            (true, _) => Some(Status::Modified),
            (false, true) => Some(Status::ModeChanged),
            (false, false) => None,
        }
    }

    /// Adds the patch, or marks why there is none.
    fn describe(&self, path: &[u8], entry: &mut Entry, left: &mut usize) {
        let is_file =
            |facts: Option<&Facts>| facts.is_none_or(|facts| Kind::of(facts.mode) == Kind::File);
        if !is_file(self.before) || !is_file(self.after) {
            return;
        }
        let (Some(old), Some(new)) = (
            contents(self.before, self.old),
            contents(self.after, self.new),
        ) else {
            entry.truncated = true;
            return;
        };
        let patch = match (text_of(old), text_of(new)) {
            (Some(old), Some(new)) => {
                let diff = text::compare(old, new);
                (entry.added_lines, entry.removed_lines) = (diff.added, diff.removed);
                let mode = |facts: Option<&Facts>| facts.map(|facts| facts.mode);
                let (before, after) = (mode(self.before), mode(self.after));
                let headers = text::headers(path, before, after, !diff.hunks.is_empty());
                headers + &diff.hunks
            }
            _ => {
                entry.binary = true;
                return;
            }
        };
        // A patch cannot express a change of owner.
        if patch.lines().count() < 2 {
            return;
        }
        match left.checked_sub(patch.len()) {
            Some(rest) => {
                *left = rest;
                entry.patch = Some(patch);
            }
            // No later, smaller patch either: a report with holes would mislead.
            None => {
                *left = 0;
                entry.truncated = true;
            }
        }
    }
}

/// The contents of a side: those read, or empty if there is no file.
fn contents<'a>(facts: Option<&Facts>, read: Option<&'a [u8]>) -> Option<&'a [u8]> {
    match facts {
        None => Some(b""),
        Some(_) => read,
    }
}

fn text_of(contents: &[u8]) -> Option<&str> {
    if is_binary(contents) {
        return None;
    }
    std::str::from_utf8(contents).ok()
}

fn side(facts: &Facts) -> Side {
    let kind = Kind::of(facts.mode);
    let target = String::from_utf8_lossy(&facts.symlink_target);
    Side {
        kind,
        mode: facts.mode & PERMISSIONS,
        size: facts.size,
        symlink_target: (kind == Kind::Symlink).then(|| target.into_owned()),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
