//! A machine that stands still for a while.
//!
//! A service that pauses a machine cuts its connections, and the agent forgets what is printed
//! while nobody hears it. So commands whose callers wait are stopped before the pause, and go on
//! when they are heard again. Terminals are left alone: a shell would notice.

use super::Guest;
use super::table::Running;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;
/// How long a command may take to be heard again before it goes on all the same.
const HEARD: Duration = Duration::from_secs(20);

impl Guest {
    fn held(&self) -> MutexGuard<'_, Vec<Arc<Running>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine is about to stand still.
    pub(crate) async fn hold(&self) {
        for process in self.table.waited_for() {
            match self.signal_tree(&process, SIGSTOP).await {
                Ok(()) => self.held().push(process),
                Err(failed) => {
                    let reason = failed.message;
                    tracing::warn!(id = self.id, reason, "output may be lost by the pause");
                }
            }
        }
        self.set_paused(true);
    }

    /// The machine goes on, or has not stopped.
    pub(crate) async fn let_go(&self) {
        self.set_paused(false);
        let held = std::mem::take(&mut *self.held());
        if held.is_empty() {
            return;
        }
        // One answer from the agent, so that connections that were cut are known to be.
        if let Err(error) = self.envd.processes().await {
            tracing::debug!(id = self.id, %error, "the agent does not answer yet");
        }
        for process in held {
            let mut heard = process.heard.subscribe();
            let heard = heard.wait_for(|heard| *heard);
            if tokio::time::timeout(HEARD, heard).await.is_err() {
                tracing::warn!(id = self.id, pid = process.pid, "goes on unheard");
            }
            if let Err(failed) = self.signal_tree(&process, SIGCONT).await {
                let reason = failed.message;
                tracing::warn!(id = self.id, pid = process.pid, reason, "does not go on");
            }
        }
    }
}
