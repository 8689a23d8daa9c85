//! `motu workspace attach`: a person in a shell of a workspace.

use super::Which;
use crate::commands::shape::word;
use crate::detach::{Attached, Keys, attach};
use crate::{live, show, terminal};
use motu_api::Client;
use motu_core::workspace::{OpenShell, SecretEnv};
use motu_core::{Error, Result, Terminals};
use std::process::ExitCode;

/// Attach this terminal to a shell of a workspace
///
/// Opens a shell if none is named. Leaving with the detach keys does not end the
/// shell; when the shell itself ends, its exit code is passed on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace attach ws-3f9k2m7qx0ab                   A new shell
  motu workspace attach ws-3f9k2m7qx0ab SHELL             One of `motu workspace shell list`
  motu workspace attach ws-3f9k2m7qx0ab --detach-keys ctrl-]")]
pub struct Args {
    #[command(flatten)]
    which: Which,

    /// The shell [default: a new one]
    #[arg(value_name = "SHELL")]
    shell: Option<String>,

    /// Keys that leave the shell running: ctrl-X, or characters, separated by commas
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q", value_parser = word::<Keys>)]
    detach_keys: Keys,

    /// The directory a new shell starts in [default: /workspace]
    #[arg(long, alias = "workdir", value_name = "DIR", conflicts_with = "shell")]
    cwd: Option<String>,

    /// The user a new shell runs as [default: that of the environment]
    #[arg(long, value_name = "USER", conflicts_with = "shell")]
    user: Option<String>,

    /// Give a new shell a secret of the workspace as a variable
    #[arg(long, value_name = "NAME[=ENV]", conflicts_with = "shell")]
    secret_env: Vec<SecretEnv>,
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        if json {
            return Err(Error::unsupported("there is no JSON of a live terminal")
                .hint("programs use `motu workspace shell`"));
        }
        let size = terminal::size().map_err(|_| {
            Error::invalid("attach needs a terminal").hint("programs use `motu workspace shell`")
        })?;
        let id = &self.which.id;
        let shell = match self.shell {
            Some(shell) => shell,
            None => {
                let request = OpenShell {
                    cwd: self.cwd,
                    cols: Some(size.cols),
                    rows: Some(size.rows),
                    user: self.user,
                    secret_env: self.secret_env,
                    ..OpenShell::default()
                };
                client.open_shell(id, request).await?.shell_id
            }
        };
        let session = client.attach_shell(id, &shell, size.into()).await?;
        match attach(session, self.detach_keys).await? {
            Attached::Ended(exited) => Ok(live::exit_code(exited.exit_code, exited.timed_out)),
            Attached::Left => {
                show::note(&format!(
                    "left {0}; `motu workspace attach {id} {0}` comes back\n",
                    show::safe(&shell)
                ));
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
