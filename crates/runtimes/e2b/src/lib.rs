//! The `e2b` runtime: machines of a service that speaks the E2B API.
//!
//! ```text
//!   lib       the Runtime contract
//!   settings  where the service is, and what it has
//!   machine   one machine: make, find, pause, end; keeper: gives it time
//!   guest/    speaks the link's protocol here, and the agent's to the machine
//!   limit     what becomes of each limit
//!   record    what is remembered of a machine
//!   check     what is known of the service
//!   faults    tests: services that are not what they should be
//!   wire/     the API as typed calls: bounded in time and size
//! ```
//!
//! Neither the service nor the agent in its machines is ours. What they cannot do is refused with
//! the reason, and a machine never counts as gone just because the service does not answer.

mod check;
#[cfg(test)]
mod faults;
mod guest;
mod keeper;
mod limit;
mod machine;
mod record;
mod settings;
mod wire;

pub use settings::Settings;
pub use wire::{envelope, event};

use async_trait::async_trait;
use motu_core::report::Check;
use motu_core::runtime::{
    Capabilities, Connection, Ended, Lacks, Machine, MachineSpec, Surroundings,
};
use motu_core::{Error, Isolation, Runtime, SandboxId};
use motu_peer::Patience;
use settings::Service;
use std::path::Path;
use std::sync::Arc;

/// The `e2b` runtime.
#[derive(Clone, Debug)]
pub struct E2b {
    inner: Arc<machine::Maker>,
}

impl E2b {
    /// Sets the runtime up without contacting the service: [`Runtime::check`] does.
    pub fn new(settings: Settings) -> Result<E2b, Error> {
        E2b::with(settings, Patience::default())
    }

    fn with(settings: Settings, patience: Patience) -> Result<E2b, Error> {
        let service = Service::of(settings, patience)?;
        Ok(E2b {
            inner: Arc::new(machine::Maker::new(service)),
        })
    }
}

#[async_trait]
impl Runtime for E2b {
    fn name(&self) -> &'static str {
        "e2b"
    }

    /// The isolation by the operator's configuration; it cannot be verified.
    fn isolation(&self) -> Isolation {
        self.inner.service.isolation
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: true,
            ..Capabilities::default()
        }
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
        Lacks {
            trees: true,
            ports: true,
            ..Lacks::default()
        }
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

    async fn pause(&self, machine: &Machine) -> Result<(), Error> {
        self.inner.pause(machine).await
    }

    async fn resume(&self, machine: &Machine) -> Result<(), Error> {
        self.inner.resume(machine).await
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
