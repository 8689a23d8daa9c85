//! `COPY` and `ADD`: from a source into a layer.

use super::source::{Item, Kind, Source, clean, find, follow};
use crate::admission::environment_error;
use crate::blocking::Caller;
use motu_core::{Error, Result};
use motu_environments::archive::{Archive, unpacked};
use motu_environments::{Decision, EntryKind, LayerWriter, Meta, Workplace, decide};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::Read;

/// The modification time of files whose text is in the Dockerfile itself, fixed for the cache.
const WRITTEN_AT: u64 = 1_700_000_000;

/// What is copied, with its words expanded.
#[derive(Debug)]
pub(super) struct Copying {
    pub(super) add: bool,
    pub(super) sources: Vec<String>,
    /// Here-documents: names and texts.
    pub(super) texts: Vec<(String, String)>,
    /// Absolute; a trailing slash marks a directory.
    pub(super) destination: String,
    pub(super) owner: Option<(u64, u64)>,
    pub(super) mode: Option<u32>,
}

/// A hash of what would be copied: names, permissions and contents, but no times.
pub(super) fn hash(copying: &Copying, source: &dyn Source, caller: &Caller) -> Result<String> {
    let mut hash = Sha256::new();
    let mut put = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for word in &copying.sources {
        for (written, place) in find(source, word, caller)? {
            put(&written);
            let below = source.below(&place);
            for path in [place.as_slice()].into_iter().chain(below) {
                caller.waits()?;
                let Some(item) = source.item(path) else {
                    continue;
                };
                put(path);
                put(&item.mode.to_be_bytes());
                match &item.kind {
                    Kind::Directory => put(b"d"),
                    Kind::Symlink(target) => put(target),
                    Kind::File => {
                        let mut content = Sha256::new();
                        let (_, mut bytes) = source.open_file(path)?;
                        std::io::copy(&mut bytes, &mut content)
                            .map_err(|error| Error::io("cannot read the context", &error))?;
                        put(&content.finalize());
                    }
                }
            }
        }
    }
    for (name, text) in &copying.texts {
        put(name.as_bytes());
        put(text.as_bytes());
    }
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Writes the layer.
pub(super) fn write(
    copying: &Copying,
    source: &dyn Source,
    place: &Workplace,
    layer: &mut LayerWriter,
    caller: &Caller,
) -> Result<()> {
    let mut writer = Writer {
        copying,
        place,
        layer,
        made: BTreeSet::new(),
        caller: caller.clone(),
    };
    let mut found = Vec::new();
    for word in &copying.sources {
        found.extend(find(source, word, caller)?);
    }
    let several = found.len() + copying.texts.len() > 1;
    let destination = writer.destination(several)?;
    for (written, path) in found {
        let item = match path.is_empty() {
            true => None,
            false => source.item(&path),
        };
        match item {
            None => writer.directory(source, &path, &destination.path)?,
            Some(item) if item.kind == Kind::Directory => {
                writer.directory(source, &path, &destination.path)?;
            }
            Some(item) => {
                if copying.add
                    && item.kind == Kind::File
                    && writer.unpack(source, &path, &destination.path)?
                {
                    continue;
                }
                let target = destination.for_file(&written);
                writer.file(source, &path, &item, &target)?;
            }
        }
    }
    for (name, text) in &copying.texts {
        let target = destination.for_file(name.as_bytes());
        writer.text(&target, text)?;
    }
    Ok(())
}

/// Writes a directory and its missing parents.
pub(super) fn make_directory(path: &str, place: &Workplace, layer: &mut LayerWriter) -> Result<()> {
    let copying = Copying {
        add: false,
        sources: Vec::new(),
        texts: Vec::new(),
        destination: path.to_string(),
        owner: None,
        mode: None,
    };
    let mut writer = Writer {
        copying: &copying,
        place,
        layer,
        made: BTreeSet::new(),
        caller: Caller::default(),
    };
    let destination = writer.destination(false)?;
    writer.parents(&destination.path)?;
    writer.make(&destination.path)
}

/// The destination of a copy.
struct Destination {
    path: Vec<u8>,
    is_directory: bool,
}

impl Destination {
    fn for_file(&self, written: &[u8]) -> Vec<u8> {
        if !self.is_directory {
            return self.path.clone();
        }
        let name = written
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or(written);
        join(&self.path, name)
    }
}

fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    match above {
        b"" => name.to_vec(),
        above => [above, b"/", name].concat(),
    }
}

struct Writer<'a> {
    copying: &'a Copying,
    place: &'a Workplace,
    layer: &'a mut LayerWriter,
    /// Directories that this layer has made already.
    made: BTreeSet<Vec<u8>>,
    caller: Caller,
}

impl Writer<'_> {
    fn destination(&self, several: bool) -> Result<Destination> {
        let word = &self.copying.destination;
        let wanted = clean(word.as_bytes())
            .ok_or_else(|| Error::invalid(format!("{word} leads out of the root")))?;
        let path = follow(self.place, &wanted)?;
        let there = self.place.item(&path).map(|item| item.kind);
        let says = word.ends_with('/') || word.ends_with("/.") || path.is_empty();
        if several && !says && there != Some(Kind::Directory) {
            return Err(
                Error::invalid(format!("{word} takes several files and is no directory"))
                    .hint("end the destination with a slash"),
            );
        }
        Ok(Destination {
            is_directory: says || there == Some(Kind::Directory),
            path,
        })
    }

    fn meta(&self, item: &Item) -> Meta {
        let (uid, gid) = self.copying.owner.unwrap_or((item.uid, item.gid));
        Meta {
            mode: self.copying.mode.unwrap_or(item.mode),
            uid,
            gid,
            mtime: item.mtime,
        }
    }

    /// Makes the missing parents of a path.
    fn parents(&mut self, path: &[u8]) -> Result<()> {
        let ends: Vec<usize> = path
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
            .map(|(at, _)| at)
            .collect();
        for end in ends {
            self.make(&path[..end])?;
        }
        Ok(())
    }

    fn make(&mut self, path: &[u8]) -> Result<()> {
        if path.is_empty() || self.made.contains(path) {
            return Ok(());
        }
        match self.place.item(path).map(|item| item.kind) {
            Some(Kind::Directory) => return Ok(()),
            Some(_) => {
                let path = String::from_utf8_lossy(path);
                return Err(Error::invalid(format!(
                    "/{path} is there and is no directory"
                )));
            }
            None => {}
        }
        let (uid, gid) = self.copying.owner.unwrap_or((0, 0));
        let meta = Meta {
            mode: 0o755,
            uid,
            gid,
            mtime: WRITTEN_AT,
        };
        self.made.insert(path.to_vec());
        self.layer.directory(path, meta).map_err(environment_error)
    }

    /// Copies everything in a directory of the source into the destination.
    fn directory(&mut self, source: &dyn Source, from: &[u8], to: &[u8]) -> Result<()> {
        self.parents(to)?;
        self.make(to)?;
        let paths: Vec<Vec<u8>> = source.below(from).map(<[u8]>::to_vec).collect();
        for path in paths {
            let Some(item) = source.item(&path) else {
                continue;
            };
            let inside = match from {
                b"" => &path[..],
                from => &path[from.len() + 1..],
            };
            // A directory of the destination may be a symbolic link to one.
            let target = self.resolved(&join(to, inside))?;
            match item.kind {
                Kind::Directory => {
                    let there = self.place.item(&target).map(|item| item.kind);
                    if there != Some(Kind::Directory) && self.made.insert(target.clone()) {
                        let meta = self.meta(&item);
                        let made = self.layer.directory(&target, meta);
                        made.map_err(environment_error)?;
                    }
                }
                _ => self.file(source, &path, &item, &target)?,
            }
        }
        Ok(())
    }

    /// Resolves the symbolic links in a path's parent, in the tree below this layer.
    fn resolved(&self, path: &[u8]) -> Result<Vec<u8>> {
        match path.iter().rposition(|byte| *byte == b'/') {
            None => Ok(path.to_vec()),
            Some(at) => Ok(join(&follow(self.place, &path[..at])?, &path[at + 1..])),
        }
    }

    fn file(&mut self, source: &dyn Source, from: &[u8], item: &Item, to: &[u8]) -> Result<()> {
        self.caller.waits()?;
        self.parents(to)?;
        self.must_not_be_directory(to)?;
        let meta = self.meta(item);
        let written = match &item.kind {
            Kind::Symlink(target) => self.layer.symlink(to, meta, target),
            _ => {
                let (size, mut content) = source.open_file(from)?;
                self.layer
                    .file(to, meta, &item.attributes, (size, &mut content))
            }
        };
        written.map_err(environment_error)
    }

    fn text(&mut self, to: &[u8], text: &str) -> Result<()> {
        self.parents(to)?;
        self.must_not_be_directory(to)?;
        let (uid, gid) = self.copying.owner.unwrap_or((0, 0));
        let meta = Meta {
            mode: self.copying.mode.unwrap_or(0o644),
            uid,
            gid,
            mtime: WRITTEN_AT,
        };
        let content = (text.len() as u64, &mut text.as_bytes() as &mut dyn Read);
        let written = self.layer.file(to, meta, &Default::default(), content);
        written.map_err(environment_error)
    }

    fn must_not_be_directory(&self, path: &[u8]) -> Result<()> {
        let there = self.place.item(path).map(|item| item.kind);
        if path.is_empty() || there == Some(Kind::Directory) || self.made.contains(path) {
            let path = String::from_utf8_lossy(path);
            return Err(Error::invalid(format!(
                "/{path} is a directory, and a file would replace it"
            )));
        }
        Ok(())
    }

    /// Unpacks a file that is an archive; returns false if it is none.
    fn unpack(&mut self, source: &dyn Source, from: &[u8], to: &[u8]) -> Result<bool> {
        let (size, content) = source.open_file(from)?;
        let Ok(content) = unpacked(content, size) else {
            return Ok(false);
        };
        let mut archive = Archive::new(content);
        let mut next = match archive.next_entry() {
            Ok(Some(entry)) => Some(entry),
            // Not an archive, or an empty one: copied like any other file.
            _ => return Ok(false),
        };
        let name = String::from_utf8_lossy(from).into_owned();
        let broken = |error: std::io::Error| Error::invalid(format!("{name}: {error}"));
        self.parents(to)?;
        self.make(to)?;
        while let Some(entry) = next {
            let (path, target) = match decide(&entry.path, entry.kind, &entry.link) {
                Decision::Keep(path) => (path, None),
                Decision::Link { path, target } => (path, Some(target)),
                Decision::Skip => {
                    next = archive.next_entry().map_err(broken)?;
                    continue;
                }
                _ => {
                    let path = String::from_utf8_lossy(&entry.path);
                    return Err(Error::new(
                        motu_core::ErrorKind::Denied,
                        format!("{name} holds {path:?}, which is refused"),
                    ));
                }
            };
            let place = self.resolved(&join(to, &path))?;
            self.parents(&place)?;
            let (uid, gid) = self
                .copying
                .owner
                .unwrap_or((entry.meta.uid, entry.meta.gid));
            let meta = Meta {
                uid,
                gid,
                ..entry.meta
            };
            let written = match (entry.kind, target) {
                (EntryKind::Directory, _) => {
                    self.made.insert(place.clone());
                    self.layer.directory(&place, meta)
                }
                (EntryKind::Symlink, _) => self.layer.symlink(&place, meta, &entry.link),
                (_, Some(target)) => {
                    let target = self.resolved(&join(to, &target))?;
                    self.layer.hard_link(&place, meta, &target)
                }
                _ => {
                    let content = (entry.size, &mut archive as &mut dyn Read);
                    self.layer.file(&place, meta, &entry.attributes, content)
                }
            };
            written.map_err(environment_error)?;
            next = archive.next_entry().map_err(broken)?;
        }
        Ok(true)
    }
}
