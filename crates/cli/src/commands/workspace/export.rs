//! `motu workspace export`: out of /workspace, to this host.

use super::Which;
use crate::commands::given;
use crate::failure::Reader;
use crate::show::answer;
use crate::{show, waiting};
use motu_api::Client;
use motu_core::Result;
use motu_core::workspace::{ExportFiles, Exported, Workspaces};
use std::path::PathBuf;
use std::process::ExitCode;

/// Copy a file or a directory out of /workspace to this host
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace export ws-3f9k2m7qx0ab /workspace/report.pdf --output report.pdf
  motu workspace export ws-3f9k2m7qx0ab /workspace --output ./result")]
pub struct Args {
    #[command(flatten)]
    which: Which,

    /// A file or a directory at or below /workspace
    #[arg(value_name = "PATH")]
    path: String,

    /// Where the copy goes: a new name, or an empty directory for a directory
    #[arg(long, value_name = "HOST_PATH")]
    output: PathBuf,

    #[command(flatten)]
    options: given::Export,
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let output = given::host_path(&self.output)?;
        let exported = client.export_workspace(
            &self.which.id,
            ExportFiles::new(&self.path, &output, self.options.into()),
        );
        let exported = waiting::told("copying", Reader::of(json), exported).await?;
        answer(json, &exported, exported_text);
        Ok(ExitCode::SUCCESS)
    }
}

fn exported_text(exported: &Exported) -> String {
    format!(
        "{} is now {}: {}, {}\n",
        show::safe(&exported.workspace_path),
        show::safe(&exported.output_path),
        show::entries(exported.entry_count),
        show::bytes(exported.bytes_written)
    )
}
