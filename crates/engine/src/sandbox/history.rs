//! Resource usage over time: one task samples all sandboxes.
//!
//! The host's counters are read every half second, which takes a few system calls. Guests are asked
//! every 30 s for what only they know (disk usage), and for everything if the host has no counters
//! of their machine. Machines that are not running are skipped.

use super::Sandboxes;
use crate::blocking::blocking;
use crate::driver::Handle;
use crate::guest::Guest;
use crate::rings::Reading;
use motu_core::metrics::{MetricsFlushed, MetricsHistory, MetricsRange, ReadMetrics};
use motu_core::sandbox::State;
use motu_core::{Result, SandboxId};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often guests are asked.
const ASK: Duration = MetricsRange::TwoHours.reach().1;
/// How long a guest may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

impl Sandboxes {
    pub(crate) async fn metrics_history(
        &self,
        id: &SandboxId,
        ask: ReadMetrics,
    ) -> Result<MetricsHistory> {
        let handle = self.handle(id).await?;
        Ok(MetricsHistory {
            sandbox_id: id.clone(),
            range: ask.range,
            points: handle.rings().points(ask.range),
        })
    }

    pub(crate) async fn flush_metrics(&self, id: &SandboxId) -> Result<MetricsFlushed> {
        let handle = self.handle(id).await?;
        let rings = std::mem::take(&mut *handle.rings());
        let [points_10m, points_2h, points_24h] =
            MetricsRange::KEPT.map(|range| rings.points(range));
        Ok(MetricsFlushed {
            sandbox_id: id.clone(),
            points_10m,
            points_2h,
            points_24h,
        })
    }

    /// Samples for as long as the engine lives.
    pub(crate) fn watch_usage(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        let (_, apart) = MetricsRange::TenMinutes.reach();
        let asks_in = (ASK.as_millis() / apart.as_millis()) as u64;
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(apart);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for tick in 0u64.. {
                ticks.tick().await;
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                let running = engine.running_guests();
                if running.is_empty() {
                    continue;
                }
                // A guest is asked when it is first seen, and then every `ASK`.
                for (handle, guest) in &running {
                    if handle.rings().is_new() || tick % asks_in == 0 {
                        tokio::spawn(ask(handle.clone(), guest.clone()));
                    }
                }
                // The host may have taken memory back from one that does not run: look anew at times.
                let anew = tick % asks_in == 0;
                let read = blocking(move || {
                    read_counters(&running, anew);
                    Ok(())
                });
                if let Err(error) = read.await {
                    tracing::warn!(%error, "could not sample the resource usage of sandboxes");
                }
            }
        });
    }

    fn running_guests(&self) -> Vec<(Arc<Handle>, Arc<Guest>)> {
        let all = self.table.awake().into_iter();
        let running = all.filter(|handle| handle.state() == State::Running);
        running
            .filter_map(|handle| Some((handle.clone(), handle.look().ok()?)))
            .collect()
    }
}

/// Reads the host's counters.
fn read_counters(running: &[(Arc<Handle>, Arc<Guest>)], anew: bool) {
    for (handle, guest) in running {
        let before = handle.rings().last().filter(|_| !anew);
        if let Some(usage) = guest.usage(before) {
            handle.rings().add(Reading::now(usage));
        }
    }
}

/// Asks a guest for its metrics. If it does not answer, the next round asks again.
async fn ask(handle: Arc<Handle>, guest: Arc<Guest>) {
    handle.rings().asked();
    if let Ok(Ok(metrics)) = tokio::time::timeout(PATIENCE, guest.metrics()).await {
        let counted = guest.usage(None).is_some();
        handle.rings().told(&metrics, counted);
    }
}
