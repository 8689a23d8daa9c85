//! Host compatibility: the guest as an ordinary process of the host.
//!
//! There is no isolation of any kind. Commands run as the daemon's user, see the host's files and
//! network, and no limit is enforced: every one is reported as such, even an explicit one, because
//! choosing this mode means accepting that. File verbs use the host's paths, as commands do. The
//! engine uses this only if a call allows it.
//!
//! ```text
//!   DIR/
//!     machine.json    the guest's pid, start time and boot
//!     link.sock       where the guest listens
//!     workspace/      the working directory and HOME of commands
//! ```
//!
//! A machine that is kept has its workspace elsewhere; see `kept`.
//!
//! - `spawn` starts the guest, detached, with a clean environment.
//! - `door` is where it is talked to.
//! - `record` finds it again.
//! - `tree` ends it with everything it has started.
//!
//! The `proot` runtime, whose machines are processes of the host too, uses the last three.
//!
//! It never switches users and never touches a process that is not a machine's.

pub mod door;
pub mod kept;
pub mod record;
mod spawn;
pub mod sys;
pub mod tree;

use async_trait::async_trait;
use kept::WORKSPACE;
use motu_core::report::{Check, Health};
use motu_core::runtime::{
    Ask, Capabilities, Connection, Ended, Kept, Lifeline, Machine, MachineLimits, MachineSpec,
    Surroundings,
};
use motu_core::sandbox::AppliedLimit;
use motu_core::{Error, ErrorKind, Isolation, Runtime, SandboxId};
use record::Record;
use spawn::Program;
use std::io;
use std::path::Path;

/// The name of a machine's process, for messages.
const GUEST: &str = "the guest";

/// What the runtime is made from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The static guest program.
    pub guest: bytes::Bytes,
    /// The soft limit of open files in machines; this process's own when missing.
    pub files: Option<u64>,
}

/// The `host` runtime.
#[derive(Debug)]
pub struct Host {
    program: Program,
}

impl Host {
    /// Keeps the guest program ready to be started.
    pub fn new(settings: Settings) -> Result<Host, Error> {
        let program = Program::new(&settings.guest, settings.files)
            .map_err(|error| Error::io("the guest program", &error))?;
        Ok(Host { program })
    }

    async fn remove(&self, dir: &Path, record: Option<Record>) -> Result<(), Error> {
        let kept = record.as_ref().and_then(|record| record.kept.clone());
        tree::end(dir, record).await?;
        let owned = dir.to_path_buf();
        tokio::task::spawn_blocking(move || kept.map_or(Ok(()), |kept| kept::settle(&kept)))
            .await
            .map_err(|_| Error::internal("flushing a workspace panicked"))??;
        tokio::task::spawn_blocking(move || empty(&owned))
            .await
            .map_err(|_| Error::internal("emptying a directory panicked"))?
            .map_err(|error| {
                let place = dir.display();
                Error::new(
                    ErrorKind::Cleanup,
                    format!("{place} could not be emptied: {error}"),
                )
            })
    }
}

#[async_trait]
impl Runtime for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    fn isolation(&self) -> Isolation {
        Isolation::None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            keep: true,
            ..Capabilities::default()
        }
    }

    async fn check(&self) -> Vec<Check> {
        let found = record::this_process();
        vec![Check {
            name: "pidfd".to_string(),
            health: match found {
                Ok(()) => Health::Ok,
                Err(_) => Health::Failed,
            },
            detail: match &found {
                Ok(()) => "processes can be watched; nothing is isolated".to_string(),
                Err(error) => format!("processes cannot be watched: {error}"),
            },
            fix: found
                .is_err()
                .then(|| "mount /proc, and use Linux 5.3 or later".to_string()),
        }]
    }

    fn plan(&self, spec: &MachineSpec) -> Result<String, Error> {
        let dir = spec.dir.display();
        let make = match &spec.kept {
            Some(kept) => format!(
                "copy {} to {}, unless that was done before",
                kept.baseline.display(),
                kept::workspace(&kept.dir).display()
            ),
            None => format!("make {dir}/{WORKSPACE}"),
        };
        Ok(format!(
            "{make}\n\
             start the guest as user {}, in its own session, listening on {dir}/{}\n\
             isolate nothing, enforce no limit\n",
            rustix::process::geteuid().as_raw(),
            door::SOCKET,
        ))
    }

    async fn create(&self, spec: &MachineSpec) -> Result<Machine, Error> {
        let started = match spawn::start(&self.program, &spec.dir, spec.kept.as_ref()) {
            Ok(record) => door::answers(&spec.dir, &record, GUEST)
                .await
                .map(|()| record),
            Err(error) => Err(error),
        };
        match started {
            Ok(record) => Ok(Machine {
                id: spec.id.clone(),
                dir: spec.dir.clone(),
                limits: unenforced(&spec.limits, "host compatibility mode isolates nothing"),
                accelerator: None,
                record: serde_json::to_value(&record)
                    .map_err(|error| Error::internal(error.to_string()))?,
            }),
            Err(error) => {
                // The caller gets the reason; leftovers are found by their directory.
                let _ = self.remove(&spec.dir, Record::load(&spec.dir)).await;
                Err(error)
            }
        }
    }

    async fn connect(&self, machine: &Machine) -> Result<Connection, Error> {
        door::connect(&machine.dir).await
    }

    async fn ended(&self, machine: &Machine) -> Ended {
        let reason = match record::of(machine).and_then(|record| record.open()) {
            None => "the machine is not there".to_string(),
            Some(pidfd) => record::ended(pidfd, GUEST).await,
        };
        Ended { reason }
    }

    async fn alive(&self, machine: &Machine) -> bool {
        record::of(machine).is_some_and(|record| record.open().is_some())
    }

    fn lifeline(&self, machine: &Machine) -> Option<Lifeline> {
        record::lifeline(machine)
    }

    async fn destroy(&self, machine: &Machine) -> Result<(), Error> {
        // The directory may be gone.
        let record = Record::load(&machine.dir).or_else(|| record::of(machine));
        self.remove(&machine.dir, record).await
    }

    async fn sweep(&self, _id: &SandboxId, dir: &Path) -> Result<(), Error> {
        self.remove(dir, Record::load(dir)).await
    }

    fn has_disks(&self, kept: &Kept) -> bool {
        kept::workspace(&kept.dir).exists()
    }

    async fn flush(&self, kept: &Kept) -> Result<(), Error> {
        let dir = kept.dir.clone();
        tokio::task::spawn_blocking(move || kept::settle(&dir))
            .await
            .map_err(|_| Error::internal("flushing a workspace panicked"))?
    }

    fn surroundings(&self, machine: &Machine) -> Surroundings {
        let kept = record::of(machine).and_then(|record| record.kept);
        let place = match kept {
            Some(kept) => kept::workspace(&kept),
            None => machine.dir.join(WORKSPACE),
        };
        let text = place.display().to_string();
        Surroundings {
            env: [
                ("HOME".to_string(), text.clone()),
                (tree::MARK.to_string(), machine.dir.display().to_string()),
            ]
            .into(),
            workdir: Some(text),
        }
    }
}

/// All limits, reported as not enforced.
pub fn unenforced(asked: &MachineLimits, by: &str) -> Vec<AppliedLimit> {
    let report = |name: &str, ask: Ask| AppliedLimit {
        name: name.to_string(),
        value: ask.value,
        enforced: false,
        by: by.to_string(),
    };
    let mut limits = vec![
        report("vcpu_count", asked.vcpu_count),
        report("mem_mib", asked.mem_mib),
        report("disk_mib", asked.disk_mib),
        report("pids_max", asked.pids_max),
        report("nofile", asked.nofile),
    ];
    let io = asked.io().into_iter();
    limits.extend(io.map(|(name, value)| {
        let explicit = true;
        report(name, Ask { value, explicit })
    }));
    limits
}

/// Removes the contents of a directory, but not the directory. It may be missing.
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
