//! Why a patch was refused.

use motu_core::{Error, ErrorKind};
use serde_json::json;

use super::{MAX_PATCH_BYTES, MAX_PATCH_FILES, MAX_PATCH_HUNKS, MAX_PATCHED_BYTES};
use crate::{PathError, WorkspacePath};

/// Lines shown of each side of a mismatch.
const MAX_SHOWN_LINES: usize = 20;
/// Bytes shown of each such line.
const MAX_SHOWN_BYTES: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    #[error("the patch has no file in it")]
    Empty,
    #[error("line {line} of the patch: {reason}")]
    Malformed { line: usize, reason: String },
    #[error("line {line} of the patch: path {path:?} is not accepted: {error}")]
    Path {
        line: usize,
        path: String,
        error: PathError,
    },
    #[error("{path}: binary patches are not supported")]
    Binary { path: String },
    #[error("{path}: {what} cannot be patched as text")]
    NotText {
        path: WorkspacePath,
        what: &'static str,
    },
    #[error("{what} is more than {limit}")]
    Limit { what: &'static str, limit: usize },
    #[error("{path}: the file does not exist")]
    Missing { path: WorkspacePath },
    #[error("{path}: the patch creates the file, but it exists")]
    Exists { path: WorkspacePath },
    #[error("{path}: the patch deletes the file, but {lines} lines are left after its hunks")]
    NotEmptied { path: WorkspacePath, lines: usize },
    #[error("{0}")]
    Mismatch(Box<Mismatch>),
}

/// A hunk whose lines were not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub path: WorkspacePath,
    /// Number of the hunk in its file, from 1.
    pub hunk: usize,
    /// The hunk's line in the patch.
    pub patch_line: usize,
    /// The line where it should have matched, from 1.
    pub line: usize,
    pub expected: Vec<String>,
    pub found: Vec<String>,
    /// The most similar place: its first line and the number of equal lines.
    pub closest: Option<(usize, usize)>,
}

impl Mismatch {
    pub(super) fn shown<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
        lines.take(MAX_SHOWN_LINES).map(shown).collect()
    }

    /// The first line that differs, counted in the file.
    fn first_difference(&self) -> usize {
        let pairs = self.expected.iter().zip(&self.found);
        self.line + pairs.take_while(|(a, b)| a == b).count()
    }
}

fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut text = String::from_utf8_lossy(&line[..line.len().min(MAX_SHOWN_BYTES)]).into_owned();
    if line.len() > MAX_SHOWN_BYTES {
        text.push('…');
    }
    // Carriage returns are invisible: show them.
    text.replace('\r', "\\r")
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: hunk {} (line {} of the patch) does not match at line {}",
            self.path, self.hunk, self.patch_line, self.line
        )?;
        let at = self.first_difference() - self.line;
        let quote = |lines: &[String]| match lines.get(at) {
            Some(line) => format!("{line:?}"),
            None => "the end of the file".to_owned(),
        };
        if at < self.expected.len() {
            write!(f, ": expected {}", quote(&self.expected))?;
            write!(f, ", found {}", quote(&self.found))?;
            write!(f, " at line {}", self.first_difference())?;
        }
        match self.closest {
            Some((line, same)) => write!(
                f,
                "; closest is line {line}, where {same} of {} lines agree",
                self.expected.len()
            ),
            None => Ok(()),
        }
    }
}

impl From<PatchError> for Error {
    fn from(error: PatchError) -> Error {
        let kind = match &error {
            PatchError::Limit { .. } => ErrorKind::Limit,
            PatchError::Missing { .. } => ErrorKind::NotFound,
            PatchError::Binary { .. } | PatchError::NotText { .. } => ErrorKind::Unsupported,
            PatchError::Empty | PatchError::Malformed { .. } | PatchError::Path { .. } => {
                ErrorKind::Invalid
            }
            PatchError::Exists { .. } | PatchError::NotEmptied { .. } | PatchError::Mismatch(_) => {
                ErrorKind::Conflict
            }
        };
        let border = Error::new(kind, error.to_string());
        match &error {
            PatchError::Mismatch(mismatch) => border
                .hint("nothing was changed; read the file again and make the patch from what it has now")
                .details(json!({
                    "path": mismatch.path.to_string(),
                    "hunk": mismatch.hunk,
                    "patch_line": mismatch.patch_line,
                    "line": mismatch.line,
                    "expected": mismatch.expected,
                    "found": mismatch.found,
                    "closest_line": mismatch.closest.map(|(line, _)| line),
                })),
            PatchError::Missing { path }
            | PatchError::Exists { path }
            | PatchError::NotEmptied { path, .. }
            | PatchError::NotText { path, .. } => {
                border.details(json!({ "path": path.to_string() }))
            }
            PatchError::Malformed { line, .. } | PatchError::Path { line, .. } => {
                border.details(json!({ "patch_line": line }))
            }
            _ => border,
        }
    }
}

impl PatchError {
    pub(super) fn too_long() -> Self {
        PatchError::Limit {
            what: "the patch in bytes",
            limit: MAX_PATCH_BYTES,
        }
    }
    pub(super) fn too_many_files() -> Self {
        PatchError::Limit {
            what: "the number of files in the patch",
            limit: MAX_PATCH_FILES,
        }
    }
    pub(super) fn too_many_hunks() -> Self {
        PatchError::Limit {
            what: "the number of hunks in the patch",
            limit: MAX_PATCH_HUNKS,
        }
    }
    pub(super) fn file_too_large() -> Self {
        PatchError::Limit {
            what: "a patched file in bytes",
            limit: MAX_PATCHED_BYTES,
        }
    }
}
