//! `motu workspace sync`: later content of the host.

use super::Which;
use crate::commands::given;
use crate::failure::Reader;
use crate::show::answer;
use crate::{show, waiting};
use motu_api::Client;
use motu_core::Result;
use motu_core::workspace::{SyncPush, SyncReport, Workspaces};
use std::path::PathBuf;
use std::process::ExitCode;

/// Bring later content of this host into a workspace
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Push(PushArgs),
}

/// Copy a directory or an archive into a running workspace
///
/// Files that are the same already are left alone, and nothing is removed. The
/// baseline does not change: what was pushed is in the diff.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace sync push ws-3f9k2m7qx0ab ./project --gitignore
  motu workspace sync push ws-3f9k2m7qx0ab data.tar.gz --dest /workspace/data")]
struct PushArgs {
    #[command(flatten)]
    which: Which,

    /// A directory or a .tar, .tar.gz or .tgz archive here
    #[arg(value_name = "SOURCE_PATH")]
    source_path: PathBuf,

    /// Where it goes [default: /workspace]
    #[arg(long, value_name = "WORKSPACE_PATH")]
    dest: Option<String>,

    /// Leave out what .gitignore files name (directories only)
    #[arg(long)]
    gitignore: bool,
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let Command::Push(args) = self.command;
        let push = SyncPush {
            source_path: given::host_path(&args.source_path)?,
            dest: args.dest,
            gitignore: args.gitignore,
        };
        let work = client.push_workspace_sync(&args.which.id, push);
        let report = waiting::told("sending", Reader::of(json), work).await?;
        answer(json, &report, pushed);
        Ok(ExitCode::SUCCESS)
    }
}

fn pushed(report: &SyncReport) -> String {
    format!(
        "{}: {} of {} sent to {}, {} unchanged, {} written\n",
        report.workspace_id,
        report.sent_count,
        show::entries(report.entry_count),
        show::safe(&report.destination),
        report.unchanged_count,
        show::bytes(report.bytes_written)
    )
}
