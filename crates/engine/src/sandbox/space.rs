//! The space on the host's disk, and the disks of machines on it.
//!
//! Disk images are sparse: the host's disk may fill up while a machine's own disk still has room,
//! and its writes then fail with errors far from their cause. So the free space under the state
//! directory is checked while machines run, the more often the less there is. Before the disk is
//! full, every machine is paused with a reason; when there is space again, they are resumed.
//!
//! ```text
//!   min_free_disk_mib ──── nothing is made below this; paused machines go on above it
//!   half of it ─────────── machines are paused below this
//!   0 ──────────────────── full
//! ```

use super::Sandboxes;
use crate::driver::Handle;
use futures_util::future::join_all;
use motu_core::Result;
use motu_core::sandbox::State;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Check interval with plenty of space.
const SELDOM: Duration = Duration::from_secs(1);
/// Check interval with hardly any space.
const OFTEN: Duration = Duration::from_millis(20);
/// Assumed upper bound of the machines' total write rate: 4 GB/s.
const BYTES_PER_MICROSECOND: u64 = 4096;
/// How long drivers may take to pause their machines before the next check.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often freed space of running machines' disks is returned to the host.
const TEND: Duration = Duration::from_secs(600);

impl Sandboxes {
    /// Checks the disk for as long as the engine lives.
    pub(crate) fn watch_space(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut tended = Instant::now();
            loop {
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                let pause = engine.look_at_space().await;
                if tended.elapsed() > TEND {
                    engine.tend_disks().await;
                    tended = Instant::now();
                }
                drop(engine);
                tokio::time::sleep(pause).await;
            }
        });
    }

    /// Pauses or resumes machines as needed; returns the time until the next check.
    async fn look_at_space(&self) -> Duration {
        let reserve = self.config.min_free_disk_mib * MIB;
        let machines = self.table.awake();
        let (running, held): (Vec<_>, Vec<_>) = machines
            .into_iter()
            .filter(|handle| handle.is_held() || handle.state() == State::Running)
            .partition(|handle| handle.state() == State::Running);
        if reserve == 0 || (running.is_empty() && held.is_empty()) {
            return SELDOM;
        }
        let free = match self.shared.home.free_bytes() {
            Ok(free) => free,
            Err(error) => {
                tracing::warn!(%error, "could not read the free disk space");
                return SELDOM;
            }
        };
        let room = free.saturating_sub(reserve / 2);
        if room == 0 && !running.is_empty() {
            let reason = format!(
                "the host's disk is nearly full: {} MiB are free, and min_free_disk_mib is {}",
                free / MIB,
                self.config.min_free_disk_mib
            );
            tracing::warn!(machines = running.len(), "{reason}: machines are paused");
            every(&running, |handle| handle.hold(reason.clone())).await;
        } else if free >= reserve && !held.is_empty() {
            tracing::info!(
                machines = held.len(),
                "there is space again: machines go on"
            );
            every(&held, |handle| handle.release()).await;
        }
        Duration::from_micros(room / BYTES_PER_MICROSECOND).clamp(OFTEN, SELDOM)
    }

    /// Returns unused space in the disks of running machines to the host.
    async fn tend_disks(&self) {
        for handle in self.table.awake() {
            if let Some((runtime, kept)) = handle.disk()
                && handle.state() == State::Running
                && let Err(error) = runtime.tend(&kept, false).await
            {
                tracing::warn!(id = %handle.sandbox().sandbox_id, %error, "could not return a disk's unused space to the host");
            }
        }
    }
}

/// Asks all drivers concurrently; a busy one does not delay the others.
async fn every<'a, F, A>(handles: &'a [Arc<Handle>], ask: F)
where
    F: Fn(&'a Arc<Handle>) -> A,
    A: Future<Output = Result<()>>,
{
    let asked = join_all(handles.iter().map(ask));
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(answers) => {
            for error in answers.into_iter().filter_map(Result::err) {
                tracing::warn!(%error, "a machine could not be paused or resumed");
            }
        }
        Err(_) => tracing::warn!("pausing or resuming a machine takes too long"),
    }
}
