//! What makes machines.
//!
//! A runtime answers: what can you do, make it, connect me to its guest, is it
//! alive, pause, resume, destroy. Everything that happens *inside* a machine is
//! the guest's work and is written once, above this trait.
//!
//! Rules for every runtime, proven by the conformance suite:
//! - A machine is a detached process tree; it outlives the daemon.
//! - `create` returns a machine whose guest answers, or cleans up and fails.
//! - After `destroy` nothing of the machine is left: no process, mount, cgroup
//!   or file. Destroying what is gone already is not an error.
//! - A limit that cannot be enforced is reported in [`Machine::limits`], or
//!   refused when the caller asked for it by value.

use crate::network::Uplink;
use crate::report::{Check, RuntimeReport};
use crate::sandbox::AppliedLimit;
use crate::{Accel, Error, Isolation, SandboxId};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

/// What a runtime can do beyond making and destroying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub pause: bool,
    pub memory_snapshot: bool,
    pub fork: bool,
    /// Can be made with [`Kept`] disks, and so be stopped and started.
    pub keep: bool,
    /// Programs with the setuid bit work (sudo), where the environment wants them.
    pub setuid: bool,
    /// A machine can have a [`MachineSpec::network`].
    pub network: bool,
    /// Needs an environment's root filesystem.
    pub uses_environment: bool,
}

impl Capabilities {
    /// Names for people and programs.
    pub fn names(&self) -> Vec<String> {
        [
            (self.pause, "pause"),
            (self.memory_snapshot, "memory_snapshot"),
            (self.fork, "fork"),
            (self.keep, "keep"),
            (self.setuid, "setuid"),
            (self.network, "network"),
        ]
        .iter()
        .filter(|(has, _)| *has)
        .map(|(_, name)| name.to_string())
        .collect()
    }
}

/// What nobody can do inside the machines of a runtime whose guest is not ours. Asking for it is
/// answered `unsupported`, with the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Processes that outlive the call that started them: starting, finding, following them.
    pub background: bool,
    /// Standard input and terminals.
    pub input: bool,
    /// Output while the command runs; it comes at the end, all at once.
    pub live_output: bool,
    /// The end of a command whose caller leaves or whose time is over: it may run on.
    pub cancel: bool,
    /// Bytes that are no text, in output and in what is written.
    pub binary: bool,
    /// Adding to files, making only new ones, and leaving out their parents.
    pub write_options: bool,
    /// Whole trees in one call.
    pub trees: bool,
    /// Measurements.
    pub metrics: bool,
    /// What listens inside: ports and sockets.
    pub ports: bool,
}

impl Lacks {
    /// Names for people and programs.
    pub fn names(&self) -> Vec<&'static str> {
        [
            (self.background, "background"),
            (self.input, "input"),
            (self.live_output, "live_output"),
            (self.cancel, "cancel"),
            (self.binary, "binary"),
            (self.write_options, "write_options"),
            (self.trees, "trees"),
            (self.metrics, "metrics"),
            (self.ports, "ports"),
        ]
        .iter()
        .filter(|(lacks, _)| *lacks)
        .map(|(_, name)| *name)
        .collect()
    }
}

/// A limit and whether the caller insisted on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub value: u64,
    /// The caller named this value: if it cannot be enforced, refuse.
    pub explicit: bool,
}

impl Ask {
    /// No limit at all, of those that may be missing.
    pub const NONE: Ask = Ask {
        value: 0,
        explicit: false,
    };

    /// What those who did not know of a limit have written down.
    fn none() -> Ask {
        Ask::NONE
    }
}

/// The limits of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineLimits {
    pub vcpu_count: Ask,
    pub mem_mib: Ask,
    pub disk_mib: Ask,
    pub pids_max: Ask,
    pub nofile: Ask,
    /// Megabytes read and megabytes written in a second; 0: no limit. Whoever cannot keep a
    /// limit that is there refuses.
    #[serde(default = "Ask::none")]
    pub io_mbps: Ask,
    /// Reads and writes in a second; 0: no limit.
    #[serde(default = "Ask::none")]
    pub iops: Ask,
}

impl MachineLimits {
    /// The limits of what a machine's disks do that are there, by name.
    pub fn io(&self) -> Vec<(&'static str, u64)> {
        let both = [("io_mbps", self.io_mbps), ("iops", self.iops)];
        let asked = both.into_iter().filter(|(_, ask)| ask.value > 0);
        asked.map(|(name, ask)| (name, ask.value)).collect()
    }
}

/// Everything a runtime needs to make one machine.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    pub id: SandboxId,
    /// The machine's own directory; exists, is empty and private. The runtime keeps everything it has in here.
    pub dir: PathBuf,
    /// What the caller named: an environment, or an image of whoever makes the machine.
    pub environment: String,
    /// The immutable root to start from; empty for a runtime that uses none.
    pub root: PathBuf,
    pub hostname: String,
    /// The environment needs setuid programs (sudo) to work.
    pub wants_sudo: bool,
    pub limits: MachineLimits,
    /// What a virtual machine's processor runs on; others have no use for it.
    pub accel: Accel,
    /// What outlives the machine; `None`: its disks go with it.
    pub kept: Option<Kept>,
    /// Who takes the machine's frames; `None`: it has no device but the loopback.
    pub network: Option<Arc<dyn Uplink>>,
}

/// The disks of a machine that is stopped and started again.
///
/// `create` with the same `Kept` and environment finds everything a former
/// machine wrote, to `/` and to `/workspace`. `destroy` leaves `dir` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The disks' own directory: exists and is private; empty at the first start.
    /// It may have been moved since the last one.
    pub dir: PathBuf,
    /// What `/workspace` was at first: a tree that nothing ever changes, with the
    /// owners and modes the machine is to see. The machine's writes go elsewhere.
    /// Of an ordinary user's daemon see [`BASELINE_OWNER`].
    pub baseline: PathBuf,
}

/// The file beside the tree of a baseline whose files all belong to the daemon's user, because that user cannot give them
/// away: `UID:GID`, whose they are to be in a machine that can show it.
pub const BASELINE_OWNER: &str = "owner";

/// The file systems of a kept machine that does not run, as they lie on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtRest {
    /// What `/` is made of, the uppermost first; all of it but `/workspace`.
    pub root: Vec<RestLayer>,
    /// What `/workspace` is made of.
    pub workspace: Vec<RestLayer>,
}

/// One tree of several laid over each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestLayer {
    Directory(PathBuf),
    /// A directory (or all, when empty) of an ext4 on a disk: the disk, then what it is based on.
    Disk {
        chain: Vec<PathBuf>,
        directory: String,
    },
}

/// A machine that exists. `record` is the runtime's own memory of it, enough
/// to find it again after a restart of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub id: SandboxId,
    pub dir: PathBuf,
    pub limits: Vec<AppliedLimit>,
    /// What its processor runs on (`kvm`, `tcg`), where there is a choice.
    #[serde(default)]
    pub accelerator: Option<String>,
    pub record: serde_json::Value,
}

/// What commands and files of a machine find there, where the runtime decides and not the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The working directory of commands whose caller names none.
    pub workdir: Option<String>,
    /// Variables of every command; a caller's own come after them.
    pub env: BTreeMap<String, String>,
}

/// In the reason of a machine that ended because it was at one of its limits.
pub const AT_LIMIT: &str = "by the limit of ";

/// How a machine came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// For people: "the guest was killed by signal 9".
    pub reason: String,
}

/// A byte connection: to a machine's guest before the handshake, or to something in the machine.
pub struct Connection {
    pub read: Box<dyn AsyncRead + Send + Unpin>,
    pub write: Box<dyn AsyncWrite + Send + Unpin>,
    /// An open file that comes with it.
    pub file: Option<OwnedFd>,
    /// Takes an open file that the caller has to hand over.
    pub takes: Option<oneshot::Sender<OwnedFd>>,
}

impl Connection {
    pub fn new(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Connection {
        Connection {
            read: Box::new(read),
            write: Box::new(write),
            file: None,
            takes: None,
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

/// What a machine uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Processor time since its beginning.
    pub cpu_us: u64,
    /// Memory, without what the kernel would give back at once.
    pub mem_bytes: u64,
}

/// The processes with which a machine ends: the first is asked to (SIGTERM), then all are killed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifeline {
    pub processes: Vec<ProcessOfBoot>,
    /// Files, and what is written to them first: a process that stands still does not end.
    #[serde(default)]
    pub thaw: Vec<(PathBuf, String)>,
}

/// A process of this boot of the host: its number alone identifies nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessOfBoot {
    pub pid: i32,
    /// Clock ticks from the boot of the host to its start.
    pub start_time: u64,
}

#[async_trait]
pub trait Runtime: Send + Sync + std::fmt::Debug {
    /// A stable name: config, answers and records use it.
    fn name(&self) -> &'static str;

    fn isolation(&self) -> Isolation;

    fn capabilities(&self) -> Capabilities;

    /// Looks, fast and without side effects, whether this runtime can work here.
    async fn check(&self) -> Vec<Check>;

    /// Tells the programs it stands on from other versions of them: one that failed is tried again
    /// when they change. Quick: nothing is run.
    fn programs(&self) -> String {
        String::new()
    }

    /// Whether machines run on an emulated processor here, many times slower than the host's:
    /// such a runtime is chosen only when nothing faster satisfies the demand.
    async fn emulated(&self) -> bool {
        false
    }

    /// Whether machines are made by a service that is not ours: `auto` takes such a runtime only
    /// when nothing of ours works.
    fn foreign(&self) -> bool {
        false
    }

    /// Whether only those get machines of this runtime who name it: `auto` never takes it.
    fn by_name_only(&self) -> bool {
        self.elsewhere()
    }

    /// Whether its machines are on somebody else's hosts: what stands around them and what they
    /// reach, nobody here knows but by what the service says.
    fn elsewhere(&self) -> bool {
        false
    }

    /// Whether a machine may be made ahead without anybody having asked for that. Not where it costs
    /// somebody else something, and not where the runtime has one ready by itself.
    fn may_wait(&self) -> bool {
        !self.foreign() && !self.by_name_only()
    }

    /// What cannot be done inside its machines; nothing, where the guest is ours.
    fn lacks(&self) -> Lacks {
        Lacks::default()
    }

    /// The steps `create` would take, for people.
    fn plan(&self, spec: &MachineSpec) -> Result<String, Error>;

    /// Makes and starts a machine.
    async fn create(&self, spec: &MachineSpec) -> Result<Machine, Error>;

    /// Opens a new connection to the guest.
    async fn connect(&self, machine: &Machine) -> Result<Connection, Error>;

    /// Waits until the machine has ended by itself. Returns at once if it is not there.
    async fn ended(&self, machine: &Machine) -> Ended;

    /// Whether the machine is there (after a restart of the daemon or of the host).
    async fn alive(&self, machine: &Machine) -> bool;

    /// Sets right what a daemon that died in the middle of a call left undone in a machine that
    /// is to run (a copy was being made of it, and it stands still).
    async fn reclaim(&self, _machine: &Machine) -> Result<(), Error> {
        Ok(())
    }

    /// How many processes of a machine its memory limit has killed so far, as far as the host knows.
    /// Quick: asked whenever a command fails.
    fn memory_kills(&self, _machine: &Machine) -> u64 {
        0
    }

    /// What a machine uses now, by the host's own counters, where it has any. Quick: asked twice in
    /// a second. `before` is the last answer, if it is recent: one that has not run since then has
    /// not taken memory either, and need not be asked for it.
    fn usage(&self, _machine: &Machine, _before: Option<Usage>) -> Option<Usage> {
        None
    }

    /// The limits of a machine as they hold now, where the host can tell: whoever else is privileged
    /// on it may have taken away what enforces them. Quick: asked every few seconds.
    fn limits(&self, machine: &Machine) -> Vec<AppliedLimit> {
        machine.limits.clone()
    }

    /// By what a machine ends on this host, whatever becomes of the daemon; `None` where it has no
    /// processes here.
    fn lifeline(&self, _machine: &Machine) -> Option<Lifeline> {
        None
    }

    /// Has a machine stand still. One that does already stays so: after a crash it is asked again.
    async fn pause(&self, _machine: &Machine) -> Result<(), Error> {
        Err(self.cannot("pause"))
    }

    /// Lets a machine go on. One that runs is not changed.
    async fn resume(&self, _machine: &Machine) -> Result<(), Error> {
        Err(self.cannot("resume"))
    }

    /// Copies a machine that runs, once for each of `copies`, all or none. What
    /// runs in it goes on in the source and in every copy. The directories of the
    /// copies exist and are empty, as for [`Runtime::create`]; their roots are not used.
    async fn fork(
        &self,
        _source: &Machine,
        _copies: &[MachineSpec],
    ) -> Result<Vec<Machine>, Error> {
        Err(self.cannot("fork"))
    }

    /// Writes a machine that runs or is paused, as it is at one moment, into an empty directory:
    /// memory, devices and disks. It goes on as it was. What is there when this returns is on the
    /// host's disk, and needs nothing else to become a machine again.
    async fn save(&self, _machine: &Machine, _to: &std::path::Path) -> Result<(), Error> {
        Err(self.cannot("save a machine with its memory"))
    }

    /// Makes a machine of one that was saved: what ran in it goes on. As [`Runtime::create`], but
    /// that the root of the specification is not used, nor is anything in its kept directory.
    async fn restore(
        &self,
        _from: &std::path::Path,
        _spec: &MachineSpec,
    ) -> Result<Machine, Error> {
        Err(self.cannot("make a machine of one that was saved with its memory"))
    }

    /// Joins a machine that runs to a network again, when whoever took its frames has ended.
    async fn join(&self, _machine: &Machine, _uplink: Arc<dyn Uplink>) -> Result<(), Error> {
        Err(self.cannot("join a machine that runs to a network again"))
    }

    /// Ends the machine and removes everything it had except its directory's name.
    async fn destroy(&self, machine: &Machine) -> Result<(), Error>;

    /// Ends a machine at once, because its disks ([`Kept::dir`]) are about to be thrown away. They
    /// have what was written, for a caller who cannot replace it after all, but perhaps not on the
    /// host's disk yet. Returns false if there is no such end: the machine is as it was.
    async fn abandon(&self, _machine: &Machine) -> Result<bool, Error> {
        Ok(false)
    }

    /// Removes whatever is left of a machine of which only the id and the directory are known
    /// (a crash during `create`, a reboot of the host).
    async fn sweep(&self, id: &SandboxId, dir: &std::path::Path) -> Result<(), Error>;

    /// Makes ready for removal a directory of disks ([`Kept::dir`]) that no machine has and none
    /// will start from again. What is in it afterwards, its owner can remove: most runtimes have
    /// nothing to do here, but an ordinary user's disks hold files of other ids.
    async fn discard(&self, _kept: &std::path::Path) -> Result<(), Error> {
        Ok(())
    }

    /// Removes what was built for machines to come and can be built again, and says how many bytes
    /// of the disk it took. Machines that are there keep what they need.
    async fn prune(&self) -> Result<u64, Error> {
        Ok(0)
    }

    /// Environments were removed: lets go of what was made from roots that are gone.
    async fn environments_removed(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether a directory has the disks of a machine that was started with it before.
    fn has_disks(&self, _kept: &Kept) -> bool {
        true
    }

    /// How many errors the file systems of a machine that runs have met, as far as the host knows.
    fn disk_errors(&self, _kept: &Kept) -> u64 {
        0
    }

    /// Fetches an open file that a guest has lent under a token. Only where host and guest share a
    /// kernel; elsewhere bytes are copied through the guest.
    async fn take_file(&self, _machine: &Machine, _token: [u8; 16]) -> Result<OwnedFd, Error> {
        Err(Error::unsupported("this runtime lends no files"))
    }

    /// Whether [`take_file`](Runtime::take_file) works.
    fn lends_files(&self) -> bool {
        false
    }

    /// Shows an open directory of the host at a directory of a machine that runs, until the machine
    /// ends: what is in it then, and what it becomes. Nothing there can be written, executed with
    /// the rights of another, or used as a device. Links on the way to `at` are the machine's.
    async fn attach_directory(
        &self,
        _machine: &Machine,
        _directory: OwnedFd,
        _at: PathBuf,
    ) -> Result<(), Error> {
        Err(self.cannot("show a directory of the host in a machine"))
    }

    /// Whether [`attach_directory`](Runtime::attach_directory) works.
    fn attaches_directories(&self) -> bool {
        false
    }

    /// Whether what a guest has flushed is on the host's disk. Where it is not, the host has to
    /// [`flush`](Runtime::flush) before it may say that something was written.
    fn guest_flushes(&self) -> bool {
        true
    }

    /// Brings to the host's disk, into the files of its kept disks, what a machine that runs or is
    /// paused has written. `unavailable`: the machine has ended meanwhile.
    async fn flush(&self, _kept: &Kept) -> Result<(), Error> {
        Ok(())
    }

    /// Gives back to the host what a machine's disks no longer use. `at_rest`: the machine has
    /// ended, and the next one may start when this returns.
    async fn tend(&self, _kept: &Kept, _at_rest: bool) -> Result<(), Error> {
        Ok(())
    }

    /// Where the file systems of a machine are while it does not run.
    fn at_rest(&self, _kept: &Kept, _root: &std::path::Path) -> Result<AtRest, Error> {
        Err(self.cannot("show the disks of a stopped machine"))
    }

    /// What this runtime decides about the inside of a machine; nothing, for most.
    fn surroundings(&self, _machine: &Machine) -> Surroundings {
        Surroundings::default()
    }

    /// The answer to something this runtime cannot do.
    fn cannot(&self, what: &str) -> Error {
        Error::unsupported(format!("the {} runtime cannot {what}", self.name()))
    }

    /// [`Runtime::check`] as a report.
    async fn report(&self) -> RuntimeReport {
        let checks = self.check().await;
        let failed = checks
            .iter()
            .find(|check| check.health == crate::report::Health::Failed);
        RuntimeReport {
            name: self.name().to_string(),
            isolation: self.isolation(),
            works: failed.is_none(),
            emulated: self.emulated().await,
            detail: failed.map_or_else(|| "works".to_string(), |check| check.detail.clone()),
            fix: failed.and_then(|check| check.fix.clone()),
            capabilities: self.capabilities().names(),
            checks,
        }
    }
}
