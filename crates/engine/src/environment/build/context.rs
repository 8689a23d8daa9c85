//! The context of a build: an archive that is indexed and never unpacked.

use super::source::{Content, Item, Kind, Source};
use crate::blocking::Caller;
use motu_core::{Error, Result, limits};
use motu_dockerfile::Ignore;
use motu_environments::archive::{Archive, EntryKind};
use motu_environments::{Decision, decide};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The file of patterns for files to leave out.
const IGNORE: &[u8] = b".dockerignore";

// The table of limits must agree with the parser's constant.
const _: () = assert!(limits::BUILD_IGNORE_BYTES.max == motu_dockerfile::MAX_IGNORE_BYTES as u64);

/// The index of a context's archive.
#[derive(Debug, Default)]
pub(super) struct Context {
    file: Option<Arc<File>>,
    items: BTreeMap<Vec<u8>, (Item, u64)>,
}

/// Counts the bytes read, to know the offset of each file's contents.
struct Counted<R> {
    inner: R,
    at: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Context {
    /// Indexes an archive. Paths that climb out, and entries that are not files, are refused.
    pub(super) fn open(path: &Path, caller: &Caller) -> Result<Context> {
        let broken = |error: std::io::Error| Error::invalid(format!("the context: {error}"));
        let file =
            File::open(path).map_err(|error| Error::io("cannot read the context", &error))?;
        let file = Arc::new(file);
        let counted = Counted {
            inner: BufReader::with_capacity(1 << 18, file.as_ref()),
            at: 0,
        };
        let mut archive = Archive::new(counted);
        let mut items = BTreeMap::new();
        while let Some(entry) = archive.next_entry().map_err(broken)? {
            caller.waits()?;
            if items.len() as u64 >= limits::BUILD_CONTEXT_ENTRIES.max {
                let most = limits::BUILD_CONTEXT_ENTRIES.max;
                return Err(Error::limit(format!(
                    "the context has more entries than build_context_entries, {most}"
                ))
                .hint("leave some out with .dockerignore"));
            }
            let path = match decide(&entry.path, entry.kind, &entry.link) {
                Decision::Keep(path) => path,
                Decision::Skip => continue,
                Decision::Refuse(reason) => return Err(refused(&entry.path, reason)),
                // Refuse whiteout names (`.wh.…`), which would delete files when used in a layer,
                // and hard links.
                Decision::Whiteout(_) | Decision::Opaque(_) => {
                    return Err(refused(&entry.path, "a name that means a removed file"));
                }
                Decision::Link { .. } => return Err(refused(&entry.path, "a hard link")),
            };
            if archive.is_sparse() {
                return Err(refused(&entry.path, "a file with holes"));
            }
            let kind = match entry.kind {
                EntryKind::File => Kind::File,
                EntryKind::Directory => Kind::Directory,
                EntryKind::Symlink => Kind::Symlink(entry.link),
                _ => continue,
            };
            let item = Item {
                kind,
                mode: entry.meta.mode & 0o7777,
                uid: 0,
                gid: 0,
                mtime: entry.meta.mtime,
                size: entry.size,
                attributes: BTreeMap::new(),
            };
            items.insert(path, (item, archive.get_ref().at));
        }
        let mut context = Context {
            file: Some(file),
            items,
        };
        context.leave_out(caller)?;
        Ok(context)
    }

    /// Applies `.dockerignore`.
    fn leave_out(&mut self, caller: &Caller) -> Result<()> {
        let Some(text) = self.text(IGNORE)? else {
            return Ok(());
        };
        let ignore = Ignore::parse(&text)
            .map_err(|error| Error::invalid(format!(".dockerignore {error}")))?;
        let mut kept: std::collections::BTreeSet<Vec<u8>> = Default::default();
        let mut ignored = ignore.walk();
        for path in self.items.keys() {
            caller.waits()?;
            if !ignored.excludes(path) {
                let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
                kept.extend(ends.map(|(at, _)| path[..at].to_vec()));
                kept.insert(path.clone());
            }
        }
        self.items.retain(|path, _| kept.contains(path));
        Ok(())
    }

    fn text(&self, path: &[u8]) -> Result<Option<String>> {
        let Some((item, _)) = self.items.get(path) else {
            return Ok(None);
        };
        if item.kind != Kind::File || item.size > limits::BUILD_FILE_BYTES.max {
            return Err(Error::limit(
                ".dockerignore is larger than build_file_bytes",
            ));
        }
        let mut text = Vec::new();
        let (_, mut content) = self.open_file(path)?;
        content
            .read_to_end(&mut text)
            .map_err(|error| Error::io("cannot read the context", &error))?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }
}

fn refused(path: &[u8], reason: &str) -> Error {
    let path = String::from_utf8_lossy(path);
    Error::new(
        motu_core::ErrorKind::Denied,
        format!("the context holds {path:?}, which is refused: {reason}"),
    )
}

impl Source for Context {
    fn name(&self) -> &'static str {
        "the context"
    }

    fn confines(&self) -> bool {
        true
    }

    fn item(&self, path: &[u8]) -> Option<Item> {
        self.items.get(path).map(|(item, _)| item.clone())
    }

    fn below<'a>(&'a self, path: &[u8]) -> Box<dyn Iterator<Item = &'a [u8]> + 'a> {
        let start = match path {
            b"" => Vec::new(),
            path => [path, b"/"].concat(),
        };
        let range = self.items.range(start.clone()..);
        let paths = range.map(|(path, _)| path.as_slice());
        Box::new(paths.take_while(move |found| found.starts_with(&start)))
    }

    fn open_file(&self, path: &[u8]) -> Result<Content> {
        let (Some((item, at)), Some(file)) = (self.items.get(path), &self.file) else {
            return Err(Error::internal("a file of the context is gone"));
        };
        let part = Part {
            file: file.clone(),
            at: *at,
            left: item.size,
        };
        Ok((item.size, Box::new(part)))
    }
}

/// A reader for one range of a file.
struct Part {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Part {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let count = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}
