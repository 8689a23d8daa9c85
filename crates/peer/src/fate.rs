//! Records which machines have ended, and why, and notifies watchers.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use tokio::sync::watch;

/// The ends of machines, by their id at the service.
#[derive(Debug, Default)]
pub struct Fates {
    known: Mutex<HashMap<String, watch::Sender<Option<String>>>>,
}

impl Fates {
    fn known(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<Option<String>>>> {
        self.known
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Records that a machine has ended; the first reason is kept.
    pub fn end(&self, id: &str, reason: &str) {
        let mut known = self.known();
        let fate = known.entry(id.to_string()).or_default();
        fate.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(reason.to_string());
            }
            first
        });
    }

    /// Watches for a machine's end.
    pub fn watch(&self, id: &str) -> watch::Receiver<Option<String>> {
        self.known().entry(id.to_string()).or_default().subscribe()
    }

    /// Removes a machine that is no longer watched.
    pub fn forget(&self, id: &str) {
        self.known().remove(id);
    }
}
