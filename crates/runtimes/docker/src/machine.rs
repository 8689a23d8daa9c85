//! One machine: created, found, removed.
//!
//! Order of creation, each step undone by [`remove`] from the records of the previous ones: record,
//! directory of the link, container. The record names the container before it exists, so a crash at
//! any point leaves enough to clean up.

use crate::api::{Api, ApiError};
use crate::groups::{self, Groups};
use crate::image::Images;
use crate::link::{self, Links};
use crate::prepare::{self, Decided, HOME_LABEL};
use crate::record::{Record, known};
use crate::socket::Around;
use crate::walls::Walls;
use crate::{Settings, identity, limit, network};
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::runtime::{AT_LIMIT, Ended, Machine, MachineSpec};
use motu_core::{Error, ErrorKind, Isolation, SandboxId};
use motu_local::{exit_status, place_program, watch};
use rustix::process::{Resource, Signal, getrlimit, pidfd_send_signal};
use rustix::thread::{CapabilitySet, capabilities};
use sha2::{Digest, Sha256};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

/// How long a started guest may take to listen.
const LISTEN_PATIENCE: Duration = Duration::from_secs(30);
/// How often the engine is asked whether a container that does not listen still runs.
const LOOK: Duration = Duration::from_millis(500);
/// How long a removed machine may take to disappear.
const END_PATIENCE: Duration = Duration::from_secs(30);
/// Polling interval while another removal is in progress.
const PAUSE: Duration = Duration::from_millis(50);
/// Concurrent creations on the smallest host.
const TURNS_MIN: usize = 4;

/// State shared by all machines of one state directory.
#[derive(Debug)]
pub(crate) struct Maker {
    settings: Settings,
    pub(crate) walls: Walls,
    pub(crate) images: Images,
    pub(crate) links: Links,
    guest_file: OnceLock<PathBuf>,
    /// Machines that could not be removed because their engine did not answer.
    left: Mutex<Vec<(SandboxId, PathBuf)>>,
    /// Limits concurrent creations: more would only wait for each other.
    turns: Semaphore,
    #[cfg(test)]
    pub(crate) patience: Option<crate::api::Patience>,
}

impl Maker {
    pub(crate) fn new(settings: Settings) -> Maker {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Maker {
            walls: Walls::new(settings.runtime.as_deref()),
            settings,
            images: Images::default(),
            links: Links::default(),
            guest_file: OnceLock::new(),
            left: Mutex::default(),
            turns: Semaphore::new(TURNS_MIN.max(2 * cpus)),
            #[cfg(test)]
            patience: None,
        }
    }

    /// Where the engine is; searched each time, because it may come or go.
    pub(crate) fn around(&self) -> Around {
        Around::of_process(self.settings.socket.clone())
    }

    pub(crate) fn api(&self, socket: &Path) -> Api {
        #[cfg_attr(not(test), expect(unused_mut))]
        let mut api = Api::new(socket);
        #[cfg(test)]
        if let Some(patience) = self.patience {
            api.patience = patience;
        }
        api
    }

    pub(crate) fn home(&self) -> &Path {
        &self.settings.home
    }

    pub(crate) fn guest_place(&self) -> PathBuf {
        let hash = Sha256::digest(&self.settings.guest);
        let name = u64::from_be_bytes(std::array::from_fn(|at| hash[at]));
        self.home().join(format!("cache/docker/guest-{name:016x}"))
    }

    /// The guest program as a file, written once.
    fn guest_file(&self) -> io::Result<&Path> {
        if let Some(file) = self.guest_file.get() {
            return Ok(file);
        }
        let place = self.guest_place();
        let written = std::fs::metadata(&place).map(|found| found.len());
        if written.ok() != Some(self.settings.guest.len() as u64) {
            place_program(&place, &self.settings.guest)?;
        }
        Ok(self.guest_file.get_or_init(|| place))
    }

    pub(crate) fn plan_text(&self, spec: &MachineSpec) -> Result<String, Error> {
        prepare::refuse(&spec.limits)?;
        prepare::describe(spec, &self.walls, &self.guest_place())
    }

    /// Creates and starts the container; records its id and process as soon as they are known.
    async fn start(&self, api: &Api, spec: &MachineSpec, record: &mut Record) -> Result<(), Error> {
        let identity = identity::of(self.home())?;
        let guest = self
            .guest_file()
            .map_err(|error| Error::io("the guest program", &error))?;
        link::prepare(&spec.dir).map_err(|error| Error::io("the machine's directory", &error))?;
        for again in [true, false] {
            let image = self.images.ensure(api, &identity, &spec.root).await?;
            let decided = Decided {
                walls: &self.walls,
                identity: &identity,
                image: &image,
                guest,
                most_files: most(Resource::Nofile),
                most_processes: most(Resource::Nproc),
            };
            let container = prepare::container(spec, &decided)?;
            match api.create(&record.name, &container).await {
                Ok(id) => {
                    record.container = Some(id);
                    break;
                }
                // The image was removed by somebody else.
                Err(error) if error.is_missing() && again => self.images.forget(api, &image),
                Err(error) => return Err(error.into()),
            }
        }
        record.store(&spec.dir)?;
        let id = record.container.as_deref().unwrap_or(&record.name);
        Ok(api.start(id).await?)
    }

    async fn make(&self, spec: &MachineSpec) -> Result<Machine, Error> {
        prepare::refuse(&spec.limits)?;
        if let Some(most) = most(Resource::Nofile) {
            limit::refuse_files(&spec.limits, most)?;
        }
        let found = self.around().find()?;
        let api = self.api(&found.socket);
        let name = prepare::name(&identity::of(self.home())?, spec.id.as_str());
        let mut record = Record::new(&found.socket, name);
        record.store(&spec.dir)?;
        self.start(&api, spec, &mut record).await?;
        let stream = guest(&api, spec, &record).await?;

        let pid = self.first_process(&api, &record, &stream).await?;
        record.process = known(pid);
        if record.process.is_none() {
            return Err(Error::unavailable(
                "the machine's first process is gone already",
            ));
        }
        let gvisor = self.walls.isolation() == Isolation::Gvisor;
        if !gvisor {
            link::seal(&spec.dir).map_err(|error| Error::io("the guest's link", &error))?;
        }
        let groups = Groups::of(pid);
        let files = prepare::files(&spec.limits, most(Resource::Nofile));
        let limits = limit::verified(&spec.limits, &groups, gvisor, files)?;
        record.killed = groups.killed();
        if spec.network.is_some() {
            network::attach(spec, &record).await?;
        }
        record.store(&spec.dir)?;
        self.links.keep(&spec.id, stream);
        Ok(Machine {
            id: spec.id.clone(),
            dir: spec.dir.clone(),
            limits,
            accelerator: None,
            record: serde_json::to_value(&record).map_err(|e| Error::internal(e.to_string()))?,
        })
    }

    /// The machine's first process. For a container it is the peer of the link's socket, by the
    /// kernel; for gVisor it is the process that the engine reports, which is then verified.
    async fn first_process(
        &self,
        api: &Api,
        record: &Record,
        stream: &UnixStream,
    ) -> Result<i32, Error> {
        if self.walls.isolation() != Isolation::Gvisor {
            let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
            return peer.filter(|pid| *pid > 0).ok_or_else(|| {
                Error::unsupported("the engine's containers cannot be seen from here")
                    .hint("run the daemon on the host, where the engine's processes are")
            });
        }
        let id = record.container.as_deref().unwrap_or(&record.name);
        let pid = api.inspect(id).await?.state.pid;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        match line.starts_with(b"runsc") {
            true => Ok(pid),
            false => Err(Error::unsupported(
                "the engine was asked for gVisor and made something else",
            )),
        }
    }
}

/// The limit of this process, if it cannot raise it: an engine of the same host usually cannot
/// either, and fails with a higher one.
fn most(resource: Resource) -> Option<u64> {
    let raises =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE));
    match raises {
        true => None,
        false => getrlimit(resource).maximum,
    }
}

/// Waits for the guest; if the container ends meanwhile, returns the reason.
async fn guest(api: &Api, spec: &MachineSpec, record: &Record) -> Result<UnixStream, Error> {
    let id = record.container.as_deref().unwrap_or(&record.name);
    let ended = async {
        loop {
            tokio::time::sleep(LOOK).await;
            match api.inspect(id).await {
                Ok(found) if found.state.running => {}
                Ok(found) => break found.state,
                // The engine is busy; the guest may still come up.
                Err(error) => tracing::debug!(%error, "inspecting a new container failed"),
            }
        }
    };
    tokio::select! {
        stream = link::listens(&spec.dir) => Ok(stream),
        state = ended => Err(Error::unavailable(format!(
            "the guest did not start: its container ended with code {} {}",
            state.exit_code, state.error
        ))
        .hint(hint![verb("doctor"), " says whether the engine works"])),
        () = tokio::time::sleep(LISTEN_PATIENCE) => {
            Err(Error::new(ErrorKind::Timeout, "the guest did not start to listen")
                .hint("does the engine run on this host, and see its files?"))
        }
    }
}

/// Creates a machine whose guest listens, or cleans up and returns the error.
pub(crate) async fn create(maker: &Maker, spec: &MachineSpec) -> Result<Machine, Error> {
    let turn = maker.turns.acquire().await;
    let made = maker.make(spec).await;
    drop(turn);
    match &made {
        Ok(_) => remove_left(maker).await,
        Err(_) => {
            let record = Record::load(&spec.dir);
            if let Err(left) = remove(maker, &spec.id, &spec.dir, record).await {
                tracing::warn!(sandbox = %spec.id, error = %left, "cleaning up a failed machine failed");
            }
        }
    }
    made
}

/// Called when an engine has just answered: removes machines that it could not remove before. The
/// rest is found by its directory when the next daemon starts.
async fn remove_left(maker: &Maker) {
    let left = std::mem::take(&mut *maker.left.lock().unwrap_or_else(PoisonError::into_inner));
    for (id, dir) in left {
        let record = Record::load(&dir);
        let removed = remove(maker, &id, &dir, record).await;
        let gone = removed.map(|()| std::fs::remove_dir(&dir));
        tracing::info!(sandbox = %id, ?gone, "retried the removal of a leftover machine");
    }
}

/// The record of a machine.
pub(crate) fn record_of(machine: &Machine) -> Option<Record> {
    serde_json::from_value(machine.record.clone())
        .ok()
        .or_else(|| Record::load(&machine.dir))
}

/// Whether the machine's first process exists, whatever has become of its engine.
pub(crate) fn lives(machine: &Machine) -> bool {
    record_of(machine).is_some_and(|record| record.open().is_some())
}

pub(crate) fn memory_kills(machine: &Machine) -> u64 {
    let file = record_of(machine).and_then(|record| record.killed);
    file.map_or(0, |file| groups::kills(&file))
}

/// Waits for the end of a machine.
pub(crate) async fn ended(machine: &Machine) -> Ended {
    let Some(pidfd) = record_of(machine).and_then(|record| record.open()) else {
        let reason = "the machine is not there".to_string();
        return Ended { reason };
    };
    let kills = memory_kills(machine);
    let status = wait(pidfd).await.map(|pidfd| exit_status(pidfd.as_fd()));
    let killed = |status| std::os::unix::process::ExitStatusExt::from_raw(status);
    let reason = match status {
        Err(error) => format!("the machine could not be watched: {error}"),
        Ok(_) if memory_kills(machine) > kills => {
            format!("the machine was ended {AT_LIMIT}memory (mem_mib)")
        }
        Ok(None) => "the guest ended".to_string(),
        Ok(Some(status)) => {
            let status: std::process::ExitStatus = killed(status);
            match std::os::unix::process::ExitStatusExt::signal(&status) {
                Some(signal) => format!("the guest was killed by signal {signal}"),
                None => format!("the guest exited with code {}", status.code().unwrap_or(-1)),
            }
        }
    };
    Ended { reason }
}

async fn wait(pidfd: OwnedFd) -> io::Result<OwnedFd> {
    let watched = watch(pidfd)?;
    // The guard borrows `watched`, which is returned below.
    drop(watched.readable().await?);
    Ok(watched.into_inner())
}

/// Pauses or resumes a machine.
pub(crate) async fn still(maker: &Maker, machine: &Machine, stand: bool) -> Result<(), Error> {
    let record = record_of(machine).filter(|record| record.open().is_some());
    let record = record.ok_or_else(|| Error::not_found("the machine is gone"))?;
    let api = maker.api(&record.socket);
    let id = record.container.as_deref().unwrap_or(&record.name);
    let told = match stand {
        true => api.pause(id).await,
        false => api.unpause(id).await,
    };
    if let Err(error) = told {
        // Engines refuse to do it twice: check the state.
        let found = api.inspect(id).await;
        if !found.is_ok_and(|found| found.state.running && found.state.paused == stand) {
            return Err(error.into());
        }
    }
    Ok(())
}

/// Ends a machine and removes everything it had. Idempotent.
pub(crate) async fn remove(
    maker: &Maker,
    id: &SandboxId,
    dir: &Path,
    record: Option<Record>,
) -> Result<(), Error> {
    maker.links.forget(id);
    // Without a record nothing was requested from an engine yet.
    if let Some(record) = record {
        if let Err(error) = remove_container(maker, &record).await {
            // If the engine does not answer, kill the machine's process directly.
            let killed = record
                .open()
                .map(|process| pidfd_send_signal(process, Signal::KILL));
            if let Some(Err(error)) = killed {
                tracing::warn!(%id, %error, "killing the process of a machine failed; it may still run");
            }
            let mut left = maker.left.lock().unwrap_or_else(PoisonError::into_inner);
            left.retain(|(known, _)| known != id);
            left.push((id.clone(), dir.to_path_buf()));
            return Err(error);
        }
        if let Some(process) = record.open() {
            let gone = tokio::time::timeout(END_PATIENCE, wait(process)).await;
            gone.map_err(|_| Error::new(ErrorKind::Cleanup, "the machine does not end"))?
                .map_err(|error| Error::io("watching the machine end", &error))?;
        }
    }
    empty(dir).map_err(|error| {
        let message = format!("{} could not be emptied: {error}", dir.display());
        Error::new(ErrorKind::Cleanup, message)
    })
}

/// Removes a container that is known to be ours: by the id from the engine, or by its name and
/// labels.
async fn remove_container(maker: &Maker, record: &Record) -> Result<(), Error> {
    let api = maker.api(&record.socket);
    let id = match &record.container {
        Some(id) => id.clone(),
        None => match api.inspect(&record.name).await {
            Ok(found) => {
                let home = identity::of(maker.home())?;
                let labels = found.config.labels.unwrap_or_default();
                if labels.get(HOME_LABEL) != Some(&home) {
                    tracing::warn!(
                        name = record.name,
                        "a container of this name belongs to somebody else"
                    );
                    return Ok(());
                }
                found.id
            }
            Err(error) if error.is_missing() => return Ok(()),
            Err(error) => return Err(left(error)),
        },
    };
    gone(&api, &id).await
}

/// Removes a container and waits until the engine no longer knows it.
pub(crate) async fn gone(api: &Api, id: &str) -> Result<(), Error> {
    let end = Instant::now() + END_PATIENCE;
    loop {
        match api.remove(id).await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_missing() => return Ok(()),
            // Another removal is in progress.
            Err(error) if error.is_conflict() && Instant::now() < end => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(left(error)),
        }
    }
}

/// The error for a container that could not be removed.
fn left(error: ApiError) -> Error {
    let error = Error::from(error);
    Error {
        message: format!("a container is left in the engine: {}", error.message),
        ..error
    }
}

/// Removes the contents of a machine's directory, but not the directory.
fn empty(dir: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}
