//! `motu terminal`: sessions on a terminal that know what they wait for.

mod attach;
mod given;
mod life;
mod looking;
mod record;
mod replay;
mod typing;

use crate::context::Context;
use motu_core::Result;
use motu_core::terminal::TerminalId;
use std::process::ExitCode;

/// Drive, watch and replay terminal sessions
///
/// A session is a shell on a terminal in a sandbox. It has a name of your choice,
/// lives in the daemon, outlives every command below, and knows whether it is busy or
/// what it waits for: a command, a statement, a password, a yes or no. A session
/// without a sandbox of its own shares the workspace `terminals`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu terminal open build
  motu terminal run build 'cd /workspace && make test'
  motu terminal attach build --watch
  motu terminal screen build --format png -o build.png
  motu terminal replay build --speed 4 --max-idle 1s
  motu terminal terminate build")]
pub struct Args {
    /// Print one JSON value instead of text for people
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(life::ListArgs),
    Open(life::OpenArgs),
    Status(life::StatusArgs),
    Configure(life::ConfigureArgs),
    Resize(life::ResizeArgs),
    #[command(visible_alias = "kill")]
    Terminate(life::TerminateArgs),
    Run(typing::RunArgs),
    Send(typing::SendArgs),
    Password(typing::PasswordArgs),
    Signal(typing::SignalArgs),
    Poll(typing::PollArgs),
    Expect(typing::ExpectArgs),
    Screen(looking::ScreenArgs),
    Scrollback(looking::ScrollbackArgs),
    Transcript(looking::TranscriptArgs),
    Attach(attach::Args),
    Record(record::Args),
    Replay(replay::Args),
}

/// The session a command is about.
#[derive(Debug, clap::Args)]
struct Which {
    /// The session
    #[arg(value_name = "ID", value_parser = given::session)]
    id: TerminalId,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = &context.client();
        let json = self.json;
        match self.command {
            Command::List(args) => args.run(client, json).await,
            Command::Open(args) => args.run(client, json).await,
            Command::Status(args) => args.run(client, json).await,
            Command::Configure(args) => args.run(client, json).await,
            Command::Resize(args) => args.run(client, json).await,
            Command::Terminate(args) => args.run(client, json).await,
            Command::Run(args) => args.run(client, json).await,
            Command::Send(args) => args.run(client, json).await,
            Command::Password(args) => args.run(client, json).await,
            Command::Signal(args) => args.run(client, json).await,
            Command::Poll(args) => args.run(client, json).await,
            Command::Expect(args) => args.run(client, json).await,
            Command::Screen(args) => args.run(client, json).await,
            Command::Scrollback(args) => args.run(client, json).await,
            Command::Transcript(args) => args.run(client, json).await,
            Command::Attach(args) => args.run(client, json).await,
            Command::Record(args) => args.run(client, json).await,
            Command::Replay(args) => args.run(client, json).await,
        }
    }
}
