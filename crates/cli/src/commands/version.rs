//! `motu version`: what this program and the running daemon are.

use crate::context::Context;
use crate::show::answer;
use motu_api::Client;
use motu_api::client::SocketAt;
use motu_api::wire::API_VERSION;
use motu_core::report::Version;
use motu_core::{Result, Service};
use serde::Serialize;
use std::process::ExitCode;

/// Show the versions of this program and of the running daemon
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print them as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Versions {
    version: &'static str,
    api_version: &'static str,
    /// Nothing when no daemon runs; asking does not start one.
    daemon: Option<Version>,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let here = || Client::new(SocketAt(context.place.socket()));
        let client = context.remote.clone().unwrap_or_else(here);
        let versions = Versions {
            version: env!("CARGO_PKG_VERSION"),
            api_version: API_VERSION,
            daemon: client.version().await.ok(),
        };
        answer(self.json, &versions, |versions| {
            let mut text = format!("motu {}, API {}\n", versions.version, versions.api_version);
            match &versions.daemon {
                Some(daemon) => text.push_str(&format!(
                    "daemon {}, pid {}, state in {}\n",
                    daemon.version, daemon.pid, daemon.home
                )),
                None => text.push_str("no daemon is running\n"),
            }
            text
        });
        Ok(ExitCode::SUCCESS)
    }
}
