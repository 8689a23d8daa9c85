//! `motu commit`: an environment from what is in a sandbox.

use super::shape::word;
use crate::context::Context;
use crate::failure::Reader;
use crate::show::answer;
use crate::waiting;
use motu_core::commit::{AfterCommit, CommitSandbox};
use motu_core::{Result, SandboxId, Service};
use std::process::ExitCode;

/// Make an environment of what is in a sandbox
///
/// Prints the name of the environment; new sandboxes and templates start from it as from any other.
/// The sandbox must have been created with --keep. Its machine is ended in order first, so that
/// everything is on its disks, and made again afterwards: files stay, programs do not.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  id=$(motu create debian:12 --keep)
  motu exec $id -- sh -c 'echo ready > /etc/motd'
  motu commit $id prepared:1 --then destroy
  motu run prepared:1 -- cat /etc/motd")]
pub struct Args {
    /// The sandbox
    #[arg(value_name = "ID", value_parser = SandboxId::parse)]
    id: SandboxId,

    /// What the environment will be called
    #[arg(value_name = "NAME")]
    name: String,

    /// What becomes of the sandbox: start (again, if it ran), stop or destroy [default: start]
    #[arg(long, value_name = "WHAT", value_parser = word::<AfterCommit>)]
    then: Option<AfterCommit>,

    /// Print everything that is known of the environment as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let ask = CommitSandbox {
            name: self.name,
            then: self.then.unwrap_or_default(),
        };
        let work = client.commit_sandbox(&self.id, ask);
        let made = waiting::told("making an environment", Reader::of(self.json), work).await?;
        answer(self.json, &made, |made| format!("{}\n", made.name));
        Ok(ExitCode::SUCCESS)
    }
}
