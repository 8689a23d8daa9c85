//! Streams of file system entries: checked, counted, hashed and passed on.
//!
//! Owns the rules every root filesystem obeys, whichever builder made it, and
//! the writer that turns entries into a tar stream for the unpacker while it
//! computes the digest. It never writes to the file system itself, so a hostile
//! stream meets these rules before it meets the disk.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use sha2::{Digest as _, Sha256};
use tar::{Archive, Builder, Entry, EntryType, Header};

use crate::{
    digest::{self, Content, Node, Nodes},
    error::EnvironmentError,
};

/// Most bytes of file contents in one environment.
pub const MAX_ROOT_BYTES: u64 = 16 << 30;
/// Most paths in one environment.
pub const MAX_ROOT_ENTRIES: u64 = 2_000_000;
/// Largest file whose contents are also handed to the caller.
const MAX_CAPTURED_BYTES: u64 = 64 << 20;

/// Attributes that are kept: file capabilities, and what programs note about
/// files.
pub(crate) const KEPT_ATTRIBUTES: [&str; 2] = ["security.capability", "user.*"];
/// Never kept: in a user namespace the kernel's overlays take these as orders.
const DROPPED_ATTRIBUTES: &str = "user.overlay.";
/// Modification time of files motu adds: fixed, and late enough for archive
/// formats that begin in 1980.
const ADDED_AT: u64 = 1_700_000_000;
pub(crate) const PAX_ATTRIBUTE_PREFIX: &str = "SCHILY.xattr.";

/// Permissions and owner of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub mtime: u64,
}

impl Meta {
    /// Owned by root.
    pub fn root(mode: u32) -> Self {
        Self {
            mode,
            uid: 0,
            gid: 0,
            mtime: ADDED_AT,
        }
    }
}

/// What a finished tree amounts to.
#[derive(Debug, Clone)]
pub(crate) struct Summary {
    pub digest: String,
    pub bytes: u64,
    pub entries: u64,
    pub nodes: Nodes,
}

/// Writes a tree as a tar stream.
pub(crate) struct TreeWriter<W: Write> {
    out: Builder<W>,
    nodes: Nodes,
    bytes: u64,
}

impl<W: Write> TreeWriter<W> {
    /// Starts a tree with its root directory.
    pub fn new(out: W) -> Result<Self, EnvironmentError> {
        let mut out = Builder::new(out);
        let meta = Meta::root(0o755);
        let mut header = header(EntryType::Directory, meta, 0);
        out.append_data(&mut header, "./", io::empty())
            .map_err(write_error)?;
        let mut nodes = Nodes::new();
        nodes.insert(Vec::new(), node(Content::Directory, meta));
        Ok(Self {
            out,
            nodes,
            bytes: 0,
        })
    }

    /// Goes on with a tree that is on the disk already and holds these files of so many bytes.
    pub fn over(out: W, nodes: Nodes, bytes: u64) -> Self {
        Self {
            out: Builder::new(out),
            nodes,
            bytes,
        }
    }

    /// Whether `path` was already written.
    pub fn contains(&self, path: &str) -> bool {
        self.has(path.as_bytes())
    }

    pub fn has(&self, path: &[u8]) -> bool {
        self.nodes.contains_key(path)
    }

    /// Adds a directory and, where missing, its parents.
    pub fn ensure_directory(&mut self, path: &str, meta: Meta) -> Result<(), EnvironmentError> {
        if let Some((parent, _)) = path.rsplit_once('/')
            && !self.contains(parent)
        {
            self.ensure_directory(parent, Meta::root(0o755))?;
        }
        if self.contains(path) {
            return Ok(());
        }
        self.directory(path.as_bytes(), meta)
    }

    pub fn directory(&mut self, path: &[u8], meta: Meta) -> Result<(), EnvironmentError> {
        self.insert(path, node(Content::Directory, meta))?;
        let mut header = header(EntryType::Directory, meta, 0);
        self.out
            .append_data(&mut header, as_path(path), io::empty())
            .map_err(write_error)
    }

    pub fn symlink(
        &mut self,
        path: &[u8],
        meta: Meta,
        target: &[u8],
    ) -> Result<(), EnvironmentError> {
        // Permissions of links are not a thing on Linux.
        let meta = Meta {
            mode: 0o777,
            ..meta
        };
        self.insert(path, node(Content::Symlink(target.to_vec()), meta))?;
        let mut header = header(EntryType::Symlink, meta, 0);
        self.out
            .append_link(&mut header, as_path(path), as_path(target))
            .map_err(write_error)
    }

    /// Adds a file whose contents are known.
    pub fn file(&mut self, path: &str, meta: Meta, text: &[u8]) -> Result<(), EnvironmentError> {
        self.file_from(path.as_bytes(), meta, text.len() as u64, text)
    }

    /// Adds a file of exactly `size` bytes read from `contents`.
    pub fn file_from(
        &mut self,
        path: &[u8],
        meta: Meta,
        size: u64,
        contents: impl Read,
    ) -> Result<(), EnvironmentError> {
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > MAX_ROOT_BYTES {
            return Err(EnvironmentError::TooLarge {
                what: "bytes",
                limit: MAX_ROOT_BYTES,
            });
        }
        // The place is taken before the contents are read: a refused path must
        // not reach the stream.
        self.insert(path, node(Content::File([0; 32]), meta))?;
        let mut header = header(EntryType::Regular, meta, size);
        let mut hashed = Hashed {
            inner: contents.take(size),
            hash: Sha256::new(),
            seen: 0,
        };
        self.out
            .append_data(&mut header, as_path(path), &mut hashed)
            .map_err(write_error)?;
        if hashed.seen != size {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(EnvironmentError::io("reading a packed file", short));
        }
        let sum = hashed.hash.finalize().into();
        if let Some(node) = self.nodes.get_mut(path) {
            node.content = Content::File(sum);
        }
        Ok(())
    }

    /// Adds a file of exactly `size` bytes with attributes.
    pub fn file_with(
        &mut self,
        path: &[u8],
        meta: Meta,
        attributes: BTreeMap<String, Vec<u8>>,
        contents: (u64, impl Read),
    ) -> Result<(), EnvironmentError> {
        if !attributes.is_empty() {
            self.attributes(&attributes)?;
        }
        self.file_from(path, meta, contents.0, contents.1)?;
        if let Some(node) = self.nodes.get_mut(path) {
            node.attributes = attributes;
        }
        Ok(())
    }

    /// Adds a second name for a file written before.
    pub fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), EnvironmentError> {
        let Some(original) = self.nodes.get(target) else {
            return Err(refused(path, "hard link to something outside or later"));
        };
        if !matches!(original.content, Content::File(_)) {
            return Err(refused(path, "hard link to something that is not a file"));
        }
        let node = original.clone();
        let meta = Meta {
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            mtime: 0,
        };
        self.insert(path, node)?;
        let mut header = header(EntryType::Link, meta, 0);
        self.out
            .append_link(&mut header, as_path(path), as_path(target))
            .map_err(write_error)
    }

    /// Attributes for the entry written next.
    fn attributes(
        &mut self,
        attributes: &BTreeMap<String, Vec<u8>>,
    ) -> Result<(), EnvironmentError> {
        let keys: Vec<String> = attributes
            .keys()
            .map(|key| format!("{PAX_ATTRIBUTE_PREFIX}{key}"))
            .collect();
        let pairs = keys.iter().map(String::as_str);
        self.out
            .append_pax_extensions(pairs.zip(attributes.values().map(Vec::as_slice)))
            .map_err(write_error)
    }

    /// Takes the place of a path, or refuses it.
    ///
    /// A parent must have been written as a directory: without that rule a
    /// symbolic link could lead later entries out of the tree.
    fn insert(&mut self, path: &[u8], node: Node) -> Result<(), EnvironmentError> {
        let parent = match path.iter().rposition(|b| *b == b'/') {
            Some(at) => &path[..at],
            None => &[],
        };
        match self.nodes.get(parent) {
            Some(above) if above.content == Content::Directory => {}
            _ => return Err(refused(path, "its parent is not a directory")),
        }
        if self.nodes.len() as u64 >= MAX_ROOT_ENTRIES {
            return Err(EnvironmentError::TooLarge {
                what: "entries",
                limit: MAX_ROOT_ENTRIES,
            });
        }
        if self.nodes.insert(path.to_vec(), node).is_some() {
            return Err(refused(path, "it appears twice"));
        }
        Ok(())
    }

    /// Ends the stream.
    pub fn finish(self) -> Result<(Summary, W), EnvironmentError> {
        let summary = Summary {
            digest: digest::of_nodes(&self.nodes),
            bytes: self.bytes,
            entries: self.nodes.len() as u64,
            nodes: self.nodes,
        };
        let mut out = self.out.into_inner().map_err(write_error)?;
        out.flush().map_err(write_error)?;
        Ok((summary, out))
    }
}

/// What to do with one entry of a source stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep,
    /// Kept, and its contents handed to the caller.
    KeepAndCapture,
    /// Left out, and its contents handed to the caller.
    DropAndCapture,
    Drop,
}

/// Contents of captured files by path.
pub(crate) type Captured = BTreeMap<Vec<u8>, Vec<u8>>;

/// Copies a tar stream into `tree`. `judge` sees each normalised path and
/// whether it is a directory.
pub(crate) fn copy_tar<R: Read, W: Write>(
    source: R,
    tree: &mut TreeWriter<W>,
    judge: impl Fn(&[u8], bool) -> Verdict,
) -> Result<Captured, EnvironmentError> {
    let mut archive = Archive::new(source);
    let mut captured = Captured::new();
    for entry in archive.entries().map_err(read_error)? {
        let mut entry = entry.map_err(read_error)?;
        let path = normalise(&entry.path_bytes())?;
        if path.is_empty() {
            continue;
        }
        let is_directory = entry.header().entry_type() == EntryType::Directory;
        let verdict = judge(&path, is_directory);
        if matches!(verdict, Verdict::KeepAndCapture | Verdict::DropAndCapture) {
            let contents = capture(&mut entry, &path)?;
            if verdict == Verdict::KeepAndCapture {
                let meta = meta_of(entry.header())?;
                tree.file_from(&path, meta, contents.len() as u64, contents.as_slice())?;
            }
            captured.insert(path, contents);
        } else if verdict == Verdict::Keep {
            copy_entry(&mut entry, &path, tree)?;
        }
    }
    // A producer that pads its stream must not die of a closed pipe.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(read_error)?;
    Ok(captured)
}

fn copy_entry<R: Read, W: Write>(
    entry: &mut Entry<'_, R>,
    path: &[u8],
    tree: &mut TreeWriter<W>,
) -> Result<(), EnvironmentError> {
    let meta = meta_of(entry.header())?;
    let kind = entry.header().entry_type();
    match kind {
        EntryType::Directory => tree.directory(path, meta),
        EntryType::Symlink => {
            let target = entry.link_name_bytes().unwrap_or_default().into_owned();
            tree.symlink(path, meta, &target)
        }
        EntryType::Link => {
            let target = normalise(&entry.link_name_bytes().unwrap_or_default())?;
            tree.hard_link(path, &target)
        }
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            let attributes = attributes_of(entry)?;
            let size = entry.size();
            tree.file_with(path, meta, attributes, (size, entry))
        }
        EntryType::Char | EntryType::Block => Err(refused(path, "device outside /dev")),
        _ => Err(refused(path, "neither file, directory nor link")),
    }
}

fn capture<R: Read>(entry: &mut Entry<'_, R>, path: &[u8]) -> Result<Vec<u8>, EnvironmentError> {
    if entry.header().entry_type() != EntryType::Regular {
        return Err(refused(path, "expected a regular file"));
    }
    if entry.size() > MAX_CAPTURED_BYTES {
        return Err(refused(path, "too large for what it is"));
    }
    let mut contents = Vec::new();
    entry.read_to_end(&mut contents).map_err(read_error)?;
    Ok(contents)
}

/// Whether an extended attribute of a file goes into environments.
pub(crate) fn keeps_attribute(name: &str) -> bool {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    };
    KEPT_ATTRIBUTES.into_iter().any(matches) && !name.starts_with(DROPPED_ATTRIBUTES)
}

fn attributes_of<R: Read>(
    entry: &mut Entry<'_, R>,
) -> Result<BTreeMap<String, Vec<u8>>, EnvironmentError> {
    let mut kept = BTreeMap::new();
    let Some(extensions) = entry.pax_extensions().map_err(read_error)? else {
        return Ok(kept);
    };
    for extension in extensions {
        let extension = extension.map_err(read_error)?;
        let key = extension.key().unwrap_or_default();
        if let Some(name) = key.strip_prefix(PAX_ATTRIBUTE_PREFIX)
            && keeps_attribute(name)
        {
            kept.insert(name.to_owned(), extension.value_bytes().to_vec());
        }
    }
    Ok(kept)
}

/// Strips `./` and trailing slashes; refuses what could leave the tree.
fn normalise(path: &[u8]) -> Result<Vec<u8>, EnvironmentError> {
    if path.first() == Some(&b'/') {
        return Err(refused(path, "absolute path"));
    }
    let mut clean: Vec<u8> = Vec::with_capacity(path.len());
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err(refused(path, "path with ..")),
            part if part.contains(&0) => return Err(refused(path, "path with a zero byte")),
            part => {
                if !clean.is_empty() {
                    clean.push(b'/');
                }
                clean.extend_from_slice(part);
            }
        }
    }
    Ok(clean)
}

fn meta_of(header: &Header) -> Result<Meta, EnvironmentError> {
    Ok(Meta {
        mode: header.mode().map_err(read_error)? & 0o7777,
        uid: header.uid().map_err(read_error)?,
        gid: header.gid().map_err(read_error)?,
        mtime: header.mtime().map_err(read_error)?,
    })
}

pub(crate) fn header(kind: EntryType, meta: Meta, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(meta.mode);
    header.set_uid(meta.uid);
    header.set_gid(meta.gid);
    header.set_mtime(meta.mtime);
    header.set_size(size);
    header
}

fn node(content: Content, meta: Meta) -> Node {
    Node {
        content,
        mode: meta.mode,
        uid: meta.uid,
        gid: meta.gid,
        attributes: BTreeMap::new(),
    }
}

pub(crate) fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

fn refused(path: &[u8], reason: &'static str) -> EnvironmentError {
    EnvironmentError::Refused {
        path: String::from_utf8_lossy(path).into_owned(),
        reason,
    }
}

fn read_error(source: io::Error) -> EnvironmentError {
    EnvironmentError::io("reading the packed root filesystem", source)
}

fn write_error(source: io::Error) -> EnvironmentError {
    EnvironmentError::io("unpacking the root filesystem", source)
}

struct Hashed<R> {
    inner: R,
    hash: Sha256,
    seen: u64,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(&buffer[..count]);
        self.seen += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
