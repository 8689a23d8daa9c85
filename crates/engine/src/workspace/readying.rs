//! The task that finds out when a service is ready, and ends one that is not in its time.
//!
//! It goes on when the caller who started the service has gone, and a new daemon begins it again for
//! a service that was not ready at the end of the one before: none is left that is neither ready nor
//! ended.

use super::probes::{self, Scene};
use super::supervised::{Supervised, logs};
use crate::driver::Handle;
use jiff::Timestamp;
use motu_core::config::Config;
use motu_core::hint;
use motu_core::hint::field;
use motu_core::workspace::{Readiness, Restart, ServiceState};
use motu_core::{Error, ErrorKind, Result, limits};
use std::sync::Arc;
use std::time::Duration;

/// A service without a probe has failed to start if it ends with an error within this time.
const AT_ONCE: Duration = Duration::from_millis(250);
/// The least time that a new daemon gives a service whose time was over meanwhile: it may have become
/// ready while nobody looked.
const AGAIN: Duration = Duration::from_secs(5);
/// The pause after a probe that could not be made: the machine may be paused.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Readying {
    pub(super) service: Arc<Supervised>,
    pub(super) handle: Arc<Handle>,
    pub(super) config: Config,
}

impl Readying {
    /// Waits for a service that has just been started.
    pub(super) async fn run(self) -> Result<()> {
        let patience = self.patience();
        self.within(patience).await
    }

    /// Waits for what is left of the time of a service that another daemon started.
    pub(super) async fn go_on(self) {
        let begun = self.service.row().status.started_at;
        let gone = Timestamp::now().duration_since(begun);
        let gone = Duration::try_from(gone).unwrap_or_default();
        let left = self.patience().saturating_sub(gone).max(AGAIN);
        if let Err(error) = self.within(left).await {
            let service = self.service.row().status.service_name.clone();
            tracing::warn!(service, %error, "an adopted service did not become ready");
        }
    }

    fn patience(&self) -> Duration {
        let asked = self.service.row().ready_timeout_seconds;
        Duration::from_secs(asked.unwrap_or(limits::READY_TIMEOUT_SECONDS.default))
    }

    async fn within(&self, patience: Duration) -> Result<()> {
        if let Ok(ready) = tokio::time::timeout(patience, self.until_ready()).await {
            return ready;
        }
        let seconds = self.patience().as_secs();
        let reason = format!("it was not ready after {seconds} s");
        // Should it not end, its state says so.
        let _ = self.service.end(ServiceState::Failed, &reason).await;
        let late = self
            .service
            .failed_to_start(ErrorKind::Timeout, "did not start");
        let row = self.service.row();
        Err(late.hint(hint![
            logs(&row.status.workspace_id, &row.status.service_name),
            " shows its output; ",
            field("ready_timeout_seconds"),
            " gives it longer",
        ]))
    }

    /// Waits for the probe; a service without one is ready when it runs.
    async fn until_ready(&self) -> Result<()> {
        let row = self.service.row();
        if let Some(readiness) = &row.status.readiness {
            tokio::select! {
                biased;
                () = self.probed(readiness) => {}
                () = self.service.gone() => {}
            }
        } else if row.status.restart == Restart::Never {
            let _ = tokio::time::timeout(AT_ONCE, self.service.gone()).await;
        }
        self.service
            .learn(|row| {
                // Only here it is decided: it may have ended since.
                if row.status.state == ServiceState::Starting {
                    row.status.state = ServiceState::Running;
                }
                if row.status.state.is_alive() {
                    row.status.ready_at.get_or_insert_with(Timestamp::now);
                }
            })
            .await;
        match self.service.row().status.state {
            ServiceState::Starting | ServiceState::Running => Ok(()),
            // Somebody else's stop, of the service or of its workspace.
            ServiceState::Stopped => Err(self.ended(ErrorKind::Conflict, "was ended meanwhile")),
            _ if row.status.readiness.is_some() => {
                Err(self.ended(ErrorKind::Unavailable, "ended before it was ready"))
            }
            ServiceState::Failed => Err(self.ended(ErrorKind::Unavailable, "ended at once")),
            _ => Ok(()),
        }
    }

    fn ended(&self, kind: ErrorKind, what: &str) -> Error {
        self.service.failed_to_start(kind, what)
    }

    /// Probes until it succeeds. A machine that cannot be asked ends the service, or is asked again.
    async fn probed(&self, readiness: &Readiness) {
        let row = self.service.row();
        let interval = row
            .ready_interval_ms
            .unwrap_or(limits::READY_INTERVAL_MS.default);
        loop {
            if let Ok(guest) = self.handle.look() {
                let scene = Scene {
                    guest: &guest,
                    config: &self.config,
                    workdir: &row.status.cwd,
                    interval: Duration::from_millis(interval),
                    logged: self.service.logged.subscribe(),
                };
                if probes::wait(readiness, scene).await.is_ok() {
                    return;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
