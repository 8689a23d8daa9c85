//! Applies a [`Patch`] to the present contents.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    FilePatch, Hunk, Line, LineKind, MAX_PATCHED_BYTES, Operation, Patch, PatchError,
    error::Mismatch, lines, place::Search,
};
use crate::WorkspacePath;

/// The result of a patch, not yet carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The changes to carry out, one per path: deletions first, then writes, each sorted by path.
    pub changes: Vec<Change>,
    /// Summaries in the order of the patch.
    pub files: Vec<FileSummary>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub path: WorkspacePath,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Delete,
    Write {
        contents: Vec<u8>,
        /// Permission bits the patch asks for; `None` keeps the file's, or uses the default for a
        /// new one.
        mode: Option<u32>,
        /// The file did not exist before.
        created: bool,
        /// Where the permissions of a renamed or copied file come from.
        mode_from: Option<WorkspacePath>,
    },
}

/// What happened to one file of the patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSummary {
    pub path: String,
    /// The name before, when it was renamed or copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `added`, `modified`, `deleted`, `renamed` or `copied`.
    pub status: &'static str,
    pub added_lines: usize,
    pub removed_lines: usize,
    /// Hunks that matched at another line than their header says.
    pub moved_hunks: usize,
    /// Patch and file have different line endings; the file's were kept.
    pub line_endings_adapted: bool,
}

/// Applies a patch to the contents that `read` returns; `None` is a missing file.
pub fn apply(
    patch: &Patch,
    read: impl FnMut(&WorkspacePath) -> Option<Vec<u8>>,
) -> Result<Applied, PatchError> {
    let mut tree = Tree {
        read,
        files: BTreeMap::new(),
    };
    let mut search = Search::new();
    let mut files = Vec::with_capacity(patch.files.len());
    for file in &patch.files {
        files.push(apply_file(file, &mut tree, &mut search)?);
    }
    Ok(Applied {
        changes: tree.changes(),
        files,
    })
}

/// The files after the hunks applied so far.
struct Tree<R> {
    read: R,
    files: BTreeMap<WorkspacePath, State>,
}

#[derive(Clone, Default)]
struct State {
    contents: Option<Vec<u8>>,
    mode: Option<u32>,
    mode_from: Option<WorkspacePath>,
    existed: bool,
    touched: bool,
}

impl<R: FnMut(&WorkspacePath) -> Option<Vec<u8>>> Tree<R> {
    fn get(&mut self, path: &WorkspacePath) -> Result<&mut State, PatchError> {
        if !self.files.contains_key(path) {
            let contents = (self.read)(path);
            if contents
                .as_ref()
                .is_some_and(|text| text.len() > MAX_PATCHED_BYTES)
            {
                return Err(PatchError::file_too_large());
            }
            let existed = contents.is_some();
            let state = State {
                contents,
                existed,
                ..State::default()
            };
            self.files.insert(path.clone(), state);
        }
        Ok(self.files.entry(path.clone()).or_default())
    }

    fn contents(&mut self, path: &WorkspacePath) -> Result<Option<Vec<u8>>, PatchError> {
        Ok(self.get(path)?.contents.clone())
    }

    fn remove(&mut self, path: &WorkspacePath) -> Result<(), PatchError> {
        let state = self.get(path)?;
        *state = State {
            existed: state.existed,
            touched: true,
            ..State::default()
        };
        Ok(())
    }

    fn changes(self) -> Vec<Change> {
        let mut deletes = Vec::new();
        let mut writes = Vec::new();
        for (path, state) in self.files.into_iter().filter(|(_, state)| state.touched) {
            match state.contents {
                Some(contents) => writes.push(Change {
                    path,
                    action: Action::Write {
                        contents,
                        mode: state.mode,
                        created: !state.existed,
                        mode_from: state.mode_from,
                    },
                }),
                None if state.existed => deletes.push(Change {
                    path,
                    action: Action::Delete,
                }),
                None => {}
            }
        }
        deletes.append(&mut writes);
        deletes
    }
}

fn apply_file<R: FnMut(&WorkspacePath) -> Option<Vec<u8>>>(
    file: &FilePatch,
    tree: &mut Tree<R>,
    search: &mut Search,
) -> Result<FileSummary, PatchError> {
    let path = file.operation.path();
    let (from, mut status) = match &file.operation {
        Operation::Create(_) => (None, "added"),
        Operation::Modify(path) => (Some(path), "modified"),
        Operation::Delete(path) => (Some(path), "deleted"),
        Operation::Rename { from, .. } => (Some(from), "renamed"),
        Operation::Copy { from, .. } => (Some(from), "copied"),
    };
    let present = tree.contents(from.unwrap_or(path))?;
    let old = match (from, present) {
        (None, Some(_)) => return Err(PatchError::Exists { path: path.clone() }),
        (None, None) => Vec::new(),
        (Some(_), Some(contents)) => contents,
        // A hunk without old lines that starts at 0 creates a file, even if the header does not say
        // so.
        (Some(_), None) if status == "modified" && creates(file) => {
            status = "added";
            Vec::new()
        }
        (Some(from), None) => return Err(PatchError::Missing { path: from.clone() }),
    };
    let moves = from.is_some_and(|from| from != path);
    if moves && tree.contents(path)?.is_some() {
        return Err(PatchError::Exists { path: path.clone() });
    }
    let patched = patch_text(&old, file, search)?;
    match &file.operation {
        Operation::Delete(path) => {
            if !patched.text.is_empty() {
                let lines = lines(&patched.text).len();
                let path = path.clone();
                return Err(PatchError::NotEmptied { path, lines });
            }
            tree.remove(path)?;
        }
        operation => {
            let mode_from = match from.filter(|_| moves) {
                Some(from) => tree.get(from)?.mode_from.clone().or(Some(from.clone())),
                None => None,
            };
            let inherited = match from {
                Some(from) => tree.get(from)?.mode,
                None => None,
            };
            if let Operation::Rename { from, .. } = operation {
                tree.remove(from)?;
            }
            let state = tree.get(path)?;
            state.contents = Some(patched.text);
            state.mode = file.mode.or(inherited);
            state.mode_from = mode_from.or(state.mode_from.take());
            state.touched = true;
        }
    }
    let count = |kind| {
        let all = file.hunks.iter().flat_map(|hunk| &hunk.lines);
        all.filter(|line| line.kind == kind).count()
    };
    Ok(FileSummary {
        path: path.to_string(),
        from: from.filter(|_| moves).map(ToString::to_string),
        status,
        added_lines: count(LineKind::Add),
        removed_lines: count(LineKind::Remove),
        moved_hunks: patched.moved,
        line_endings_adapted: patched.adapted,
    })
}

fn creates(file: &FilePatch) -> bool {
    matches!(file.hunks.as_slice(), [hunk] if hunk.old_lines == 0 && hunk.old_start == 0)
}

struct Patched {
    text: Vec<u8>,
    moved: usize,
    adapted: bool,
}

fn patch_text(old: &[u8], file: &FilePatch, search: &mut Search) -> Result<Patched, PatchError> {
    let old_lines = lines(old);
    let mut text = Vec::with_capacity(old.len());
    let (mut done, mut shift) = (0, 0_isize);
    let (mut moved, mut adapted) = (0, false);
    for (index, hunk) in file.hunks.iter().enumerate() {
        // A hunk without old lines names the line before it.
        let start = hunk
            .old_start
            .saturating_sub(usize::from(hunk.old_lines > 0));
        let expected = start.saturating_add_signed(shift);
        let wanted: Vec<&[u8]> = hunk.old().collect();
        let mut other = None;
        let mut place = search.find(&old_lines, &wanted, expected, done)?;
        if place.is_none()
            && let Some(hunk) = with_endings_of(&old_lines, hunk)
        {
            let wanted: Vec<&[u8]> = hunk.old().collect();
            place = search.find(&old_lines, &wanted, expected, done)?;
            other = Some(hunk);
        }
        let Some(place) = place else {
            return Err(mismatch(file, index, &old_lines, expected, search));
        };
        if place != expected {
            moved += 1;
            shift = place.cast_signed() - start.cast_signed();
        }
        adapted |= other.is_some();
        for line in &old_lines[done..place] {
            text.extend_from_slice(line);
        }
        let hunk = other.as_ref().unwrap_or(hunk);
        for line in hunk
            .lines
            .iter()
            .filter(|line| line.kind != LineKind::Remove)
        {
            text.extend_from_slice(&line.text);
        }
        done = place + hunk.old_lines;
        if text.len() > MAX_PATCHED_BYTES {
            return Err(PatchError::file_too_large());
        }
    }
    for line in &old_lines[done..] {
        text.extend_from_slice(line);
    }
    if text.len() > MAX_PATCHED_BYTES {
        return Err(PatchError::file_too_large());
    }
    Ok(Patched {
        text,
        moved,
        adapted,
    })
}

/// The hunk with the file's line endings, if the two differ throughout.
fn with_endings_of(file: &[&[u8]], hunk: &Hunk) -> Option<Hunk> {
    let is_crlf = |line: &[u8]| line.ends_with(b"\r\n");
    let ended = |line: &[u8]| line.ends_with(b"\n");
    let all = |crlf: bool| {
        let mut lines = file.iter().filter(|line| ended(line));
        lines.all(|line| is_crlf(line) == crlf)
    };
    let hunk_all = |crlf: bool| {
        let mut lines = hunk.lines.iter().filter(|line| ended(&line.text));
        lines.all(|line| is_crlf(&line.text) == crlf)
    };
    let convert: fn(&[u8]) -> Vec<u8> = if all(true) && hunk_all(false) {
        |text| match text.strip_suffix(b"\n") {
            Some(text) => [text, b"\r\n"].concat(),
            None => text.to_vec(),
        }
    } else if all(false) && hunk_all(true) {
        |text| match text.strip_suffix(b"\r\n") {
            Some(text) => [text, b"\n"].concat(),
            None => text.to_vec(),
        }
    } else {
        return None;
    };
    let lines = hunk.lines.iter().map(|line| Line {
        kind: line.kind,
        text: convert(&line.text),
    });
    Some(Hunk {
        lines: lines.collect(),
        ..hunk.clone()
    })
}

fn mismatch(
    file: &FilePatch,
    index: usize,
    old: &[&[u8]],
    expected: usize,
    search: &mut Search,
) -> PatchError {
    let hunk = &file.hunks[index];
    let wanted: Vec<&[u8]> = hunk.old().collect();
    let closest = search.closest(old, &wanted);
    let found = old.get(expected..).unwrap_or_default();
    PatchError::Mismatch(Box::new(Mismatch {
        path: file.operation.path().clone(),
        hunk: index + 1,
        patch_line: hunk.patch_line,
        line: expected + 1,
        expected: Mismatch::shown(wanted.iter().copied()),
        found: Mismatch::shown(found.iter().copied().take(wanted.len())),
        closest: closest.map(|(place, same)| (place + 1, same)),
    }))
}
