//! `motu create`: a sandbox that stays.

use super::shape::{SandboxArgs, word};
use crate::context::Context;
use crate::failure::Reader;
use crate::show::answer;
use crate::{pull, show, waiting};
use motu_api::Client;
use motu_core::sandbox::{CreateSandbox, OnIdle, Sandbox};
use motu_core::{Result, SandboxId, Service};
use std::process::ExitCode;

/// Make a sandbox that stays
///
/// Prints its id. It lives until `motu rm` or its time to live; an environment
/// that is not installed is pulled first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu create debian:12
  motu create debian:12 --id build --mem-mib 4096 --ttl-seconds 3600
  motu create debian:12 --idle-seconds 300 --on-idle pause
  id=$(motu create debian:12); motu exec $id -- make; motu rm $id")]
pub struct Args {
    #[command(flatten)]
    sandbox: SandboxArgs,

    /// An id of your own choice [default: a new one]
    #[arg(long, value_name = "ID", value_parser = SandboxId::parse)]
    id: Option<SandboxId>,

    /// Keep its disks when its machine ends, for `motu stop` and `motu start`
    #[arg(long, help_heading = "Sandbox")]
    keep: bool,

    /// Destroy it when nobody has used it for this long [default: never]
    #[arg(long, value_name = "SECONDS", help_heading = "Sandbox")]
    idle_seconds: Option<u64>,

    /// What to do then instead: pause it, until somebody uses it again [destroy, pause]
    #[arg(long, value_name = "WHAT", help_heading = "Sandbox", requires = "idle_seconds", value_parser = word::<OnIdle>)]
    on_idle: Option<OnIdle>,

    /// Print everything that is known of it as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let mut request = self.sandbox.request()?;
        request.sandbox_id = self.id;
        request.idle_seconds = self.idle_seconds;
        request.on_idle = self.on_idle.unwrap_or_default();
        request.keep = self.keep;
        let sandbox = make(&client, request, Reader::of(self.json)).await?;
        show::warn_if_open(&sandbox.runtime, sandbox.isolation);
        answer(self.json, &sandbox, |sandbox| {
            format!("{}\n", sandbox.sandbox_id)
        });
        Ok(ExitCode::SUCCESS)
    }
}

/// Makes a sandbox, after pulling its environment if that is all that is missing.
pub async fn make(client: &Client, request: CreateSandbox, reader: Reader) -> Result<Sandbox> {
    let make =
        |request| waiting::machine("making a sandbox", reader, client.create_sandbox(request));
    match make(request.clone()).await {
        Err(error) if pull::would_help(&error) => {
            pull::pull(client, &request.environment, reader).await?;
            make(request).await
        }
        outcome => outcome,
    }
}
