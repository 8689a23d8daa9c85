//! The contents and encoding of a snapshot.
//!
//! ```text
//! manifest ──► groups ──► segments ──► entries ──► contents
//! ```
//!
//! Entries are stored in *segments*, runs sorted by path, and segments are listed in *groups*; both
//! are in packs, like contents. The end of a run depends only on its own entries, so a change in
//! one place leaves the other runs unchanged, and snapshots share them.

use std::path::Path;

use bytes::Bytes;
use motu_link::message::{ChangedEntry, Facts};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use super::{SnapshotError, pack::Stored};
use crate::tarball::Attributes;

const MAGIC: &[u8; 8] = b"MOTUSNAP";
const VERSION: u32 = 1;
/// Magic, version and checksum.
const HEADER_BYTES: usize = 8 + 4 + 32;
/// One entry in this many ends a run.
const RUN_ODDS: u8 = 16;
/// Longest run, if no entry ends it.
const MAX_RUN: usize = 256;
/// Largest manifest: far beyond what the most entries need.
pub(super) const MAX_MANIFEST_BYTES: u64 = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub name: String,
    pub created_unix_ns: i64,
    pub entries: u64,
    /// Bytes of all changed files.
    pub bytes: u64,
    /// Bytes that were not stored before.
    pub new_bytes: u64,
    /// All packs it refers to.
    pub packs: Vec<super::pack::PackId>,
    pub groups: Vec<Stored>,
}

/// One path that differs from the baseline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub path: Vec<u8>,
    pub before: Option<State>,
    pub after: Option<State>,
    /// The contents of a regular file.
    pub stored: Option<Stored>,
    pub attributes: Attributes,
}

/// [`Facts`] in a stable form: the format on disk must not change with the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub modified_unix_ns: i64,
    pub stamp_ns: i64,
    pub inode: u64,
    pub symlink_target: Vec<u8>,
}

impl From<&Facts> for State {
    fn from(facts: &Facts) -> State {
        State {
            mode: facts.mode,
            uid: facts.uid,
            gid: facts.gid,
            size: facts.size,
            modified_unix_ns: facts.modified_unix_ns,
            stamp_ns: facts.stamp_ns,
            inode: facts.inode,
            symlink_target: facts.symlink_target.to_vec(),
        }
    }
}

impl From<&State> for Facts {
    fn from(state: &State) -> Facts {
        Facts {
            mode: state.mode,
            uid: state.uid,
            gid: state.gid,
            size: state.size,
            modified_unix_ns: state.modified_unix_ns,
            stamp_ns: state.stamp_ns,
            inode: state.inode,
            symlink_target: Bytes::copy_from_slice(&state.symlink_target),
            links: 0,
        }
    }
}

impl From<&Entry> for ChangedEntry {
    fn from(entry: &Entry) -> ChangedEntry {
        ChangedEntry {
            path: Bytes::copy_from_slice(&entry.path),
            before: entry.before.as_ref().map(Facts::from),
            after: entry.after.as_ref().map(Facts::from),
        }
    }
}

impl Manifest {
    pub fn encode(&self) -> Result<Vec<u8>, SnapshotError> {
        let body = encode(self)?;
        let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(checksum(&VERSION.to_le_bytes(), &body));
        out.extend(body);
        Ok(out)
    }

    pub fn decode(bytes: &[u8], file: &Path) -> Result<Manifest, SnapshotError> {
        let damaged = |reason| SnapshotError::Damaged {
            file: file.display().to_string(),
            reason,
        };
        let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(damaged("it is too short"));
        };
        let (magic, rest) = header.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(damaged("it is no manifest"));
        }
        let (version, sum) = rest.split_at(4);
        // Check the checksum first: a flipped bit in the version is damage, not a newer format.
        if checksum(version, body) != sum {
            return Err(damaged("its checksum is wrong"));
        }
        match version {
            [1, 0, 0, 0] => decode(body).ok_or_else(|| damaged("its contents make no sense")),
            version => Err(SnapshotError::Version {
                file: file.display().to_string(),
                found: version
                    .iter()
                    .rev()
                    .fold(0, |n, byte| n << 8 | u32::from(*byte)),
                newest: VERSION,
            }),
        }
    }
}

fn checksum(version: &[u8], body: &[u8]) -> [u8; 32] {
    let hash = Sha256::new().chain_update(version).chain_update(body);
    hash.finalize().into()
}

pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>, SnapshotError> {
    postcard::to_stdvec(value).map_err(|error| SnapshotError::Io {
        context: "writing a list".to_owned(),
        source: std::io::Error::other(error.to_string()),
    })
}

/// Decodes all of `bytes`; `None` if they are invalid.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

/// Cuts entries, sorted by path, into segments.
pub(super) fn segments(entries: &[Entry]) -> Vec<&[Entry]> {
    runs(entries, |entry| {
        let hash = entry.path.iter().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
        // FNV mixes the high bits best.
        hash.to_le_bytes()[3]
    })
}

/// Cuts the list of segments into groups.
pub(super) fn groups(segments: &[Stored]) -> Vec<&[Stored]> {
    runs(segments, |segment| segment.hash[0])
}

fn runs<T>(list: &[T], mark: impl Fn(&T) -> u8) -> Vec<&[T]> {
    let mut runs = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let last = rest
            .iter()
            .position(|one| mark(one).is_multiple_of(RUN_ODDS));
        let count = last.map_or(rest.len(), |last| last + 1);
        let (run, after) = rest.split_at(count.min(MAX_RUN));
        runs.push(run);
        rest = after;
    }
    runs
}
