//! Actions around a pause of a machine.
//!
//! A service that pauses a machine cuts its connections, and the agent drops output while nobody
//! reads it. So commands with waiting callers are stopped (SIGSTOP) before the pause, and continued
//! once they are followed again. Terminals are left alone: a shell would notice.

use super::Guest;
use super::table::Running;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;
/// How long to wait until a command is followed again before it is continued anyway.
const HEARD: Duration = Duration::from_secs(20);

impl Guest {
    fn held(&self) -> MutexGuard<'_, Vec<Arc<Running>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called before the machine is paused.
    pub(crate) async fn hold(&self) {
        for process in self.table.waited_for() {
            match self.signal_tree(&process, SIGSTOP).await {
                Ok(()) => self.held().push(process),
                Err(failed) => {
                    let reason = failed.message;
                    tracing::warn!(id = self.id, reason, "output may be lost during the pause");
                }
            }
        }
        self.set_paused(true);
    }

    /// Called after the machine was resumed, or could not be paused.
    pub(crate) async fn let_go(&self) {
        self.set_paused(false);
        let held = std::mem::take(&mut *self.held());
        if held.is_empty() {
            return;
        }
        // One call to the agent, so that cut connections are noticed.
        if let Err(error) = self.envd.processes().await {
            tracing::debug!(id = self.id, %error, "the agent does not answer yet");
        }
        for process in held {
            let mut heard = process.heard.subscribe();
            let heard = heard.wait_for(|heard| *heard);
            if tokio::time::timeout(HEARD, heard).await.is_err() {
                tracing::warn!(
                    id = self.id,
                    pid = process.pid,
                    "a process continues before its output is connected again"
                );
            }
            if let Err(failed) = self.signal_tree(&process, SIGCONT).await {
                let reason = failed.message;
                tracing::warn!(
                    id = self.id,
                    pid = process.pid,
                    reason,
                    "continuing a stopped process failed"
                );
            }
        }
    }
}
