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
use motu_engine::backup::{self, Listing, Verified};
use std::path::PathBuf;
use std::process::ExitCode;

/// What a verification that found something gives: the kind of a conflict.
const FOUND: u8 = 105;

/// Copy everything that is kept to a directory, while machines run
///
/// Workspaces and kept sandboxes with their disks, snapshots, secrets and history, templates with
/// what they start from, every environment that cannot be pulled again, keys, policies,
/// recordings, events, the audit log and the configuration. A machine that runs is paused while
/// its own disks are copied. The directory appears when all of it is there.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu backup /srv/backups/monday
  motu backup --list /srv/backups/monday     What is in it, and what is not
  motu backup --verify /srv/backups/monday   Compare all of it with its checksums
  motu --home /srv/motu restore /srv/backups/monday")]
pub struct Args {
    /// A directory that does not exist yet, or is empty; with --list or --verify, a backup
    #[arg(value_name = "DIR")]
    output: PathBuf,

    /// Say what a backup holds
    #[arg(long, conflicts_with = "verify")]
    list: bool,

    /// Check that a backup is what it was when it was made; 105 when it is not
    #[arg(long)]
    verify: bool,

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
        if self.list {
            answer(self.json, &backup::list(&self.output)?, told_list);
            return Ok(ExitCode::SUCCESS);
        }
        if self.verify {
            return self.check().await;
        }
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

    async fn check(self) -> Result<ExitCode> {
        let from = self.output;
        let reading = tokio::task::spawn_blocking(move || backup::verify(&from));
        let found = waiting::told("reading the backup", Reader::of(self.json), reading).await;
        let found = found.map_err(|_| Error::internal("checking ended in a bug"))??;
        answer(self.json, &found, told_check);
        Ok(match found.ok {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(FOUND),
        })
    }
}

fn told_list(backup: &Listing) -> String {
    let mut text = format!(
        "made {} by motu {}\n",
        backup.made_at,
        show::safe(&backup.motu)
    );
    for item in &backup.items {
        let kind = serde_json::to_string(&item.kind).unwrap_or_default();
        text.push_str(&format!(
            "{}  {}  {}\n",
            kind.trim_matches('"'),
            show::safe(&item.name),
            show::bytes(item.bytes),
        ));
    }
    for one in &backup.left_out {
        text.push_str(&format!(
            "not in it: {} ({})\n",
            show::safe(&one.what),
            show::safe(&one.why)
        ));
    }
    text
}

fn told_check(found: &Verified) -> String {
    let mut text = String::new();
    for one in &found.problems {
        let path = one.path.to_string_lossy();
        text.push_str(&format!(
            "{}: {}\n",
            show::safe(&path),
            show::safe(&one.what)
        ));
    }
    let (things, size) = (found.items, show::bytes(found.bytes));
    text + &match found.problems.len() {
        0 => format!("whole: {things} things, {size}\n"),
        problems => format!("{problems} problems in {things} things\n"),
    }
}

impl RestoreArgs {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let _alone = exclusively(&context.place)?;
        let home = Home::open(context.place.path())?;
        let from = self.backup;
        let copying = tokio::task::spawn_blocking(move || backup::restore(&home, &from));
        let copied = waiting::told("copying", Reader::of(self.json), copying).await;
        let restored = copied.map_err(|_| Error::internal("restoring ended in a bug"))??;
        answer(self.json, &restored, |restored| {
            let back = restored.sandbox_ids.iter();
            let mut text: String = back.map(|id| format!("{id}  is back\n")).collect();
            for path in &restored.stays {
                let path = path.to_string_lossy();
                text.push_str(&format!("{}  stays as it is here\n", show::safe(&path)));
            }
            text
        });
        Ok(ExitCode::SUCCESS)
    }
}
