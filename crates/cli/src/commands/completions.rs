//! `motu completions`: scripts for shells.

use crate::cli::Cli;
use crate::show;
use clap::CommandFactory;
use clap_complete::Shell;
use std::process::ExitCode;

/// Print a script that completes commands in a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu completions bash > /etc/bash_completion.d/motu
  motu completions zsh > ~/.zfunc/_motu
  motu completions fish > ~/.config/fish/completions/motu.fish")]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Args {
    pub fn run(self) -> ExitCode {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "motu", &mut script);
        show::exact(&String::from_utf8_lossy(&script));
        ExitCode::SUCCESS
    }
}
