//! What can be asked of the files of a sandbox.

use super::text::{base64_option, octal, octal_option};
use super::{FileEntry, FileVersion, GuestPath, ListOptions, ReadRange, WriteOptions};
use crate::Error;
use crate::ask::Ask;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A path and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AtPath {
    /// Absolute, inside the sandbox.
    pub path: GuestPath,
}

impl From<GuestPath> for AtPath {
    fn from(path: GuestPath) -> AtPath {
        AtPath { path }
    }
}

/// A file or a tree, and whose rights count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PathAs {
    /// Absolute, inside the sandbox.
    pub path: GuestPath,
    /// Name or number of the user that it is done as, who may do no more than that; root of the
    /// sandbox when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl From<GuestPath> for PathAs {
    fn from(path: GuestPath) -> PathAs {
        PathAs { path, user: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StatFile {
    /// Absolute, inside the sandbox.
    pub path: GuestPath,
    /// Look at what a link points to.
    #[serde(default)]
    pub follow: bool,
    /// Name or number of the user that it is done as, who may do no more than that; root of the
    /// sandbox when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// How a directory is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ListFiles {
    /// Absolute, inside the sandbox.
    pub path: GuestPath,
    /// Levels to descend; one when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// `next` of the page before.
    #[serde(
        default,
        with = "base64_option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub after: Option<Bytes>,
    /// Entries in a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Name or number of the user that it is done as, who may do no more than that; root of the
    /// sandbox when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl ListFiles {
    pub fn new(path: GuestPath, options: ListOptions) -> ListFiles {
        let ListOptions {
            depth,
            after,
            limit,
        } = options;
        ListFiles {
            path,
            depth,
            after,
            limit,
            user: None,
        }
    }

    pub fn options(&self) -> ListOptions {
        ListOptions {
            depth: self.depth,
            after: self.after.clone(),
            limit: self.limit,
        }
    }
}

/// What part of a file is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    /// Absolute, inside the sandbox.
    pub path: GuestPath,
    /// Where to begin, in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: u64,
    /// Bytes to read; to the end when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// Name or number of the user that it is done as, who may do no more than that; root of the
    /// sandbox when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ReadFile {
    pub fn new(path: GuestPath, range: ReadRange) -> ReadFile {
        ReadFile {
            path,
            offset: range.offset,
            length: range.length,
            user: None,
        }
    }

    pub fn range(&self) -> ReadRange {
        ReadRange {
            offset: self.offset,
            length: self.length,
        }
    }
}

/// How a file is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    /// Absolute, inside the sandbox.
    pub path: GuestPath,
    /// Octal, such as `0644`.
    #[serde(
        default,
        with = "octal_option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub mode: Option<u32>,
    /// Name or number of the user that it is done as, who may do no more than that; root of the
    /// sandbox when missing. New files belong to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default)]
    pub append: bool,
    /// Fail when the file is there already.
    #[serde(default)]
    pub create_new: bool,
    /// Fail instead of creating missing parent directories.
    #[serde(default)]
    pub no_parents: bool,
    /// Fail if the file is in another state when it is replaced; what `If-Match` becomes.
    #[serde(skip)]
    #[schema(ignore)]
    pub expected: Option<FileVersion>,
}

impl WriteFile {
    pub fn new(path: GuestPath, options: WriteOptions) -> WriteFile {
        WriteFile {
            path,
            mode: options.mode,
            user: options.user,
            append: options.append,
            create_new: options.create_new,
            no_parents: options.no_parents,
            expected: options.expected,
        }
    }

    pub fn into_parts(self) -> (GuestPath, WriteOptions) {
        let options = WriteOptions {
            mode: self.mode,
            user: self.user,
            append: self.append,
            create_new: self.create_new,
            no_parents: self.no_parents,
            expected: self.expected,
        };
        (self.path, options)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeDirectory {
    /// Absolute, inside the sandbox.
    pub path: GuestPath,
    /// Octal, such as `0755`.
    #[serde(
        default,
        with = "octal_option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub mode: Option<u32>,
    /// Name or number of the user that it is done as, who may do no more than that; root of the
    /// sandbox when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveFile {
    /// Absolute, inside the sandbox.
    pub path: GuestPath,
    #[serde(default)]
    pub recursive: bool,
    /// Name or number of the user that it is done as, who may do no more than that; root of the
    /// sandbox when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveFile {
    pub from: GuestPath,
    pub to: GuestPath,
    #[serde(default)]
    pub overwrite: bool,
    /// Name or number of the user that it is done as, who may do no more than that; root of the
    /// sandbox when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeMode {
    /// Absolute, inside the sandbox.
    pub path: GuestPath,
    /// Octal, such as `0644`.
    #[serde(with = "octal")]
    #[schema(value_type = String)]
    pub mode: u32,
    /// Name or number of the user that it is done as, who may do no more than that; root of the
    /// sandbox when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FindFiles {
    /// Such as `/src/**/*.rs`.
    pub pattern: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Name or number of the user that it is done as, who may do no more than that; root of the
    /// sandbox when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl FindFiles {
    pub fn new(pattern: impl Into<String>, limit: Option<u64>) -> FindFiles {
        FindFiles {
            pattern: pattern.into(),
            limit,
            user: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchFiles {
    /// Absolute, inside the sandbox.
    pub path: GuestPath,
    #[serde(default)]
    pub recursive: bool,
    /// Name or number of the user that it is done as, who may do no more than that; root of the
    /// sandbox when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A file of a sandbox that the caller reads or writes by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LendFile {
    /// Absolute, inside the sandbox.
    pub path: GuestPath,
    /// To be written: a new file, which takes the place of the one that is there.
    #[serde(default)]
    pub write: bool,
    /// Octal, such as `0644`: of a file that is written.
    #[serde(
        default,
        with = "octal_option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>)]
    pub mode: Option<u32>,
    /// When a file that is written was last changed, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_unix_ns: Option<i64>,
}

/// A directory of the caller's that a sandbox is to show, to be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LendDirectory {
    /// Absolute, inside the sandbox. It is made if it is not there.
    pub path: GuestPath,
}

/// What is said when a file that was lent has been written, or a directory has been attached.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Returned {
    Entry(Box<FileEntry>),
    Error(Error),
}

macro_rules! with_paths {
    ($($ask:ty: $($field:literal)+;)*) => {$(
        impl Ask for $ask {
            const GUEST_PATHS: &'static [&'static str] = &[$($field),+];
        }
    )*};
}

with_paths! {
    AtPath: "path";
    PathAs: "path";
    StatFile: "path";
    ListFiles: "path";
    ReadFile: "path";
    WriteFile: "path";
    MakeDirectory: "path";
    RemoveFile: "path";
    MoveFile: "from" "to";
    ChangeMode: "path";
    WatchFiles: "path";
    LendFile: "path";
    LendDirectory: "path";
}

impl Ask for FindFiles {}
