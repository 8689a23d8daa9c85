//! Environments: what machines start from. Listing, pulling, archives, building.

mod archives;
mod build;
mod places;
mod shelf;
mod space;
mod upload;

use crate::sandbox::Sandboxes;
use motu_core::limits;
use motu_core::turns::Turns;
use places::Places;
use std::sync::Arc;

// The table of limits must agree with the constants of the store.
const _: () = assert!(limits::ENVIRONMENT_BYTES.max == motu_environments::MAX_ROOT_BYTES);
const _: () = assert!(limits::ENVIRONMENT_ENTRIES.max == motu_environments::MAX_ROOT_ENTRIES);

/// All environments.
#[derive(Debug)]
pub struct Environments {
    sandboxes: Arc<Sandboxes>,
    /// Serializes build steps that use the same cache.
    turns: Turns,
    places: Places,
    /// Held while contexts that wait are counted and one begins to.
    contexts: tokio::sync::Mutex<()>,
}

impl Environments {
    pub fn new(sandboxes: Arc<Sandboxes>) -> Environments {
        Environments {
            sandboxes,
            turns: Turns::default(),
            places: Places::default(),
            contexts: tokio::sync::Mutex::default(),
        }
    }

    /// Where they are kept.
    fn store(&self) -> &motu_environments::Environments {
        &self.sandboxes.environments
    }
}
