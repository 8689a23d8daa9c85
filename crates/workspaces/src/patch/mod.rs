//! Unified text patches.
//!
//! ```text
//! bytes ──parse──► Patch ──paths()──► caller reads them ──apply──► Vec<Change>
//! ```
//!
//! [`Patch::parse`] accepts the output of `git diff`, `git format-patch` and `diff -u`, and
//! imitations by language models: wrong counts in a hunk header are corrected if the lines leave no
//! doubt. [`apply`] is pure and atomic: it returns all new contents, or the first error. Context
//! must match exactly; only the position may differ, by at most [`MAX_OFFSET_LINES`] lines.
//!
//! Files are named relative to `/workspace`. The usual `a/` and `b/` are removed, as is any first
//! directory in which the two names differ (`old/x`, `new/x`). Binary patches, symbolic links and
//! submodules are refused.

mod apply;
mod error;
mod headers;
mod parse;
mod place;
mod quote;

use crate::WorkspacePath;
use motu_core::limits;

pub use apply::{Action, Applied, Change, FileSummary, apply};
pub use error::{Mismatch, PatchError};
pub use quote::quoted;

/// Longest patch.
pub const MAX_PATCH_BYTES: usize = limits::PATCH_BYTES.max as usize;
/// Most files in a patch.
pub const MAX_PATCH_FILES: usize = limits::PATCH_FILES.max as usize;
/// Most hunks in a patch, all files together.
pub const MAX_PATCH_HUNKS: usize = limits::PATCH_HUNKS.max as usize;
/// Largest file a patch can be applied to, and largest it can make.
pub const MAX_PATCHED_BYTES: usize = limits::PATCHED_BYTES.max as usize;
/// Largest distance between a hunk's stated and actual line.
pub const MAX_OFFSET_LINES: usize = 2000;

/// A parsed patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    pub files: Vec<FilePatch>,
}

/// What a patch does to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePatch {
    pub operation: Operation,
    /// Permission bits asked for, if any.
    pub mode: Option<u32>,
    pub hunks: Vec<Hunk>,
}

/// What happens to the file besides its hunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Create(WorkspacePath),
    Modify(WorkspacePath),
    Delete(WorkspacePath),
    Rename {
        from: WorkspacePath,
        to: WorkspacePath,
    },
    Copy {
        from: WorkspacePath,
        to: WorkspacePath,
    },
}

impl Operation {
    /// The path that identifies the file to a reader of the patch.
    pub fn path(&self) -> &WorkspacePath {
        match self {
            Operation::Create(path) | Operation::Modify(path) | Operation::Delete(path) => path,
            Operation::Rename { to, .. } | Operation::Copy { to, .. } => to,
        }
    }
}

/// A group of changed lines with context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// First line in the old file, from 1; the line before it, if the hunk has no old lines.
    pub old_start: usize,
    pub old_lines: usize,
    pub new_start: usize,
    pub new_lines: usize,
    /// The line of its header in the patch, from 1.
    pub patch_line: usize,
    pub lines: Vec<Line>,
}

/// One line of a hunk, with its line ending if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub kind: LineKind,
    pub text: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    Context,
    Remove,
    Add,
}

impl Patch {
    pub fn parse(bytes: &[u8]) -> Result<Patch, PatchError> {
        parse::parse(bytes)
    }

    /// All paths whose contents [`apply`] needs, without duplicates.
    pub fn paths(&self) -> Vec<&WorkspacePath> {
        let mut paths: Vec<_> = self
            .files
            .iter()
            .flat_map(|file| match &file.operation {
                Operation::Create(path) | Operation::Modify(path) | Operation::Delete(path) => {
                    [Some(path), None]
                }
                Operation::Rename { from, to } | Operation::Copy { from, to } => {
                    [Some(from), Some(to)]
                }
            })
            .flatten()
            .collect();
        paths.sort();
        paths.dedup();
        paths
    }
}

impl Hunk {
    /// The lines that the old file must have here.
    fn old(&self) -> impl Iterator<Item = &[u8]> {
        self.lines
            .iter()
            .filter(|line| line.kind != LineKind::Add)
            .map(|line| line.text.as_slice())
    }
}

/// Lines of a text, each with its ending.
pub(crate) fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
