//! What a sandbox used, over time.
//!
//! Three ranges, each with its own distance between points, so that a day costs as little to keep
//! as ten minutes:
//!
//! ```text
//!   10m   every 500 ms     2h   every 30 s     24h   every 5 min
//! ```

use crate::SandboxId;
use crate::ask::Ask;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How far back is looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub enum MetricsRange {
    #[default]
    #[serde(rename = "10m")]
    TenMinutes,
    #[serde(rename = "2h")]
    TwoHours,
    #[serde(rename = "24h")]
    OneDay,
}

impl MetricsRange {
    pub const ALL: [MetricsRange; 3] = [
        MetricsRange::TenMinutes,
        MetricsRange::TwoHours,
        MetricsRange::OneDay,
    ];

    /// How far it goes back, and how far its points are apart.
    pub const fn reach(self) -> (Duration, Duration) {
        let (reach, apart) = match self {
            MetricsRange::TenMinutes => (600_000, 500),
            MetricsRange::TwoHours => (7_200_000, 30_000),
            MetricsRange::OneDay => (86_400_000, 300_000),
        };
        (Duration::from_millis(reach), Duration::from_millis(apart))
    }
}

impl std::str::FromStr for MetricsRange {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<MetricsRange, crate::Error> {
        match text {
            "10m" => Ok(MetricsRange::TenMinutes),
            "2h" => Ok(MetricsRange::TwoHours),
            "24h" => Ok(MetricsRange::OneDay),
            other => Err(
                crate::Error::invalid(format!("there is no range {other:?} of metrics"))
                    .hint("one of: 10m, 2h, 24h"),
            ),
        }
    }
}

/// What a sandbox used, as the host sees it, at one time or on average up to it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MetricPoint {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Processor time, in hundredths of one processor: two that are busy are 200.
    pub cpu_pct: f64,
    pub mem_bytes: u64,
    /// Looked at every 30 s.
    pub disk_bytes: u64,
}

/// Which points are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReadMetrics {
    /// `10m` (the default), `2h` or `24h`.
    pub range: MetricsRange,
}

impl Ask for ReadMetrics {}

/// The points of one range, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MetricsHistory {
    pub sandbox_id: SandboxId,
    pub range: MetricsRange,
    pub points: Vec<MetricPoint>,
}

/// The points of every range, oldest first. They are not kept any longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MetricsFlushed {
    pub sandbox_id: SandboxId,
    pub points_10m: Vec<MetricPoint>,
    pub points_2h: Vec<MetricPoint>,
    pub points_24h: Vec<MetricPoint>,
}
