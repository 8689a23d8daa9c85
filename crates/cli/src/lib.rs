//! The command line.
//!
//! ```text
//!   cli (arguments) ─► commands/* ─► connect ─► daemon's socket
//!                         │              └─ starts `motu serve` if nobody is there
//!                         ├─ live    a running command: output, input, signals
//!                         └─ show    tables, sizes, colours
//!   commands/serve ─► serving (lock, socket, idle) ─► daemon (the engine, put together)
//! ```
//!
//! One file per command. A command asks the service and shows what it says;
//! every command without a terminal of its own also speaks JSON.

mod cli;
mod commands;
mod complete;
mod connect;
mod context;
mod daemon;
mod detach;
pub mod docs;
mod ending;
mod failure;
mod guest;
mod home;
mod live;
mod output;
mod pull;
mod remote;
mod serving;
mod show;
mod table;
mod terminal;
pub mod verbs;
mod waiting;
pub mod wording;

use std::process::ExitCode;

/// Runs the command in the arguments of this process.
pub fn main() -> ExitCode {
    // Before anything else: a gateway forks while it has one thread, and needs little memory.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == motu_engine::GATEWAY)
    {
        return ExitCode::from(motu_egress::gateway::run() as u8);
    }
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == motu_engine::KEEPER) {
        motu_engine::keep(std::path::Path::new(&words.next().unwrap_or_default()));
        return ExitCode::SUCCESS;
    }
    let code = match cli::parse() {
        Ok(cli) => cli.run(),
        Err(code) => code,
    };
    match show::finish() {
        Some(lost) => failure::tell(lost, failure::Reader::Person),
        None => code,
    }
}
