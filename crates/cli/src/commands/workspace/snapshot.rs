//! `motu workspace snapshot`: named states of /workspace.

use super::{Which, diff};
use crate::commands::page::{PageArgs, more};
use crate::failure::Reader;
use crate::show::answer;
use crate::{show, waiting};
use jiff::Timestamp;
use motu_api::Client;
use motu_core::Result;
use motu_core::lists::SnapshotList;
use motu_core::workspace::{SaveAs, Since, Snapshot, Workspaces};
use std::process::ExitCode;

/// Save states of /workspace under names, beside the baseline
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace snapshot create ws-3f9k2m7qx0ab before-upgrade
  motu workspace snapshot diff ws-3f9k2m7qx0ab baseline before-upgrade
  motu workspace reset ws-3f9k2m7qx0ab --snapshot before-upgrade")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Save /workspace as it is now
    Create {
        #[command(flatten)]
        which: Which,
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List the baseline and every named snapshot
    List {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Delete a named snapshot
    Delete {
        #[command(flatten)]
        which: Which,
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Show what changed between two snapshots
    Diff {
        #[command(flatten)]
        which: Which,
        /// The earlier one, or baseline
        #[arg(value_name = "FROM")]
        from: String,
        /// The later one
        #[arg(value_name = "TO")]
        to: String,
        #[command(flatten)]
        budget: diff::Budget,
    },
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        match self.command {
            Command::Create { which, name } => {
                let work = client.create_snapshot(&which.id, SaveAs::named(&name));
                let snapshot = waiting::told("saving", Reader::of(json), work).await?;
                answer(json, &snapshot, named);
            }
            Command::List { which, page } => {
                let all = client.list_snapshots(&which.id, page.into()).await?;
                answer(json, &all, list);
                more(json, all.next_cursor.as_deref());
            }
            Command::Delete { which, name } => {
                let snapshot = client.delete_snapshot(&which.id, &name).await?;
                answer(json, &snapshot, named);
            }
            Command::Diff {
                which,
                from,
                to,
                budget,
            } => {
                let report =
                    client.diff_snapshots(&which.id, &from, Since::new(&to, budget.options(json)));
                diff::told(json, &report.await?)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn named(snapshot: &Snapshot) -> String {
    format!("{}\n", show::safe(&snapshot.snapshot_name))
}

fn list(list: &SnapshotList) -> String {
    let now = Timestamp::now();
    let row = |snapshot: &Snapshot| {
        let entries = snapshot.entry_count;
        vec![
            snapshot.snapshot_name.clone(),
            snapshot.kind.clone(),
            show::ago(snapshot.created_at, now),
            entries.map_or_else(|| "-".to_string(), |entries| entries.to_string()),
            snapshot.changed_count.to_string(),
            show::bytes(snapshot.stored_bytes),
        ]
    };
    let rows: Vec<Vec<String>> = list.snapshots.iter().map(row).collect();
    show::table(
        &["NAME", "KIND", "CREATED", "ENTRIES", "CHANGES", "SIZE"],
        &rows,
    )
}
