//! Where `COPY` takes files from: the context, or the tree of another stage.

use crate::blocking::Caller;
use motu_core::{Error, Result};
use motu_dockerfile::glob;
use motu_environments::{Found, Workplace};
use std::collections::BTreeMap;
use std::io::Read;

/// Symbolic links followed for one path.
const MAX_LINKS: usize = 40;

/// The size of a file and what is in it.
pub(super) type Content = (u64, Box<dyn Read + Send>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink(Vec<u8>),
}

/// One path of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) mtime: u64,
    pub(super) size: u64,
    pub(super) attributes: BTreeMap<String, Vec<u8>>,
}

/// A tree of files, by relative paths; the root itself is the empty path.
pub(super) trait Source {
    fn name(&self) -> &'static str;
    /// True if a symbolic link that leads out is refused; false if it is clamped at the root.
    fn confines(&self) -> bool;
    fn item(&self, path: &[u8]) -> Option<Item>;
    /// Everything below a directory, parents first.
    fn below<'a>(&'a self, path: &[u8]) -> Box<dyn Iterator<Item = &'a [u8]> + 'a>;
    fn open_file(&self, path: &[u8]) -> Result<Content>;
}

impl Source for Workplace {
    fn name(&self) -> &'static str {
        "the stage"
    }

    fn confines(&self) -> bool {
        false
    }

    fn item(&self, path: &[u8]) -> Option<Item> {
        use std::os::unix::fs::MetadataExt;
        let place = self.at(path)?;
        let full = || {
            let path: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(path);
            std::fs::symlink_metadata(self.root().join(path)).ok()
        };
        let (kind, size, mtime) = match place.found {
            Found::Directory => (Kind::Directory, 0, 0),
            Found::Symlink(target) => (Kind::Symlink(target.to_vec()), 0, 0),
            Found::File(_) => {
                let meta = full()?;
                (Kind::File, meta.len(), meta.mtime().max(0) as u64)
            }
        };
        Some(Item {
            kind,
            mode: place.mode,
            uid: place.uid,
            gid: place.gid,
            mtime,
            size,
            attributes: place.attributes.clone(),
        })
    }

    fn below<'a>(&'a self, path: &[u8]) -> Box<dyn Iterator<Item = &'a [u8]> + 'a> {
        let paths: Vec<&'a [u8]> = Workplace::below(self, path).collect();
        Box::new(paths.into_iter())
    }

    fn open_file(&self, path: &[u8]) -> Result<Content> {
        let file = Workplace::open_file(self, path);
        let file = file.map_err(crate::admission::environment_error)?;
        let size = file.metadata().map(|meta| meta.len());
        let size = size.map_err(|error| Error::io("cannot read a file of the stage", &error))?;
        Ok((size, Box::new(file)))
    }
}

/// A path without `.` and empty parts; `None` when it climbs out.
pub(super) fn clean(path: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/'))
}

/// Resolves the symbolic links of a path; components that do not exist are kept as written.
pub(super) fn follow(source: &dyn Source, path: &[u8]) -> Result<Vec<u8>> {
    let shown = String::from_utf8_lossy(path).into_owned();
    let out = || {
        let name = source.name();
        Error::new(
            motu_core::ErrorKind::Denied,
            format!("{shown} leads out of {name}"),
        )
    };
    let mut at: Vec<u8> = Vec::new();
    let mut left: Vec<Vec<u8>> = split(path);
    let mut links = 0;
    while let Some(part) = left.pop() {
        if part == b".." {
            match at.iter().rposition(|byte| *byte == b'/') {
                Some(slash) => at.truncate(slash),
                None if at.is_empty() && source.confines() => return Err(out()),
                None => at.clear(),
            }
            continue;
        }
        let next = match at.as_slice() {
            b"" => part,
            above => [above, b"/", &part].concat(),
        };
        match source.item(&next).map(|item| item.kind) {
            Some(Kind::Symlink(target)) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Error::invalid(format!("too many links lead to {shown}")));
                }
                if target.starts_with(b"/") {
                    if source.confines() {
                        return Err(out());
                    }
                    at.clear();
                }
                left.extend(split(&target));
            }
            _ => at = next,
        }
    }
    Ok(at)
}

/// The components of a path in reverse order.
fn split(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|byte| *byte == b'/');
    let parts = parts.filter(|part| !matches!(*part, b"" | b"."));
    parts.rev().map(<[u8]>::to_vec).collect()
}

/// The paths that a source of `COPY` matches: as written, and with symbolic links resolved.
pub(super) fn find(
    source: &dyn Source,
    word: &str,
    caller: &Caller,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let name = source.name();
    let wanted = clean(word.as_bytes()).ok_or_else(|| {
        Error::new(
            motu_core::ErrorKind::Denied,
            format!("{word} leads out of {name}"),
        )
        .hint("copy the files into the context first")
    })?;
    let written: Vec<Vec<u8>> = match glob::is_pattern(&wanted) {
        false => vec![wanted.clone()],
        true => {
            let patterns = glob::Patterns::new([wanted.as_slice()]);
            let mut walk = patterns.walk();
            let mut found = Vec::new();
            for path in source.below(b"") {
                caller.waits()?;
                if walk.matches(path).is_some() {
                    found.push(path.to_vec());
                }
            }
            found
        }
    };
    let mut found = Vec::new();
    for path in written {
        let place = follow(source, &path)?;
        if place.is_empty() || source.item(&place).is_some() {
            found.push((path, place));
        }
    }
    match found.is_empty() {
        true => Err(Error::not_found(format!("{word} is not in {name}"))
            .hint("paths are relative to the context; .dockerignore may leave it out")),
        false => Ok(found),
    }
}
