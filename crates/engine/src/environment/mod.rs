//! Environments: what machines start from. Listing, pulling, archives, building.

mod archives;
mod build;
mod shelf;

use crate::sandbox::Sandboxes;
use crate::turns::Turns;
use std::sync::Arc;

/// All environments.
#[derive(Debug)]
pub struct Environments {
    sandboxes: Arc<Sandboxes>,
    /// Steps of builds that use one cache wait for each other.
    turns: Turns,
}

impl Environments {
    pub fn new(sandboxes: Arc<Sandboxes>) -> Environments {
        Environments {
            sandboxes,
            turns: Turns::default(),
        }
    }

    /// Where they are kept.
    fn store(&self) -> &motu_environments::Environments {
        &self.sandboxes.environments
    }
}
