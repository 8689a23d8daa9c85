//! Environments: what machines start from. Listing, pulling, archives, building.

mod archives;
mod build;
mod shelf;

use crate::sandbox::Sandboxes;
use motu_core::report::ProgressEvent;
use std::sync::Arc;

/// All environments.
#[derive(Debug)]
pub struct Environments {
    sandboxes: Arc<Sandboxes>,
}

impl Environments {
    pub fn new(sandboxes: Arc<Sandboxes>) -> Environments {
        Environments { sandboxes }
    }

    /// Where they are kept.
    fn store(&self) -> &motu_environments::Environments {
        &self.sandboxes.environments
    }
}

/// A step of an environment's pull, in the service's words.
pub(crate) fn progress_event(event: motu_environments::ProgressEvent) -> ProgressEvent {
    ProgressEvent {
        stage: event.stage,
        message: event.message,
        done: event.done,
        total: event.total,
    }
}
