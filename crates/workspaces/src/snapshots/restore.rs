//! Reads snapshots, to restore and to compare them.

use std::{
    collections::HashMap,
    io::{self, Write},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use motu_link::message::{ChangedEntry, Facts};

use super::{
    BASELINE, SnapshotError, Snapshots,
    manifest::{Entry, State},
    pack::PackReader,
    rewind,
    store::listed,
};
use crate::{
    diff::Kind,
    seed::place::attributes,
    tarball::{Meta, TarWriter},
};

/// A snapshot opened for restoring, over the baseline or over a later state.
#[derive(Debug)]
pub struct Restore {
    /// Paths to remove first.
    pub remove: Vec<Bytes>,
    entries: Vec<Entry>,
    packs: PackReader,
    /// The source of files that are neither stored nor present any more.
    baseline: Option<PathBuf>,
}

/// The contents of a path in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    Bytes(Vec<u8>),
    /// Unchanged: the contents are the baseline's.
    Baseline,
    /// Not a regular file, or missing.
    None,
}

impl Snapshots {
    /// Opens a snapshot for restoring. All packs are known to exist; contents are verified as they
    /// are read.
    pub fn restore(&self, name: &str) -> Result<Restore, SnapshotError> {
        let mut packs = PackReader::new(&self.packs());
        let (_, entries) = self.load(name, &mut packs)?;
        for stored in entries.iter().filter_map(|entry| entry.stored) {
            packs.check(&stored)?;
        }
        Ok(Restore {
            remove: removed(&entries),
            entries,
            packs,
            baseline: None,
        })
    }

    /// Opens a snapshot for restoring over a later state, whose differences from the baseline are
    /// `current`. It contains only what has changed since.
    pub fn rewind(
        &self,
        name: &str,
        current: &[ChangedEntry],
        baseline: &Path,
    ) -> Result<Restore, SnapshotError> {
        let mut packs = PackReader::new(&self.packs());
        let (_, saved) = self.load(name, &mut packs)?;
        let (remove, entries) = rewind::differences(&listed(current)?, &saved);
        for stored in entries.iter().filter_map(|entry| entry.stored) {
            packs.check(&stored)?;
        }
        Ok(Restore {
            remove,
            entries,
            packs,
            baseline: Some(baseline.to_owned()),
        })
    }

    /// Reads every byte of a snapshot.
    pub fn verify(&self, name: &str) -> Result<(), SnapshotError> {
        self.restore(name)?.write_to(io::sink()).map(drop)
    }

    /// The differences between two states, each a snapshot or [`BASELINE`]: `before` is `from`,
    /// `after` is `to`. Contents are compared by hash.
    pub fn compare(&self, from: &str, to: &str) -> Result<Vec<ChangedEntry>, SnapshotError> {
        let mut packs = PackReader::new(&self.packs());
        let mut load = |name: &str| match name {
            BASELINE => Ok(Vec::new()),
            name => self.load(name, &mut packs).map(|(_, entries)| entries),
        };
        let (from, to) = (load(from)?, load(to)?);
        let pairs = rewind::pairs(&from, &to).into_iter();
        Ok(pairs.filter_map(|(a, b)| difference(a, b)).collect())
    }

    /// The contents of one file in a state, up to `limit` bytes.
    pub fn read(&self, name: &str, path: &[u8], limit: u64) -> Result<Contents, SnapshotError> {
        if name == BASELINE {
            return Ok(Contents::Baseline);
        }
        self.contents(name)?.read(path, limit)
    }

    /// The files of one state, for reading several of them.
    pub fn contents(&self, name: &str) -> Result<Files, SnapshotError> {
        let mut packs = PackReader::new(&self.packs());
        let entries = match name {
            BASELINE => Vec::new(),
            name => self.load(name, &mut packs)?.1,
        };
        Ok(Files { entries, packs })
    }
}

/// The files of a snapshot.
#[derive(Debug)]
pub struct Files {
    entries: Vec<Entry>,
    packs: PackReader,
}

impl Files {
    /// The contents of one file, up to `limit` bytes.
    pub fn read(&mut self, path: &[u8], limit: u64) -> Result<Contents, SnapshotError> {
        let found = self
            .entries
            .binary_search_by(|entry| entry.path.as_slice().cmp(path));
        let Ok(at) = found else {
            return Ok(Contents::Baseline);
        };
        match &self.entries[at].stored {
            Some(stored) => self.packs.bytes(stored, limit).map(Contents::Bytes),
            None => Ok(Contents::None),
        }
    }
}

/// The difference of one path between two states. A side without an entry equals the baseline,
/// which the other entry describes.
fn difference(from: Option<&Entry>, to: Option<&Entry>) -> Option<ChangedEntry> {
    let path = &from.or(to)?.path;
    let before = match (from, to) {
        (Some(entry), _) => entry.after.as_ref(),
        (None, entry) => entry?.before.as_ref(),
    };
    let after = match (to, from) {
        (Some(entry), _) => entry.after.as_ref(),
        (None, entry) => entry?.before.as_ref(),
    };
    let contents = |entry: Option<&Entry>| entry.and_then(|entry| entry.stored);
    let same_contents = match (contents(from), contents(to)) {
        (Some(a), Some(b)) => a.hash == b.hash,
        (None, None) => true,
        _ => false,
    };
    let plain = |state: &State| {
        (
            state.mode,
            (state.uid, state.gid),
            state.symlink_target.clone(),
        )
    };
    if same_contents && before.map(plain) == after.map(plain) {
        return None;
    }
    Some(ChangedEntry {
        path: Bytes::copy_from_slice(path),
        before: before.map(Facts::from),
        after: after.map(Facts::from),
    })
}

fn is_pipe(mode: u32) -> bool {
    rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::Fifo
}

/// Paths to remove: deleted ones, and those with another type. Entries below a removed directory go
/// with it.
fn removed(entries: &[Entry]) -> Vec<Bytes> {
    let mut removed: Vec<Bytes> = Vec::new();
    for entry in entries {
        let Some(before) = &entry.before else {
            continue;
        };
        let kind = |state: &State| Kind::of(state.mode);
        if entry.after.as_ref().map(kind) == Some(kind(before)) {
            continue;
        }
        let below = removed.last().is_some_and(|above| {
            let rest = entry.path.strip_prefix(above.as_ref());
            rest.is_some_and(|rest| rest.starts_with(b"/"))
        });
        if !below {
            removed.push(Bytes::copy_from_slice(&entry.path));
        }
    }
    removed
}

impl Restore {
    /// Number of paths in the archive.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nothing to restore or remove.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.remove.is_empty()
    }

    /// The paths the archive has.
    pub fn changes(&self) -> impl Iterator<Item = ChangedEntry> {
        self.entries.iter().map(ChangedEntry::from)
    }

    /// Writes the archive for the guest. After an error it lacks the end mark, so it cannot pass
    /// for complete.
    pub fn write_to<W: Write>(mut self, out: W) -> Result<W, SnapshotError> {
        let writing = |source: io::Error| SnapshotError::Io {
            context: "writing the archive of a snapshot".to_owned(),
            source,
        };
        let mut tar = TarWriter::new(out);
        // Hard links share an inode.
        let mut names: HashMap<(u64, i64), usize> = HashMap::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let Some(state) = &entry.after else {
                continue;
            };
            let meta = Meta {
                mode: state.mode & 0o7777,
                uid: state.uid,
                gid: state.gid,
                modified_unix_ns: state.modified_unix_ns,
            };
            let path: &[u8] = match entry.path.as_slice() {
                b"" => b".",
                path => path,
            };
            match (Kind::of(state.mode), &entry.stored) {
                (Kind::Directory, _) => {
                    tar.directory(path, meta, &entry.attributes)
                        .map_err(writing)?;
                }
                (Kind::Symlink, _) => {
                    tar.symlink(path, meta, &state.symlink_target)
                        .map_err(writing)?;
                }
                (Kind::File, Some(stored)) => {
                    let first = names.get(&(state.inode, state.stamp_ns));
                    let first = first.map(|first| &self.entries[*first]);
                    if let Some(first) = first.filter(|first| first.stored == entry.stored) {
                        tar.hard_link(path, meta, &first.path).map_err(writing)?;
                        continue;
                    }
                    if state.inode != 0 {
                        names.insert((state.inode, state.stamp_ns), at);
                    }
                    let mut contents = self.packs.read(stored)?;
                    let written =
                        tar.file(path, meta, &entry.attributes, stored.length, &mut contents);
                    written.map_err(|error| match error.kind() {
                        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                            contents.error(error)
                        }
                        _ => writing(error),
                    })?;
                }
                (Kind::File, None) => {
                    let file = rewind::open_base(self.baseline.as_deref(), &entry.path);
                    let written =
                        file.and_then(|file| tar.disk_file(path, meta, &attributes(&file)?, &file));
                    written.map_err(writing)?;
                }
                _ if is_pipe(state.mode) => tar.pipe(path, meta).map_err(writing)?,
                // A socket is useless without its program.
                _ => {}
            }
        }
        tar.finish().map_err(writing)
    }
}
