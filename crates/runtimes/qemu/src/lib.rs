//! The runtime that makes virtual machines with QEMU.
//!
//! ```text
//!   lib         the Runtime contract
//!   machine     one machine: make, find, pause, end
//!   restore     a machine from a saved state
//!   template    saved machines that new ones start from
//!   spare       machines made ahead
//!   fork        copies of a machine that runs
//!   saved       machines that were saved with their memory; asleep reads one
//!   kept        disks that outlive their machine
//!   program     which QEMU (version) and its firmware; distribution: where to get it
//!   process     QEMU, started detached; arguments is its command line as data
//!   place       a machine's directory, and who it belongs to
//!   guest       the host's end of the serial ports
//!   state       the state of devices on its way into QEMU
//!   ram         memory as a sealed file; qcow2 and image: disks
//!   kernel      the kernel and the initial file system (cpio); modules: in which order;
//!               package, deb, packing: where it comes from
//!   accel       KVM or emulation, tried before it is believed
//!   qmp         QEMU's control socket
//!   cache       what is built once and shared
//!   sys         the only module with `unsafe`
//! ```
//!
//! The virtual machine is the wall; QEMU itself is held by a second one: a user
//! of its own, an empty directory, its own system call filter, no network. It
//! never runs anything of a machine outside it.

mod accel;
mod arguments;
mod asleep;
mod blocking;
mod board;
mod cable;
mod cache;
mod cgroup;
mod check;
mod cpio;
mod deb;
mod disks;
mod distribution;
mod error;
mod fork;
mod guest;
mod identity;
mod image;
mod kept;
mod kernel;
mod machine;
mod modules;
mod package;
mod packing;
mod place;
mod process;
mod program;
mod prune;
mod qcow2;
pub mod qmp;
mod ram;
mod record;
mod removal;
#[cfg(test)]
mod replay;
mod restore;
mod saved;
mod spare;
mod state;
mod sys;
mod template;
mod throttle;
mod tool;
mod version;

pub use kept::{flatten, flatten_workspace};

use async_trait::async_trait;
use motu_core::config::QemuConfig;
use motu_core::report::Check;
use motu_core::runtime::{
    AtRest, Capabilities, Connection, Ended, Kept, Lifeline, Machine, MachineSpec, ProcessOfBoot,
    Usage,
};
use motu_core::{Accel, Error, Isolation, Runtime, SandboxId};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What the runtime is made from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The static guest program.
    pub guest: bytes::Bytes,
    /// The state directory.
    pub home: PathBuf,
    /// For calls that leave the choice open.
    pub accel: Accel,
    /// How many machines may be made ahead, one of a kind, while a kind is in use.
    pub spares: usize,
    /// What the operator says about QEMU and kernels.
    pub config: QemuConfig,
}

/// The `qemu` runtime.
#[derive(Clone, Debug)]
pub struct Qemu {
    inner: Arc<machine::Maker>,
}

impl Qemu {
    /// Sets the runtime up. Cheap: kernel, images and templates are made by the
    /// first `create` that needs them.
    pub fn new(settings: Settings) -> Result<Qemu, Error> {
        Ok(Qemu {
            inner: Arc::new(machine::Maker::new(settings)?),
        })
    }

    /// Boots a machine without a template, as the first of its kind, and ends it. For
    /// measurements: every other machine is a copy.
    pub async fn cold_boot(&self, spec: &MachineSpec) -> Result<Duration, Error> {
        Ok(machine::cold_boot(&self.inner, spec).await?)
    }

    /// How many machines wait that were made ahead.
    pub fn spares(&self) -> usize {
        self.inner.spares.count()
    }
}

#[async_trait]
impl Runtime for Qemu {
    fn name(&self) -> &'static str {
        "qemu"
    }

    fn isolation(&self) -> Isolation {
        Isolation::Vm
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: true,
            memory_snapshot: true,
            fork: true,
            keep: true,
            setuid: true,
            network: true,
            uses_environment: true,
        }
    }

    async fn check(&self) -> Vec<Check> {
        check::all(&self.inner).await
    }

    fn programs(&self) -> String {
        let found = self.inner.programs.find();
        found.map_or_else(|_| String::new(), |path| identity::file_identity(&path))
    }

    // A restored machine waits here already, and a second one would take its memory twice.
    fn may_wait(&self) -> bool {
        false
    }

    async fn emulated(&self) -> bool {
        let decided = self.inner.probe.decide(self.inner.accel).await;
        matches!(decided, Ok(accel::Accelerator::Tcg))
    }

    fn plan(&self, spec: &MachineSpec) -> Result<String, Error> {
        machine::refuse(spec)?;
        Ok(check::plan(spec, self.inner.choice(spec), self.inner.board))
    }

    async fn create(&self, spec: &MachineSpec) -> Result<Machine, Error> {
        machine::create(&self.inner, spec).await
    }

    async fn connect(&self, machine: &Machine) -> Result<Connection, Error> {
        let place = place::Place::open(&machine.dir)?;
        let (read, write) = guest::connect(&place).await?.into_split();
        Ok(Connection::new(read, write))
    }

    async fn ended(&self, machine: &Machine) -> Ended {
        machine::ended(machine).await
    }

    async fn alive(&self, machine: &Machine) -> bool {
        machine::is_alive(machine)
    }

    fn usage(&self, machine: &Machine, before: Option<Usage>) -> Option<Usage> {
        cgroup::usage(&machine.dir, before)
    }

    fn lifeline(&self, machine: &Machine) -> Option<Lifeline> {
        let process = machine::record_of(machine)?.process?;
        Some(Lifeline {
            processes: vec![ProcessOfBoot {
                pid: process.pid,
                start_time: process.start_time,
            }],
            thaw: Vec::new(),
        })
    }

    async fn reclaim(&self, machine: &Machine) -> Result<(), Error> {
        // A fork stops its source; going on twice is going on.
        Ok(machine::resume(machine).await?)
    }

    async fn pause(&self, machine: &Machine) -> Result<(), Error> {
        Ok(machine::control(machine, "stop").await?)
    }

    async fn resume(&self, machine: &Machine) -> Result<(), Error> {
        Ok(machine::resume(machine).await?)
    }

    async fn fork(&self, source: &Machine, copies: &[MachineSpec]) -> Result<Vec<Machine>, Error> {
        fork::fork(&self.inner, source, copies).await
    }

    async fn save(&self, machine: &Machine, to: &Path) -> Result<(), Error> {
        saved::save(&self.inner, machine, to).await
    }

    async fn restore(&self, from: &Path, spec: &MachineSpec) -> Result<Machine, Error> {
        saved::restore(&self.inner, from, spec).await
    }

    async fn destroy(&self, machine: &Machine) -> Result<(), Error> {
        // A daemon that makes no machine cleans up after the one before it too.
        self.inner.sweep().await;
        removal::remove_known(&machine.dir, machine::record_of(machine))
            .await
            .map_err(removal::left_behind)
    }

    async fn prune(&self) -> Result<u64, Error> {
        Ok(prune::all(&self.inner).await?)
    }

    fn has_disks(&self, kept: &Kept) -> bool {
        kept::is_there(&kept.dir)
    }

    fn at_rest(&self, kept: &Kept, _root: &Path) -> Result<AtRest, Error> {
        kept::at_rest(&kept.dir)
    }

    async fn sweep(&self, _id: &SandboxId, dir: &Path) -> Result<(), Error> {
        removal::remove(dir).await.map_err(removal::left_behind)
    }
}
