//! Resource usage of sandboxes.

use crate::agent::Agent;
use crate::ask;
use crate::wire::{
    FlushSandboxMetricsRequest, FlushSandboxMetricsResponse, GetSandboxMetricsRequest,
    GetSandboxMetricsResponse, MetricPoint,
};
use motu_core::metrics::{MetricPoint as Point, MetricsRange, ReadMetrics};
use motu_core::{Result, Service};

impl Agent {
    pub async fn get_metrics(
        self,
        message: GetSandboxMetricsRequest,
    ) -> Result<GetSandboxMetricsResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let range = ask::word(message.range).map(|text| text.parse::<MetricsRange>());
        let range = range.transpose()?.unwrap_or_default();
        let history = self.metrics_history(&id, ReadMetrics { range }).await?;
        Ok(GetSandboxMetricsResponse {
            points: points(history.points),
        })
    }

    pub async fn flush(
        self,
        message: FlushSandboxMetricsRequest,
    ) -> Result<FlushSandboxMetricsResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let flushed = self.flush_metrics(&id).await?;
        Ok(FlushSandboxMetricsResponse {
            points_10m: points(flushed.points_10m),
            points_2h: points(flushed.points_2h),
            points_24h: points(flushed.points_24h),
        })
    }
}

fn points(all: Vec<Point>) -> Vec<MetricPoint> {
    let large = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let point = |point: Point| MetricPoint {
        timestamp_unix: point.at.as_second(),
        cpu_pct: point.cpu_pct,
        mem_bytes: large(point.mem_bytes),
        disk_bytes: large(point.disk_bytes),
    };
    all.into_iter().map(point).collect()
}
