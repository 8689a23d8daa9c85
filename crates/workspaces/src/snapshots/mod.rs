//! Named checkpoints of one workspace.
//!
//! ```text
//! changes ──plan()──► paths to fetch ──Pick──► tar ──commit()──► manifest + pack
//! manifest + packs ──restore()──► remove list + tar ──Restore──► the machine
//! ```
//!
//! A snapshot records how `/workspace` differs from its baseline. Its *manifest* lists the
//! differences; contents are in *packs*, each written once by one snapshot and shared by later ones
//! with the same bytes. So a snapshot costs what changed since the last. The list itself is also
//! stored in shared segments.
//!
//! ```text
//! DIRECTORY/NAME.snapshot      manifest: magic, version, checksum, segments
//! DIRECTORY/packs/ID.pack      contents and segments, found by place and checked by hash
//! DIRECTORY/staging/…          what is being written; swept away by the next writer
//! DIRECTORY/lock
//! ```
//!
//! Everything is staged, synced and renamed, the pack before its manifest: a crash leaves a
//! complete snapshot or none, and at most an unreferenced pack, which the next writer removes. All
//! data read back is verified by hash.

mod error;
mod manifest;
mod pack;
mod restore;
mod rewind;
mod store;

pub use error::SnapshotError;
pub use restore::{Contents, Files, Restore};
pub use store::{Plan, Snapshots, Summary};

/// The name of the unchanged state, which no snapshot can have.
pub const BASELINE: &str = "baseline";
/// Longest name.
pub const MAX_NAME_BYTES: usize = motu_core::limits::SNAPSHOT_NAME_CHARS.max as usize;
/// Most snapshots of one workspace.
pub const MAX_SNAPSHOTS: usize = motu_core::limits::SNAPSHOTS.max as usize;
/// Most changed paths in one snapshot.
pub const MAX_ENTRIES: usize = motu_core::limits::SEED_ENTRIES.max as usize;
/// Most bytes one snapshot may add.
pub const MAX_BYTES: u64 = motu_core::limits::SEED_BYTES.max;

/// Checks the name of a snapshot: letters, digits, `.`, `_` and `-`, and the
/// first one a letter, a digit or `_`.
pub fn check_name(name: &str) -> Result<(), SnapshotError> {
    let refuse = |reason| {
        Err(SnapshotError::Name {
            name: name.chars().take(MAX_NAME_BYTES).collect(),
            reason,
        })
    };
    if name == BASELINE {
        return refuse("it is the name of the state before all snapshots");
    }
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return refuse("it must have 1 to 64 characters");
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if !name.bytes().all(allowed) {
        return refuse("only letters, digits, `.`, `_` and `-` are allowed");
    }
    if name.starts_with(['.', '-']) {
        return refuse("it must begin with a letter, a digit or `_`");
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
