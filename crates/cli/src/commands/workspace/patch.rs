//! `motu workspace patch` and `edit`: changes to text files, all or none.

use super::Which;
use crate::commands::given;
use crate::show;
use crate::show::answer;
use motu_api::Client;
use motu_core::workspace::{Edit, EditFiles, Patch, PatchReport, Workspaces};
use motu_core::{Error, Result, limits};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Apply patches under /workspace
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Apply(ApplyArgs),
}

/// Apply one unified patch: all of it, or none
///
/// It may add, change, delete and rename text files under /workspace.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace patch apply ws-3f9k2m7qx0ab --patch-file fix.patch
  git diff | motu workspace patch apply ws-3f9k2m7qx0ab --patch-file -")]
struct ApplyArgs {
    #[command(flatten)]
    which: Which,

    /// The patch itself
    #[arg(
        long,
        value_name = "TEXT",
        required_unless_present = "patch_file",
        allow_hyphen_values = true
    )]
    patch: Option<String>,

    /// A file here with the patch, or - for standard input
    #[arg(long, value_name = "PATH", conflicts_with = "patch")]
    patch_file: Option<PathBuf>,
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let Command::Apply(args) = self.command;
        let file = args.patch_file.as_deref();
        let patch = given::text(args.patch, file, &limits::PATCH_BYTES)?;
        let report = client
            .apply_workspace_patch(&args.which.id, Patch::new(&patch))
            .await?;
        answer(json, &report, told);
        Ok(ExitCode::SUCCESS)
    }
}

/// Replace exact text in files: all of it, or none
///
/// The old text must be there as often as --count says, or nothing is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace edit ws-3f9k2m7qx0ab /workspace/main.py --old 'x = 1' --new 'x = 2'
  motu workspace edit ws-3f9k2m7qx0ab --edits-file edits.json

The file of --edits-file holds an array such as
  [{\"path\": \"/workspace/a\", \"old\": \"x\", \"new\": \"y\", \"count\": 1}]")]
pub struct EditArgs {
    #[command(flatten)]
    which: Which,

    /// The file
    #[arg(value_name = "PATH", required_unless_present = "edits_file")]
    path: Option<String>,

    /// Text that is there, exactly
    #[arg(
        long,
        value_name = "TEXT",
        requires = "path",
        allow_hyphen_values = true
    )]
    old: Option<String>,

    /// What takes its place
    #[arg(
        long,
        value_name = "TEXT",
        requires = "path",
        allow_hyphen_values = true
    )]
    new: Option<String>,

    /// How often the old text must be there [default: 1]
    #[arg(long, value_name = "N", requires = "path")]
    count: Option<u64>,

    /// A JSON file here with several edits, or - for standard input
    #[arg(long, value_name = "PATH", conflicts_with = "path")]
    edits_file: Option<PathBuf>,
}

impl EditArgs {
    fn edits(&self) -> Result<Vec<Edit>> {
        if let Some(file) = &self.edits_file {
            return read_edits(file);
        }
        match (&self.path, &self.old, &self.new) {
            (Some(path), Some(old), Some(new)) => Ok(vec![Edit {
                path: path.clone(),
                old: old.clone(),
                new: new.clone(),
                count: self.count,
            }]),
            _ => Err(Error::invalid("an edit needs --old and --new")),
        }
    }

    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let report = client
            .edit_workspace(
                &self.which.id,
                EditFiles {
                    edits: self.edits()?,
                },
            )
            .await?;
        answer(json, &report, told);
        Ok(ExitCode::SUCCESS)
    }
}

fn read_edits(file: &Path) -> Result<Vec<Edit>> {
    let text = given::read(file, &limits::REQUEST_BODY_BYTES)?;
    serde_json::from_str(&text)
        .map_err(|error| Error::invalid(format!("{}: {error}", file.display())))
}

fn told(report: &PatchReport) -> String {
    if !report.changed {
        return "nothing changed\n".to_string();
    }
    let line = |file: &motu_core::workspace::PatchedFile| {
        let colour = show::status(&file.status);
        let from = match &file.from {
            Some(from) => format!("{} -> ", show::safe(from)),
            None => String::new(),
        };
        let (status, path) = (show::safe(&file.status), show::safe(&file.path));
        format!("{colour}{status:10}{colour:#}{from}{path}\n")
    };
    report.entries.iter().map(line).collect()
}
