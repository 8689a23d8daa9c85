//! `motu workspace file`: text files under /workspace, without a shell.

use super::Which;
use crate::commands::given;
use crate::show;
use crate::show::answer;
use jiff::Timestamp;
use motu_api::Client;
use motu_core::files::FileType;
use motu_core::workspace::{
    FileText, FileWritten, ListPaths, PathInfo, PathList, ReadText, WORKSPACE, Workspaces,
    WriteText,
};
use motu_core::{Result, limits};
use std::path::PathBuf;
use std::process::ExitCode;

/// List, read and write files under /workspace
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List what is at a path, without what is in the files
    List(ListArgs),
    /// Print a text file
    Read(ReadArgs),
    Write(WriteArgs),
}

#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub which: Which,

    /// A file or a directory
    #[arg(value_name = "PATH", default_value = WORKSPACE)]
    pub path: String,

    /// Also what is in the directories below
    #[arg(long)]
    pub recursive: bool,
}

#[derive(Debug, clap::Args)]
pub struct ReadArgs {
    #[command(flatten)]
    pub which: Which,

    /// The file
    #[arg(value_name = "PATH")]
    pub path: String,

    /// Print at most so many bytes [default: 65536]
    #[arg(long, value_name = "N")]
    pub max_bytes: Option<u64>,
}

/// Create or replace a text file, and the directories above it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace file write ws-3f9k2m7qx0ab /workspace/notes.txt --text 'remember the milk'
  motu workspace file write ws-3f9k2m7qx0ab /workspace/main.py --text-file main.py
  curl -s example.org | motu workspace file write ws-3f9k2m7qx0ab page.html --text-file -")]
struct WriteArgs {
    #[command(flatten)]
    which: Which,

    /// The file
    #[arg(value_name = "PATH")]
    path: String,

    /// Its new text
    #[arg(
        long,
        value_name = "TEXT",
        required_unless_present = "text_file",
        allow_hyphen_values = true
    )]
    text: Option<String>,

    /// A file here with its new text, or - for standard input
    #[arg(long, value_name = "PATH", conflicts_with = "text")]
    text_file: Option<PathBuf>,
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        match self.command {
            Command::List(args) => {
                let ListArgs {
                    which,
                    path,
                    recursive,
                } = args;
                let list = client.list_workspace_files(&which.id, ListPaths::new(&path, recursive));
                told_list(json, &list.await?);
            }
            Command::Read(args) => {
                let text = client
                    .read_workspace_file(&args.which.id, ReadText::new(&args.path, args.max_bytes));
                told_text(json, &text.await?);
            }
            Command::Write(args) => {
                let file = args.text_file.as_deref();
                let write = WriteText {
                    path: args.path,
                    text: given::text(args.text, file, &limits::FILE_WRITE_BYTES)?,
                };
                let written = client.write_workspace_file(&args.which.id, write).await?;
                answer(json, &written, told_written);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn told_written(written: &FileWritten) -> String {
    format!(
        "{}: {} written\n",
        show::safe(&written.path),
        show::bytes(written.bytes_written)
    )
}

/// Shows a listing.
pub fn told_list(json: bool, list: &PathList) {
    answer(json, list, |list| {
        let now = Timestamp::now();
        let rows: Vec<Vec<String>> = list.entries.iter().map(|entry| row(entry, now)).collect();
        show::table(&["MODE", "SIZE", "MODIFIED", "PATH"], &rows)
    });
    if !json && list.truncated {
        show::note("there are more entries than one answer holds (list_entries_max)\n");
    }
}

fn row(entry: &PathInfo, now: Timestamp) -> Vec<String> {
    let kind = match entry.kind {
        FileType::File => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Other => '?',
    };
    // A newline or tab in a name must not break the table.
    let one_line = |text: &str| text.replace(['\n', '\t'], "\u{fffd}");
    let path = one_line(&entry.path);
    vec![
        format!("{kind}{:04o}", entry.mode & 0o7777),
        show::bytes(entry.size_bytes),
        show::ago(entry.modified_at, now),
        match &entry.link_target {
            Some(target) => format!("{path} -> {}", one_line(target)),
            None => path,
        },
    ]
}

/// Prints a text file: exactly to a program, without control characters to a terminal.
pub fn told_text(json: bool, text: &FileText) {
    if json {
        show::json(text);
        return;
    }
    show::foreign(&text.content);
    if text.truncated {
        show::note(&format!(
            "cut after {} of {} bytes (--max-bytes)\n",
            text.content.len(),
            text.size_bytes
        ));
    }
}
