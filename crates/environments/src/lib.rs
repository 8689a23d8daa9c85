//! Environments: named, immutable root filesystems that sandboxes start from.
//!
//! Open `environments.rs` first: [`Environments`] is the whole interface. A name from the catalog is pulled once, built from Debian packages
//! whose signatures are verified, stored by the digest of its contents, and
//! resolved to a directory that runtimes use as a read-only lower layer.
//!
//! This crate never starts sandboxes and does not know which digests they use;
//! callers say so when they prune.

mod apt;
mod build;
mod catalog;
mod digest;
mod environments;
mod error;
mod finish;
mod name;
mod privilege;
mod process;
mod progress;
mod store;
mod tree;
mod verify;

pub use catalog::{CatalogEntry, Variant};
pub use environments::{BUILD_TIMEOUT, Environment, EnvironmentInfo, Environments, Pruned};
pub use error::EnvironmentError;
pub use name::MAX_NAME_BYTES;
pub use privilege::Privilege;
pub use progress::{Progress, ProgressEvent};
pub use tree::{MAX_ROOT_BYTES, MAX_ROOT_ENTRIES};
