//! The gVisor runtime: machines whose kernel is a program, made by `runsc`.
//!
//! ```text
//!   lib       the Runtime contract
//!   machine   one machine: make, find, end
//!   prepare   its bundle, as data
//!   mounts    its file systems, as data and then in a view of mounts of its own
//!   mapped    the same for an ordinary user, by programs of the host in a user namespace
//!   removal   its end
//!   disk      where its writes go
//!   barrier   one call that `runsc` starts faster without
//!   oci/      programs that make containers of bundles: runsc, crun, runc
//!   link      connections to guests
//!   record    what is remembered of a machine
//!   check     what works on this host
//!   sys       the only module with `unsafe`
//! ```
//!
//! It never mounts anything in the host's mount namespace and never touches a
//! process or cgroup that is not a machine's. Limits are cgroups of our own, so
//! `runsc` is told to leave cgroups alone.

mod barrier;
mod check;
mod disk;
mod killer;
mod link;
mod machine;
mod mapped;
mod mounts;
mod network;
pub mod oci;
mod prepare;
mod record;
mod removal;
mod sys;

use async_trait::async_trait;
use motu_core::report::Check;
use motu_core::runtime::{
    AtRest, Capabilities, Connection, Ended, Kept, Lifeline, Machine, MachineSpec, Usage,
};
use motu_core::sandbox::AppliedLimit;
use motu_core::{Error, Isolation, Runtime, SandboxId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the runtime is made from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The static guest program.
    pub guest: bytes::Bytes,
    /// The state directory.
    pub home: PathBuf,
    /// The usual disk size; a few disks of it are prepared ahead.
    pub usual_disk_mib: u64,
    /// The `runsc` that the operator names; looked for when missing.
    pub program: Option<PathBuf>,
}

/// The `gvisor` runtime.
#[derive(Clone, Debug)]
pub struct Gvisor {
    inner: Arc<machine::Maker>,
}

impl Gvisor {
    /// Sets the runtime up. Cheap, and works without `runsc`: [`Runtime::check`] tells whether
    /// machines can be made.
    pub fn new(settings: Settings) -> Gvisor {
        Gvisor {
            inner: Arc::new(machine::Maker::new(settings)),
        }
    }
}

#[async_trait]
impl Runtime for Gvisor {
    fn name(&self) -> &'static str {
        "gvisor"
    }

    fn isolation(&self) -> Isolation {
        Isolation::Gvisor
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: true,
            // A checkpoint cannot contain the socket our guest listens on, and restoring one takes
            // longer than starting anew.
            memory_snapshot: false,
            fork: false,
            // Files of an ordinary user's machines belong to ids that the daemon cannot act for.
            keep: self.inner.privileged,
            // Known once this daemon has looked whether machines can be made.
            setuid: self.inner.known_to_allow_suid(),
            network: self.inner.privileged,
            uses_environment: true,
        }
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
        machine::ended(&self.inner, machine).await
    }

    async fn alive(&self, machine: &Machine) -> bool {
        machine::is_whole(machine)
    }

    fn memory_kills(&self, machine: &Machine) -> u64 {
        self.inner.cgroups.memory_kills(machine.id.as_str())
    }

    fn usage(&self, machine: &Machine, before: Option<Usage>) -> Option<Usage> {
        self.inner.cgroups.usage(machine.id.as_str(), before)
    }

    fn limits(&self, machine: &Machine) -> Vec<AppliedLimit> {
        match machine::record_of(machine).and_then(|record| record.process) {
            Some(sandbox) => {
                let groups = &self.inner.cgroups;
                groups.standing(machine.id.as_str(), sandbox.pid, &machine.limits)
            }
            None => machine.limits.clone(),
        }
    }

    fn lifeline(&self, machine: &Machine) -> Option<Lifeline> {
        let record = machine::record_of(machine)?;
        let processes = record.process.into_iter().chain(record.gofer);
        let thawing = self.inner.cgroups.thawing(machine.id.as_str());
        Some(Lifeline {
            processes: processes.map(Into::into).collect(),
            thaw: thawing.into_iter().collect(),
        })
    }

    async fn pause(&self, machine: &Machine) -> Result<(), Error> {
        machine::pause(&self.inner, machine).await
    }

    async fn resume(&self, machine: &Machine) -> Result<(), Error> {
        machine::resume(&self.inner, machine).await
    }

    async fn destroy(&self, machine: &Machine) -> Result<(), Error> {
        let record = machine::record_of(machine);
        machine::remove(&self.inner, &machine.id, &machine.dir, record).await
    }

    async fn reclaim(&self, machine: &Machine) -> Result<(), Error> {
        // Its disks were being copied. Thawing a running machine has no effect.
        self.inner.cgroups.thaw(machine.id.as_str());
        Ok(())
    }

    fn has_disks(&self, kept: &Kept) -> bool {
        disk::is_there(kept)
    }

    fn at_rest(&self, kept: &Kept, root: &Path) -> Result<AtRest, Error> {
        disk::at_rest(kept, root)
    }

    fn disk_errors(&self, kept: &Kept) -> u64 {
        motu_local::errors(&disk::image(&kept.dir))
    }

    fn guest_flushes(&self) -> bool {
        // The gofer reports success for every flush, whatever the disk returned.
        false
    }

    async fn flush(&self, kept: &Kept) -> Result<(), Error> {
        let (image, dir) = (disk::image(&kept.dir), kept.dir.clone());
        tokio::task::spawn_blocking(move || motu_local::flush(&image, &dir))
            .await
            .map_err(|_| Error::internal("flushing a disk panicked"))?
    }

    async fn tend(&self, kept: &Kept, at_rest: bool) -> Result<(), Error> {
        use motu_local::{trim, trim_at_rest};
        let image = disk::image(&kept.dir);
        if !image.exists() {
            return Ok(());
        }
        tokio::task::spawn_blocking(move || match at_rest {
            true => trim_at_rest(&image),
            false => trim(&image),
        })
        .await
        .map_err(|_| Error::internal("trimming a disk panicked"))?
        .map(drop)
        .map_err(|error| Error::io("the kept disk", &error))
    }

    async fn sweep(&self, id: &SandboxId, dir: &Path) -> Result<(), Error> {
        let record = record::Record::load(dir);
        machine::remove(&self.inner, id, dir, record).await
    }
}
