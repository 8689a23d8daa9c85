//! `motu run`: one command in a sandbox of its own.

use super::create;
use super::shape::{CommandArgs, SandboxArgs, word};
use super::volume::{self, Volume};
use crate::context::Context;
use crate::failure::Reader;
use crate::live::{self, Live};
use crate::{pull, show, waiting};
use motu_api::Client;
use motu_core::collect::Collector;
use motu_core::exec::{ExecSession, RunRequest};
use motu_core::{Error, Result, Service};
use std::process::ExitCode;

/// Run one command in a sandbox of its own
///
/// Makes a sandbox, runs the command in it and throws the sandbox away. Output
/// appears as it comes and the exit code is the command's (128 + signal, 124
/// after a timeout). An environment that is not installed is pulled first. Without a
/// command, an image runs its own entrypoint and command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu run debian:12 -- uname -a
  motu run debian:12 --mem-mib 256 --timeout-seconds 5 -- python3 script.py
  echo 'print(6 * 7)' | motu run -i debian:12 -- python3
  motu run -t debian:12 -- bash
  motu run -v .:/src --workdir /src debian:12 -- make
  motu run --json debian:12 -- sh -c 'echo out; echo err >&2; exit 3'")]
pub struct Args {
    #[command(flatten)]
    sandbox: SandboxArgs,

    #[command(flatten)]
    command: CommandArgs,

    /// Copy a directory in, and after the command copy back what it changed there; with :ro show
    /// it as it is, read-only, where the runtime can. May be given several times
    ///
    /// Files that are new or were changed in the sandbox come back, and what was only changed here
    /// meanwhile stays. Nothing is ever deleted here. Symbolic links, devices and directories here
    /// are never replaced: that is an error, and nothing of the volume is copied back.
    ///
    /// With :ro nothing is copied back. Where the runtime is `container` and the daemon is root, the
    /// directory is bound: the sandbox shows what is here, also what changes here meanwhile, and
    /// cannot write there. Its owner's files belong to root inside, all others to nobody. Elsewhere,
    /// and where a file system is mounted in the directory or cannot be bound, a copy goes in, which
    /// can be written inside; a note on standard error says so, with the reason.
    #[arg(short, long = "volume", value_name = "HOST:GUEST[:ro]", value_parser = word::<Volume>)]
    volumes: Vec<Volume>,

    /// Print one JSON value with the output and how it ended
    #[arg(long, conflicts_with = "tty")]
    pub json: bool,

    /// Show the steps that making the sandbox takes, and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let sandbox = self.sandbox.request()?;
        if self.dry_run {
            show::print(&client.plan(sandbox).await?);
            return Ok(ExitCode::SUCCESS);
        }
        let mut exec = self.command.request()?;
        let reader = Reader::of(self.json);
        if exec.program.command.is_empty() {
            let environment = match &sandbox.template {
                Some(name) => client.get_template(name).await?.start().to_string(),
                None => sandbox.environment.clone(),
            };
            exec.program.command = own_command(&client, &environment, reader).await?;
        }
        let live = Live {
            stdin: self.command.stdin(),
            tty: self.command.tty(),
            ..Live::default()
        };
        if !self.volumes.is_empty() {
            return with_volumes(
                &client,
                RunRequest { sandbox, exec },
                (&self.volumes, live),
                reader,
            )
            .await;
        }
        let request = RunRequest { sandbox, exec };
        let session = start(&client, request, reader).await?;
        shown(session, live, Collector::new(None)?, reader).await
    }
}

/// Shows a session to its end.
async fn shown(
    session: ExecSession,
    live: Live,
    collector: Collector,
    reader: Reader,
) -> Result<ExitCode> {
    match reader {
        Reader::Person => live::follow(session, live).await,
        Reader::Program => {
            let result = live::collect(session, live, collector).await?.finish()?;
            show::json(&result);
            Ok(live::exit_code(result.exit_code, result.timed_out))
        }
    }
}

/// Runs a command beside directories of this host: its sandbox is made first and thrown away last.
async fn with_volumes(
    client: &Client,
    request: RunRequest,
    (volumes, live): (&[Volume], Live),
    reader: Reader,
) -> Result<ExitCode> {
    for volume in volumes {
        volume.check()?;
    }
    let sandbox = create::make(client, request.sandbox, reader).await?;
    show::warn_if_open(&sandbox.runtime, sandbox.isolation);
    let id = sandbox.sandbox_id.clone();
    let begun = async {
        let mounted = volume::send(client, &id, volumes, reader).await?;
        let session = client.exec_stream(&id, request.exec).await?;
        Ok((mounted, session, Collector::new(None)?.within(sandbox)))
    };
    let (mounted, session, collector) = match begun.await {
        Ok(begun) => begun,
        Err(error) => {
            volume::drop_sandbox(client, &id).await;
            return Err(error);
        }
    };
    // Changes are copied back even if the output could not be shown.
    let code = shown(session, live, collector, reader).await;
    // If copying back fails, the files are still in the sandbox.
    volume::fetch(client, &id, mounted, reader).await?;
    volume::drop_sandbox(client, &id).await;
    code
}

/// What an image runs when nothing else is asked for.
async fn own_command(client: &Client, name: &str, reader: Reader) -> Result<Vec<String>> {
    let environment = match client.inspect_environment(name).await {
        Err(error) if pull::would_help(&error) => pull::pull(client, name, reader).await?,
        outcome => outcome?,
    };
    let command = [environment.entrypoint, environment.cmd].concat();
    match command.is_empty() {
        false => Ok(command),
        true => Err(Error::invalid(format!(
            "no command is given, and {name} has none of its own"
        ))
        .hint("put it after `--`")),
    }
}

/// Starts a one-shot, after pulling its environment if that is all that is missing.
async fn start(client: &Client, request: RunRequest, reader: Reader) -> Result<ExecSession> {
    let run = |request| waiting::machine("making a sandbox", reader, client.run(request));
    match run(request.clone()).await {
        Err(error) if pull::would_help(&error) => {
            pull::pull(client, &request.sandbox.environment, reader).await?;
            run(request).await
        }
        outcome => outcome,
    }
}
