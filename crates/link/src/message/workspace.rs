//! `/workspace`, compared with its baseline.
//!
//! All paths here are relative to `/workspace`: no leading slash, no `..`. No symbolic link is
//! followed. A machine without a baseline answers `Unsupported`.
//!
//! A request is one frame. Lists of paths that do not fit go in the data: each
//! path, then a NUL byte.

use bytes::Bytes;
use prost::Message;

/// Lists the differences from the baseline, at a cost proportional to the differences (without an
/// overlay, to the number of names).
///
/// A path is reported if its type, permission bits, owner, `user.*` attributes, size,
/// modification time, link count, target or content differs. The time of a directory alone is no
/// difference: it follows from its entries.
#[derive(Clone, PartialEq, Message)]
pub struct Changes {
    /// Only at and below this path; empty: everything.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
}

/// A page of changes; pages and entries are sorted by path bytes.
#[derive(Clone, PartialEq, Message)]
pub struct Changed {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<ChangedEntry>,
}

/// One path. Without `before` it was added, without `after` it was deleted. Everything in an added
/// or deleted directory has its own entry; so has everything in a directory that was replaced. The
/// path of `/workspace` itself is empty.
#[derive(Clone, PartialEq, Message)]
pub struct ChangedEntry {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(message, optional, tag = "2")]
    pub before: Option<Facts>,
    #[prost(message, optional, tag = "3")]
    pub after: Option<Facts>,
}

/// Metadata of a path.
#[derive(Clone, PartialEq, Message)]
pub struct Facts {
    /// Type and permission bits, as in `stat`.
    #[prost(uint32, tag = "1")]
    pub mode: u32,
    #[prost(uint32, tag = "2")]
    pub uid: u32,
    #[prost(uint32, tag = "3")]
    pub gid: u32,
    #[prost(uint64, tag = "4")]
    pub size: u64,
    #[prost(int64, tag = "5")]
    pub modified_unix_ns: i64,
    /// Changes with every write and cannot be set: equal stamps of one path and inode mean equal
    /// content. Negative if the last change is so recent that the next one could get the same
    /// stamp.
    #[prost(int64, tag = "6")]
    pub stamp_ns: i64,
    #[prost(uint64, tag = "7")]
    pub inode: u64,
    #[prost(bytes = "bytes", tag = "8")]
    pub symlink_target: Bytes,
    /// The number of hard links.
    #[prost(uint64, tag = "9")]
    pub links: u64,
}

/// Reads a regular file of the baseline.
#[derive(Clone, PartialEq, Message)]
pub struct ReadBase {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// 0: to the end.
    #[prost(uint64, tag = "3")]
    pub length: u64,
}

/// Packs exactly these paths (a directory without its contents) with owners, modes, times in
/// nanoseconds, `user.*` attributes, hard links among them, holes and pipes.
#[derive(Clone, PartialEq, Message)]
pub struct Pick {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub paths: Vec<Bytes>,
    /// More paths come as data, each followed by a NUL byte; then EOF.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// The result of a [`Pick`]. Each list is cut at 1000 paths; the counts are not.
#[derive(Clone, PartialEq, Message)]
pub struct Picked {
    #[prost(uint64, tag = "1")]
    pub entries: u64,
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Not in the archive: removed meanwhile, or a socket or device, which cannot be restored.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub left_out: Vec<Bytes>,
    #[prost(uint64, tag = "4")]
    pub left_out_count: u64,
    /// In the archive, but modified while it was read: the content is inconsistent. Pick them
    /// again.
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub unsettled: Vec<Bytes>,
    #[prost(uint64, tag = "6")]
    pub unsettled_count: u64,
}

/// Prefix of temporary names of a [`Restore`]. They are removed at its end; after a sudden end of
/// the machine one may stay.
pub const RESTORING: &[u8] = b".motu-restoring-";

/// Brings `/workspace` from its baseline to a saved state: removes these paths (recursively;
/// missing ones are no error), then unpacks an archive in the format of [`Pick`], with owners,
/// modes and times. An entry may replace a non-directory, or a directory if it is one itself.
/// Everything is renamed into place when it is complete.
#[derive(Clone, PartialEq, Message)]
pub struct Restore {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub remove: Vec<Bytes>,
    /// The data begins with this many bytes of more paths to remove, each followed by a NUL byte.
    #[prost(uint64, tag = "2")]
    pub list_bytes: u64,
}

/// Changes files in order, all or none: if one operation fails, those before it are undone. New
/// contents are staged first, so that the changes become visible within a few renames. The data is
/// the concatenated content of all writes.
#[derive(Clone, PartialEq, Message)]
pub struct Apply {
    #[prost(message, repeated, tag = "1")]
    pub operations: Vec<Operation>,
    /// Owner of new files and directories; empty: the default user. A replaced file keeps its own.
    #[prost(string, tag = "2")]
    pub user: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum OperationKind {
    /// Makes or replaces a regular file; missing directories are made.
    Write = 0,
    /// Removes a regular file or symlink.
    Delete = 1,
    /// Moves a regular file or symbolic link to an unused path; missing directories are made.
    Rename = 2,
}

#[derive(Clone, PartialEq, Message)]
pub struct Operation {
    #[prost(enumeration = "OperationKind", tag = "1")]
    pub kind: i32,
    #[prost(bytes = "bytes", tag = "2")]
    pub path: Bytes,
    /// Where a rename leads.
    #[prost(bytes = "bytes", tag = "3")]
    pub to: Bytes,
    /// Bytes of the data that belong to a write.
    #[prost(uint64, tag = "4")]
    pub size: u64,
    /// Permission bits of a written file; 0: those it had, or 0644.
    #[prost(uint32, tag = "5")]
    pub mode: u32,
    /// Refuse unless nothing is at the path.
    #[prost(bool, tag = "6")]
    pub expect_absent: bool,
    /// Refuse unless the path is a regular file with this content; empty: no check.
    #[prost(bytes = "bytes", tag = "7")]
    pub expect_sha256: Bytes,
}

/// Why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum RefusedWhy {
    /// A system call failed; the outcome has the reason.
    Failed = 0,
    /// Something is there that was expected to be absent, or in the way of a rename.
    Present = 1,
    /// Nothing is there.
    Absent = 2,
    /// The content is not the expected one.
    Differs = 3,
    /// A directory, a device, a symlink where a file is needed.
    NotAFile = 4,
}

/// The result of an [`Apply`].
#[derive(Clone, PartialEq, Message)]
pub struct Applied {
    /// Operations done: all, or none.
    #[prost(uint32, tag = "1")]
    pub done: u32,
    /// The operation that could not be done; the outcome is then a failure.
    #[prost(message, optional, tag = "2")]
    pub refused: Option<Refused>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Refused {
    /// Which of the operations.
    #[prost(uint32, tag = "1")]
    pub index: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub path: Bytes,
    #[prost(enumeration = "RefusedWhy", tag = "3")]
    pub why: i32,
}
