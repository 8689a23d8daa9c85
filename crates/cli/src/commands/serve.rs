//! `motu serve`: the daemon.

use super::listening::{address, asked_to_leave, read_token};
use crate::context::Context;
use crate::serving::{self, Origin};
use crate::show;
use motu_core::{Result, limits};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// How long a sandbox of an orchestrator lives that says nothing: it has a clock of its own.
const PROVIDED_SECONDS: u64 = 86_400;

/// Serve the API on a Unix socket in the state directory
///
/// Commands start a daemon by themselves when they need one, and it leaves when
/// it has had nothing to do for a while; this runs one that stays. Machines
/// outlive it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu serve
  motu serve --stop
  motu serve --listen 7777
  motu serve --provider 7424 --key-file ~/.motu-provider-key
  curl --unix-socket /var/lib/motu/daemon.sock http://motu/v1/version")]
pub struct Args {
    /// Stop the daemon that runs; machines go on
    #[arg(long)]
    stop: bool,

    /// Serve REST and gRPC to callers with keys at this address too (`[listen]` in config.toml,
    /// docs/service.md)
    #[arg(
        long,
        value_name = "[ADDRESS:]PORT",
        value_parser = address,
        conflicts_with_all = ["stop", "on_demand", "provider"]
    )]
    listen: Option<SocketAddr>,

    /// Started by a command that needed a daemon
    #[arg(long, hide = true, conflicts_with = "stop")]
    on_demand: bool,

    /// Serve the custom provider protocol over HTTP instead, so that an orchestrator uses motu as a
    /// runtime; the daemon is found or started. Callers need a key; without --key-file one is made
    /// and shown once
    #[arg(
        long,
        value_name = "[ADDRESS:]PORT",
        value_parser = address,
        conflicts_with_all = ["stop", "on_demand"],
        help_heading = "Provider"
    )]
    provider: Option<SocketAddr>,

    /// Read the key from a file
    #[arg(
        long,
        value_name = "FILE",
        requires = "provider",
        help_heading = "Provider"
    )]
    key_file: Option<PathBuf>,

    /// The runtime of its sandboxes [default: auto]
    #[arg(
        long,
        value_name = "NAME",
        requires = "provider",
        help_heading = "Provider"
    )]
    runtime: Option<String>,

    /// The policy of their network [default: no network]
    #[arg(
        long,
        value_name = "NAME",
        requires = "provider",
        help_heading = "Provider"
    )]
    policy: Option<String>,

    /// How long a sandbox lives that is not destroyed before [default: 86400]
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "provider",
        help_heading = "Provider"
    )]
    ttl_seconds: Option<u64>,
}

impl Args {
    pub fn is_provider(&self) -> bool {
        self.provider.is_some()
    }

    /// Serves the provider protocol until it is asked to leave.
    pub async fn provide(self, context: &Context) -> Result<ExitCode> {
        let Some(address) = self.provider else {
            return Ok(ExitCode::SUCCESS);
        };
        let given = self.key_file.as_deref().map(read_token).transpose()?;
        let made = given.is_none();
        let key = given.unwrap_or_else(motu_provider::made_key);
        let ttl = self.ttl_seconds.unwrap_or(PROVIDED_SECONDS);
        let options = motu_provider::Options {
            runtime: self.runtime,
            policy: self.policy,
            ttl_seconds: limits::TTL_SECONDS.resolve(Some(ttl))?,
            reads_host_files: motu_environments::reads_host_files,
        };
        let listening = |address| {
            show::note(&format!(
                "serving the provider protocol at http://{address}\n"
            ));
            if made {
                show::note(&format!(
                    "callers must send this key, which is not shown again\nX-API-Key: {key}\n"
                ));
            }
        };
        let service = Arc::new(context.client());
        motu_provider::serve(
            service,
            options,
            (address, &key),
            asked_to_leave(),
            listening,
        )
        .await?;
        Ok(ExitCode::SUCCESS)
    }

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
        serving::run(&context.place, origin, self.listen)?;
        Ok(ExitCode::SUCCESS)
    }
}
