//! `motu serve`: the daemon.

use crate::cli::Context;
use crate::serving::{self, Origin};
use crate::show;
use motu_core::Result;
use std::process::ExitCode;

/// Serve the API on a Unix socket in the state directory
///
/// Commands start a daemon by themselves when they need one, and it leaves when
/// it has had nothing to do for a while; this runs one that stays. Machines
/// outlive it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu serve
  motu serve --stop
  curl --unix-socket /var/lib/motu/daemon.sock http://motu/v1/version")]
pub struct Args {
    /// Stop the daemon that runs; machines go on
    #[arg(long)]
    stop: bool,

    /// Started by a command that needed a daemon
    #[arg(long, hide = true, conflicts_with = "stop")]
    on_demand: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<ExitCode> {
        if self.stop {
            show::print(match serving::stop(&context.place)? {
                true => "stopped\n",
                false => "no daemon is running\n",
            });
            return Ok(ExitCode::SUCCESS);
        }
        let origin = match self.on_demand {
            true => Origin::OnDemand,
            false => Origin::Foreground,
        };
        serving::run(&context.place, origin)?;
        Ok(ExitCode::SUCCESS)
    }
}
