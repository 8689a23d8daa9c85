//! Packs: immutable files of concatenated contents.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io::{self, BufWriter, Read, Seek as _, SeekFrom, Write},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{MAX_BYTES, SnapshotError};

const MAGIC: &[u8; 8] = b"MOTUPACK";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 16;
/// Contents up to this size are hashed before they are written.
const MAX_HELD_BYTES: u64 = 1 << 20;
const BUFFER_BYTES: usize = 256 << 10;

pub(super) type Hash = [u8; 32];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct PackId(pub [u8; 16]);

impl fmt::Display for PackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The location of contents, and their hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    pub pack: PackId,
    pub offset: u64,
    pub length: u64,
    pub hash: Hash,
}

/// Stored contents by hash.
pub(super) type Known = HashMap<Hash, Stored>;

/// A pack being written.
pub(super) struct PackWriter {
    id: PackId,
    path: PathBuf,
    out: BufWriter<File>,
    length: u64,
}

impl PackWriter {
    /// Starts a pack in a new file at `path`.
    pub fn create(id: PackId, path: PathBuf) -> Result<PackWriter, SnapshotError> {
        let start = || {
            let mut out = BufWriter::with_capacity(BUFFER_BYTES, File::create_new(&path)?);
            out.write_all(MAGIC)?;
            out.write_all(&VERSION.to_le_bytes())?;
            out.write_all(&[0; 4])?;
            Ok(out)
        };
        let out = start().map_err(SnapshotError::io("creating", &path))?;
        Ok(PackWriter {
            id,
            path,
            out,
            length: HEADER_BYTES,
        })
    }

    /// Bytes of contents so far.
    pub fn new_bytes(&self) -> u64 {
        self.length - HEADER_BYTES
    }

    /// Stores `size` bytes, unless they are stored already.
    pub fn add(
        &mut self,
        contents: &mut impl Read,
        size: u64,
        known: &mut Known,
    ) -> Result<Stored, SnapshotError> {
        if self.new_bytes().saturating_add(size) > MAX_BYTES {
            return Err(SnapshotError::Limit {
                what: "the size of a snapshot in bytes",
                limit: MAX_BYTES,
            });
        }
        let hash = if size <= MAX_HELD_BYTES {
            let mut held = Vec::with_capacity(size as usize);
            contents
                .take(size)
                .read_to_end(&mut held)
                .map_err(cut_off)?;
            if held.len() as u64 != size {
                return Err(SnapshotError::archive("it ends in the middle of a file"));
            }
            let hash = Sha256::digest(&held).into();
            if let Some(stored) = known.get(&hash) {
                return Ok(*stored);
            }
            self.write(&held)?;
            hash
        } else {
            self.stream(contents, size)?
        };
        let stored = Stored {
            pack: self.id,
            offset: self.length,
            length: size,
            hash,
        };
        if let Some(stored) = known.get(&hash) {
            // A duplicate: overwrite it with the next contents.
            self.rewind()?;
            return Ok(*stored);
        }
        self.length += size;
        known.insert(hash, stored);
        Ok(stored)
    }

    fn stream(&mut self, contents: &mut impl Read, size: u64) -> Result<Hash, SnapshotError> {
        let mut hash = Sha256::new();
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut left = size;
        while left > 0 {
            let wanted = buffer
                .len()
                .min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = contents.read(&mut buffer[..wanted]).map_err(cut_off)?;
            if count == 0 {
                return Err(SnapshotError::archive("it ends in the middle of a file"));
            }
            hash.update(&buffer[..count]);
            // A guest can claim any number of zeros: they become holes.
            if buffer[..count].iter().all(|byte| *byte == 0) {
                self.seek(SeekFrom::Current(count as i64))?;
            } else {
                self.write(&buffer[..count])?;
            }
            left -= count as u64;
        }
        Ok(hash.finalize().into())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.out
            .write_all(bytes)
            .map_err(SnapshotError::io("writing", &self.path))
    }

    fn seek(&mut self, to: SeekFrom) -> Result<(), SnapshotError> {
        let sought = self.out.seek(to).map(drop);
        sought.map_err(SnapshotError::io("writing", &self.path))
    }

    fn rewind(&mut self) -> Result<(), SnapshotError> {
        self.seek(SeekFrom::Start(self.length))?;
        // Zeros are skipped by seeking, so old data after this point must be cut.
        let cut = self.out.get_ref().set_len(self.length);
        cut.map_err(SnapshotError::io("writing", &self.path))
    }

    /// Syncs the pack. `None` if it is empty.
    pub fn finish(mut self) -> Result<Option<(PackId, PathBuf)>, SnapshotError> {
        if self.new_bytes() == 0 {
            return Ok(None);
        }
        let mut end = || {
            self.out.flush()?;
            self.out.get_ref().set_len(self.length)?;
            self.out.get_ref().sync_all()
        };
        end().map_err(SnapshotError::io("writing", &self.path))?;
        Ok(Some((self.id, self.path)))
    }
}

fn cut_off(error: io::Error) -> SnapshotError {
    SnapshotError::archive(error.to_string())
}

/// Packs opened on demand.
#[derive(Debug)]
pub(super) struct PackReader {
    directory: PathBuf,
    open: HashMap<PackId, (File, u64)>,
}

impl PackReader {
    pub fn new(directory: &Path) -> PackReader {
        PackReader {
            directory: directory.to_owned(),
            open: HashMap::new(),
        }
    }

    fn damaged(&self, pack: PackId, reason: &'static str) -> SnapshotError {
        SnapshotError::Damaged {
            file: path_of(&self.directory, pack).display().to_string(),
            reason,
        }
    }

    fn pack(&mut self, id: PackId) -> Result<&(File, u64), SnapshotError> {
        if !self.open.contains_key(&id) {
            let path = path_of(&self.directory, id);
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(self.damaged(id, "it is missing"));
                }
                Err(error) => return Err(SnapshotError::io("opening", &path)(error)),
            };
            let size = file.metadata().map(|meta| meta.len());
            let size = size.map_err(SnapshotError::io("reading", &path))?;
            let mut header = [0; HEADER_BYTES as usize];
            let whole = size >= HEADER_BYTES && file.read_exact_at(&mut header, 0).is_ok();
            if !whole || &header[..8] != MAGIC || header[8..12] != VERSION.to_le_bytes() {
                return Err(self.damaged(id, "its header is wrong"));
            }
            self.open.insert(id, (file, size));
        }
        self.open
            .get(&id)
            .ok_or_else(|| self.damaged(id, "it is missing"))
    }

    /// Checks that contents are inside their pack, without reading them.
    pub fn check(&mut self, stored: &Stored) -> Result<(), SnapshotError> {
        if stored.length == 0 {
            return Ok(());
        }
        let (_, size) = *self.pack(stored.pack)?;
        match stored.offset.checked_add(stored.length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(self.damaged(stored.pack, "it is too short")),
        }
    }

    /// A reader that fails at the end if the hash is wrong.
    pub fn read(&mut self, stored: &Stored) -> Result<Checked, SnapshotError> {
        self.check(stored)?;
        let file = match stored.length {
            0 => None,
            _ => {
                let (file, _) = self.pack(stored.pack)?;
                let file = file.try_clone();
                Some(file.map_err(SnapshotError::io("opening", &self.directory))?)
            }
        };
        Ok(Checked {
            file,
            name: path_of(&self.directory, stored.pack),
            offset: stored.offset,
            left: stored.length,
            hash: Some(Sha256::new()),
            wanted: stored.hash,
        })
    }

    /// Reads small contents into memory.
    pub fn bytes(&mut self, stored: &Stored, limit: u64) -> Result<Vec<u8>, SnapshotError> {
        if stored.length > limit {
            return Err(SnapshotError::Limit {
                what: "the size of a file in bytes",
                limit,
            });
        }
        let mut reader = self.read(stored)?;
        let mut bytes = Vec::with_capacity(stored.length as usize);
        match reader.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(reader.error(error)),
        }
    }
}

pub(super) fn path_of(directory: &Path, pack: PackId) -> PathBuf {
    directory.join(format!("{pack}.pack"))
}

/// Contents whose hash is checked as they are read.
#[derive(Debug)]
pub(super) struct Checked {
    file: Option<File>,
    name: PathBuf,
    offset: u64,
    left: u64,
    hash: Option<Sha256>,
    wanted: Hash,
}

impl Checked {
    /// Maps a read error.
    pub fn error(&self, error: io::Error) -> SnapshotError {
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => SnapshotError::Damaged {
                file: self.name.display().to_string(),
                reason: "contents have another hash than they had",
            },
            _ => SnapshotError::io("reading", &self.name)(error),
        }
    }
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let wanted = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = match &self.file {
            Some(file) => file.read_at(&mut buffer[..wanted], self.offset)?,
            None => 0,
        };
        if count == 0 && wanted > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(hash) = &mut self.hash {
            hash.update(&buffer[..count]);
        }
        self.offset += count as u64;
        self.left -= count as u64;
        // The last bytes are returned only if the hash is right.
        if self.left == 0
            && let Some(hash) = self.hash.take()
            && hash.finalize().as_slice() != self.wanted
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(count)
    }
}
