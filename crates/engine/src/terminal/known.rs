//! A session's row, shared by its task and everyone else.

use crate::store::TerminalRow;
use motu_core::SandboxId;
use std::sync::{Arc, Mutex, MutexGuard};

/// The row of a session, with or without a task.
#[derive(Debug)]
pub struct Known(Mutex<TerminalRow>);

impl Known {
    pub fn new(row: TerminalRow) -> Arc<Known> {
        Arc::new(Known(Mutex::new(row)))
    }

    /// A copy, so that the lock is held only briefly.
    pub fn row(&self) -> TerminalRow {
        self.locked().clone()
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut TerminalRow) -> T) -> T {
        change(&mut self.locked())
    }

    /// The tag of the newest shell in the guest.
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
