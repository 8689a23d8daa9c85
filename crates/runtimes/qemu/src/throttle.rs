//! Limits of what a machine's disks do, kept by QEMU.
//!
//! They belong to the devices, so they stay when a disk gets a new layer. A machine that has some
//! starts stopped and goes on when they are set: nothing in it ever runs without them.

use crate::disks::{BASELINE, DISKS};
use crate::error::QemuError;
use crate::place::{Place, QMP};
use crate::qmp::Qmp;
use crate::record::Shape;
use motu_core::runtime::MachineLimits;
use serde_json::json;

/// Bytes of a megabyte.
const MEGABYTE: u64 = 1_000_000;
/// All disks of a machine count together.
const GROUP: &str = "machine";
/// Starts a machine stopped.
pub(crate) const STOPPED: &str = "-S";

/// Megabytes and operations in a second, read and written each; 0: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Throttle {
    mbps: u64,
    iops: u64,
}

impl Throttle {
    pub(crate) fn of(limits: &MachineLimits) -> Throttle {
        Throttle {
            mbps: limits.io_mbps.value,
            iops: limits.iops.value,
        }
    }

    pub(crate) fn is_none(self) -> bool {
        self == Throttle::default()
    }

    /// Sets the limits of a machine that waits for them, and lets it go on.
    pub(crate) async fn apply(self, place: &Place, shape: &Shape) -> Result<(), QemuError> {
        if self.is_none() {
            return Ok(());
        }
        let mut qmp = Qmp::connect(&place.socket(QMP)).await?;
        let bytes = self.mbps.saturating_mul(MEGABYTE);
        for disk in DISKS.into_iter().chain(shape.kept.then_some(BASELINE)) {
            // The device on the bus is only the way to the one that has the disk.
            let device = format!("/machine/peripheral/{disk}/virtio-backend");
            let limits = json!({
                "id": device, "group": GROUP,
                "bps": 0, "bps_rd": bytes, "bps_wr": bytes,
                "iops": 0, "iops_rd": self.iops, "iops_wr": self.iops,
            });
            qmp.execute("block_set_io_throttle", limits).await?;
        }
        qmp.execute("cont", json!({})).await?;
        Ok(())
    }
}
