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
mod sparse;

pub(crate) use index::{Budget, LayerIndex, index};
pub(crate) use merge::Merged;
