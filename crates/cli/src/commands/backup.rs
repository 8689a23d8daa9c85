//! `motu backup` and `motu restore`: everything that is kept, in one directory.

use crate::commands::given::host_path;
use crate::context::Context;
use crate::failure::Reader;
use crate::serving::exclusively;
use crate::show::answer;
use crate::{show, waiting};
use motu_core::report::BackUp;
use motu_core::{Error, Result, Service};
use motu_engine::Home;
use std::path::PathBuf;
use std::process::ExitCode;

/// Copy everything that is kept to a directory, while machines run
///
/// Workspaces and kept sandboxes with their disks, snapshots, secrets and history, and the
/// environments they need. A machine that runs is paused while its own disks are copied. The
/// directory appears when all of it is there.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu backup /srv/backups/monday
  motu --home /srv/motu restore /srv/backups/monday")]
pub struct Args {
    /// A directory that does not exist yet, or is empty
    #[arg(value_name = "DIR")]
    output: PathBuf,

    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// Make a new state directory what a backup holds
///
/// The state directory may have environments, but no store and no workspaces, and no daemon
/// may serve it. Workspaces are stopped after it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu --home /srv/motu restore /srv/backups/monday
  motu --home /srv/motu workspace list")]
pub struct RestoreArgs {
    /// What `motu backup` made
    #[arg(value_name = "DIR")]
    backup: PathBuf,

    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let output = host_path(&self.output)?;
        let client = context.client();
        let work = client.backup(BackUp {
            output_path: output.to_string(),
        });
        let made = waiting::told("copying what is kept", Reader::of(self.json), work).await?;
        answer(self.json, &made, |made| {
            let count = made.sandbox_ids.len();
            format!("{}: {count} kept\n", show::safe(&made.output_path))
        });
        Ok(ExitCode::SUCCESS)
    }
}

impl RestoreArgs {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let _alone = exclusively(&context.place)?;
        let home = Home::open(context.place.path())?;
        let backup = self.backup;
        let copying =
            tokio::task::spawn_blocking(move || motu_engine::backup::restore(&home, &backup));
        let copied = waiting::told("copying", Reader::of(self.json), copying).await;
        let restored = copied.map_err(|_| Error::internal("restoring ended in a bug"))??;
        answer(self.json, &restored, |all| {
            let lines: Vec<String> = all.iter().map(|id| format!("{id}  is back\n")).collect();
            lines.concat()
        });
        Ok(ExitCode::SUCCESS)
    }
}
