//! Prolongs the timeout of machines at the service while a daemon has them.

use crate::wire::{Control, Standing};
use motu_peer::Fates;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;

/// One task per machine.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    tasks: Mutex<HashMap<String, AbortHandle>>,
}

impl Keeper {
    fn tasks(&self) -> MutexGuard<'_, HashMap<String, AbortHandle>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps prolonging a machine's timeout, unless that is being done already.
    pub(crate) fn keep(&self, control: &Arc<Control>, fates: &Arc<Fates>, id: &str, timeout: u64) {
        let mut tasks = self.tasks();
        if tasks.get(id).is_some_and(|task| !task.is_finished()) {
            return;
        }
        let work = prolong(control.clone(), fates.clone(), id.to_string(), timeout);
        tasks.insert(id.to_string(), tokio::spawn(work).abort_handle());
    }

    pub(crate) fn release(&self, id: &str) {
        if let Some(task) = self.tasks().remove(id) {
            task.abort();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.tasks().drain().for_each(|(_, task)| task.abort());
    }
}

/// Prolongs after each third of the timeout, so that two calls may fail.
async fn prolong(control: Arc<Control>, fates: Arc<Fates>, id: String, timeout: u64) {
    loop {
        let done = match control.detail(&id).await {
            Ok(Standing::Gone(reason)) => return fates.end(&id, &reason),
            // A paused machine loses no time.
            Ok(Standing::There(detail)) if detail.is_paused() => Ok(()),
            Ok(Standing::There(_)) => control.set_timeout(&id, timeout).await,
            Err(error) => Err(error),
        };
        let part = match done {
            Ok(()) => 3,
            Err(error) => {
                tracing::warn!(id, %error, "extending the timeout of a machine failed");
                10
            }
        };
        tokio::time::sleep(Duration::from_secs((timeout / part).max(1))).await;
    }
}
