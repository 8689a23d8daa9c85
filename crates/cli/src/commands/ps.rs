//! `motu ps`: the sandboxes there are.

use super::page::{PageArgs, more};
use crate::context::Context;
use crate::show;
use crate::show::answer;
use jiff::Timestamp;
use motu_core::sandbox::{ListSandboxes, Sandbox, State};
use motu_core::{Result, Service};
use std::process::ExitCode;

/// List sandboxes
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also those that are gone
    #[arg(short, long)]
    all: bool,

    #[command(flatten)]
    page: PageArgs,

    /// Print everything that is known of them as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let ask = ListSandboxes {
            all: self.all,
            limit: self.page.limit,
            cursor: self.page.cursor,
            ..ListSandboxes::default()
        };
        let sandboxes = context.client().list_sandboxes(ask).await?;
        answer(self.json, &sandboxes, |sandboxes| text(sandboxes));
        more(self.json, sandboxes.next_cursor.as_deref());
        Ok(ExitCode::SUCCESS)
    }
}

fn text(sandboxes: &[Sandbox]) -> String {
    let now = Timestamp::now();
    let row = |sandbox: &Sandbox| {
        let age = now.duration_since(sandbox.created_at).as_secs();
        let left = |at: Timestamp| show::seconds(at.duration_since(now).as_secs().max(0));
        vec![
            sandbox.sandbox_id.to_string(),
            sandbox.environment.clone(),
            sandbox.state.to_string(),
            sandbox.runtime.clone(),
            sandbox.isolation.to_string(),
            sandbox
                .accelerator
                .clone()
                .unwrap_or_else(|| "-".to_string()),
            show::seconds(age.max(0)),
            sandbox.expires_at.map_or("never".to_string(), left),
        ]
    };
    let rows: Vec<Vec<String>> = sandboxes.iter().map(row).collect();
    let headings = [
        "ID",
        "ENVIRONMENT",
        "STATE",
        "RUNTIME",
        "ISOLATION",
        "ACCEL",
        "AGE",
        "EXPIRES IN",
    ];
    let mut text = show::table(&headings, &rows);
    let held = |sandbox: &&Sandbox| sandbox.state == State::Paused;
    for sandbox in sandboxes.iter().filter(held) {
        if let Some(reason) = &sandbox.reason {
            text.push_str(&format!("{}: {}\n", sandbox.sandbox_id, show::safe(reason)));
        }
    }
    for sandbox in sandboxes {
        let left = sandbox.not_enforced();
        let runs = matches!(sandbox.state, State::Running | State::Paused);
        if runs && !left.is_empty() {
            let (id, left) = (&sandbox.sandbox_id, left.join(", "));
            text.push_str(&format!("{id}: not enforced: {}\n", show::safe(&left)));
        }
    }
    text
}
