//! Files and trees.

use bytes::Bytes;
use prost::Message;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum FileType {
    Other = 0,
    File = 1,
    Directory = 2,
    Symlink = 3,
}

#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(enumeration = "FileType", tag = "2")]
    pub kind: i32,
    #[prost(uint64, tag = "3")]
    pub size: u64,
    /// Permission bits, without the type.
    #[prost(uint32, tag = "4")]
    pub mode: u32,
    #[prost(uint32, tag = "5")]
    pub uid: u32,
    #[prost(uint32, tag = "6")]
    pub gid: u32,
    #[prost(string, tag = "7")]
    pub owner: String,
    #[prost(string, tag = "8")]
    pub group: String,
    #[prost(int64, tag = "9")]
    pub modified_unix_ms: i64,
    #[prost(bytes = "bytes", tag = "10")]
    pub symlink_target: Bytes,
    /// Differs when the file was replaced, also within the same millisecond; 0: not known.
    #[prost(uint64, tag = "11")]
    pub revision: u64,
}

impl Entry {
    pub fn version(&self) -> Version {
        Version {
            modified_unix_ms: self.modified_unix_ms,
            size: self.size,
            revision: self.revision,
        }
    }
}

/// One state of a file.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Version {
    #[prost(int64, tag = "1")]
    pub modified_unix_ms: i64,
    #[prost(uint64, tag = "2")]
    pub size: u64,
    #[prost(uint64, tag = "3")]
    pub revision: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Entries {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// Where the next page begins; empty on the last one.
    #[prost(bytes = "bytes", tag = "2")]
    pub next: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct Stat {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// Follow symbolic links.
    #[prost(bool, tag = "2")]
    pub follow: bool,
    /// Refuse a symbolic link that leads out of this directory; empty: no restriction.
    #[prost(bytes = "bytes", tag = "3")]
    pub within: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct List {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// 1: only the directory's own entries; 0 counts as 1.
    #[prost(uint32, tag = "2")]
    pub depth: u32,
    /// `next` of the previous page.
    #[prost(bytes = "bytes", tag = "3")]
    pub after: Bytes,
    /// 0: the default page size.
    #[prost(uint32, tag = "4")]
    pub limit: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Read {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// 0: to the end.
    #[prost(uint64, tag = "3")]
    pub length: u64,
    /// As in [`Stat`].
    #[prost(bytes = "bytes", tag = "4")]
    pub within: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct Write {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// Permission bits of a new file; 0: 0644. A replaced file keeps its own.
    #[prost(uint32, tag = "2")]
    pub mode: u32,
    /// Create missing parent directories.
    #[prost(bool, tag = "3")]
    pub parents: bool,
    /// Owner of what is created; empty: the default user.
    #[prost(string, tag = "4")]
    pub user: String,
    /// Append instead of replacing the whole file atomically.
    #[prost(bool, tag = "5")]
    pub append: bool,
    /// Fail with `Exists` if the file exists.
    #[prost(bool, tag = "6")]
    pub create_new: bool,
    /// Flush to disk before answering.
    #[prost(bool, tag = "7")]
    pub sync: bool,
    /// Fail with `Exists` if the file is in another state when it is replaced, or gone.
    #[prost(message, optional, tag = "8")]
    pub expected: Option<Version>,
    /// When the contents were last changed, in nanoseconds since 1970; 0: now.
    #[prost(sint64, tag = "9")]
    pub modified_unix_ns: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Mkdir {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(bool, tag = "2")]
    pub parents: bool,
    /// 0: 0755.
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    #[prost(string, tag = "4")]
    pub user: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Remove {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(bool, tag = "2")]
    pub recursive: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Move {
    #[prost(bytes = "bytes", tag = "1")]
    pub from: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub to: Bytes,
    #[prost(bool, tag = "3")]
    pub overwrite: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Chmod {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(uint32, tag = "2")]
    pub mode: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Symlink {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub target: Bytes,
    #[prost(string, tag = "3")]
    pub user: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Glob {
    /// An absolute pattern: `*`, `?`, `[…]`, `**`, `{a,b}`.
    #[prost(bytes = "bytes", tag = "1")]
    pub pattern: Bytes,
    /// 0: the default page size; with more matches `Entries.next` is the last one.
    #[prost(uint32, tag = "2")]
    pub limit: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Watch {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(bool, tag = "2")]
    pub recursive: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Watching {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ChangeKind {
    /// The queue overflowed: list again.
    Lost = 0,
    Created = 1,
    Modified = 2,
    Removed = 3,
    Renamed = 4,
    Attributes = 5,
}

#[derive(Clone, PartialEq, Message)]
pub struct Change {
    #[prost(enumeration = "ChangeKind", tag = "1")]
    pub kind: i32,
    #[prost(bytes = "bytes", tag = "2")]
    pub path: Bytes,
    /// The old path of a rename.
    #[prost(bytes = "bytes", tag = "3")]
    pub from: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct TreeOut {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// As in [`Stat`].
    #[prost(bytes = "bytes", tag = "2")]
    pub within: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct TreeIn {
    /// The directory to unpack into; created when missing.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// Owner of everything unpacked; empty: the default user. `archive` keeps the archive's ids.
    #[prost(string, tag = "2")]
    pub user: String,
    /// 0: the default limits.
    #[prost(uint64, tag = "3")]
    pub max_bytes: u64,
    #[prost(uint64, tag = "4")]
    pub max_entries: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct TreeDone {
    #[prost(uint64, tag = "1")]
    pub entries: u64,
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Hash {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct DoneAs {
    /// A name, a uid, `name:group` or `uid:gid`.
    #[prost(string, tag = "1")]
    pub user: String,
    /// An encoded [`super::Request`].
    #[prost(bytes = "bytes", tag = "2")]
    pub request: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct Lent {
    /// Fetches the file on a connection of its own, once; see [`crate::hello::take`].
    #[prost(bytes = "bytes", tag = "1")]
    pub token: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct Digest {
    #[prost(bytes = "bytes", tag = "1")]
    pub sha256: Bytes,
    #[prost(uint64, tag = "2")]
    pub size: u64,
}
