//! The `http` runtime: machines made by a service that speaks the custom provider protocol.
//!
//! ```text
//!   lib       the Runtime contract
//!   machine   one machine: make, find, end
//!   guest/    speaks the link's protocol here, and the provider protocol to the service
//!   limit     what becomes of each limit
//!   record    what is remembered of a machine
//!   check     what is known of the service
//!   faults    tests: services that are not what they should be
//!   wire/     the protocol as typed calls: bounded in time and size
//! ```
//!
//! The service is not ours. What it cannot do is refused with the reason; its statements about
//! isolation and limits are passed on as its own; and a machine never counts as gone just because
//! the service does not answer.

mod check;
#[cfg(test)]
mod faults;
mod guest;
mod limit;
mod machine;
mod record;
mod wire;

pub use wire::lines;

use async_trait::async_trait;
use motu_core::report::Check;
use motu_core::runtime::{
    Capabilities, Connection, Ended, Lacks, Machine, MachineSpec, Surroundings,
};
use motu_core::{Error, Isolation, Runtime, SandboxId};
use motu_peer::{Address, Connections, Key, Patience};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::Peer;

/// What the runtime is made from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the service is.
    pub url: String,
    /// The file with its key.
    pub key_file: Option<PathBuf>,
    /// Certificates to verify the service with, instead of those that this host trusts.
    pub ca_file: Option<PathBuf>,
}

/// The `http` runtime.
#[derive(Clone, Debug)]
pub struct Http {
    inner: Arc<machine::Maker>,
}

impl Http {
    /// Sets the runtime up without contacting the service: [`Runtime::check`] does.
    pub fn new(settings: Settings) -> Result<Http, Error> {
        Http::with(settings, Patience::default())
    }

    fn with(settings: Settings, patience: Patience) -> Result<Http, Error> {
        let address = Address::parse("[http] url in config.toml", &settings.url)?;
        if settings.ca_file.is_some() && !address.tls {
            return Err(Error::invalid(
                "[http] ca_file is for a service at https://",
            ));
        }
        let key = settings.key_file.map(|file| Key {
            header: http::HeaderName::from_static("x-api-key"),
            file,
        });
        let connections = Connections::new(address, key, patience).trusting(settings.ca_file);
        Ok(Http {
            inner: Arc::new(machine::Maker::new(Peer::new(connections))),
        })
    }
}

#[async_trait]
impl Runtime for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    /// What the service last reported; `none` before it was asked.
    fn isolation(&self) -> Isolation {
        self.inner.offer().isolation.unwrap_or(Isolation::None)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn check(&self) -> Vec<Check> {
        check::all(&self.inner).await
    }

    fn foreign(&self) -> bool {
        true
    }

    fn elsewhere(&self) -> bool {
        true
    }

    fn lacks(&self) -> Lacks {
        self.inner.offer().lacks()
    }

    fn plan(&self, spec: &MachineSpec) -> Result<String, Error> {
        self.inner.plan(spec)
    }

    async fn create(&self, spec: &MachineSpec) -> Result<Machine, Error> {
        self.inner.create(spec).await
    }

    async fn connect(&self, machine: &Machine) -> Result<Connection, Error> {
        self.inner.connect(machine).await
    }

    async fn ended(&self, machine: &Machine) -> Ended {
        self.inner.ended(machine).await
    }

    async fn alive(&self, machine: &Machine) -> bool {
        self.inner.alive(machine).await
    }

    async fn destroy(&self, machine: &Machine) -> Result<(), Error> {
        self.inner.destroy(machine).await
    }

    async fn sweep(&self, id: &SandboxId, dir: &Path) -> Result<(), Error> {
        self.inner.sweep(id, dir).await
    }

    fn surroundings(&self, machine: &Machine) -> Surroundings {
        let workdir = machine.record["workdir"].as_str();
        Surroundings {
            workdir: workdir.map(str::to_string),
            ..Surroundings::default()
        }
    }
}
