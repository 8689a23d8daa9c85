//! `motu exec`: one command in a sandbox that is there already.

use super::shape::CommandArgs;
use crate::context::Context;
use crate::live::{self, Live};
use crate::show;
use crate::show::answer;
use motu_core::{Error, Result, SandboxId, Service};
use std::process::ExitCode;

/// Run a command in a sandbox
///
/// Output appears as it comes and the exit code is the command's (128 + signal,
/// 124 after a timeout).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu exec sb-3f9k2m7qx0ab -- ls -l /workspace
  motu exec -t sb-3f9k2m7qx0ab -- bash
  motu exec -d --tag web sb-3f9k2m7qx0ab -- python3 -m http.server")]
pub struct Args {
    /// The sandbox
    #[arg(value_name = "ID", value_parser = SandboxId::parse)]
    id: SandboxId,

    #[command(flatten)]
    command: CommandArgs,

    /// Start it and leave it running; prints its pid
    #[arg(short, long, conflicts_with_all = ["tty", "stdin"])]
    detach: bool,

    /// A name to find the process again by
    #[arg(long, value_name = "NAME", help_heading = "Command")]
    tag: Option<String>,

    /// Print one JSON value with the output and how it ended
    #[arg(long, conflicts_with = "tty")]
    pub json: bool,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let mut request = self.command.request()?;
        request.tag = self.tag;
        if self.detach {
            // A process that is left running has no time limit unless one is given.
            request.no_timeout = request.program.timeout_seconds.is_none();
            let started = client.exec_background(&self.id, request).await?;
            answer(self.json, &started, |started| format!("{}\n", started.pid));
            return Ok(ExitCode::SUCCESS);
        }
        if self.json && !request.program.stdin {
            let result = client.exec(&self.id, request).await?;
            show::json(&result);
            return Ok(live::exit_code(result.exit_code, result.timed_out));
        }
        if self.json {
            return Err(
                Error::unsupported("--json and --stdin do not go together here")
                    .hint("leave one of them out, or use `motu run`"),
            );
        }
        let live = Live {
            stdin: self.command.stdin(),
            tty: self.command.tty(),
            back: Some(self.id.clone()),
        };
        live::follow(client.exec_stream(&self.id, request).await?, live).await
    }
}
