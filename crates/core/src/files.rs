//! Files inside a sandbox.
//!
//! A path is text when it is UTF-8; otherwise it travels as base64 beside a
//! readable approximation, so that no name is out of reach.

mod asks;
pub mod octal;
mod text;

pub use asks::*;
pub use text::{decode_base64, encode_base64, format_mode, parse_mode};

use crate::{Error, limits};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A stream of file contents or of an archive.
pub type ByteStream = BoxStream<'static, Result<Bytes, Error>>;

/// An absolute path inside a sandbox, checked for shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash, utoipa::ToSchema)]
#[schema(value_type = String, example = "/etc/hostname")]
pub struct GuestPath(Bytes);

impl GuestPath {
    pub fn new(bytes: impl Into<Bytes>) -> Result<GuestPath, Error> {
        let bytes = bytes.into();
        if bytes.len() as u64 > limits::PATH_BYTES.max {
            return Err(Error::invalid(format!(
                "the path is {} bytes long; the limit path_bytes is {}",
                bytes.len(),
                limits::PATH_BYTES.max
            )));
        }
        if bytes.first() != Some(&b'/') {
            return Err(Error::invalid("the path is not absolute")
                .hint("paths inside a sandbox begin with '/'"));
        }
        if bytes.contains(&0) {
            return Err(Error::invalid("the path contains a NUL byte"));
        }
        Ok(GuestPath(bytes))
    }

    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileType {
    File,
    Directory,
    Symlink,
    Other,
}

/// One file, directory or link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FileEntry {
    pub name: String,
    pub path: String,
    /// The exact path when it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
    #[serde(rename = "type")]
    pub kind: FileType,
    pub size_bytes: u64,
    /// Permission bits, in octal.
    #[serde(with = "octal")]
    #[schema(value_type = String, example = "0644")]
    pub mode: u32,
    /// Such as `-rwxr-xr-x`.
    pub permissions: String,
    pub owner: String,
    pub group: String,
    pub uid: u32,
    pub gid: u32,
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_target: Option<String>,
    /// Which of its states this is, as the guest tells them apart; 0 where it cannot.
    #[serde(skip)]
    #[schema(ignore)]
    pub revision: u64,
}

impl FileEntry {
    /// The state of a file.
    pub fn version(&self) -> FileVersion {
        FileVersion {
            modified_at: self.modified_at,
            size_bytes: self.size_bytes,
            revision: self.revision,
        }
    }
}

/// One state of a file: when it was written, how long it is, and which file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    pub modified_at: Timestamp,
    pub size_bytes: u64,
    pub revision: u64,
}

impl fmt::Display for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = self.modified_at.as_nanosecond();
        write!(f, "{written:x}-{:x}-{:x}", self.size_bytes, self.revision)
    }
}

/// One page of entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FilePage {
    pub entries: Vec<FileEntry>,
    /// Pass as `after` for the next page (base64); missing on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// How a directory is listed.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub depth: Option<u32>,
    pub after: Option<Bytes>,
    pub limit: Option<u64>,
}

/// How a file is written.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    pub mode: Option<u32>,
    pub user: Option<String>,
    pub append: bool,
    pub create_new: bool,
    /// Fail instead of creating missing parent directories.
    pub no_parents: bool,
    /// Fail if the file is in another state when it is replaced, or gone.
    pub expected: Option<FileVersion>,
}

/// What part of a file is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadRange {
    pub offset: u64,
    pub length: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Created,
    Modified,
    Removed,
    Renamed,
    Attributes,
    /// Changes came faster than they were read: list again.
    Lost,
}

/// One change seen by a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FileChange {
    pub kind: ChangeKind,
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FileHash {
    /// Lower-case hexadecimal.
    pub sha256: String,
    pub size_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TreeWritten {
    pub entries: u64,
    pub bytes: u64,
}
