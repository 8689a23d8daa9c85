//! `motu rm`: destroy sandboxes.

use crate::context::Context;
use crate::show;
use motu_core::lists::SandboxList;
use motu_core::{Error, Result, SandboxId, Service};
use std::process::ExitCode;

/// Destroy sandboxes and everything in them
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The sandboxes
    #[arg(value_name = "ID", required = true, value_parser = SandboxId::parse)]
    ids: Vec<SandboxId>,

    /// Print what they were as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// Goes on after a failure, so that one wrong id does not keep the others alive.
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let mut destroyed = Vec::new();
        let mut first: Option<Error> = None;
        for id in &self.ids {
            match client.destroy_sandbox(id).await {
                Ok(sandbox) if self.json => destroyed.push(sandbox),
                Ok(_) => show::print(&format!("{id}\n")),
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        match first {
            Some(error) => Err(error),
            None => {
                if self.json {
                    show::json(&SandboxList::new(destroyed));
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
