//! Image layers: from compressed archives to one tree.
//!
//! ```text
//! blob ──decompress──► archive ──decide──► index ──┐
//! blob ──decompress──► archive ──decide──► index ──┴──merge──► emit ──► TreeWriter
//!   └───────────────────── read again, winners only ──────────────┘
//! ```
//!
//! Every layer is read twice. The first reading checks its digest and lists its
//! entries; the lists are merged in memory, where links are followed and
//! whiteouts applied without touching a disk. The second reading passes on the
//! files that survived, each at a path whose parents are known directories. So
//! a hostile layer is judged whole before its first byte is written.

pub(crate) mod archive;
pub(crate) mod decompress;
pub(crate) mod emit;
pub(crate) mod entry;
pub(crate) mod index;
pub(crate) mod merge;
pub(crate) mod write;

use std::collections::BTreeMap;

use entry::EntryKind;
pub(crate) use index::{Budget, LayerIndex, index};
pub(crate) use merge::Merged;

use crate::{error::EnvironmentError, tree::Meta};

/// Path, kind and link target of an entry.
type RawEntry = (Vec<u8>, EntryKind, Vec<u8>);

/// Merges layers given as path, kind and link target of each entry, and returns
/// the paths that are left, with whether each is a directory. For the fuzzer:
/// it is the whole handling of paths without a disk.
#[doc(hidden)]
pub fn merge_entries(layers: &[Vec<RawEntry>]) -> Result<Vec<(Vec<u8>, bool)>, EnvironmentError> {
    let mut merged = Merged::default();
    for layer in layers {
        let mut items = Vec::new();
        for (place, (path, kind, link)) in (0..).zip(layer) {
            let entry = archive::Entry {
                mtime_nanos: 0,
                path: path.clone(),
                link: link.clone(),
                kind: *kind,
                meta: Meta::root(0o755),
                size: 0,
                attributes: BTreeMap::new(),
            };
            items.extend(index::change_of(&entry)?.map(|change| index::Item {
                place,
                change,
                meta: entry.meta,
                size: 0,
                attributes: BTreeMap::new(),
                text: None,
            }));
        }
        merged.add(LayerIndex {
            items,
            diff_id: String::new(),
            skipped: 0,
        })?;
    }
    let is_directory = |spot: &merge::Spot| spot.what == merge::What::Directory;
    Ok(merged
        .spots()
        .map(|(path, spot)| (path.to_vec(), is_directory(spot)))
        .collect())
}
