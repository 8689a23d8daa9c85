//! The live sandboxes of an engine.

use super::Handle;
use motu_core::{Error, Result, SandboxId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// The live sandboxes, by id.
#[derive(Debug, Default)]
pub struct Table {
    live: Mutex<HashMap<SandboxId, Arc<Handle>>>,
}

impl Table {
    fn live(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Handle>>> {
        self.live
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Enters a sandbox, unless its name is taken or the table is full.
    pub(crate) fn enter(&self, id: &SandboxId, handle: Arc<Handle>, max: usize) -> Result<()> {
        let mut live = self.live();
        if live.contains_key(id) {
            return Err(Error::conflict(format!("sandbox {id} exists already"))
                .hint("choose another sandbox_id, or leave it out"));
        }
        if live.len() >= max {
            return Err(
                Error::limit(format!("{max} sandboxes are alive; that is max_sandboxes")).hint(
                    "destroy some (`motu ps`, `motu rm`), or raise max_sandboxes in config.toml",
                ),
            );
        }
        live.insert(id.clone(), handle);
        Ok(())
    }

    /// Takes a sandbox out, if that name still means this one.
    pub(crate) fn remove(&self, id: &SandboxId, handle: &Weak<Handle>) {
        let mut live = self.live();
        if live
            .get(id)
            .is_some_and(|found| std::ptr::eq(Arc::as_ptr(found), handle.as_ptr()))
        {
            live.remove(id);
        }
    }

    pub(crate) fn get(&self, id: &SandboxId) -> Option<Arc<Handle>> {
        self.live().get(id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Handle>> {
        self.live().values().cloned().collect()
    }
}
