//! One machine: created, found, removed.
//!
//! Order of creation, each step undone by [`remove`] from the records of the previous ones: record,
//! cgroups, disk, bundle, processes. The record is on disk before there is a process, and every
//! process is in the machine's cgroups from its first instruction on, so a crash at any point
//! leaves enough to clean up.

use crate::link::Links;
use crate::network::{self, Network};
use crate::oci::{Container, OciError, Program, Start};
use crate::prepare::{self, Decided, Disk};
use crate::record::{Record, known};
use crate::removal::{self, wait};
use crate::{Settings, disk, killer, mapped, mounts};
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::runtime::{AT_LIMIT, Ended, Machine, MachineLimits, MachineSpec};
use motu_core::sandbox::AppliedLimit;
use motu_core::{Error, ErrorKind, SandboxId};
use motu_local::disk::Disks;
use motu_local::{Hierarchies, Kind, Target, exit_status, place_program};
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long a started guest may take to listen.
const LISTEN_PATIENCE: Duration = Duration::from_secs(30);
/// Concurrent creations on the smallest host.
const TURNS_MIN: usize = 4;
/// Memory for gVisor itself, in addition to the machine's limit.
const OWN_MIB: u64 = 128;
/// Host tasks for gVisor itself: if it cannot create a thread, it exits with the whole machine.
const OWN_TASKS: u64 = 1024;
/// Host tasks that one task of the machine may need, exiting ones included.
const TASKS_PER_TASK: u64 = 8;

/// Options of `runsc`; see the security notes for each.
const OPTIONS: [&str; 5] = [
    "--platform=systrap",
    "--overlay2=none",
    "--host-uds=create",
    // Our own cgroups are entered before it starts, and cover all of its processes.
    "--ignore-cgroups",
    // Only this sandbox uses the machine's root.
    "--file-access=exclusive",
];

/// State shared by all machines of one state directory.
#[derive(Debug)]
pub(crate) struct Maker {
    pub(crate) cgroups: Hierarchies,
    pub(crate) disks: Disks,
    pub(crate) home: PathBuf,
    pub(crate) usual_disk_mib: u64,
    /// Root, with what mounting needs.
    pub(crate) privileged: bool,
    /// Serializes probes.
    pub(crate) probing: tokio::sync::Mutex<()>,
    guest: bytes::Bytes,
    guest_file: OnceLock<PathBuf>,
    named: Option<PathBuf>,
    program: OnceLock<Program>,
    allows_suid: OnceLock<bool>,
    refilling: AtomicBool,
    pub(crate) links: Links,
    /// Limits concurrent creations: more would only wait for each other.
    turns: Semaphore,
}

impl Maker {
    pub(crate) fn new(settings: Settings) -> Maker {
        let hash = Sha256::digest(settings.home.as_os_str().as_encoded_bytes());
        let seed = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
        let cache = settings.home.join("cache/gvisor");
        Maker {
            // A separate name: the group is removed with its last machine, and another runtime may
            // still have some.
            cgroups: Hierarchies::detect(&format!("motu-{seed:08x}-gvisor")),
            disks: Disks::new(cache.join("disks"), settings.usual_disk_mib),
            home: settings.home,
            usual_disk_mib: settings.usual_disk_mib,
            privileged: privileged(),
            probing: tokio::sync::Mutex::new(()),
            guest: settings.guest,
            guest_file: OnceLock::new(),
            named: settings.program,
            program: OnceLock::new(),
            allows_suid: OnceLock::new(),
            refilling: AtomicBool::new(false),
            links: Links::default(),
            turns: Semaphore::new(turns()),
        }
    }

    /// `runsc`, looked for until it is found.
    pub(crate) fn program(&self) -> Result<&Program, OciError> {
        if let Some(program) = self.program.get() {
            return Ok(program);
        }
        let found = match &self.named {
            Some(path) => Program::named(path)?,
            None => Program::find("runsc")?,
        };
        let found = found.with(OPTIONS);
        Ok(self.program.get_or_init(|| found))
    }

    /// Whether this `runsc` supports setuid programs.
    pub(crate) fn allows_suid(&self) -> bool {
        let ask = || self.program()?.knows("allow-suid");
        *self.allows_suid.get_or_init(|| ask().unwrap_or(false))
    }

    pub(crate) fn known_to_allow_suid(&self) -> bool {
        self.allows_suid.get().copied().unwrap_or_default()
    }

    /// Records whether this `runsc` supports setuid programs, if it is known already.
    pub(crate) fn remember_suid(&self, allows: bool) {
        self.allows_suid.get_or_init(|| allows);
    }

    /// `runsc` with everything a machine needs.
    fn program_for(&self, spec: &MachineSpec) -> Result<Program, Error> {
        let program = self.program().map_err(explain)?.clone();
        let program = program.with([network::option(spec)]);
        match spec.wants_sudo && self.allows_suid() {
            true => Ok(program.with(["--allow-suid"])),
            false => Ok(program),
        }
    }

    pub(crate) fn plan_text(&self, spec: &MachineSpec) -> Result<String, Error> {
        self.judge(&spec.limits)?;
        let limit = disk::judge(self.bounded(), spec.limits.disk_mib)?;
        let decided = Decided {
            guest: self.guest_place(),
            disk: match limit.enforced {
                true => Disk::Mounted,
                false => Disk::Directory(spec.dir.join(prepare::DISK)),
            },
            processors: self.processors(spec),
        };
        let mut options: Vec<String> = OPTIONS.map(str::to_string).into();
        options.push(network::option(spec).to_string());
        Ok(prepare::describe(spec, &decided, &options))
    }

    /// How many processors programs are shown, where they are limited to them.
    fn processors(&self, spec: &MachineSpec) -> Option<u64> {
        let limited = self.cgroups.controller(Kind::Cpu).is_some();
        limited.then_some(spec.limits.vcpu_count.value)
    }

    /// How each limit but the disk's is enforced, in the machine's own numbers.
    fn judge(&self, limits: &MachineLimits) -> Result<Vec<AppliedLimit>, Error> {
        let mut applied = self.cgroups.judge(limits)?;
        for limit in applied.iter_mut().filter(|limit| limit.enforced) {
            match &*limit.name {
                "mem_mib" => limit.by += &format!(", with {OWN_MIB} MiB more for gVisor itself"),
                "pids_max" => {
                    limit.by = format!("gVisor for each user, and {} behind it", limit.by);
                }
                _ => {}
            }
        }
        applied.push(AppliedLimit {
            name: "nofile".into(),
            value: limits.nofile.value,
            enforced: true,
            by: "rlimit of gVisor".into(),
        });
        Ok(applied)
    }

    pub(crate) fn guest_place(&self) -> PathBuf {
        self.home.join("cache/gvisor").join(self.guest_name())
    }

    /// The file name of the guest program, which says its content.
    pub(crate) fn guest_name(&self) -> String {
        let hash = Sha256::digest(&self.guest);
        let name = u64::from_be_bytes(std::array::from_fn(|at| hash[at]));
        format!("guest-{name:016x}")
    }

    /// The guest program as a file, written once.
    fn guest_file(&self) -> io::Result<&Path> {
        if let Some(file) = self.guest_file.get() {
            return Ok(file);
        }
        let place = self.guest_place();
        let written = std::fs::metadata(&place).map(|found| found.len());
        if written.ok() != Some(self.guest.len() as u64) {
            place_program(&place, &self.guest)?;
        }
        Ok(self.guest_file.get_or_init(|| place))
    }

    fn make(&self, spec: &MachineSpec) -> Result<Machine, Error> {
        let failed = |error: io::Error| Error::io("the machine's directory", &error);
        let program = self.program_for(spec)?;
        let mut limits = self.judge(&spec.limits)?;
        let guest = self
            .guest_file()
            .map_err(|error| Error::io("the guest program", &error))?;
        let mut record = Record::new();
        record.store(&spec.dir)?;
        self.cgroups
            .make(spec.id.as_str(), &host_limits(&spec.limits))?;
        // Until the machine's own programs run, gVisor may use all CPUs to start.
        self.cgroups
            .limit_cpu(spec.id.as_str(), None)
            .map_err(|error| Error::io("the machine's cgroup", &error))?;
        let ready = disk::obtain(&self.disks, self.bounded(), spec)?;
        self.limit_io(spec, ready.mount.as_ref())
            .map_err(failed)??;
        let decided = Decided {
            guest: guest.to_path_buf(),
            disk: ready.disk,
            processors: self.processors(spec),
        };
        lay_out(spec).map_err(failed)?;
        let start = Start {
            cgroups: self.doors(spec).map_err(failed)?,
            // A filter of an ordinary user would keep `newuidmap` from its privileges.
            without_process_barriers: self.privileged,
        };
        let network = spec.network.as_deref().map(Network::new).transpose()?;
        let namespace = network.as_ref().map(|network| &network.namespace);
        let pid = match self.privileged {
            true => enclosed(spec, &decided, ready.mount, (&program, start), namespace)?,
            false => start_mapped(spec, &decided, program, start)?,
        };

        record.process = known(pid);
        if let Some(network) = network {
            let (sandbox, _) = record
                .open()
                .ok_or_else(|| Error::internal("gVisor is gone already"))?;
            network.attached.hold(sandbox)?;
        }
        record.gofer = self.gofer(spec);
        record.store(&spec.dir)?;
        limits.push(ready.limit);
        Ok(Machine {
            id: spec.id.clone(),
            dir: spec.dir.clone(),
            limits,
            accelerator: None,
            record: serde_json::to_value(&record).map_err(|e| Error::internal(e.to_string()))?,
        })
    }

    /// Sets I/O limits, now that the devices are known.
    fn limit_io(
        &self,
        spec: &MachineSpec,
        mount: Option<&OwnedFd>,
    ) -> io::Result<Result<(), Error>> {
        if spec.limits.io().is_empty() {
            return Ok(Ok(()));
        }
        let device = |path: &Path| path.metadata().map(|found| found.dev());
        let target = match (mount, &spec.kept) {
            (Some(mount), _) => Target::Own(rustix::fs::fstat(mount)?.st_dev),
            (None, Some(kept)) => Target::Shared(device(&kept.dir)?),
            (None, None) => Target::Shared(device(&spec.dir)?),
        };
        let disks = (target, device(&spec.root)?);
        Ok(self.cgroups.limit_io(spec.id.as_str(), &spec.limits, disks))
    }

    /// Open `cgroup.procs` files, for a process to enter the machine's cgroups.
    fn doors(&self, spec: &MachineSpec) -> io::Result<Vec<OwnedFd>> {
        let entries = self.cgroups.entries(spec.id.as_str(), &spec.limits);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let open = |file: &PathBuf| Ok(rustix::fs::open(file, flags, Mode::empty())?);
        entries.iter().map(open).collect()
    }

    /// The gofer, recognized by its process name. Without cgroups it may be any process of the host: its command line
    /// names the bundle.
    fn gofer(&self, spec: &MachineSpec) -> Option<motu_local::Process> {
        let grouped = !self.cgroups.controllers.is_empty();
        let pids = match grouped {
            true => self.cgroups.processes(spec.id.as_str()),
            false => mapped::processes(),
        };
        let bundle = spec.dir.as_os_str().as_encoded_bytes();
        let is_gofer = |pid: &i32| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
                let named = || line.windows(bundle.len()).any(|part| part == bundle);
                line.starts_with(b"runsc-gofer\0") && (grouped || named())
            })
        };
        pids.into_iter().find(is_gofer).and_then(known)
    }

    /// Why disks have no limit here, if so.
    pub(crate) fn bounded(&self) -> Result<(), &'static str> {
        match (self.privileged, self.disks.missing()) {
            (false, _) => Err("an ordinary user's sandboxes write to a plain directory"),
            (true, Some(reason)) => Err(reason),
            (true, None) => Ok(()),
        }
    }

    /// Prepares disks, unless that is going on already.
    fn refill(&self) {
        if self.bounded().is_err() || self.refilling.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Err(error) = self.disks.refill() {
            tracing::warn!(%error, "creating disks in advance failed");
        }
        self.refilling.store(false, Ordering::Release);
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.cgroups.leave();
    }
}

/// Root that may mount what is the host's: disks, not only what a namespace of its own has.
fn privileged() -> bool {
    may_mount() && !motu_local::nested::is_rootless()
}

pub(crate) fn may_mount() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    let able =
        |sets: rustix::thread::CapabilitySets| sets.effective.contains(CapabilitySet::SYS_ADMIN);
    rustix::process::geteuid().is_root() && capabilities(None).is_ok_and(able)
}

/// Number of concurrent creations.
fn turns() -> usize {
    let cpus = std::thread::available_parallelism();
    cpus.map_or(TURNS_MIN, |cpus| TURNS_MIN.max(2 * cpus.get()))
}

/// The limits of the host's cgroups: the machine's plus those of gVisor.
fn host_limits(limits: &MachineLimits) -> MachineLimits {
    let mut host = *limits;
    host.mem_mib.value = limits.mem_mib.value.saturating_add(OWN_MIB);
    let tasks = prepare::tasks(limits.pids_max.value).saturating_mul(TASKS_PER_TASK);
    host.pids_max.value = tasks.saturating_add(OWN_TASKS);
    host
}

/// Makes the directories and files that the mounts and `runsc` expect.
fn lay_out(spec: &MachineSpec) -> io::Result<()> {
    let mut private = std::fs::DirBuilder::new();
    private.mode(0o700);
    for name in [
        prepare::LINK_DIR,
        prepare::ROOT,
        prepare::WORKSPACE,
        prepare::STATE,
    ] {
        private.create(spec.dir.join(name))?;
    }
    let meminfo = prepare::meminfo(spec.limits.mem_mib.value);
    std::fs::write(spec.dir.join(prepare::MEMINFO), meminfo)
}

/// Mounts everything in a private mount namespace and starts `runsc` there; returns the sandbox's
/// pid.
fn enclosed(
    spec: &MachineSpec,
    decided: &Decided,
    disk: Option<OwnedFd>,
    (program, start): (&Program, Start),
    namespace: Option<&OwnedFd>,
) -> Result<i32, Error> {
    let steps = prepare::mounts(spec, decided);
    let work = || {
        mounts::execute(&steps, disk.as_ref()).map_err(|failure| match failure.error.kind() {
            io::ErrorKind::PermissionDenied => Error::unavailable(failure.to_string())
                .hint(hint![verb("doctor"), " says what this host does not allow"]),
            _ => Error::internal(failure.to_string()),
        })?;
        let entered = namespace.map(network::enter).transpose();
        let joined = entered.map_err(|error| Error::io("the machine's network", &error))?;
        prepare::config(spec, decided, joined)
            .write(&spec.dir)
            .map_err(explain)?;
        program
            .run(container(&spec.id, &spec.dir), start)
            .map_err(explain)
    };
    // A separate thread: its mount namespace ends with it.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("motu-gvisor".into());
        let thread = thread.spawn_scoped(scope, work);
        let thread = thread.map_err(|error| Error::io("a thread for the machine", &error))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(Error::internal("making a machine panicked")))
    })
}

/// Starts `runsc` of an ordinary user, which mounts everything on the way; returns the sandbox's pid.
fn start_mapped(
    spec: &MachineSpec,
    decided: &Decided,
    program: Program,
    start: Start,
) -> Result<i32, Error> {
    prepare::config(spec, decided, None)
        .write(&spec.dir)
        .map_err(explain)?;
    let steps = prepare::mounts(spec, decided);
    program
        .within(mapped::words(&steps))
        .run(container(&spec.id, &spec.dir), start)
        .map_err(explain)
}

fn container<'a>(id: &'a SandboxId, dir: &'a Path) -> Container<'a> {
    Container {
        dir,
        state: Path::new(prepare::STATE),
        id: id.as_str(),
    }
}

/// How to install `runsc`.
pub(crate) const INSTALL: &str = "on Debian 12: `apt-get install -t bookworm-backports runsc`, with the backports suite enabled; \
    docs/hosts.md says how to build the newest, and `[gvisor] program` in config.toml names one that is elsewhere";
/// What helps when the configuration names no program.
pub(crate) const RENAME: &str = "write the absolute path of a runsc into config.toml, or leave the line out: then it is looked for in PATH";

/// Converts a failed call of `runsc` to the service's `Error`.
fn explain(error: OciError) -> Error {
    let message = error.to_string();
    match error {
        OciError::Missing { .. } => Error::unavailable(message).hint(INSTALL),
        OciError::Misnamed { .. } => Error::unavailable(message).hint(RENAME),
        OciError::Slow { .. } => Error::new(ErrorKind::Timeout, message),
        OciError::Failed { .. } => Error::unavailable(message).hint(hint![
            verb("doctor"),
            " says whether gVisor works on this host"
        ]),
        OciError::Io { what, error } => Error::io(what, &error),
        OciError::Nonsense { .. } => Error::internal(message),
    }
}

/// Creates a machine whose guest listens, or cleans up and returns the error.
pub(crate) async fn create(maker: &Arc<Maker>, spec: &MachineSpec) -> Result<Machine, Error> {
    let turn = maker.turns.acquire().await;
    let (worker, order) = (maker.clone(), spec.clone());
    let made = tokio::task::spawn_blocking(move || worker.make(&order)).await;
    let made = made.unwrap_or_else(|_| Err(Error::internal("making a machine panicked")));
    let made = match made {
        Ok(machine) => begins(maker, &machine, spec).await.map(|()| machine),
        Err(error) => Err(error),
    };
    drop(turn);
    let refiller = maker.clone();
    tokio::task::spawn_blocking(move || refiller.refill());
    if made.is_err() {
        let record = Record::load(&spec.dir);
        if let Err(left) = remove(maker, &spec.id, &spec.dir, record).await {
            tracing::warn!(sandbox = %spec.id, error = %left, "cleaning up a failed machine failed");
        }
    }
    made
}

/// Waits for the guest, and then applies the machine's CPU limit.
async fn begins(maker: &Maker, machine: &Machine, spec: &MachineSpec) -> Result<(), Error> {
    listens(maker, machine).await?;
    let members = maker.cgroups.processes(machine.id.as_str());
    let sandbox = record_of(machine).and_then(|record| record.process);
    if let Some(Err(error)) =
        sandbox.map(|sandbox| killer::spare_the_sandbox(sandbox.pid, &members))
    {
        tracing::warn!(sandbox = %machine.id, %error, "setting the OOM score failed; an OOM kill may end the whole machine");
    }
    let vcpu_count = Some(spec.limits.vcpu_count.value);
    let limited = maker.cgroups.limit_cpu(machine.id.as_str(), vcpu_count);
    limited.map_err(|error| Error::io("the machine's cgroup", &error))
}

/// Waits until the guest accepts connections, or has ended.
async fn listens(maker: &Maker, machine: &Machine) -> Result<(), Error> {
    tokio::select! {
        () = maker.links.begin(machine) => Ok(()),
        end = ended(maker, machine) => Err(Error::unavailable(format!("the guest did not start: {}", end.reason))),
        () = tokio::time::sleep(LISTEN_PATIENCE) => {
            Err(Error::new(ErrorKind::Timeout, "the guest did not start to listen"))
        }
    }
}

/// The record of a machine.
pub(crate) fn record_of(machine: &Machine) -> Option<Record> {
    serde_json::from_value(machine.record.clone())
        .ok()
        .or_else(|| Record::load(&machine.dir))
}

/// Whether all of the machine's processes exist.
pub(crate) fn is_whole(machine: &Machine) -> bool {
    record_of(machine).is_some_and(|record| record.open().is_some())
}

/// Waits for the end of a machine.
pub(crate) async fn ended(maker: &Maker, machine: &Machine) -> Ended {
    let Some((sandbox, gofer)) = record_of(machine).and_then(|record| record.open()) else {
        let reason = "the machine is not there".to_string();
        return Ended { reason };
    };
    let kills = maker.cgroups.memory_kills(machine.id.as_str());
    let refused = maker.cgroups.refused_tasks(machine.id.as_str());
    let gofer = async {
        match gofer {
            Some(gofer) => wait(gofer).await,
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        ended = wait(sandbox) => ended,
        ended = gofer => ended,
    };
    let status = ended.map(|pidfd| exit_status(pidfd.as_fd()));
    let out_of_memory = maker.cgroups.memory_kills(machine.id.as_str()) > kills;
    let out_of_tasks = maker.cgroups.refused_tasks(machine.id.as_str()) > refused;
    let reason = match status {
        Err(error) => format!("the machine could not be watched: {error}"),
        Ok(_) if out_of_memory => format!("the machine was ended {AT_LIMIT}memory (mem_mib)"),
        // gVisor exits if it cannot create a thread, and keeps some threads of every process for
        // long.
        Ok(_) if out_of_tasks => format!(
            "the machine was ended {AT_LIMIT}processes: gVisor itself needs more of them than pids_max leaves it"
        ),
        Ok(None) => "the guest ended".to_string(),
        Ok(Some(status)) if libc::WIFSIGNALED(status) => {
            format!("the guest was killed by signal {}", libc::WTERMSIG(status))
        }
        Ok(Some(status)) => format!("the guest exited with code {}", libc::WEXITSTATUS(status)),
    };
    Ended { reason }
}

pub(crate) async fn pause(maker: &Arc<Maker>, machine: &Machine) -> Result<(), Error> {
    still(maker, machine, true, Program::pause).await
}

pub(crate) async fn resume(maker: &Arc<Maker>, machine: &Machine) -> Result<(), Error> {
    still(maker, machine, false, Program::resume).await
}

/// The host's freezer stops all of gVisor at once; without one, gVisor stops its tasks.
async fn still(
    maker: &Arc<Maker>,
    machine: &Machine,
    frozen: bool,
    verb: fn(&Program, Container<'_>) -> Result<(), OciError>,
) -> Result<(), Error> {
    if !is_whole(machine) {
        return Err(Error::not_found("the machine is gone"));
    }
    if maker.cgroups.controller(Kind::Freezer).is_some() {
        return maker.cgroups.freeze(machine.id.as_str(), frozen).await;
    }
    let (worker, id, dir) = (maker.clone(), machine.id.clone(), machine.dir.clone());
    let call = move || verb(worker.program()?, container(&id, &dir));
    let called = tokio::task::spawn_blocking(call).await;
    called
        .map_err(|_| Error::internal("a call of runsc panicked"))?
        .map_err(explain)
}

/// Ends a machine and removes everything it had. Idempotent.
pub(crate) async fn remove(
    maker: &Maker,
    id: &SandboxId,
    dir: &Path,
    record: Option<Record>,
) -> Result<(), Error> {
    maker.links.forget(id);
    removal::end(&maker.cgroups, id, record).await?;
    removal::clear(dir, maker.privileged).await
}
