//! `motu stats`: what sandboxes use, now and over time.

use super::shape::word;
use crate::context::Context;
use crate::show;
use crate::show::answer;
use jiff::Timestamp;
use motu_api::Client;
use motu_core::metrics::{MetricPoint, MetricsHistory, MetricsRange, ReadMetrics};
use motu_core::sandbox::State;
use motu_core::{Result, SandboxId, Service};
use std::process::ExitCode;

/// Show what sandboxes use: processor, memory, disk
///
/// Of every sandbox that runs the newest figures; of one sandbox all of a range. They are what the
/// host counts, twice in a second; the disk is looked at every 30 s.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu stats
  motu stats build --range 2h
  motu stats build --range 24h --json")]
pub struct Args {
    /// One sandbox [default: all that run]
    #[arg(value_name = "ID", value_parser = SandboxId::parse)]
    id: Option<SandboxId>,

    /// How far back: 5m, 10m (every 500 ms), 1h, 2h (every 30 s), 6h, 12h or 24h (every 5 min) [default: 10m]
    #[arg(long, value_name = "RANGE", value_parser = word::<MetricsRange>)]
    range: Option<MetricsRange>,

    /// Print every figure as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let range = self.range.unwrap_or_default();
        match &self.id {
            Some(id) => {
                let history = client.metrics_history(id, ReadMetrics { range }).await?;
                answer(self.json, &history, one);
            }
            None => {
                let all = every(&client, range).await?;
                answer(self.json, &all, |all| newest(all));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The histories of what runs. What ends meanwhile is left out.
async fn every(client: &Client, range: MetricsRange) -> Result<Vec<MetricsHistory>> {
    let mut all = Vec::new();
    for sandbox in client.list_sandboxes(Default::default()).await?.iter() {
        if sandbox.state != State::Running {
            continue;
        }
        let history = client.metrics_history(&sandbox.sandbox_id, ReadMetrics { range });
        match history.await {
            Err(error) if error.kind == motu_core::ErrorKind::NotFound => {}
            history => all.push(history?),
        }
    }
    Ok(all)
}

fn figures(point: &MetricPoint) -> [String; 3] {
    [
        format!("{:.1} %", point.cpu_pct),
        show::bytes(point.mem_bytes),
        show::bytes(point.disk_bytes),
    ]
}

fn newest(all: &[MetricsHistory]) -> String {
    let row = |history: &MetricsHistory| {
        let figures = history.points.last().map(figures);
        let figures = figures.unwrap_or_else(|| ["-", "-", "-"].map(str::to_string));
        let id = history.sandbox_id.to_string();
        std::iter::once(id).chain(figures).collect()
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    show::table(&["ID", "CPU", "MEMORY", "DISK"], &rows)
}

fn one(history: &MetricsHistory) -> String {
    let now = Timestamp::now();
    let row = |point: &MetricPoint| {
        let ago = now.duration_since(point.at).as_secs().max(0);
        let ago = format!("{} ago", show::seconds(ago));
        std::iter::once(ago).chain(figures(point)).collect()
    };
    let rows: Vec<Vec<String>> = history.points.iter().map(row).collect();
    show::table(&["WHEN", "CPU", "MEMORY", "DISK"], &rows)
}
