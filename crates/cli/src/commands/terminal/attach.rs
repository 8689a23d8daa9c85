//! `motu terminal attach`: a person in a session, or watching it.

use super::Which;
use super::typing::quoted;
use crate::commands::shape::word;
use crate::detach::{Attached, Keys, attach, watch};
use crate::{live, show, terminal};
use motu_api::Client;
use motu_core::Terminals;
use motu_core::{Error, Result};
use std::io::IsTerminal;
use std::process::ExitCode;

/// Attach this terminal to a session, to watch it or to take over
///
/// Leaving with the detach keys does not end the session; when its shell ends, the
/// exit code is passed on. The size of the session follows that of this terminal. With
/// --watch nothing is typed and the size stays as it is; Ctrl-C leaves too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu terminal attach build
  motu terminal attach build --watch
  motu terminal attach build --detach-keys ctrl-]")]
pub struct Args {
    #[command(flatten)]
    which: Which,

    /// Only watch
    #[arg(long)]
    watch: bool,

    /// Keys that leave the session running: ctrl-X, or characters, separated by commas
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q", value_parser = word::<Keys>)]
    detach_keys: Keys,
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let id = &self.which.id;
        let programs = "programs use `motu terminal run`, `send` and `screen`";
        if json {
            return Err(Error::unsupported("there is no JSON of a live terminal").hint(programs));
        }
        if self.watch && !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
            return live::watch(client.attach_terminal(id, None.into()).await?).await;
        }
        let size = terminal::size()
            .map_err(|_| Error::invalid("attach needs a terminal").hint(programs))?;
        let seat = (!self.watch).then_some(size);
        let session = client.attach_terminal(id, seat.into()).await?;
        let outcome = match self.watch {
            true => watch(session, self.detach_keys).await?,
            false => attach(session, self.detach_keys).await?,
        };
        match outcome {
            Attached::Ended(_) if self.watch => {
                show::note(&format!("{} has ended\n", quoted(id)));
                Ok(ExitCode::SUCCESS)
            }
            Attached::Ended(exited) => Ok(live::exit_code(exited.exit_code, exited.timed_out)),
            Attached::Left => {
                let how = if self.watch { " --watch" } else { "" };
                show::note(&format!(
                    "left {0}; `motu terminal attach {0}{how}` comes back\n",
                    quoted(id)
                ));
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
