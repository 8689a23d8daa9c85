//! `/workspace` beside what it was at first.
//!
//! All paths here are relative to `/workspace`. A machine without a baseline
//! answers `Unsupported`.

use bytes::Bytes;
use prost::Message;

/// What differs from the baseline, at a cost that follows the differences.
#[derive(Clone, PartialEq, Message)]
pub struct Changes {
    /// Only at and below this path; empty: everything.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
}

/// A page of changes; pages and their entries come in the order of the paths.
#[derive(Clone, PartialEq, Message)]
pub struct Changed {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<ChangedEntry>,
}

/// One path. Without `before` it was added, without `after` it was deleted.
/// Everything in an added or deleted directory has an entry of its own.
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
    /// Changes with every write: equal stamps of one path mean equal content.
    #[prost(int64, tag = "6")]
    pub stamp_ns: i64,
    #[prost(uint64, tag = "7")]
    pub inode: u64,
    #[prost(bytes = "bytes", tag = "8")]
    pub symlink_target: Bytes,
}

/// Reads a file of the baseline.
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
/// owners, modes, times to the nanosecond, `user.` attributes, hard links among them.
#[derive(Clone, PartialEq, Message)]
pub struct Pick {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub paths: Vec<Bytes>,
}

/// Brings `/workspace` from its baseline to a saved state: removes these paths
/// (with what is in them; missing ones are no error), then unpacks an archive as [`Pick`] makes it,
/// owners, modes and times included.
#[derive(Clone, PartialEq, Message)]
pub struct Restore {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub remove: Vec<Bytes>,
}
