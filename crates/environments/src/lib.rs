//! Environments: named, immutable root filesystems that sandboxes start from.
//!
//! Open `environments.rs` first: [`Environments`] is the whole interface. A name
//! from the catalog is built from Debian packages whose signatures are verified
//! (`build`); any other name is an image in a registry or on this host (`image`,
//! `oci`, `layer`). Either way the result is stored by the digest of its
//! contents, and resolved to a directory that runtimes use as a read-only lower
//! layer.
//!
//! This crate never starts sandboxes and does not know which digests they use;
//! callers say so when they prune.

mod about;
mod apt;
mod artifact;
mod build;
mod build_cache;
mod catalog;
mod collecting;
mod confine;
mod copying;
mod describe;
mod digest;
mod download;
mod environments;
mod error;
mod export;
mod finish;
mod growing;
mod held;
mod image;
mod layer;
mod name;
mod oci;
mod pack;
mod privilege;
mod process;
mod progress;
mod reference;
mod remembered;
mod store;
mod title;
mod tree;
mod unpack;
mod verify;

/// Reading tar archives that may be hostile, for others who take them from strangers.
pub mod archive {
    pub use crate::{
        layer::{
            archive::{Archive, Entry},
            decompress::unpacked,
            entry::EntryKind,
        },
        tree::Meta,
    };
}

pub use about::{ImageInfo, LayerInfo};
pub use artifact::{MAX_ARTIFACT_BYTES, artifact};
pub use build_cache::{BuildCache, NewLayer, StepRecord};
pub use catalog::{CatalogEntry, Variant};
pub use collecting::Pruned;
pub use describe::{Environment, EnvironmentInfo};
pub use download::{Pinned, download};
pub use environments::{BUILD_TIMEOUT, Environments, PULL_TIMEOUT, full_name, reads_host_files};
pub use error::EnvironmentError;
pub use export::{Arriving, Export};
pub use growing::{Found, Place, Workplace, layers_over};
pub use held::Hold;
pub use layer::write::{FileAttributes, LayerWriter};
pub use layer::{
    entry::{Decision, EntryKind, decide},
    merge_entries,
};
pub use name::{MAX_NAME_BYTES, suggest};
pub use oci::{
    Account, RegistryOptions,
    reach::{NotARegistry, RegistryName},
};
pub use privilege::Privilege;
pub use progress::{Progress, ProgressEvent};
pub use reference::{is_pulled, is_spelled};
pub use title::{OfOlder, Title};
pub use tree::{MAX_ROOT_BYTES, MAX_ROOT_ENTRIES, Meta};
