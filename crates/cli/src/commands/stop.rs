//! `motu stop` and `motu start`: a sandbox without its machine, and with one again.

use crate::context::Context;
use crate::failure::Reader;
use crate::show::answer;
use crate::waiting;
use motu_core::sandbox::Sandbox;
use motu_core::{Result, SandboxId, Service};
use std::process::ExitCode;

/// End the machine of a kept sandbox
///
/// Its disks stay for `motu start`; what ran in it ends. Only sandboxes that were
/// created with --keep can be stopped; workspaces have `motu workspace stop`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The sandbox
    #[arg(value_name = "ID", value_parser = SandboxId::parse)]
    id: SandboxId,

    /// Print everything that is known of it as JSON
    #[arg(long)]
    pub json: bool,
}

/// Start a stopped sandbox with the disks it had
#[derive(Debug, clap::Args)]
pub struct StartArgs {
    /// The sandbox
    #[arg(value_name = "ID", value_parser = SandboxId::parse)]
    id: SandboxId,

    /// Print everything that is known of it as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let work = client.stop_sandbox(&self.id);
        let sandbox = waiting::told("stopping", Reader::of(self.json), work).await?;
        answer(self.json, &sandbox, text);
        Ok(ExitCode::SUCCESS)
    }
}

impl StartArgs {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let work = client.start_sandbox(&self.id);
        let sandbox = waiting::machine("starting", Reader::of(self.json), work).await?;
        answer(self.json, &sandbox, text);
        Ok(ExitCode::SUCCESS)
    }
}

fn text(sandbox: &Sandbox) -> String {
    format!("{} is {}\n", sandbox.sandbox_id, sandbox.state)
}
