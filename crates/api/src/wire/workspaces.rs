//! What the calls of workspaces carry besides the types of [`motu_core::workspace`].

use motu_core::exec::TtySize;
use motu_core::workspace::{BASELINE, DiffOptions, Edit, LogOptions, ReadShell, WORKSPACE};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResetBody {
    /// A snapshot's name; default `baseline`.
    pub snapshot: String,
}

impl Default for ResetBody {
    fn default() -> ResetBody {
        ResetBody {
            snapshot: BASELINE.to_string(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportBody {
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

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskExportBody {
    /// On the daemon's host, absolute: a new name, or an empty directory for a tree.
    pub output_path: String,
    /// Replace a plain file that is there. Nothing else is ever replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Of contents, holes included; default `export_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchBody {
    /// One unified patch of text files.
    pub patch: String,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EditBody {
    /// Done all, or none of them.
    pub edits: Vec<Edit>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotBody {
    pub snapshot_name: String,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShellSignalBody {
    /// A name such as `INT` (the default), or a number as text.
    pub signal: String,
}

impl Default for ShellSignalBody {
    fn default() -> ShellSignalBody {
        ShellSignalBody {
            signal: "INT".to_string(),
        }
    }
}

queries! {
    PathListQuery {
        /// Absolute, inside the workspace; default `/workspace`.
        path: String,
        /// Also what is in the directories below.
        recursive: bool,
    }
    FileTextQuery {
        /// Absolute, inside the workspace.
        path: String,
        /// Bytes of text to return at most; default `file_text_bytes`.
        max_bytes: u64,
    }
    DiffQuery {
        /// Bytes of patch text; default `diff_bytes`.
        max_bytes: u64,
    }
    SnapshotDiffQuery {
        /// The later snapshot's name.
        to: String,
        /// Bytes of patch text; default `diff_bytes`.
        max_bytes: u64,
    }
    ServiceLogsQuery {
        /// The last so many lines; default 200.
        tail_lines: u64,
        /// Everything that is kept.
        all: bool,
    }
    ShellOutputQuery {
        /// Where to begin: `next_cursor` of the last read.
        cursor: u64,
        /// Default 65536.
        max_chars: u64,
        /// Text as a person would see it, without control sequences.
        plain: bool,
        /// Answer when nothing has come for this long.
        wait_for_idle_ms: u64,
    }
    TtySizeQuery {
        /// Columns of the caller's terminal; default 120.
        cols: u16,
        /// Rows of the caller's terminal; default 30.
        rows: u16,
    }
}

impl PathListQuery {
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(WORKSPACE)
    }
}

impl From<DiffOptions> for DiffQuery {
    fn from(DiffOptions { max_bytes }: DiffOptions) -> DiffQuery {
        DiffQuery { max_bytes }
    }
}

impl From<DiffQuery> for DiffOptions {
    fn from(DiffQuery { max_bytes }: DiffQuery) -> DiffOptions {
        DiffOptions { max_bytes }
    }
}

impl From<LogOptions> for ServiceLogsQuery {
    fn from(LogOptions { tail_lines, all }: LogOptions) -> ServiceLogsQuery {
        ServiceLogsQuery {
            tail_lines,
            all: Some(all),
        }
    }
}

impl From<ServiceLogsQuery> for LogOptions {
    fn from(ServiceLogsQuery { tail_lines, all }: ServiceLogsQuery) -> LogOptions {
        LogOptions {
            tail_lines,
            all: all.unwrap_or_default(),
        }
    }
}

impl From<ReadShell> for ShellOutputQuery {
    fn from(read: ReadShell) -> ShellOutputQuery {
        ShellOutputQuery {
            cursor: Some(read.cursor),
            max_chars: read.max_chars,
            plain: Some(read.plain),
            wait_for_idle_ms: read.wait_for_idle_ms,
        }
    }
}

impl From<ShellOutputQuery> for ReadShell {
    fn from(query: ShellOutputQuery) -> ReadShell {
        ReadShell {
            cursor: query.cursor.unwrap_or_default(),
            max_chars: query.max_chars,
            plain: query.plain.unwrap_or_default(),
            wait_for_idle_ms: query.wait_for_idle_ms,
        }
    }
}

/// The size of a terminal nobody has told the size of.
const USUAL: TtySize = TtySize {
    cols: 120,
    rows: 30,
};

impl From<TtySize> for TtySizeQuery {
    fn from(TtySize { cols, rows }: TtySize) -> TtySizeQuery {
        TtySizeQuery {
            cols: Some(cols),
            rows: Some(rows),
        }
    }
}

impl From<TtySizeQuery> for TtySize {
    fn from(TtySizeQuery { cols, rows }: TtySizeQuery) -> TtySize {
        TtySize {
            cols: cols.unwrap_or(USUAL.cols),
            rows: rows.unwrap_or(USUAL.rows),
        }
    }
}
