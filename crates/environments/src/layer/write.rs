//! Writing a layer: what one step of a build changed.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use motu_archive::{Type, Writer};
use sha2::{Digest as _, Sha256};

use super::entry::{join, split};
use crate::{
    digest::hex,
    error::{EnvironmentError, IoContext as _},
    tree::{MAX_ROOT_BYTES, MAX_ROOT_ENTRIES, Meta},
};

/// Extended attributes of a file.
pub type FileAttributes = BTreeMap<String, Vec<u8>>;

/// A layer that is being written. Paths are relative and plain; whoever reads it checks them.
pub struct LayerWriter {
    out: Writer<BufWriter<Hashed<File>>>,
    path: PathBuf,
    bytes: u64,
    entries: u64,
}

impl std::fmt::Debug for LayerWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LayerWriter to {}", self.path.display())
    }
}

impl LayerWriter {
    pub(crate) fn create(path: &Path) -> Result<Self, EnvironmentError> {
        let file = File::create_new(path).at("creating", path)?;
        let hashed = Hashed {
            inner: file,
            hash: Sha256::new(),
            bytes: 0,
        };
        Ok(Self {
            out: Writer::new(BufWriter::with_capacity(256 << 10, hashed)),
            path: path.to_owned(),
            bytes: 0,
            entries: 0,
        })
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub fn directory(&mut self, path: &[u8], meta: Meta) -> Result<(), EnvironmentError> {
        self.count(0)?;
        let added = self.out.entry(&meta.header(Type::Directory, path));
        added.at("writing", &self.path)
    }

    pub fn symlink(
        &mut self,
        path: &[u8],
        meta: Meta,
        target: &[u8],
    ) -> Result<(), EnvironmentError> {
        self.count(0)?;
        let meta = Meta {
            mode: 0o777,
            ..meta
        };
        let added = self.out.entry(&meta.link(Type::Symlink, path, target));
        added.at("writing", &self.path)
    }

    /// A second name for a file of this layer.
    pub fn hard_link(
        &mut self,
        path: &[u8],
        meta: Meta,
        target: &[u8],
    ) -> Result<(), EnvironmentError> {
        self.count(0)?;
        let added = self.out.entry(&meta.link(Type::HardLink, path, target));
        added.at("writing", &self.path)
    }

    /// A file of exactly `size` bytes.
    pub fn file(
        &mut self,
        path: &[u8],
        meta: Meta,
        attributes: &FileAttributes,
        (size, contents): (u64, &mut dyn Read),
    ) -> Result<(), EnvironmentError> {
        self.count(size)?;
        let written = self
            .out
            .file(&meta.file(path, size, attributes), &mut { contents });
        written.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                EnvironmentError::io("reading a file that becomes shorter", error)
            }
            _ => EnvironmentError::io(format!("writing {}", self.path.display()), error),
        })
    }

    /// Removes what is below this path.
    pub fn whiteout(&mut self, path: &[u8]) -> Result<(), EnvironmentError> {
        let (parent, name) = split(path);
        let mark = join(parent, &[b".wh.", name].concat());
        self.count(0)?;
        let added = self.out.entry(&Meta::root(0o600).header(Type::File, &mark));
        added.at("writing", &self.path)
    }

    fn count(&mut self, bytes: u64) -> Result<(), EnvironmentError> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.entries += 1;
        for (count, what, limit) in [
            (self.bytes, "bytes", MAX_ROOT_BYTES),
            (self.entries, "entries", MAX_ROOT_ENTRIES),
        ] {
            if count > limit {
                return Err(EnvironmentError::TooLarge { what, limit });
            }
        }
        Ok(())
    }

    /// The digest of the layer, and its size.
    pub(crate) fn finish(self) -> Result<(String, u64), EnvironmentError> {
        let path = self.path;
        let out = self.out.finish().at("writing", &path)?;
        let hashed = out.into_inner().map_err(io::IntoInnerError::into_error);
        let hashed = hashed.at("writing", &path)?;
        let digest = format!("sha256:{}", hex(&hashed.hash.finalize()));
        Ok((digest, hashed.bytes))
    }
}

struct Hashed<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
