//! The first reading of a layer.
//!
//! Owns listing what a layer holds while its digest is computed, and the limits
//! all layers of one image share. Contents are seen only to be hashed.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read},
    os::unix::fs::FileExt as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use sha2::{Digest as _, Sha256};

use super::{
    archive::{Archive, Entry},
    decompress,
    entry::{Decision, EntryKind, decide},
};
use crate::{
    digest::hex,
    error::EnvironmentError,
    finish,
    process::Cancel,
    tree::{MAX_ROOT_BYTES, MAX_ROOT_ENTRIES, Meta},
};

/// Most bytes of paths, link targets and attributes in all layers: what their
/// lists take in memory.
const MAX_LIST_BYTES: u64 = 256 << 20;

/// Largest file whose contents are kept in the list.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// Bytes unpacked at once.
const STEP_BYTES: usize = 128 << 10;

/// Part of a file that holds one layer.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub file: Arc<File>,
    pub offset: u64,
    pub length: u64,
}

impl Section {
    pub fn whole(file: File) -> io::Result<Self> {
        Ok(Self {
            length: file.metadata()?.len(),
            file: Arc::new(file),
            offset: 0,
        })
    }
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.length).unwrap_or(usize::MAX);
        let wanted = wanted.min(buffer.len());
        let count = self.file.read_at(&mut buffer[..wanted], self.offset)?;
        self.offset += count as u64;
        self.length -= count as u64;
        Ok(count)
    }
}

/// What one entry of a layer does to the tree.
#[derive(Debug)]
pub(crate) enum Change {
    Directory(Vec<u8>),
    File(Vec<u8>),
    Symlink { path: Vec<u8>, target: Vec<u8> },
    Link { path: Vec<u8>, target: Vec<u8> },
    Whiteout(Vec<u8>),
    Opaque(Vec<u8>),
}

/// One entry that matters, with its place in the layer.
#[derive(Debug)]
pub(crate) struct Item {
    pub place: u32,
    pub change: Change,
    pub meta: Meta,
    pub size: u64,
    pub attributes: BTreeMap<String, Vec<u8>>,
    /// Contents of the few files that say something about the system.
    pub text: Option<Vec<u8>>,
}

/// Everything one layer holds.
#[derive(Debug)]
pub(crate) struct LayerIndex {
    pub items: Vec<Item>,
    /// Digest of the unpacked layer, `sha256:<hex>`.
    pub diff_id: String,
    /// Entries left out without harm.
    pub skipped: u64,
}

/// What all layers of one image may use together.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    entries: AtomicU64,
    list_bytes: AtomicU64,
    bytes: AtomicU64,
}

impl Budget {
    fn spend(&self, entry: &Entry) -> Result<(), EnvironmentError> {
        let attributes: usize = entry
            .attributes
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        let listed = (entry.path.len() + entry.link.len() + attributes) as u64;
        for (counter, amount, what, limit) in [
            (&self.entries, 1, "entries", MAX_ROOT_ENTRIES),
            (&self.list_bytes, listed, "bytes of names", MAX_LIST_BYTES),
            (&self.bytes, entry.size, "bytes", MAX_ROOT_BYTES),
        ] {
            let before = counter.fetch_add(amount, Ordering::Relaxed);
            if before.saturating_add(amount) > limit {
                return Err(EnvironmentError::TooLarge { what, limit });
            }
        }
        Ok(())
    }

    /// The contents of a file, if there is room for them.
    fn text(&self, contents: &mut impl Read, size: u64) -> io::Result<Option<Vec<u8>>> {
        let before = self.list_bytes.fetch_add(size, Ordering::Relaxed);
        if size > MAX_TEXT_BYTES || before.saturating_add(size) > MAX_LIST_BYTES {
            self.list_bytes.fetch_sub(size, Ordering::Relaxed);
            return Ok(None);
        }
        let mut text = Vec::new();
        contents.take(size).read_to_end(&mut text)?;
        Ok(Some(text))
    }
}

/// Files whose contents are kept in the list.
const SAID_BY: [&[u8]; 4] = [
    finish::PASSWD.as_bytes(),
    finish::OS_RELEASE.as_bytes(),
    b"etc/os-release",
    finish::DPKG_STATUS.as_bytes(),
];

/// Reads a layer to its end. `name` is for error messages.
pub(crate) fn index(
    source: Section,
    name: &str,
    budget: &Budget,
    cancel: &Cancel,
) -> Result<LayerIndex, EnvironmentError> {
    let compressed = source.length;
    let failed = |error| read_error(name, compressed, error);
    let unpacked = decompress::open(source, compressed, cancel).map_err(failed)?;
    let mut hashed = Hashed {
        inner: unpacked,
        hash: Sha256::new(),
    };
    // Unpacking in large steps is faster than in the small ones of an archive.
    let buffered = BufReader::with_capacity(STEP_BYTES, &mut hashed);
    let mut archive = Archive::new(buffered);
    let mut index = LayerIndex {
        items: Vec::new(),
        diff_id: String::new(),
        skipped: 0,
    };
    let mut place = 0;
    while let Some(entry) = archive.next_entry().map_err(failed)? {
        budget.spend(&entry)?;
        match change_of(&entry)? {
            Some(change) => index.items.push(Item {
                place,
                text: match &change {
                    Change::File(path) if SAID_BY.contains(&path.as_slice()) => {
                        budget.text(&mut archive, entry.size).map_err(failed)?
                    }
                    _ => None,
                },
                change,
                meta: entry.meta,
                size: entry.size,
                attributes: entry.attributes,
            }),
            None => index.skipped += 1,
        }
        place += 1;
    }
    archive.drain().map_err(failed)?;
    index.diff_id = format!("sha256:{}", hex(&hashed.hash.finalize()));
    Ok(index)
}

pub(super) fn change_of(entry: &Entry) -> Result<Option<Change>, EnvironmentError> {
    Ok(Some(match decide(&entry.path, entry.kind, &entry.link) {
        Decision::Keep(path) => match entry.kind {
            EntryKind::Directory => Change::Directory(path),
            EntryKind::Symlink => Change::Symlink {
                path,
                target: entry.link.clone(),
            },
            _ => Change::File(path),
        },
        Decision::Link { path, target } => Change::Link { path, target },
        Decision::Whiteout(path) => Change::Whiteout(path),
        Decision::Opaque(path) => Change::Opaque(path),
        Decision::Skip => return Ok(None),
        Decision::Refuse(reason) => {
            return Err(EnvironmentError::Refused {
                path: String::from_utf8_lossy(&entry.path)
                    .chars()
                    .take(200)
                    .collect(),
                reason,
            });
        }
    }))
}

/// Tells a layer that is wrong from a disk that is.
pub(super) fn read_error(name: &str, compressed: u64, error: io::Error) -> EnvironmentError {
    if error.kind() == io::ErrorKind::FileTooLarge {
        return EnvironmentError::TooLarge {
            what: "bytes in one layer",
            limit: decompress::limit_for(compressed),
        };
    }
    if error.raw_os_error().is_some() {
        return EnvironmentError::io(format!("reading {name}"), error);
    }
    EnvironmentError::Malformed {
        what: name.to_owned(),
        reason: match error.kind() {
            io::ErrorKind::UnexpectedEof => "it ends too early".to_owned(),
            _ => error.to_string(),
        },
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: usize, size: u64) -> Entry {
        Entry {
            mtime_nanos: 0,
            path: vec![b'a'; path],
            link: Vec::new(),
            kind: EntryKind::File,
            meta: Meta::root(0o644),
            size,
            attributes: BTreeMap::new(),
        }
    }

    #[test]
    fn layers_share_one_budget() {
        let what = |budget: &Budget, entry: &Entry| match budget.spend(entry) {
            Err(EnvironmentError::TooLarge { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        let budget = Budget::default();
        budget
            .entries
            .store(MAX_ROOT_ENTRIES - 1, Ordering::Relaxed);
        budget.spend(&entry(1, 0)).unwrap();
        assert_eq!(what(&budget, &entry(1, 0)), "entries");
        let budget = Budget::default();
        budget.list_bytes.store(MAX_LIST_BYTES, Ordering::Relaxed);
        assert_eq!(what(&budget, &entry(1, 0)), "bytes of names");
        let budget = Budget::default();
        budget.spend(&entry(1, MAX_ROOT_BYTES)).unwrap();
        assert_eq!(what(&budget, &entry(1, 1)), "bytes");
        assert_eq!(what(&Budget::default(), &entry(1, u64::MAX)), "bytes");
    }
}
