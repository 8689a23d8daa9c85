//! A layer inside an ext4 file system.

use std::{
    collections::BTreeMap,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use ext4_view::{Ext4, Ext4Error, Ext4Read, FileType, Metadata, PathBuf};

use crate::{
    Attributes, Blocks, DiskError, Kind, Layer,
    journal::{Replayed, is_closed},
    layer::{goes_along, plain},
    opaque::OpaqueReader,
};

const BUFFER_BYTES: usize = 256 << 10;

/// A directory of an ext4 file system as a layer.
pub struct Ext4Layer {
    fs: Ext4,
    /// The absolute path of the tree.
    root: Vec<u8>,
    /// Whether it may contain whiteouts.
    is_upper: bool,
    /// Reads opaque markers and attributes, if the file system is supported.
    inodes: Option<OpaqueReader>,
}

impl std::fmt::Debug for Ext4Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ext4Layer at {}", String::from_utf8_lossy(&self.root))
    }
}

struct Reader(Rc<dyn Blocks>);

impl Ext4Read for Reader {
    fn read(
        &mut self,
        start: u64,
        into: &mut [u8],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync + 'static>> {
        Ok(self.0.read_at(start, into)?)
    }
}

impl Ext4Layer {
    /// The whole file system of a disk, as the lowest layer or the only one.
    pub fn whole(disk: Box<dyn Blocks>) -> Result<Ext4Layer, DiskError> {
        Ext4Layer::new(disk, b"", false)
    }

    /// One directory of a disk, over other layers. Any character device in it counts as a whiteout:
    /// the reader does not return device numbers.
    pub fn upper(disk: Box<dyn Blocks>, directory: &[u8]) -> Result<Ext4Layer, DiskError> {
        Ext4Layer::new(disk, directory, true)
    }

    fn new(disk: Box<dyn Blocks>, root: &[u8], is_upper: bool) -> Result<Ext4Layer, DiskError> {
        let disk: Rc<dyn Blocks> = Rc::from(disk);
        let mut closed = is_closed(&disk);
        let disk = match Replayed::new(&disk) {
            Some(replayed) => {
                closed = true;
                Rc::new(replayed) as Rc<dyn Blocks>
            }
            None => disk,
        };
        let reader = Reader(Rc::clone(&disk));
        let fs = guarded(|| Ext4::load(Box::new(reader)))?;
        // A journal that was not replayed may hold newer attributes.
        let inodes = match closed {
            true => OpaqueReader::new(disk),
            false => None,
        };
        Ok(Ext4Layer {
            fs,
            root: root.to_vec(),
            is_upper,
            inodes,
        })
    }

    fn path(&self, path: &[u8]) -> Result<PathBuf, DiskError> {
        let mut full = vec![b'/'];
        for part in [self.root.as_slice(), path] {
            let part = part.strip_prefix(b"/").unwrap_or(part);
            if !part.is_empty() {
                if full.len() > 1 {
                    full.push(b'/');
                }
                full.extend_from_slice(part);
            }
        }
        PathBuf::try_from(full).map_err(|_| DiskError::NotFound {
            path: String::from_utf8_lossy(path).into_owned(),
        })
    }

    fn attributes(&mut self, path: &PathBuf, meta: &Metadata) -> Result<Attributes, DiskError> {
        let kind = match meta.file_type() {
            FileType::Regular => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::CharacterDevice if self.is_upper => Kind::Whiteout,
            _ => Kind::Other,
        };
        let symlink_target = match kind {
            Kind::Symlink => guarded(|| self.fs.read_link(path))?.as_ref().to_vec(),
            _ => Vec::new(),
        };
        let opaque = match (&mut self.inodes, kind) {
            (Some(reader), Kind::Directory) if self.is_upper => reader
                .is_opaque(path.as_ref())
                .ok_or_else(|| DiskError::damaged("an inode is not where it should be"))?,
            _ => false,
        };
        let time = meta.modified();
        Ok(Attributes {
            kind,
            mode: u32::from(meta.mode()) & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            size: meta.len(),
            modified_unix_ns: time
                .seconds()
                .saturating_mul(1_000_000_000)
                .saturating_add(i64::from(time.nanoseconds())),
            symlink_target,
            opaque,
        })
    }
}

impl Layer for Ext4Layer {
    fn stat(&mut self, path: &[u8]) -> Result<Option<Attributes>, DiskError> {
        let path = self.path(path)?;
        match guarded(|| match self.fs.symlink_metadata(&path) {
            Err(Ext4Error::NotFound) => Ok(None),
            other => other.map(Some),
        })? {
            Some(meta) => self.attributes(&path, &meta).map(Some),
            None => Ok(None),
        }
    }

    fn names(&mut self, path: &[u8], limit: usize) -> Result<Vec<Vec<u8>>, DiskError> {
        let path = self.path(path)?;
        let names = guarded(|| {
            let mut names = Vec::new();
            for entry in self.fs.read_dir(&path)? {
                let entry = entry?;
                let name = entry.file_name();
                let name: &[u8] = name.as_ref();
                if !matches!(name, b"." | b"..") {
                    names.push(name.to_vec());
                }
                if names.len() > limit {
                    break;
                }
            }
            Ok(names)
        })?;
        if names.len() > limit {
            return Err(DiskError::Limit {
                what: "the number of entries",
                limit: limit as u64,
            });
        }
        Ok(names)
    }

    fn read(&mut self, path: &[u8], limit: u64, out: &mut dyn Write) -> Result<u64, DiskError> {
        let path = self.path(path)?;
        let mut file = guarded(|| self.fs.open(&path))?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut done = 0;
        while done < limit {
            let wanted = buffer
                .len()
                .min(usize::try_from(limit - done).unwrap_or(usize::MAX));
            let count = guarded(|| file.read_bytes(&mut buffer[..wanted]))?;
            if count == 0 {
                break;
            }
            out.write_all(&buffer[..count])
                .map_err(|source| DiskError::Io {
                    context: "copying a file".to_owned(),
                    source,
                })?;
            done += count as u64;
        }
        Ok(done)
    }

    fn attributes(&mut self, path: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, DiskError> {
        let path = self.path(path)?;
        let Some(reader) = &mut self.inodes else {
            return Err(DiskError::damaged("its attributes cannot be read"));
        };
        let found = reader
            .attributes(path.as_ref())
            .ok_or_else(|| DiskError::damaged("an inode is not where it should be"))?;
        Ok(found
            .into_iter()
            .filter(|(name, _)| goes_along(name))
            .map(|(name, value)| {
                let value = plain(&name, value);
                (name, value)
            })
            .collect())
    }

    fn knows_opaque(&self) -> bool {
        !self.is_upper || self.inodes.is_some()
    }
}

/// Catches panics: the reader promises none on damaged data, but this runs in the daemon.
fn guarded<T>(call: impl FnOnce() -> Result<T, Ext4Error>) -> Result<T, DiskError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(DiskError::damaged(error.to_string())),
        Err(_) => Err(DiskError::damaged("the reader gave up on it")),
    }
}
