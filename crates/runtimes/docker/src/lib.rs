//! The docker runtime: machines made by any engine that speaks Docker's API.
//!
//! ```text
//!   lib       the Runtime contract
//!   socket    where the engine listens
//!   api/      its API: one small client, bounded in time and size
//!   walls     what makes its containers, and what that isolates
//!   machine   one machine: make, find, end
//!   prepare   its container, as data
//!   image     environments inside the engine; archive reads their roots
//!   link      connections to guests
//!   network   the gateway's device
//!   limit     what becomes of each limit; groups reads it back from the kernel
//!   identity  which state directory a container is of
//!   record    what is remembered of a machine
//!   check     what works on this host
//! ```
//!
//! The engine is not ours: its answers are verified against the kernel where that matters, and only
//! objects with this state directory's label are touched.

mod api;
mod archive;
mod check;
#[cfg(test)]
mod faults;
mod groups;
mod identity;
mod image;
mod limit;
mod link;
mod machine;
mod network;
mod prepare;
mod record;
mod socket;
mod walls;

use async_trait::async_trait;
use groups::Groups;
use motu_core::report::Check;
use motu_core::runtime::{Capabilities, Connection, Ended, Lifeline, Machine, MachineSpec};
use motu_core::sandbox::AppliedLimit;
use motu_core::{Error, ErrorKind, Isolation, Runtime, SandboxId};
use prepare::{HOME_LABEL, SANDBOX_LABEL};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the runtime is made from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The static guest program.
    pub guest: bytes::Bytes,
    /// The state directory.
    pub home: PathBuf,
    /// The engine's socket, if the operator names it.
    pub socket: Option<PathBuf>,
    /// The engine's OCI runtime (`runc`, `crun`, `runsc`), if the operator names it.
    pub runtime: Option<String>,
}

/// The `docker` runtime.
#[derive(Clone, Debug)]
pub struct Docker {
    inner: Arc<machine::Maker>,
}

impl Docker {
    /// Sets the runtime up, without looking for an engine: [`Runtime::check`] tells whether
    /// machines can be made.
    pub fn new(settings: Settings) -> Docker {
        Docker {
            inner: Arc::new(machine::Maker::new(settings)),
        }
    }

    /// The engine and this state directory's identity; `None` if it never used an engine.
    fn known(&self) -> Result<Option<(api::Api, String)>, Error> {
        let identity = identity::read(self.inner.home())
            .map_err(|error| Error::io("the state directory's identity", &error))?;
        let Some(identity) = identity else {
            return Ok(None);
        };
        let found = self.inner.around().find()?;
        Ok(Some((self.inner.api(&found.socket), identity)))
    }

    /// Removes containers of this state directory whose machine has no directory any more.
    async fn remove_strays(&self, api: &api::Api, identity: &str) -> Result<(), Error> {
        let label = format!("{HOME_LABEL}={identity}");
        for container in api.containers(&label).await? {
            let labels = container.labels.unwrap_or_default();
            let ours = labels.get(HOME_LABEL).map(String::as_str) == Some(identity);
            let id = labels.get(SANDBOX_LABEL).map(|id| SandboxId::parse(id));
            let (true, Some(Ok(id))) = (ours, id) else {
                continue;
            };
            let machines = self.inner.home().join("machines").join(self.name());
            if !machines.join(id.as_str()).exists() {
                tracing::info!(%id, "removing a container whose machine is gone");
                machine::gone(api, &container.id).await?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Runtime for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn isolation(&self) -> Isolation {
        self.inner.walls.isolation()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: true,
            memory_snapshot: false,
            fork: false,
            // A container's files belong to the engine; they cannot be read while it is stopped,
            // nor separated from its environment.
            keep: false,
            // Its root may be the host's root: programs get no new privileges.
            setuid: false,
            // gVisor copies its devices when it starts, before ours exists.
            network: self.isolation() != Isolation::Gvisor,
            uses_environment: true,
        }
    }

    fn foreign(&self) -> bool {
        true
    }

    async fn check(&self) -> Vec<Check> {
        check::all(&self.inner).await
    }

    fn plan(&self, spec: &MachineSpec) -> Result<String, Error> {
        self.inner.plan_text(spec)
    }

    async fn create(&self, spec: &MachineSpec) -> Result<Machine, Error> {
        machine::create(&self.inner, spec).await
    }

    async fn connect(&self, machine: &Machine) -> Result<Connection, Error> {
        self.inner.links.connect(machine).await
    }

    async fn ended(&self, machine: &Machine) -> Ended {
        machine::ended(machine).await
    }

    async fn alive(&self, machine: &Machine) -> bool {
        machine::lives(machine)
    }

    fn memory_kills(&self, machine: &Machine) -> u64 {
        machine::memory_kills(machine)
    }

    fn limits(&self, machine: &Machine) -> Vec<AppliedLimit> {
        match machine::record_of(machine).and_then(|record| record.process) {
            Some(process) => limit::standing(&machine.limits, &Groups::of(process.pid)),
            None => machine.limits.clone(),
        }
    }

    fn lifeline(&self, machine: &Machine) -> Option<Lifeline> {
        let process = machine::record_of(machine)?.process?;
        Some(Lifeline {
            processes: vec![process.into()],
            thaw: Vec::new(),
        })
    }

    async fn pause(&self, machine: &Machine) -> Result<(), Error> {
        machine::still(&self.inner, machine, true).await
    }

    async fn resume(&self, machine: &Machine) -> Result<(), Error> {
        machine::still(&self.inner, machine, false).await
    }

    async fn destroy(&self, machine: &Machine) -> Result<(), Error> {
        let record = machine::record_of(machine);
        machine::remove(&self.inner, &machine.id, &machine.dir, record).await
    }

    async fn sweep(&self, id: &SandboxId, dir: &Path) -> Result<(), Error> {
        let record = record::Record::load(dir);
        machine::remove(&self.inner, id, dir, record).await
    }

    async fn prune(&self) -> Result<u64, Error> {
        let pruned = async {
            let Some((api, identity)) = self.known()? else {
                return Ok(0);
            };
            self.remove_strays(&api, &identity).await?;
            self.inner.images.remove(&api, &identity, false).await
        };
        match pruned.await {
            // An engine that is not running has nothing to free; others still can.
            Err(error) if error.kind == ErrorKind::Unavailable => {
                tracing::warn!(%error, "the container engine is unavailable; nothing was removed from it");
                Ok(0)
            }
            other => other,
        }
    }

    async fn environments_removed(&self) -> Result<(), Error> {
        let Some((api, identity)) = self.known()? else {
            return Ok(());
        };
        let removed = self.inner.images.remove(&api, &identity, true).await;
        removed.map(drop)
    }
}
