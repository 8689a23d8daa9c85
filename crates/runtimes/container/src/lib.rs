//! The built-in container runtime.
//!
//! It needs no other program: [`prepare`] builds a plan, the launcher executes it ([`launch`]), and
//! from then on the machine is a separate process tree that the daemon watches through a pidfd.
//!
//! ```text
//!   lib        the Runtime contract
//!   machine    one machine: make, find, end
//!   prepare    the plan, as data
//!   launch     runs a plan with the launcher
//!   wire       the way from its network to the gateway
//!   kept       disks that outlive their machine
//!   attach     directories of the host in a machine, to be read
//!   ahead      disks for the next reset
//!   waiting    work on disks that nobody waits for
//!   slots      ranges of host ids
//!   processors which processors a machine is shown
//!   seccomp    the system call filter, from seccomp.json; bpf compiles it
//!   record     what is remembered of a machine
//!   check      what works on this host
//!   sys        the only module with `unsafe`
//! ```
//!
//! It never mounts anything in the host's mount namespace and never touches a
//! process or cgroup that is not a machine's.

mod ahead;
mod attach;
mod bpf;
mod check;
mod host;
mod kept;
mod launch;
mod machine;
mod prepare;
mod processors;
mod record;
mod seccomp;
mod slots;
mod sys;
mod waiting;
mod wire;

use ahead::Former;
use async_trait::async_trait;
use motu_core::network::Uplink;
use motu_core::report::Check;
use motu_core::runtime::{
    AT_LIMIT, AtRest, Capabilities, Connection, Ended, Kept, Lifeline, Machine, MachineSpec, Usage,
};
use motu_core::sandbox::AppliedLimit;
use motu_core::{Error, Isolation, Runtime, SandboxId};
use std::os::fd::OwnedFd;
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
}

/// The `container` runtime.
#[derive(Clone, Debug)]
pub struct Container {
    inner: Arc<machine::Maker>,
}

impl Container {
    /// Sets the runtime up. Cheap; disks are prepared by the first `create` or by
    /// [`Container::warm`].
    pub fn new(settings: Settings) -> Result<Container, Error> {
        Ok(Container {
            inner: Arc::new(machine::Maker::new(settings)?),
        })
    }

    /// Prepares what the first machines would otherwise wait for.
    pub async fn warm(&self) {
        let maker = self.inner.clone();
        let _ = tokio::task::spawn_blocking(move || maker.refill()).await;
    }
}

#[async_trait]
impl Runtime for Container {
    fn name(&self) -> &'static str {
        "container"
    }

    fn isolation(&self) -> Isolation {
        Isolation::Container
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: self.inner.can_pause(),
            memory_snapshot: false,
            fork: false,
            keep: true,
            setuid: true,
            network: true,
            uses_environment: true,
        }
    }

    async fn check(&self) -> Vec<Check> {
        let maker = self.inner.clone();
        tokio::task::spawn_blocking(move || check::all(&maker))
            .await
            .unwrap_or_default()
    }

    fn plan(&self, spec: &MachineSpec) -> Result<String, Error> {
        self.inner.plan_text(spec)
    }

    async fn create(&self, spec: &MachineSpec) -> Result<Machine, Error> {
        machine::create(&self.inner, spec).await
    }

    async fn connect(&self, machine: &Machine) -> Result<Connection, Error> {
        machine::connect(&machine.dir).await
    }

    async fn take_file(&self, machine: &Machine, token: [u8; 16]) -> Result<OwnedFd, Error> {
        machine::take_file(&machine.dir, token).await
    }

    fn lends_files(&self) -> bool {
        true
    }

    async fn attach_directory(
        &self,
        machine: &Machine,
        directory: OwnedFd,
        at: PathBuf,
    ) -> Result<(), Error> {
        let (maker, machine) = (self.inner.clone(), machine.clone());
        tokio::task::spawn_blocking(move || attach::attach(&maker, &machine, directory, at))
            .await
            .map_err(|_| Error::internal("attaching a directory panicked"))?
    }

    fn attaches_directories(&self) -> bool {
        attach::works(&self.inner.host)
    }

    async fn ended(&self, machine: &Machine) -> Ended {
        let kills = self.memory_kills(machine);
        let ended = machine::ended(machine).await;
        let disk = self.inner.disks.recalled(machine.id.as_str());
        // What it wrote is flushed, which nobody should wait for.
        drop(tokio::task::spawn_blocking(move || drop(disk)));
        // Only the guest was left to kill, or it was the largest process.
        match ended.reason.ends_with("by signal 9") && self.memory_kills(machine) > kills {
            true => Ended {
                reason: format!("the machine was ended {AT_LIMIT}memory (mem_mib)"),
            },
            false => ended,
        }
    }

    async fn alive(&self, machine: &Machine) -> bool {
        machine::find(machine).is_some()
    }

    fn memory_kills(&self, machine: &Machine) -> u64 {
        self.inner.cgroups.memory_kills(machine.id.as_str())
    }

    fn usage(&self, machine: &Machine, before: Option<Usage>) -> Option<Usage> {
        self.inner.cgroups.usage(machine.id.as_str(), before)
    }

    fn limits(&self, machine: &Machine) -> Vec<AppliedLimit> {
        match machine::record_of(machine).and_then(|record| record.process) {
            Some(process) => {
                let groups = &self.inner.cgroups;
                groups.standing(machine.id.as_str(), process.pid, &machine.limits)
            }
            None => machine.limits.clone(),
        }
    }

    fn lifeline(&self, machine: &Machine) -> Option<Lifeline> {
        let process = machine::record_of(machine)?.process?;
        let thawing = self.inner.cgroups.thawing(machine.id.as_str());
        Some(Lifeline {
            processes: vec![process.into()],
            thaw: thawing.into_iter().collect(),
        })
    }

    async fn pause(&self, machine: &Machine) -> Result<(), Error> {
        self.inner.freeze(machine, true).await
    }

    async fn resume(&self, machine: &Machine) -> Result<(), Error> {
        self.inner.freeze(machine, false).await
    }

    async fn join(&self, machine: &Machine, uplink: Arc<dyn Uplink>) -> Result<(), Error> {
        let process = machine::record_of(machine).and_then(|record| record.process);
        let process = process.ok_or_else(|| Error::not_found("the machine is gone"))?;
        let privileged = self.inner.host.privileged;
        let work = move || wire::join(process, uplink.as_ref(), privileged);
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|_| Error::internal("joining a network panicked"))?
    }

    async fn destroy(&self, machine: &Machine) -> Result<(), Error> {
        let record = machine::record_of(machine);
        machine::remove(&self.inner, &machine.id, &machine.dir, record).await
    }

    async fn abandon(&self, machine: &Machine) -> Result<bool, Error> {
        // The kernel is the host's, so nothing that was written is lost with the machine. Without
        // its disks in the record, nobody waits for them to be unmounted and flushed.
        let record = machine::record_of(machine);
        let disks = record.as_ref().and_then(|record| record.kept.clone());
        let record = record.map(|record| record::Record {
            kept: None,
            ..record
        });
        // Nor does the machine's last process, while they are mounted here too.
        let hold = move || disks.map(Former::hold);
        let former = tokio::task::spawn_blocking(hold).await.ok().flatten();
        machine::remove(&self.inner, &machine.id, &machine.dir, record).await?;
        if let Some(former) = former {
            self.inner.ahead.ended(&machine.id, former);
        }
        Ok(true)
    }

    async fn reclaim(&self, machine: &Machine) -> Result<(), Error> {
        // Its disks were being copied. Thawing a machine that is not frozen has no effect.
        self.inner.cgroups.thaw(machine.id.as_str());
        Ok(())
    }

    fn has_disks(&self, kept: &Kept) -> bool {
        kept::form(&kept.dir) != kept::Form::Nothing
    }

    async fn flush(&self, kept: &Kept) -> Result<(), Error> {
        let (image, dir) = (kept::image(&kept.dir), kept::directory(&kept.dir));
        if kept::form(&kept.dir) == kept::Form::Nothing {
            return Ok(());
        }
        tokio::task::spawn_blocking(move || motu_local::flush(&image, &dir))
            .await
            .map_err(|_| Error::internal("flushing a disk panicked"))?
    }

    fn at_rest(&self, kept: &Kept, root: &Path) -> Result<AtRest, Error> {
        kept::at_rest(kept, root)
    }

    fn disk_errors(&self, kept: &Kept) -> u64 {
        motu_local::errors(&kept::image(&kept.dir))
    }

    async fn tend(&self, kept: &Kept, at_rest: bool) -> Result<(), Error> {
        let (maker, dir) = (self.inner.clone(), kept.dir.clone());
        let let_go = move || maker.ahead.let_go(&dir);
        let _ = tokio::task::spawn_blocking(let_go).await;
        if kept::form(&kept.dir) != kept::Form::Image {
            return Ok(());
        }
        let image = kept::image(&kept.dir);
        tokio::task::spawn_blocking(move || match at_rest {
            true => motu_local::trim_at_rest(&image),
            false => motu_local::trim(&image),
        })
        .await
        .map_err(|_| Error::internal("trimming a disk panicked"))?
        .map(drop)
        .map_err(|error| Error::io("the machine's disk", &error))
    }

    async fn sweep(&self, id: &SandboxId, dir: &Path) -> Result<(), Error> {
        let record = record::Record::load(dir);
        machine::remove(&self.inner, id, dir, record).await
    }

    async fn discard(&self, kept: &Path) -> Result<(), Error> {
        let (maker, dir) = (self.inner.clone(), kept.to_path_buf());
        let work = move || {
            maker.ahead.discarded(&dir);
            match maker.host.privileged {
                true => Ok(()),
                false => maker.empty(&dir),
            }
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|_| Error::internal("emptying a directory panicked"))?
    }
}
