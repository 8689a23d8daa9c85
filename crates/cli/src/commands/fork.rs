//! `motu fork`: live copies of a sandbox.

use crate::context::Context;
use crate::failure::Reader;
use crate::show::answer;
use crate::waiting;
use motu_core::sandbox::Fork;
use motu_core::{Result, SandboxId, Service};
use std::process::ExitCode;

/// Copy a running sandbox, memory and disks
///
/// Prints the ids of the copies, one a line. What runs in the sandbox goes on in it
/// and in every copy; each copy has an identity, a clock and randomness of its own.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu fork sb-3f9k2m7qx0ab
  for id in $(motu fork sb-3f9k2m7qx0ab -n 5); do motu exec $id -- ./try; done")]
pub struct Args {
    /// The sandbox, running or paused
    #[arg(value_name = "ID", value_parser = SandboxId::parse)]
    id: SandboxId,

    /// How many copies
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 1)]
    count: u64,

    /// Print everything that is known of the copies as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let work = client.fork_sandbox(&self.id, Fork { count: self.count });
        let copies = waiting::told("copying", Reader::of(self.json), work).await?;
        answer(self.json, &copies, |copies| {
            let lines = copies.iter().map(|copy| format!("{}\n", copy.sandbox_id));
            lines.collect()
        });
        Ok(ExitCode::SUCCESS)
    }
}
