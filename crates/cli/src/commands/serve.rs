//! `motu serve`: the daemon.

use super::listening::{address, asked_to_leave, read_token};
use crate::context::Context;
use crate::serving::{self, Origin};
use crate::show;
use jiff::Timestamp;
use motu_api::Client;
use motu_api::client::SocketAt;
use motu_core::sandbox::{ListSandboxes, Sandbox, State};
use motu_core::{Leave, Result, Service, limits};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// How long a sandbox of an orchestrator lives that says nothing: it has a clock of its own.
const PROVIDED_SECONDS: u64 = 86_400;

/// How long a daemon that is to leave may take to say what runs.
const ASK_TIME: Duration = Duration::from_secs(3);
/// How many machines are named.
const SHOWN: usize = 20;

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
        // An orchestrator is not the operator, and images are what it names.
        let leave = Leave {
            unwalled: true,
            for_others: true,
            ..Leave::default()
        };
        let service = Arc::new(context.client().held_to(&leave)?);
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
            // Asked while somebody can still tell.
            let running = running(context);
            show::print(&match serving::stop(&context.place)? {
                true => format!("stopped\n{}", goes_on(running.as_deref())),
                false => "no daemon is running\n".to_string(),
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

/// The sandboxes with a machine; `None` if the daemon does not say.
fn running(context: &Context) -> Option<Vec<Sandbox>> {
    let daemon = Client::new(SocketAt(context.place.socket()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let asked = async {
        let all = daemon.list_sandboxes(ListSandboxes::default());
        tokio::time::timeout(ASK_TIME, all).await
    };
    let all = runtime.block_on(asked).ok()?.ok()?;
    let alive = |sandbox: &&Sandbox| matches!(sandbox.state, State::Running | State::Paused);
    Some(all.iter().filter(alive).cloned().collect())
}

/// What goes on without a daemon, and how long.
fn goes_on(running: Option<&[Sandbox]>) -> String {
    let Some(running) = running else {
        return "which machines go on is not known: the daemon did not answer\n".to_string();
    };
    if running.is_empty() {
        return String::new();
    }
    let count = show::count(running.len() as u64, "machine goes", "machines go");
    let mut text = format!("{count} on without it:\n");
    let now = Timestamp::now();
    for sandbox in running.iter().take(SHOWN) {
        let until = match sandbox.expires_at {
            Some(at) => {
                let left = at.duration_since(now).as_secs().max(0);
                format!("ends in {}", show::seconds(left))
            }
            None => "until it is ended".to_string(),
        };
        text += &format!("  {}  {}  {until}\n", sandbox.sandbox_id, sandbox.runtime);
    }
    if running.len() > SHOWN {
        text += &format!("  and {} more\n", running.len() - SHOWN);
    }
    text
}
