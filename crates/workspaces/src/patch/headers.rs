//! The headers of one file in a patch, and their combined meaning.

use super::{FilePatch, Hunk, Operation, PatchError, quote::unquote};
use crate::WorkspacePath;

const NOWHERE: &[u8] = b"/dev/null";

/// The headers of a file, in any order.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// Its first line in the patch, from 1.
    pub line: usize,
    /// Both names of a `diff --git` line, if they can be separated.
    pub git: Option<(Vec<u8>, Vec<u8>)>,
    pub is_git: bool,
    pub old: Option<Name>,
    pub new: Option<Name>,
    renamed: [Option<Vec<u8>>; 2],
    copied: [Option<Vec<u8>>; 2],
    created: bool,
    deleted: bool,
    mode: Option<u32>,
    not_text: Option<&'static str>,
    pub hunks: Vec<Hunk>,
}

/// A name of a `---` or `+++` line.
#[derive(Debug)]
pub(super) struct Name {
    bytes: Vec<u8>,
    /// There is no file on this side.
    absent: bool,
}

impl Name {
    /// Reads what follows `--- ` or `+++ `.
    pub fn read(text: &[u8]) -> Option<Name> {
        let (bytes, rest) = match text {
            [b'"', ..] => unquote(text)?,
            _ => {
                let end = text.iter().position(|byte| *byte == b'\t');
                let (name, rest) = text.split_at(end.unwrap_or(text.len()));
                (name.to_vec(), rest)
            }
        };
        // `diff -N` gives a missing file the epoch as its time, in some time zone.
        let time = rest.trim_ascii();
        let epoch = time.starts_with(b"1970-01-01 ") || time.starts_with(b"1969-12-31 ");
        let absent = bytes == NOWHERE || epoch;
        (!bytes.is_empty()).then_some(Name { bytes, absent })
    }
}

impl Section {
    pub fn plain(line: usize) -> Section {
        Section {
            line,
            ..Section::default()
        }
    }

    pub fn git(line: usize, names: &[u8]) -> Section {
        Section {
            line,
            git: git_names(names),
            is_git: true,
            ..Section::default()
        }
    }

    /// Parses an extended git header; false if it is none.
    pub fn extended(&mut self, text: &[u8], line: usize) -> Result<bool, PatchError> {
        let after = |key: &str| text.strip_prefix(key.as_bytes());
        let name = |rest: &[u8]| {
            let name = match rest {
                [b'"', ..] => unquote(rest).map(|(name, _)| name),
                _ => Some(rest.to_vec()),
            };
            name.ok_or_else(|| malformed(line, "the name in quotes does not end"))
        };
        if let Some(rest) = after("rename from ") {
            self.renamed[0] = Some(name(rest)?);
        } else if let Some(rest) = after("rename to ") {
            self.renamed[1] = Some(name(rest)?);
        } else if let Some(rest) = after("copy from ") {
            self.copied[0] = Some(name(rest)?);
        } else if let Some(rest) = after("copy to ") {
            self.copied[1] = Some(name(rest)?);
        } else if let Some(rest) = after("new file mode ") {
            self.created = true;
            self.mode(rest, line)?;
        } else if let Some(rest) = after("deleted file mode ") {
            self.deleted = true;
            self.mode(rest, line)?;
            self.mode = None;
        } else if let Some(rest) = after("new mode ") {
            self.mode(rest, line)?;
        } else if let Some(rest) = after("old mode ") {
            self.mode(rest, line)?;
            self.mode = None;
        } else if let Some(rest) = after("index ") {
            if let Some(at) = rest.iter().position(|byte| *byte == b' ') {
                let mode = self.mode;
                self.mode(&rest[at + 1..], line)?;
                self.mode = mode;
            }
        } else {
            return Ok(
                after("similarity index ").is_some() || after("dissimilarity index ").is_some()
            );
        }
        Ok(true)
    }

    fn mode(&mut self, text: &[u8], line: usize) -> Result<(), PatchError> {
        match text.trim_ascii() {
            b"120000" => self.not_text = Some("a symbolic link"),
            b"160000" => self.not_text = Some("a submodule"),
            // Git writes 644 and 755; reports of `diff` have the actual bits.
            [b'1', b'0', b'0', bits @ ..]
                if bits.len() == 3 && bits.iter().all(|bit| (b'0'..=b'7').contains(bit)) =>
            {
                let bits = bits.iter().map(|bit| u32::from(bit - b'0'));
                self.mode = Some(bits.fold(0, |mode, bit| mode * 8 + bit));
            }
            _ => {
                return Err(malformed(
                    line,
                    "the file mode is not that of a regular file",
                ));
            }
        }
        Ok(())
    }

    /// A name for an error about the whole section.
    pub fn shown(&self) -> String {
        let names = self.new.as_ref().filter(|name| !name.absent);
        let names = names.or(self.old.as_ref()).map(|name| &name.bytes);
        let name = names.or(self.git.as_ref().map(|(_, new)| new));
        match name {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => format!("line {} of the patch", self.line),
        }
    }

    pub fn finish(self) -> Result<FilePatch, PatchError> {
        let operation = self.operation()?;
        if let Some(what) = self.not_text {
            let path = operation.path().clone();
            return Err(PatchError::NotText { path, what });
        }
        let says_nothing = self.hunks.is_empty()
            && self.mode.is_none()
            && matches!(operation, Operation::Modify(_));
        if says_nothing {
            return Err(malformed(self.line, "no hunk follows the file header"));
        }
        Ok(FilePatch {
            operation,
            mode: self.mode,
            hunks: self.hunks,
        })
    }

    fn operation(&self) -> Result<Operation, PatchError> {
        let path = |bytes: &[u8]| path(bytes, self.line);
        if let [Some(from), Some(to)] = &self.renamed {
            return Ok(Operation::Rename {
                from: path(from)?,
                to: path(to)?,
            });
        }
        if let [Some(from), Some(to)] = &self.copied {
            return Ok(Operation::Copy {
                from: path(from)?,
                to: path(to)?,
            });
        }
        let absent = |name: &Option<Name>| name.as_ref().is_some_and(|name| name.absent);
        let (created, deleted) = (
            self.created || absent(&self.old),
            self.deleted || absent(&self.new),
        );
        if created && deleted {
            return Err(malformed(self.line, "the file exists on neither side"));
        }
        let name = path(&self.name()?)?;
        Ok(match (created, deleted) {
            (true, _) => Operation::Create(name),
            (_, true) => Operation::Delete(name),
            _ => Operation::Modify(name),
        })
    }

    /// The name of a file that is not renamed, without its prefix.
    fn name(&self) -> Result<Vec<u8>, PatchError> {
        let present = |name: &'_ Option<Name>| match name {
            Some(name) if name.bytes != NOWHERE => Some(name.bytes.clone()),
            _ => None,
        };
        if let Some((old, new)) = &self.git {
            // The `diff --git` line has both names, even if one side is `/dev/null`.
            return Ok(common(old, new).to_vec());
        }
        match (present(&self.old), present(&self.new)) {
            (Some(old), Some(new)) => Ok(common(&old, &new).to_vec()),
            (Some(name), None) | (None, Some(name)) => {
                let bare = name.strip_prefix(b"a/").or(name.strip_prefix(b"b/"));
                Ok(bare.unwrap_or(&name).to_vec())
            }
            (None, None) => Err(malformed(self.line, "the file has no name")),
        }
    }
}

/// The common name of both sides: without the first directory, if they differ only in that.
/// Otherwise the new one.
fn common<'a>(old: &[u8], new: &'a [u8]) -> &'a [u8] {
    if old == new {
        return new;
    }
    match (below(old), below(new)) {
        (Some(a), Some(b)) if a == b => b,
        // A patch with only one of the usual prefixes `a/` and `b/` is a common mistake.
        _ if old.strip_prefix(b"a/") == Some(new) => new,
        (_, Some(b)) if new.starts_with(b"b/") && old == b => b,
        (_, Some(b)) if new.starts_with(b"b/") && old.starts_with(b"a/") => b,
        _ => new,
    }
}

fn below(name: &[u8]) -> Option<&[u8]> {
    let at = name.iter().position(|byte| *byte == b'/')?;
    // An absolute name has no first directory to remove.
    (at > 0).then(|| &name[at + 1..])
}

/// Both names of `a/x b/x`, which may contain spaces.
fn git_names(text: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    if let Some((old, rest)) = unquote(text) {
        let rest = rest.strip_prefix(b" ")?;
        let new = match unquote(rest) {
            Some((new, b"")) => new,
            Some(_) => return None,
            None => rest.to_vec(),
        };
        return Some((old, new));
    }
    if text.ends_with(b"\"") {
        let at = text.windows(2).position(|pair| pair == b" \"")?;
        let (new, _) = unquote(&text[at + 1..])?;
        return Some((text[..at].to_vec(), new));
    }
    // The names are equal except for the first directory. With the usual prefixes the separating
    // space is in the middle, whatever the names contain.
    let spaces = text.iter().enumerate().filter(|(_, byte)| **byte == b' ');
    let middle = std::iter::once(text.len() / 2).filter(|at| text.get(*at) == Some(&b' '));
    let places = middle.chain(spaces.map(|(at, _)| at));
    let pairs = places.map(|at| (&text[..at], &text[at + 1..]));
    let mut same =
        pairs.filter(|(old, new)| old == new || (below(old).is_some() && below(old) == below(new)));
    same.next().map(|(old, new)| (old.to_vec(), new.to_vec()))
}

fn path(bytes: &[u8], line: usize) -> Result<WorkspacePath, PatchError> {
    WorkspacePath::parse(bytes).map_err(|error| PatchError::Path {
        line,
        path: String::from_utf8_lossy(bytes).into_owned(),
        error,
    })
}

pub(super) fn malformed(line: usize, reason: impl Into<String>) -> PatchError {
    PatchError::Malformed {
        line,
        reason: reason.into(),
    }
}
