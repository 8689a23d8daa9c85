//! `/workspace` beside what it was at first.
//!
//! All paths here are relative to `/workspace`: no slash at the front, no `..`.
//! No symlink is followed on the way to one. A machine without a baseline
//! answers `Unsupported`.
//!
//! A request is one frame. Lists of paths that do not fit go in the data: each
//! path, then a NUL byte.

use bytes::Bytes;
use prost::Message;

/// What differs from the baseline, at a cost that follows the differences
/// (without an overlay, at the cost of looking at every name).
///
/// A path is reported when its type, permission bits, owner, `user.` attributes,
/// size, time of modification, number of names, target or content differs. The
/// time of a directory alone is no difference: it follows from what is in it.
#[derive(Clone, PartialEq, Message)]
pub struct Changes {
    /// Only at and below this path; empty: everything.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
}

/// A page of changes; pages and their entries come in the order of the paths' bytes.
#[derive(Clone, PartialEq, Message)]
pub struct Changed {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<ChangedEntry>,
}

/// One path. Without `before` it was added, without `after` it was deleted.
/// Everything in an added or deleted directory has an entry of its own; what
/// replaces a directory comes with entries for all that was in it. The path of
/// `/workspace` itself is empty.
#[derive(Clone, PartialEq, Message)]
pub struct ChangedEntry {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(message, optional, tag = "2")]
    pub before: Option<Facts>,
    #[prost(message, optional, tag = "3")]
    pub after: Option<Facts>,
}

/// What is known of a path without reading it.
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
    /// content. Negative where the last change is so recent that the next one could look the same.
    #[prost(int64, tag = "6")]
    pub stamp_ns: i64,
    #[prost(uint64, tag = "7")]
    pub inode: u64,
    #[prost(bytes = "bytes", tag = "8")]
    pub symlink_target: Bytes,
    /// How many names the file has.
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

/// Packs exactly these paths (a directory without what is in it), as they are:
/// owners, modes, times to the nanosecond, `user.` attributes, hard links among
/// them, holes, pipes.
#[derive(Clone, PartialEq, Message)]
pub struct Pick {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub paths: Vec<Bytes>,
    /// More paths come as data, each followed by a NUL byte; then EOF.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// What became of a [`Pick`]. Each list is cut at 1000 paths; the counts are not.
#[derive(Clone, PartialEq, Message)]
pub struct Picked {
    #[prost(uint64, tag = "1")]
    pub entries: u64,
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Not in the archive: gone meanwhile, or a socket or device, which no archive brings back.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub left_out: Vec<Bytes>,
    #[prost(uint64, tag = "4")]
    pub left_out_count: u64,
    /// In the archive, but written to all the while: the content is of no single moment. Pick them again.
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub unsettled: Vec<Bytes>,
    #[prost(uint64, tag = "6")]
    pub unsettled_count: u64,
}

/// How the names begin of what a [`Restore`] has not finished. It removes what it leaves undone;
/// after the sudden end of its machine one may stay.
pub const RESTORING: &[u8] = b".motu-restoring-";

/// Brings `/workspace` from its baseline to a saved state: removes these paths
/// (with what is in them; missing ones are no error), then unpacks an archive as
/// [`Pick`] makes it, owners, modes and times included. What an entry replaces
/// must be no directory, or both be directories, or be removed. Everything takes
/// its name when it is whole.
#[derive(Clone, PartialEq, Message)]
pub struct Restore {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub remove: Vec<Bytes>,
    /// The data begins with this many bytes of more paths to remove, each followed by a NUL byte.
    #[prost(uint64, tag = "2")]
    pub list_bytes: u64,
}

/// Changes files in order, all or none: when one operation cannot be done, those
/// before it are undone. New contents are staged first, so that what others see
/// lasts no longer than some renames. The data is the content of every write,
/// one after the other.
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
    /// Gives a regular file or symlink another path, where nothing is yet; missing directories are made.
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
    /// Refuse unless the path is a regular file with this content; empty: whatever it is.
    #[prost(bytes = "bytes", tag = "7")]
    pub expect_sha256: Bytes,
}

/// Why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum RefusedWhy {
    /// The kernel said no; the outcome says why.
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

/// What became of an [`Apply`].
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
