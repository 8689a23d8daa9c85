//! A session's row, for its task and for everyone else.

use crate::store::TerminalRow;
use motu_core::SandboxId;
use std::sync::{Arc, Mutex, MutexGuard};

/// What is known of a session whether or not a task has it.
#[derive(Debug)]
pub struct Known(Mutex<TerminalRow>);

impl Known {
    pub fn new(row: TerminalRow) -> Arc<Known> {
        Arc::new(Known(Mutex::new(row)))
    }

    /// A copy: nobody holds the lock while they do something else.
    pub fn row(&self) -> TerminalRow {
        self.locked().clone()
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut TerminalRow) -> T) -> T {
        change(&mut self.locked())
    }

    /// What the guest calls the newest shell.
    pub fn tag(&self) -> Option<String> {
        let row = self.locked();
        row.shell.as_ref().map(|shell| shell.tag.clone())
    }

    /// The sandbox it runs in.
    pub fn place(&self) -> SandboxId {
        self.locked().sandbox_id.clone()
    }

    pub fn is_alive(&self) -> bool {
        self.locked().is_alive()
    }

    pub fn is_terminated(&self) -> bool {
        self.locked().terminated
    }

    fn locked(&self) -> MutexGuard<'_, TerminalRow> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
