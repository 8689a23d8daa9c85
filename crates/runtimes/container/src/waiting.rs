//! Work on disks that waits until nobody waits for it.

use crate::ahead::{Ahead, Former};
use motu_core::runtime::{Kept, Machine};
use motu_local::disk::Disks;
use std::sync::Arc;
use std::time::Duration;

/// When that begins which no reset waits for: this one still needs the processors, and its own disk.
const AHEAD_DELAY: Duration = Duration::from_millis(25);

/// How long disks wait that only many machines at once need.
const THIN_AFTER: Duration = Duration::from_secs(20);

/// Makes the disk for the next reset and lets go of those before this one, when this one is over.
pub(crate) fn after_reset(
    (ahead, disks): (&Arc<Ahead>, &Arc<Disks>),
    former: Former,
    kept: &Kept,
    machine: &Machine,
) {
    let mut limits = machine.limits.iter();
    let disk = limits.find(|limit| limit.name == "disk_mib" && limit.enforced);
    let mib = disk.map(|disk| disk.value);
    let (ahead, disks, kept) = (ahead.clone(), disks.clone(), kept.clone());
    tokio::spawn(async move {
        tokio::time::sleep(AHEAD_DELAY).await;
        let work = move || {
            // Unless the workspace is gone already.
            if let Some(mib) = mib.filter(|_| kept.dir.exists()) {
                ahead.want(&kept, mib);
                ahead.fill(&disks);
            }
            drop(former);
        };
        let _ = tokio::task::spawn_blocking(work).await;
    });
}

/// Gives up the disks that are too many when the rush may be over.
pub(crate) fn thin(disks: &Arc<Disks>) {
    if !disks.begin_thinning() {
        return;
    }
    let disks = Arc::downgrade(disks);
    tokio::spawn(async move {
        tokio::time::sleep(THIN_AFTER).await;
        if let Some(disks) = disks.upgrade() {
            let _ = tokio::task::spawn_blocking(move || disks.thin()).await;
        }
    });
}
