//! `motu workspace disk`: the root of a stopped workspace.

use super::Which;
use super::file::{ListArgs, ReadArgs, told_list, told_text};
use crate::commands::given;
use crate::failure::Reader;
use crate::show::answer;
use crate::{show, waiting};
use motu_api::Client;
use motu_core::Result;
use motu_core::workspace::{DiskExported, ExportDisk, ListPaths, ReadText, Workspaces};
use std::path::PathBuf;
use std::process::ExitCode;

/// Look at the disk of a stopped workspace without starting it
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Export(ExportArgs),
    /// List what is at a path of the disk
    List(ListArgs),
    /// Print a text file of the disk
    Read(ReadArgs),
}

/// Write the whole disk to a file here, as a raw ext4 file system
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace stop ws-3f9k2m7qx0ab
  motu workspace disk export ws-3f9k2m7qx0ab --output disk.ext4
  mount -o loop,ro disk.ext4 /mnt")]
struct ExportArgs {
    #[command(flatten)]
    which: Which,

    /// Where the file goes
    #[arg(long, value_name = "HOST_PATH")]
    output: PathBuf,

    #[command(flatten)]
    options: given::Export,
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        match self.command {
            Command::Export(args) => {
                let output = given::host_path(&args.output)?;
                let exported = client.export_workspace_disk(
                    &args.which.id,
                    ExportDisk::new(&output, args.options.into()),
                );
                let reader = Reader::of(json);
                let exported = waiting::told("writing the disk", reader, exported).await?;
                answer(json, &exported, told);
            }
            Command::List(args) => {
                let list = client.list_workspace_disk(
                    &args.which.id,
                    ListPaths::new(&args.path, args.recursive),
                );
                told_list(json, &list.await?);
            }
            Command::Read(args) => {
                let text = client
                    .read_workspace_disk(&args.which.id, ReadText::new(&args.path, args.max_bytes));
                told_text(json, &text.await?);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn told(exported: &DiskExported) -> String {
    format!(
        "{}: {}, {}\n",
        show::safe(&exported.output_path),
        show::safe(&exported.disk_format),
        show::bytes(exported.bytes_written)
    )
}
