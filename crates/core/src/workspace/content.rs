//! What is in `/workspace`: pushing, reading, patching, comparing, saving.

use super::{BASELINE, WORKSPACE, WorkspaceId};
use crate::ask::Ask;
use crate::files::FileType;
use crate::leave::HostPath;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Brings later content of the host into a running workspace.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SyncPush {
    /// A directory or an archive on the daemon's host.
    pub source_path: String,
    /// A directory at or below `/workspace`; default `/workspace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dest: Option<String>,
    /// Leave out what `.gitignore` files name (directories only).
    pub gitignore: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SyncReport {
    pub workspace_id: WorkspaceId,
    /// `directory` or `tar_archive`.
    pub mode: String,
    pub source_path: String,
    pub destination: String,
    /// Entries looked at, sent, and left alone because they were the same.
    pub entry_count: u64,
    pub sent_count: u64,
    pub unchanged_count: u64,
    pub bytes_written: u64,
}

/// A text file, up to a budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FileText {
    pub workspace_id: WorkspaceId,
    pub path: String,
    pub size_bytes: u64,
    pub max_bytes: u64,
    pub content: String,
    pub truncated: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteText {
    pub path: String,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FileWritten {
    pub workspace_id: WorkspaceId,
    pub path: String,
    pub size_bytes: u64,
    pub bytes_written: u64,
}

/// A place under `/workspace`, without what is in its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PathInfo {
    pub path: String,
    #[serde(rename = "type")]
    pub kind: FileType,
    pub size_bytes: u64,
    /// Permission bits, in octal.
    #[serde(with = "crate::files::octal")]
    #[schema(value_type = String, example = "0644")]
    pub mode: u32,
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_target: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PathList {
    pub workspace_id: WorkspaceId,
    pub path: String,
    pub recursive: bool,
    pub entries: Vec<PathInfo>,
    /// There is more than `list_entries_max`.
    pub truncated: bool,
}

/// What a copy on the host may replace, and how large it may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportOptions {
    /// Replace a plain file that is there.
    pub force: bool,
    /// Of contents, holes included; default `export_bytes`.
    pub max_bytes: Option<u64>,
}

/// A copy on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Exported {
    pub workspace_id: WorkspaceId,
    pub workspace_path: String,
    pub output_path: String,
    #[serde(rename = "type")]
    pub kind: FileType,
    pub entry_count: u64,
    pub bytes_written: u64,
}

/// One exact replacement in one file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Edit {
    pub path: String,
    /// Text that is there, exactly.
    pub old: String,
    pub new: String,
    /// How often `old` must be there; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// What a patch or a set of edits did; all of it, or an error and none of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PatchReport {
    pub workspace_id: WorkspaceId,
    pub changed: bool,
    pub added: u64,
    pub modified: u64,
    pub deleted: u64,
    pub renamed: u64,
    pub entries: Vec<PatchedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PatchedFile {
    pub path: String,
    /// `added`, `modified`, `deleted` or `renamed`.
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// How one path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiffStatus {
    Added,
    Modified,
    Deleted,
    TypeChanged,
    ModeChanged,
}

impl DiffStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            DiffStatus::Added => "added",
            DiffStatus::Modified => "modified",
            DiffStatus::Deleted => "deleted",
            DiffStatus::TypeChanged => "type_changed",
            DiffStatus::ModeChanged => "mode_changed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DiffEntry {
    pub path: String,
    pub status: DiffStatus,
    #[serde(rename = "type")]
    pub kind: FileType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_before: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_after: Option<u64>,
    /// Permission bits, in octal.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "crate::files::octal::maybe"
    )]
    #[schema(value_type = Option<String>, example = "0644")]
    pub mode_before: Option<u32>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "crate::files::octal::maybe"
    )]
    #[schema(value_type = Option<String>, example = "0755")]
    pub mode_after: Option<u32>,
    /// Its text is not in the patch because it is not text.
    pub binary: bool,
    /// Its text is not in the patch because the budget was used up.
    pub omitted: bool,
}

/// What changed since the baseline, or between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DiffReport {
    pub workspace_id: WorkspaceId,
    pub from: String,
    pub to: String,
    pub changed: bool,
    pub added: u64,
    pub modified: u64,
    pub deleted: u64,
    pub type_changed: u64,
    pub mode_changed: u64,
    pub entries: Vec<DiffEntry>,
    /// One unified patch of all text that fits the budget.
    pub patch: String,
    /// Something was left out of `entries` or `patch`.
    pub truncated: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiffOptions {
    /// Bytes of patch text; default `diff_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

/// A named state of `/workspace`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Snapshot {
    pub workspace_id: WorkspaceId,
    pub snapshot_name: String,
    /// `baseline` or `named`.
    pub kind: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Paths below `/workspace` in this state; missing if the snapshot cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_count: Option<u64>,
    /// Paths that differ from the baseline.
    pub changed_count: u64,
    /// What it takes on the host's disk alone.
    pub stored_bytes: u64,
    pub deletable: bool,
}

/// The root of a stopped workspace as a file system in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DiskExported {
    pub workspace_id: WorkspaceId,
    pub output_path: String,
    /// `ext4`.
    pub disk_format: String,
    pub bytes_written: u64,
}

/// What is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListPaths {
    /// Absolute, inside the workspace; default `/workspace`.
    pub path: String,
    /// Also what is in the directories below.
    pub recursive: bool,
}

impl Default for ListPaths {
    fn default() -> ListPaths {
        ListPaths {
            path: WORKSPACE.to_string(),
            recursive: false,
        }
    }
}

/// Which text file is read, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadText {
    /// Absolute, inside the workspace.
    pub path: String,
    /// Bytes of text to return at most; default `file_text_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

/// What is copied to the host, and where to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportFiles {
    /// At or below `/workspace`.
    pub path: String,
    /// On the daemon's host, absolute: a new name, or an empty directory for a tree.
    pub output_path: String,
    /// Replace a plain file that is there. Nothing else is ever replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Of contents, holes included; default `export_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

/// Where the disk of a stopped workspace is copied to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportDisk {
    /// On the daemon's host, absolute: a new name.
    pub output_path: String,
    /// Replace a plain file that is there. Nothing else is ever replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Of contents, holes included; default `export_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

impl ListPaths {
    pub fn new(path: impl Into<String>, recursive: bool) -> ListPaths {
        ListPaths {
            path: path.into(),
            recursive,
        }
    }
}

impl ReadText {
    pub fn new(path: impl Into<String>, max_bytes: Option<u64>) -> ReadText {
        ReadText {
            path: path.into(),
            max_bytes,
        }
    }
}

impl ExportFiles {
    pub fn new(
        path: impl Into<String>,
        output_path: impl Into<String>,
        options: ExportOptions,
    ) -> ExportFiles {
        ExportFiles {
            path: path.into(),
            output_path: output_path.into(),
            force: options.force,
            max_bytes: options.max_bytes,
        }
    }

    pub fn options(&self) -> ExportOptions {
        ExportOptions {
            force: self.force,
            max_bytes: self.max_bytes,
        }
    }
}

impl ExportDisk {
    pub fn new(output_path: impl Into<String>, options: ExportOptions) -> ExportDisk {
        ExportDisk {
            output_path: output_path.into(),
            force: options.force,
            max_bytes: options.max_bytes,
        }
    }

    pub fn options(&self) -> ExportOptions {
        ExportOptions {
            force: self.force,
            max_bytes: self.max_bytes,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// One unified patch of text files.
    pub patch: String,
}

impl Patch {
    pub fn new(patch: impl Into<String>) -> Patch {
        Patch {
            patch: patch.into(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EditFiles {
    /// Done all, or none of them.
    pub edits: Vec<Edit>,
}

/// The name of a new snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveAs {
    pub snapshot_name: String,
}

impl SaveAs {
    pub fn named(name: impl Into<String>) -> SaveAs {
        SaveAs {
            snapshot_name: name.into(),
        }
    }
}

/// What a snapshot is compared with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Since {
    /// The later snapshot's name.
    pub to: String,
    /// Bytes of patch text; default `diff_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

impl Since {
    pub fn new(to: impl Into<String>, options: DiffOptions) -> Since {
        Since {
            to: to.into(),
            max_bytes: options.max_bytes,
        }
    }
}

/// What a workspace goes back to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResetTo {
    /// A snapshot's name; default `baseline`.
    pub snapshot: String,
}

impl Default for ResetTo {
    fn default() -> ResetTo {
        ResetTo {
            snapshot: BASELINE.to_string(),
        }
    }
}

impl ResetTo {
    pub fn snapshot(name: impl Into<String>) -> ResetTo {
        ResetTo {
            snapshot: name.into(),
        }
    }
}

impl Ask for SyncPush {
    fn host_paths(&self) -> Vec<&'static str> {
        vec!["source_path"]
    }

    fn places(&mut self) -> Vec<HostPath<'_>> {
        vec![HostPath::reads("source_path", &mut self.source_path)]
    }
}

impl Ask for ExportFiles {
    fn host_paths(&self) -> Vec<&'static str> {
        vec!["output_path"]
    }

    fn places(&mut self) -> Vec<HostPath<'_>> {
        vec![HostPath::writes("output_path", &mut self.output_path)]
    }
}

impl Ask for ExportDisk {
    fn host_paths(&self) -> Vec<&'static str> {
        vec!["output_path"]
    }

    fn places(&mut self) -> Vec<HostPath<'_>> {
        vec![HostPath::writes("output_path", &mut self.output_path)]
    }
}

impl Ask for WriteText {
    const LONG: bool = true;
}

impl Ask for Patch {
    const LONG: bool = true;
}

impl Ask for EditFiles {
    const LONG: bool = true;
}

impl Ask for ListPaths {}
impl Ask for ReadText {}
impl Ask for DiffOptions {}
impl Ask for SaveAs {}
impl Ask for Since {}
impl Ask for ResetTo {}
