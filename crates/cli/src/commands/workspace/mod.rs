//! `motu workspace`: sandboxes that are kept.

mod attach;
mod create;
mod diff;
mod disk;
pub mod exec;
mod export;
mod file;
mod life;
mod patch;
mod service;
mod shell;
mod snapshot;
mod sync;

use crate::context::Context;
use motu_core::Result;
use motu_core::workspace::WorkspaceId;
use std::process::ExitCode;

/// Manage workspaces: sandboxes that are kept
///
/// A workspace is a sandbox with /workspace, which begins as a copy of a directory
/// or an archive of yours (or empty) and is remembered as its baseline. Everything
/// since then can be seen (diff), saved (snapshot), thrown away (reset) and taken
/// out (export). Services, shells, secrets and a history of commands belong to it.
/// It lives until it is deleted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  id=$(motu workspace create debian:12 --seed-path . --id-only)
  motu workspace exec $id -- make test
  motu workspace diff $id
  motu workspace reset $id
  motu workspace delete $id")]
pub struct Args {
    /// Print one JSON value instead of text for people
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Create(create::Args),
    List(life::ListArgs),
    Status(life::StatusArgs),
    Update(life::UpdateArgs),
    Stop(life::StopArgs),
    Start(life::StartArgs),
    Reset(life::ResetArgs),
    Undo(life::UndoArgs),
    Fork(life::ForkArgs),
    Delete(life::DeleteArgs),
    Exec(exec::Args),
    Logs(exec::LogsArgs),
    Attach(attach::Args),
    Sync(sync::Args),
    File(file::Args),
    Export(export::Args),
    Patch(patch::Args),
    Edit(patch::EditArgs),
    Diff(diff::Args),
    Snapshot(snapshot::Args),
    Disk(disk::Args),
    Service(service::Args),
    Shell(shell::Args),
}

/// The workspace a command is about.
#[derive(Debug, clap::Args)]
struct Which {
    /// The workspace
    #[arg(value_name = "ID", value_parser = WorkspaceId::parse)]
    id: WorkspaceId,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = &context.client();
        let json = self.json;
        match self.command {
            Command::Create(args) => args.run(client, json).await,
            Command::List(args) => args.run(client, json).await,
            Command::Status(args) => args.run(client, json).await,
            Command::Update(args) => args.run(client, json).await,
            Command::Stop(args) => args.run(client, json).await,
            Command::Start(args) => args.run(client, json).await,
            Command::Reset(args) => args.run(client, json).await,
            Command::Undo(args) => args.run(client, json).await,
            Command::Fork(args) => args.run(client, json).await,
            Command::Delete(args) => args.run(client, json).await,
            Command::Exec(args) => args.run(client, json).await,
            Command::Logs(args) => args.run(client, json).await,
            Command::Attach(args) => args.run(client, json).await,
            Command::Sync(args) => args.run(client, json).await,
            Command::File(args) => args.run(client, json).await,
            Command::Export(args) => args.run(client, json).await,
            Command::Patch(args) => args.run(client, json).await,
            Command::Edit(args) => args.run(client, json).await,
            Command::Diff(args) => args.run(client, json).await,
            Command::Snapshot(args) => args.run(client, json).await,
            Command::Disk(args) => args.run(client, json).await,
            Command::Service(args) => args.run(client, json).await,
            Command::Shell(args) => args.run(client, json).await,
        }
    }
}
