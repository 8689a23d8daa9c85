//! `motu pause` and `motu resume`: stop and start the clock of a sandbox.

use crate::context::Context;
use crate::show::answer;
use motu_core::sandbox::Sandbox;
use motu_core::{Result, SandboxId, Service};
use std::process::ExitCode;

/// Stop the clock of a sandbox
///
/// Its processes keep their memory and get no CPU time until `motu resume`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The sandbox
    #[arg(value_name = "ID", value_parser = SandboxId::parse)]
    id: SandboxId,

    /// Print everything that is known of it as JSON
    #[arg(long)]
    pub json: bool,
}

/// Let a paused sandbox go on
#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    /// The sandbox
    #[arg(value_name = "ID", value_parser = SandboxId::parse)]
    id: SandboxId,

    /// Print everything that is known of it as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let sandbox = context.client().pause_sandbox(&self.id).await?;
        answer(self.json, &sandbox, text);
        Ok(ExitCode::SUCCESS)
    }
}

impl ResumeArgs {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let sandbox = context.client().resume_sandbox(&self.id).await?;
        answer(self.json, &sandbox, text);
        Ok(ExitCode::SUCCESS)
    }
}

fn text(sandbox: &Sandbox) -> String {
    format!("{} is {}\n", sandbox.sandbox_id, sandbox.state)
}
