//! Streams of file system entries: checked, counted, hashed and passed on.
//!
//! Owns the rules every root filesystem obeys, whichever builder made it, and
//! the writer that turns entries into a tar stream for the unpacker while it
//! computes the digest. It never writes to the file system itself, so a hostile
//! stream meets these rules before it meets the disk.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
};

use motu_archive::{Header, Type, Writer};
use sha2::{Digest as _, Sha256};

use crate::{
    digest::{self, Content, Node, Nodes},
    error::EnvironmentError,
};

/// Most bytes of file contents in one environment.
pub const MAX_ROOT_BYTES: u64 = 16 << 30;
/// Most paths in one environment.
pub const MAX_ROOT_ENTRIES: u64 = 2_000_000;

/// Attributes that are kept: file capabilities, and what programs note about
/// files.
pub(crate) const KEPT_ATTRIBUTES: [&str; 2] = ["security.capability", "user.*"];
/// Never kept: in a user namespace the kernel's overlays take these as orders.
const DROPPED_ATTRIBUTES: &str = "user.overlay.";
/// Modification time of files motu adds: fixed, and late enough for archive
/// formats that begin in 1980.
const ADDED_AT: u64 = 1_700_000_000;

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

    /// The header of an entry without content.
    pub(crate) fn header(self, kind: Type, path: &[u8]) -> Header {
        let id = |id: u64| u32::try_from(id).unwrap_or(u32::MAX);
        Header {
            path: path.to_vec(),
            kind,
            mode: self.mode,
            uid: id(self.uid),
            gid: id(self.gid),
            mtime: i64::try_from(self.mtime).unwrap_or(i64::MAX),
            ..Header::default()
        }
    }

    pub(crate) fn link(self, kind: Type, path: &[u8], target: &[u8]) -> Header {
        Header {
            link: target.to_vec(),
            ..self.header(kind, path)
        }
    }

    pub(crate) fn file(
        self,
        path: &[u8],
        size: u64,
        attributes: &BTreeMap<String, Vec<u8>>,
    ) -> Header {
        let own = |(name, value): (&String, &Vec<u8>)| (name.clone().into_bytes(), value.clone());
        Header {
            size,
            attributes: attributes.iter().map(own).collect(),
            ..self.header(Type::File, path)
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
    out: Writer<W>,
    nodes: Nodes,
    bytes: u64,
}

impl<W: Write> TreeWriter<W> {
    /// Starts a tree with its root directory.
    pub fn new(out: W) -> Result<Self, EnvironmentError> {
        let mut out = Writer::new(out);
        let meta = Meta::root(0o755);
        out.entry(&meta.header(Type::Directory, b"./"))
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
            out: Writer::new(out),
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
        let header = meta.header(Type::Directory, path);
        self.out.entry(&header).map_err(write_error)
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
        let header = meta.link(Type::Symlink, path, target);
        self.out.entry(&header).map_err(write_error)
    }

    /// Adds a file whose contents are known.
    pub fn file(&mut self, path: &str, meta: Meta, text: &[u8]) -> Result<(), EnvironmentError> {
        let contents = (text.len() as u64, text);
        self.file_with(path.as_bytes(), meta, BTreeMap::new(), contents)
    }

    /// Adds a file of exactly `size` bytes with attributes.
    pub fn file_with(
        &mut self,
        path: &[u8],
        meta: Meta,
        attributes: BTreeMap<String, Vec<u8>>,
        (size, contents): (u64, impl Read),
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
        let mut hashed = Hashed {
            inner: contents,
            hash: Sha256::new(),
        };
        self.out
            .file(&meta.file(path, size, &attributes), &mut hashed)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    EnvironmentError::io("reading a packed file", error)
                }
                _ => write_error(error),
            })?;
        let sum = hashed.hash.finalize().into();
        if let Some(node) = self.nodes.get_mut(path) {
            node.content = Content::File(sum);
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
        let header = meta.link(Type::HardLink, path, target);
        self.out.entry(&header).map_err(write_error)
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
        let out = self.out.finish().map_err(write_error)?;
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

/// Whether an extended attribute of a file goes into environments.
pub(crate) fn keeps_attribute(name: &str) -> bool {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    };
    KEPT_ATTRIBUTES.into_iter().any(matches) && !name.starts_with(DROPPED_ATTRIBUTES)
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

pub(crate) fn refused(path: &[u8], reason: &'static str) -> EnvironmentError {
    EnvironmentError::Refused {
        path: String::from_utf8_lossy(path).into_owned(),
        reason,
    }
}

fn write_error(source: io::Error) -> EnvironmentError {
    EnvironmentError::io("unpacking the root filesystem", source)
}

struct Hashed<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}
