//! One machine: created, found, removed.
//!
//! Order of creation, each step undone by [`remove`] from the records of the previous ones: id
//! range, record, cgroups, disk, launcher, process. The record is on disk before there is a
//! process, so a crash at any point leaves enough to clean up.

use crate::ahead::Ahead;
use crate::host::Host;
use crate::kept::{self, Form, Mounted};
use crate::launch::{Finished, LaunchError, Launcher};
use crate::prepare::{self, Decided};
use crate::processors::Processors;
use crate::record::Record;
use crate::slots::Slots;
use crate::wire::Wire;
use crate::{Settings, seccomp, waiting};
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::runtime::{Ask, Connection, Ended, Machine, MachineSpec};
use motu_core::sandbox::AppliedLimit;
use motu_core::{Error, ErrorKind, SandboxId};
use motu_launch::report::receive_packet;
use motu_launch::{Disk, LINK_SOCKET, Plan};
use motu_local::disk::{self, Disks};
use motu_local::{Hierarchies, Kind, Process, Target, exit_status, start_time, watch};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, pidfd_send_signal};
use sha2::{Digest, Sha256};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

/// How long a killed machine may take to disappear.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// Concurrent creations on the smallest host.
const TURNS_MIN: usize = 4;

/// State shared by all machines of one state directory.
#[derive(Debug)]
pub(crate) struct Maker {
    pub(crate) host: Host,
    pub(crate) cgroups: Hierarchies,
    pub(crate) disks: Arc<Disks>,
    pub(crate) ahead: Arc<Ahead>,
    pub(crate) home: PathBuf,
    launcher: Launcher,
    filter: Vec<u8>,
    processors: Processors,
    slots: Slots,
    refilling: AtomicBool,
    /// Limits concurrent creations: more would only wait for each other in the kernel.
    turns: Semaphore,
}

impl Maker {
    pub(crate) fn new(settings: Settings) -> Result<Maker, Error> {
        let hash = Sha256::digest(settings.home.as_os_str().as_encoded_bytes());
        let seed = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
        let host = Host::detect();
        let slots = Slots::new(settings.home.join("run/uids"), seed);
        slots.sweep();
        Ok(Maker {
            cgroups: Hierarchies::detect(&format!("motu-{seed:08x}")),
            disks: Arc::new(Disks::new(
                settings.home.join("cache/disks"),
                settings.usual_disk_mib,
            )),
            ahead: Arc::default(),
            launcher: Launcher::new(&settings.guest)
                .map_err(|error| Error::io("the guest program", &error))?,
            filter: seccomp::filter().map_err(|e| Error::internal(e.to_string()))?,
            processors: Processors::default(),
            home: settings.home,
            refilling: AtomicBool::new(false),
            turns: Semaphore::new(turns()),
            host,
            slots,
        })
    }

    pub(crate) fn can_pause(&self) -> bool {
        self.cgroups.controller(Kind::Freezer).is_some()
    }

    pub(crate) fn plan_text(&self, spec: &MachineSpec) -> Result<String, Error> {
        let (disk, _) = self.judge_disk(spec)?;
        self.cgroups.judge(&spec.limits)?;
        let nofile = self.judge_nofile(spec.limits.nofile)?;
        let decided = Decided {
            first_id: self
                .host
                .privileged
                .then(|| Slots::first_id(self.slots.example())),
            cgroup_entries: self.cgroups.entries(spec.id.as_str(), &spec.limits),
            cgroups: self.cgroups.shown(),
            bounded_memory: self.cgroups.controller(Kind::Memory).is_some(),
            processors: self.processors.of(&self.cgroups, &spec.limits),
            disk,
            nofile: nofile.value,
            filter: self.filter.clone(),
        };
        Ok(prepare::plan(&self.host, spec, decided).to_string())
    }

    /// Runs a plan that makes no machine.
    pub(crate) fn run(&self, plan: &Plan, given: Vec<OwnedFd>) -> Result<(), LaunchError> {
        let (result, finished) = self.launcher.run(plan, given, |_| {});
        finished.into_iter().for_each(Finished::collect);
        result
    }

    pub(crate) fn probe(&self) -> Result<(), LaunchError> {
        self.run(&prepare::probe(&self.host, &self.home), Vec::new())
    }

    /// Starts launchers and prepares disks, unless that is going on already.
    pub(crate) fn refill(&self) {
        if self.refilling.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Err(error) = self.launcher.refill() {
            tracing::warn!(%error, "starting launchers in advance failed");
        }
        let bounded = self.host.privileged && self.disks.missing().is_none();
        if let Some(Err(error)) = bounded.then(|| self.disks.refill()) {
            tracing::warn!(%error, "creating disks in advance failed");
        }
        self.refilling.store(false, Ordering::Release);
    }

    /// How the disk's size will be enforced, or that it cannot be.
    fn judge_disk(&self, spec: &MachineSpec) -> Result<(Disk, AppliedLimit), Error> {
        let ask = spec.limits.disk_mib;
        let reason = if self.host.privileged {
            self.disks.missing()
        } else {
            Some("an ordinary user cannot mount a disk of bounded size")
        };
        let form = spec.kept.as_ref().map(|kept| kept::form(&kept.dir));
        let reason = match (form, reason) {
            (Some(Form::Image), Some(reason)) => {
                return Err(Error::unsupported(format!(
                    "the machine's disk cannot be mounted: {reason}"
                ))
                .hint("run the daemon as root with e2fsprogs installed, as when it was made"));
            }
            (Some(Form::Directory), None) => Some("its disk was made as a plain directory"),
            (_, reason) => reason,
        };
        let place = match &spec.kept {
            Some(kept) => kept::directory(&kept.dir),
            None => prepare::DIRECTORY.into(),
        };
        let limit = |enforced, by: &str| AppliedLimit {
            name: "disk_mib".into(),
            value: ask.value,
            enforced,
            by: by.into(),
        };
        match reason {
            None => Ok((Disk::Mounted, limit(true, "ext4 image"))),
            Some(reason) if ask.explicit => Err(Error::unsupported(format!(
                "disk_mib cannot be enforced: {reason}"
            ))
            .hint("leave the limit out, or run the daemon as root with e2fsprogs installed")),
            Some(reason) => Ok((Disk::Directory(place), limit(false, reason))),
        }
    }

    /// Open files can always be limited, but not above the daemon's own limit.
    fn judge_nofile(&self, ask: Ask) -> Result<AppliedLimit, Error> {
        let max = self.host.nofile_max;
        if ask.value > max && ask.explicit {
            return Err(Error::unsupported(format!(
                "nofile cannot be {}: the daemon's own limit is {max}",
                ask.value
            ))
            .hint(format!(
                "ask for at most {max}, or raise the daemon's limit"
            )));
        }
        let by = if ask.value > max {
            "rlimit, lowered to the daemon's own limit"
        } else {
            "rlimit"
        };
        Ok(AppliedLimit {
            name: "nofile".into(),
            value: ask.value.min(max),
            enforced: true,
            by: by.into(),
        })
    }

    /// Creates a machine. `remove` cleans up after a failure.
    fn make(&self, spec: &MachineSpec) -> (Result<Machine, Error>, Option<Finished>) {
        let mut finished = None;
        let made = self.make_machine(spec, &mut finished);
        (made, finished)
    }

    fn make_machine(
        &self,
        spec: &MachineSpec,
        finished: &mut Option<Finished>,
    ) -> Result<Machine, Error> {
        let (mut disk, mut disk_limit) = self.judge_disk(spec)?;
        let nofile = self.judge_nofile(spec.limits.nofile)?;
        let slot = match self.host.privileged {
            true => Some(self.slots.take(&spec.dir)?),
            false => None,
        };
        let mut record = Record::new(slot);
        record.store(&spec.dir)?;
        let cgroups = self.cgroups.make(spec.id.as_str(), &spec.limits)?;
        let mount = self.make_disk(&mut disk, &mut disk_limit, spec)?;
        self.limit_io(spec, mount.as_ref())?;
        // Only now: a machine that failed before must not wait for a machine that still uses the
        // disks.
        record.kept = spec.kept.as_ref().map(|kept| kept.dir.clone());
        let decided = Decided {
            first_id: slot.map(Slots::first_id),
            cgroup_entries: cgroups.entries,
            cgroups: self.cgroups.shown(),
            bounded_memory: self.cgroups.controller(Kind::Memory).is_some(),
            processors: self.processors.of(&self.cgroups, &spec.limits),
            disk,
            nofile: nofile.value,
            filter: self.filter.clone(),
        };
        let plan = prepare::plan(&self.host, spec, decided);
        let mut first = None;
        let (result, launcher) = self
            .launcher
            .run(&plan, mount.into_iter().collect(), |started| {
                let noted = self.note(&mut record, &spec.dir, started.pid);
                let uplink = spec.network.as_deref();
                let wire = uplink.map(|to| Wire::begin(to, started, self.host.privileged));
                first = Some(noted.map(|()| wire));
            });
        *finished = launcher;
        result.map_err(|error| explain(&error))?;
        let wire =
            first.ok_or_else(|| Error::internal("the machine started without a process"))??;
        if let Some(wire) = wire {
            wire?.hold()?;
        }

        let mut limits = cgroups.limits;
        limits.extend([disk_limit, nofile]);
        Ok(Machine {
            id: spec.id.clone(),
            dir: spec.dir.clone(),
            limits,
            accelerator: None,
            record: serde_json::to_value(&record).map_err(|e| Error::internal(e.to_string()))?,
        })
    }

    /// Creates the disk. If it cannot be mounted and the size was not explicit, a directory is used
    /// instead, and the limit is reported as not enforced.
    fn make_disk(
        &self,
        disk: &mut Disk,
        limit: &mut AppliedLimit,
        spec: &MachineSpec,
    ) -> Result<Option<OwnedFd>, Error> {
        let failed = |error: io::Error| Error::io("the machine's disk", &error);
        if let Some(kept) = &spec.kept {
            if *disk != Disk::Mounted {
                return kept::make_directory(kept).map(|_| None);
            }
            let ahead = || self.ahead.take(kept, limit.value);
            let mounted = kept::mount(&self.disks, ahead, kept, limit.value);
            let Mounted { mount, mib } = mounted?;
            limit.value = mib;
            return Ok(Some(mount));
        }
        if *disk == Disk::Mounted {
            match self
                .disks
                .lend(spec.limits.disk_mib.value, spec.id.as_str())
            {
                Ok(mount) => return Ok(Some(mount)),
                Err(error) if spec.limits.disk_mib.explicit => return Err(failed(error)),
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    return Err(failed(error));
                }
                Err(error) => {
                    limit.enforced = false;
                    limit.by = format!("no disk could be mounted: {error}");
                }
            }
        }
        disk::plain_directory(&spec.dir.join(prepare::DIRECTORY)).map_err(failed)?;
        *disk = Disk::Directory(prepare::DIRECTORY.into());
        Ok(None)
    }

    /// Sets I/O limits, now that the devices are known.
    fn limit_io(&self, spec: &MachineSpec, mount: Option<&OwnedFd>) -> Result<(), Error> {
        if spec.limits.io().is_empty() {
            return Ok(());
        }
        let failed = |error: io::Error| Error::io("the machine's disk", &error);
        let target = match (mount, &spec.kept) {
            (Some(mount), _) => {
                let found = rustix::fs::fstat(mount).map_err(|errno| failed(errno.into()))?;
                Target::Own(found.st_dev)
            }
            (None, Some(kept)) => Target::Shared(device_of(&kept.dir).map_err(failed)?),
            (None, None) => Target::Shared(device_of(&spec.dir).map_err(failed)?),
        };
        let environment = device_of(&spec.root).map_err(failed)?;
        self.cgroups
            .limit_io(spec.id.as_str(), &spec.limits, (target, environment))
    }

    /// Stores the first process while it still waits for its root.
    fn note(&self, record: &mut Record, dir: &Path, pid: i32) -> Result<(), Error> {
        let start_time = start_time(pid)
            .ok_or_else(|| Error::internal("the machine's first process is gone already"))?;
        record.process = Some(Process { pid, start_time });
        record.store(dir)
    }

    pub(crate) async fn freeze(&self, machine: &Machine, frozen: bool) -> Result<(), Error> {
        if find(machine).is_none() {
            return Err(Error::not_found("the machine is gone"));
        }
        self.cgroups.freeze(machine.id.as_str(), frozen).await
    }

    /// Removes the contents of a machine's directory, but not the directory.
    pub(crate) fn empty(&self, dir: &Path) -> Result<(), Error> {
        match remove_contents(dir) {
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && !self.host.privileged =>
            {
                // Files of the machine's other ids: only a process with these ids may remove them.
                self.run(&prepare::removal(&self.host, dir), Vec::new())
                    .map_err(|error| Error::new(ErrorKind::Cleanup, error.to_string()))
            }
            Err(error) => Err(Error::new(
                ErrorKind::Cleanup,
                format!("{} could not be emptied: {error}", dir.display()),
            )),
            Ok(()) => Ok(()),
        }
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.cgroups.leave();
    }
}

fn device_of(path: &Path) -> io::Result<u64> {
    Ok(std::os::unix::fs::MetadataExt::dev(&path.metadata()?))
}

fn remove_contents(dir: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Number of concurrent creations.
fn turns() -> usize {
    let cpus = std::thread::available_parallelism();
    cpus.map_or(TURNS_MIN, |cpus| TURNS_MIN.max(2 * cpus.get()))
}

/// Creates a machine, or cleans up and returns the error.
pub(crate) async fn create(maker: &Arc<Maker>, spec: &MachineSpec) -> Result<Machine, Error> {
    let former = maker.ahead.former(&spec.id);
    let turn = maker.turns.acquire().await;
    let (worker, order) = (maker.clone(), spec.clone());
    let (made, finished) = tokio::task::spawn_blocking(move || worker.make(&order))
        .await
        .unwrap_or_else(|_| (Err(Error::internal("making a machine panicked")), None));
    drop(turn);
    let refiller = maker.clone();
    let collected = tokio::task::spawn_blocking(move || {
        finished.into_iter().for_each(Finished::collect);
        refiller.refill();
    });
    match made {
        Ok(machine) => {
            if let Some((kept, former)) = spec.kept.as_ref().zip(former) {
                waiting::after_reset((&maker.ahead, &maker.disks), former, kept, &machine);
            }
            Ok(machine)
        }
        Err(error) => {
            // The launcher may still hold mounts of what is to be removed.
            let _ = collected.await;
            let record = Record::load(&spec.dir);
            if let Err(left) = remove(maker, &spec.id, &spec.dir, record).await {
                tracing::warn!(sandbox = %spec.id, error = %left, "cleaning up a failed machine failed");
            }
            Err(error)
        }
    }
}

/// Converts a launch error to the service's `Error`.
pub(crate) fn explain(error: &LaunchError) -> Error {
    let LaunchError::Step(failure) = error else {
        return Error::internal(error.to_string());
    };
    let message = failure.to_string();
    match failure.errno {
        libc::EAGAIN if failure.step.starts_with("lock ") => kept::in_use(),
        libc::EPERM | libc::EACCES => Error::unavailable(message)
            .hint(hint![verb("doctor"), " says what this host does not allow"]),
        libc::ENOSPC if failure.step.starts_with("start pid 1") => {
            Error::limit(message).hint("raise the limits in /proc/sys/user/max_*_namespaces")
        }
        libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE => Error::limit(message),
        libc::ENOSYS | libc::ENODEV => Error::unsupported(message),
        _ => Error::internal(message),
    }
}

/// The record of a machine.
pub(crate) fn record_of(machine: &Machine) -> Option<Record> {
    serde_json::from_value(machine.record.clone())
        .ok()
        .or_else(|| Record::load(&machine.dir))
}

/// A pidfd of the machine's first process, if it exists.
pub(crate) fn find(machine: &Machine) -> Option<OwnedFd> {
    record_of(machine)?.open()
}

/// Connects to the guest through the directory's descriptor: a Unix socket address has 107 bytes,
/// and a state directory may be deeper.
pub(crate) async fn connect(dir: &Path) -> Result<Connection, Error> {
    let (read, write) = reach(dir).await?.into_split();
    Ok(Connection::new(read, write))
}

async fn reach(dir: &Path) -> Result<UnixStream, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, Mode::empty()).map_err(|e| unreached(e.into()))?;
    let path = format!("/proc/self/fd/{}/{LINK_SOCKET}", dir.as_raw_fd());
    UnixStream::connect(path).await.map_err(unreached)
}

fn unreached(error: io::Error) -> Error {
    Error::transport(format!("the guest's link: {error}"))
}

/// Fetches an open file that the guest has lent.
pub(crate) async fn take_file(dir: &Path, token: [u8; 16]) -> Result<OwnedFd, Error> {
    let mut stream = reach(dir).await?;
    let hello = motu_link::hello::take(&token);
    stream.write_all(&hello).await.map_err(unreached)?;
    let files = loop {
        stream.readable().await.map_err(unreached)?;
        let mut answer = [0];
        let receive = || receive_packet(stream.as_fd(), &mut answer);
        match stream.try_io(Interest::READABLE, receive) {
            Ok((_, files)) => break files,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(unreached(error)),
        }
    };
    let mut files = files.into_iter();
    files
        .next()
        .ok_or_else(|| Error::transport("the guest has not lent the file it spoke of"))
}

/// Waits for the end of a machine.
pub(crate) async fn ended(machine: &Machine) -> Ended {
    let reason = match find(machine) {
        None => "the machine is not there".to_string(),
        Some(pidfd) => match wait(pidfd).await {
            Ok(pidfd) => describe(exit_status(pidfd.as_fd())),
            Err(error) => format!("the machine could not be watched: {error}"),
        },
    };
    Ended { reason }
}

async fn wait(pidfd: OwnedFd) -> io::Result<OwnedFd> {
    let watched = watch(pidfd)?;
    // The guard borrows `watched`, which is returned below.
    drop(watched.readable().await?);
    Ok(watched.into_inner())
}

/// Describes a wait status.
fn describe(status: Option<i32>) -> String {
    match status {
        None => "the guest ended".to_string(),
        Some(status) if libc::WIFSIGNALED(status) => {
            format!("the guest was killed by signal {}", libc::WTERMSIG(status))
        }
        Some(status) => format!("the guest exited with code {}", libc::WEXITSTATUS(status)),
    }
}

/// Ends a machine and removes everything it had. Idempotent.
pub(crate) async fn remove(
    maker: &Arc<Maker>,
    id: &SandboxId,
    dir: &Path,
    record: Option<Record>,
) -> Result<(), Error> {
    maker.cgroups.lift_io(id.as_str());
    maker.cgroups.thaw(id.as_str());
    // Before its end is seen by those who watch it, and take the disk for lost.
    let disk = maker.disks.recalled(id.as_str());
    // When pid 1 ends, the kernel kills every process in its namespace and waits for them.
    if let Some(pidfd) = record.as_ref().and_then(Record::open) {
        end(pidfd).await?;
    }
    // A launcher or first process without a record is still in the machine's cgroup.
    for pid in maker.cgroups.processes(id.as_str()) {
        if let Some(pidfd) = member(maker, id, pid) {
            end(pidfd).await?;
        }
    }
    maker.cgroups.remove(id.as_str()).await?;
    let (worker, place) = (maker.clone(), dir.to_path_buf());
    let kept = record.as_ref().and_then(|record| record.kept.clone());
    tokio::task::spawn_blocking(move || {
        if let Some(kept) = kept {
            kept::settle(&kept)?;
        }
        if let Some(disk) = disk {
            worker.disks.returned(disk);
        }
        worker.empty(&place)
    })
    .await
    .map_err(|_| Error::internal("emptying a directory panicked"))??;
    match record {
        Some(record) => record
            .slot
            .into_iter()
            .for_each(|slot| maker.slots.free(slot, dir)),
        None => maker.slots.free_all_of(dir),
    }
    waiting::thin(&maker.disks);
    Ok(())
}

/// A pidfd of a process that is still in the machine's cgroup after the pidfd was opened.
fn member(maker: &Maker, id: &SandboxId, pid: i32) -> Option<OwnedFd> {
    let number = rustix::process::Pid::from_raw(pid)?;
    let pidfd = rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty()).ok()?;
    maker
        .cgroups
        .processes(id.as_str())
        .contains(&pid)
        .then_some(pidfd)
}

async fn end(pidfd: OwnedFd) -> Result<(), Error> {
    match pidfd_send_signal(&pidfd, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(Error::io("killing the machine", &error.into())),
    }
    match tokio::time::timeout(END_PATIENCE, wait(pidfd)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Error::io("watching the machine end", &error)),
        Err(_) => Err(Error::new(
            ErrorKind::Cleanup,
            "the machine's first process does not end",
        )),
    }
}
