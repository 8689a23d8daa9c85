//! What a sandbox used, over time.
//!
//! Three ranges are kept, each with its own distance between points, so that a day costs as little
//! to keep as ten minutes. The others are the newest part of one of them:
//!
//! ```text
//!   5m, 10m   every 500 ms     1h, 2h   every 30 s     6h, 12h, 24h   every 5 min
//! ```

use crate::SandboxId;
use crate::ask::Ask;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How far back is looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub enum MetricsRange {
    #[serde(rename = "5m")]
    FiveMinutes,
    #[default]
    #[serde(rename = "10m")]
    TenMinutes,
    #[serde(rename = "1h")]
    OneHour,
    #[serde(rename = "2h")]
    TwoHours,
    #[serde(rename = "6h")]
    SixHours,
    #[serde(rename = "12h")]
    TwelveHours,
    #[serde(rename = "24h")]
    OneDay,
}

impl MetricsRange {
    pub const ALL: [MetricsRange; 7] = [
        MetricsRange::FiveMinutes,
        MetricsRange::TenMinutes,
        MetricsRange::OneHour,
        MetricsRange::TwoHours,
        MetricsRange::SixHours,
        MetricsRange::TwelveHours,
        MetricsRange::OneDay,
    ];

    /// The ranges that are kept, from the shortest to the longest.
    pub const KEPT: [MetricsRange; 3] = [
        MetricsRange::TenMinutes,
        MetricsRange::TwoHours,
        MetricsRange::OneDay,
    ];

    /// The kept range that its points are taken from.
    pub const fn kept(self) -> MetricsRange {
        match self {
            MetricsRange::FiveMinutes | MetricsRange::TenMinutes => MetricsRange::TenMinutes,
            MetricsRange::OneHour | MetricsRange::TwoHours => MetricsRange::TwoHours,
            MetricsRange::SixHours | MetricsRange::TwelveHours | MetricsRange::OneDay => {
                MetricsRange::OneDay
            }
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            MetricsRange::FiveMinutes => "5m",
            MetricsRange::TenMinutes => "10m",
            MetricsRange::OneHour => "1h",
            MetricsRange::TwoHours => "2h",
            MetricsRange::SixHours => "6h",
            MetricsRange::TwelveHours => "12h",
            MetricsRange::OneDay => "24h",
        }
    }

    /// How far it goes back, and how far its points are apart.
    pub const fn reach(self) -> (Duration, Duration) {
        let (reach, apart) = match self {
            MetricsRange::FiveMinutes => (300_000, 500),
            MetricsRange::TenMinutes => (600_000, 500),
            MetricsRange::OneHour => (3_600_000, 30_000),
            MetricsRange::TwoHours => (7_200_000, 30_000),
            MetricsRange::SixHours => (21_600_000, 300_000),
            MetricsRange::TwelveHours => (43_200_000, 300_000),
            MetricsRange::OneDay => (86_400_000, 300_000),
        };
        (Duration::from_millis(reach), Duration::from_millis(apart))
    }
}

impl std::str::FromStr for MetricsRange {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<MetricsRange, crate::Error> {
        let found = MetricsRange::ALL
            .iter()
            .find(|range| range.as_str() == text);
        found.copied().ok_or_else(|| {
            let shown = crate::shown::quoted(text, 60);
            crate::Error::invalid(format!("there is no range {shown} of metrics"))
                .hint("one of: 5m, 10m, 1h, 2h, 6h, 12h, 24h")
        })
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
    /// `5m`, `10m` (the default), `1h`, `2h`, `6h`, `12h` or `24h`.
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
