//! Writing a layer: what one step of a build changed.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType};

use super::entry::{join, split};
use crate::{
    digest::hex,
    error::{EnvironmentError, IoContext as _},
    tree::{MAX_ROOT_BYTES, MAX_ROOT_ENTRIES, Meta, PAX_ATTRIBUTE_PREFIX, as_path, header},
};

/// Extended attributes of a file.
pub type FileAttributes = BTreeMap<String, Vec<u8>>;

/// A layer that is being written. Paths are relative and plain; whoever reads it checks them.
pub struct LayerWriter {
    out: Builder<BufWriter<Hashed<File>>>,
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
            out: Builder::new(BufWriter::with_capacity(256 << 10, hashed)),
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
        let mut header = header(EntryType::Directory, meta, 0);
        let added = self
            .out
            .append_data(&mut header, as_path(path), io::empty());
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
        let mut header = header(EntryType::Symlink, meta, 0);
        let added = self
            .out
            .append_link(&mut header, as_path(path), as_path(target));
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
        let mut header = header(EntryType::Link, meta, 0);
        let added = self
            .out
            .append_link(&mut header, as_path(path), as_path(target));
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
        if !attributes.is_empty() {
            let keys: Vec<String> = attributes
                .keys()
                .map(|key| format!("{PAX_ATTRIBUTE_PREFIX}{key}"))
                .collect();
            let pairs = keys.iter().map(String::as_str);
            self.out
                .append_pax_extensions(pairs.zip(attributes.values().map(Vec::as_slice)))
                .at("writing", &self.path)?;
        }
        let mut header = header(EntryType::Regular, meta, size);
        let mut exact = Exact {
            inner: contents.take(size),
            left: size,
        };
        let added = self.out.append_data(&mut header, as_path(path), &mut exact);
        added.at("writing", &self.path)?;
        match exact.left {
            0 => Ok(()),
            _ => Err(EnvironmentError::io(
                "reading a file that becomes shorter",
                io::ErrorKind::UnexpectedEof.into(),
            )),
        }
    }

    /// Removes what is below this path.
    pub fn whiteout(&mut self, path: &[u8]) -> Result<(), EnvironmentError> {
        let (parent, name) = split(path);
        let mark = join(parent, &[b".wh.", name].concat());
        self.count(0)?;
        let mut header = header(EntryType::Regular, Meta::root(0o600), 0);
        let added = self
            .out
            .append_data(&mut header, as_path(&mark), io::empty());
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
        let out = self.out.into_inner().at("writing", &path)?;
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

/// Counts what is still to come.
struct Exact<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Exact<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left -= count as u64;
        Ok(count)
    }
}
