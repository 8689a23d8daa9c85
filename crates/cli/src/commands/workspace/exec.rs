//! `motu workspace exec` and `logs`: commands, and what they did.

use super::Which;
use crate::commands::shape::Variables;
use crate::live::{self, Live};
use crate::show;
use crate::show::answer;
use jiff::Timestamp;
use motu_api::Client;
use motu_core::workspace::{CommandLog, CommandRecord, SecretEnv, WorkspaceExec, Workspaces};
use motu_core::{Error, Program, Result};
use std::process::ExitCode;

/// Run a command in a workspace, in /workspace
///
/// Output appears as it comes and the exit code is the command's (128 + signal, 124
/// after a timeout). It ends when this ends, and is remembered in the history.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace exec ws-3f9k2m7qx0ab -- make test
  motu workspace exec ws-3f9k2m7qx0ab --secret-env API_KEY=TOKEN -- ./deploy
  git diff | motu workspace exec -i ws-3f9k2m7qx0ab -- git apply")]
pub struct Args {
    #[command(flatten)]
    which: Which,

    /// Stop the command and all it started after this long [default: 30]
    #[arg(long, value_name = "SECONDS")]
    timeout_seconds: Option<u64>,

    /// Give it a secret of the workspace as a variable; may be given several times
    #[arg(long, value_name = "NAME[=ENV]")]
    secret_env: Vec<SecretEnv>,

    #[command(flatten)]
    variables: Variables,

    /// The directory it starts in [default: /workspace]
    #[arg(long, alias = "workdir", value_name = "DIR")]
    cwd: Option<String>,

    /// The user it runs as [default: that of the environment]
    #[arg(long, value_name = "USER")]
    user: Option<String>,

    /// Save /workspace first, for `motu workspace undo` [default: as it was created]
    #[arg(long, conflicts_with = "no_checkpoint")]
    checkpoint: bool,

    /// Do not save /workspace first
    #[arg(long)]
    no_checkpoint: bool,

    /// Pass standard input on
    #[arg(short = 'i', long)]
    stdin: bool,

    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND", required = true)]
    command: Vec<String>,
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        if json && self.stdin {
            return Err(
                Error::unsupported("--json and --stdin do not go together here")
                    .hint("leave one of them out"),
            );
        }
        let request = WorkspaceExec {
            program: Program {
                command: self.command,
                workdir: self.cwd,
                user: self.user,
                env: self.variables.read()?,
                timeout_seconds: self.timeout_seconds,
                stdin: self.stdin,
                ..Program::default()
            },
            secret_env: self.secret_env,
            checkpoint: match (self.checkpoint, self.no_checkpoint) {
                (false, false) => None,
                (wanted, _) => Some(wanted),
            },
        };
        if json {
            let result = client.exec_workspace(&self.which.id, request).await?;
            show::json(&result);
            return Ok(live::exit_code(result.exit_code, result.timed_out));
        }
        let live = Live {
            stdin: self.stdin,
            tty: false,
            back: Some(self.which.id.clone()),
        };
        let session = client.exec_workspace_stream(&self.which.id, request);
        live::follow(session.await?, live).await
    }
}

/// Show the commands a workspace has run, oldest first
///
/// The history begins with the workspace, or with its last reset. Output is cut, and
/// secrets are taken out.
#[derive(Debug, clap::Args)]
pub struct LogsArgs {
    #[command(flatten)]
    which: Which,
}

impl LogsArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        answer(json, &client.logs_workspace(&self.which.id).await?, log);
        Ok(ExitCode::SUCCESS)
    }
}

/// The commands of a workspace, and what they said.
pub fn log(log: &CommandLog) -> String {
    if log.entries.is_empty() {
        return "no commands yet\n".to_string();
    }
    let now = Timestamp::now();
    let records = log.entries.iter();
    records.map(|entry| record(entry, now)).collect()
}

fn record(record: &CommandRecord, now: Timestamp) -> String {
    let saved = match record.checkpoint {
        Some(_) => ", with a checkpoint",
        None => "",
    };
    let (bold, dim) = (show::bold(), show::dim());
    let end = match record.exit_code {
        Some(0) => String::new(),
        Some(code) => format!(" {code}"),
        None => String::new(),
    };
    let colour = show::style(match record.exit_code {
        Some(0) => show::GREEN,
        Some(_) => show::RED,
        None => show::YELLOW,
    });
    let mut text = format!(
        "{bold}#{} $ {}{bold:#}\n{colour}{}{end}{colour:#}{dim} after {} ms, {} in {}{saved}{dim:#}\n",
        record.sequence,
        show::safe(&show::words(&record.command)),
        show::safe(&record.status),
        record.duration_ms,
        show::ago(record.started_at, now),
        show::safe(&record.workdir),
    );
    for output in [&record.stdout, &record.stderr] {
        if !output.is_empty() {
            text.push_str(&show::safe(output));
            if !output.ends_with('\n') {
                text.push('\n');
            }
        }
    }
    if record.truncated {
        text.push_str(&format!("{dim}(there was more){dim:#}\n"));
    }
    text
}
