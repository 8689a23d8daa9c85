//! `motu mcp`: the verbs of motu as tools for a model.

mod clients;
mod config;
mod edit;
mod names;
mod serve;

use crate::context::Context;
use motu_core::Result;
use std::process::ExitCode;

/// Give a model tools: the Model Context Protocol
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Serve(serve::Args),
    Config(config::Args),
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        match self.command {
            Command::Serve(args) => args.run(context).await,
            Command::Config(args) => args.run(context),
        }
    }
}
