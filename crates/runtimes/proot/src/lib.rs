//! Machines below `proot`: for hosts where nothing else works and nobody is root.
//!
//! proot traces every process of a machine and rewrites the paths in its system calls, so that it
//! sees its own tree and believes to be root there. That is a convenience, not a security boundary:
//! processes run as the daemon's user, the network is the host's, no limit is enforced, and a
//! program that wants to leave the tree can. The isolation is `none`, and the engine uses this
//! runtime only if a call names it and allows that.
//!
//! ```text
//!   DIR/
//!     machine.json    proot and the guest: pids, start times, boot
//!     link.sock       where the guest listens
//!     guest           its program, shown as /run/motu/guest
//!     root/           the machine's own copy of its environment
//!     shm/            shown as /dev/shm
//! ```
//!
//! A kept machine has `root/` and `workspace/` in the directory of its disks.
//!
//! - `tool` finds proot and tries it.
//! - `filter` takes away the system calls that proot does not know.
//! - `root` copies the environment; `clear` removes what a machine has made of it.
//! - `start` starts the guest. Finding, watching and ending it is that of the `host` runtime.
//!
//! The guest ends with proot. If proot is killed, its commands do not: they continue as processes
//! of the host, seeing the host's files, until the daemon kills them, which it does at once.

mod clear;
mod filter;
mod root;
mod start;
mod sys;
mod tool;

use async_trait::async_trait;
use motu_core::report::Check;
use motu_core::runtime::{
    AtRest, Capabilities, Connection, Ended, Kept, Lifeline, Machine, MachineSpec, RestLayer,
    Surroundings,
};
use motu_core::{Error, ErrorKind, Isolation, Runtime, SandboxId};
use motu_host::record::{self, Record};
use motu_host::{door, kept, tree, unenforced};
use start::{ROOT, Shown, Starter};
use std::path::Path;
use std::sync::Arc;

/// Names of the two processes of a machine, for messages.
const PROOT: &str = "proot";
const GUEST: &str = "the guest";

/// What the runtime is made from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The static guest program.
    pub guest: bytes::Bytes,
    /// The soft limit of open files in machines; this process's own when missing.
    pub files: Option<u64>,
}

/// The `proot` runtime.
#[derive(Clone, Debug)]
pub struct Proot {
    starter: Arc<Starter>,
}

impl Proot {
    pub fn new(settings: Settings) -> Result<Proot, Error> {
        let filters = filter::filters()
            .map_err(|error| Error::internal(format!("the filters for proot: {error}")))?;
        Ok(Proot {
            starter: Arc::new(Starter {
                guest: settings.guest,
                files: settings.files,
                filters: Arc::new(filters),
            }),
        })
    }

    async fn start(&self, spec: &MachineSpec) -> Result<Record, Error> {
        let (starter, owned) = (self.starter.clone(), spec.clone());
        let mut record = blocking(move || starter.start(&owned)).await??;
        door::answers(&spec.dir, &record, PROOT).await?;
        let guest = record.process.first_child();
        record.guest = Some(guest.ok_or_else(|| Error::unavailable("the guest was gone at once"))?);
        record.store(&spec.dir)?;
        Ok(record)
    }

    async fn remove(&self, dir: &Path, record: Option<Record>) -> Result<(), Error> {
        let disks = record.as_ref().and_then(|record| record.kept.clone());
        let proot = record.as_ref().map(|record| record.process.pid);
        tree::end(dir, record).await?;
        let dir = dir.to_path_buf();
        blocking(move || {
            let failed = |error: std::io::Error| {
                let place = dir.display();
                let message = format!("{place} could not be emptied: {error}");
                Error::new(ErrorKind::Cleanup, message)
            };
            disks.map_or(Ok(()), |disks| kept::settle(&disks))?;
            proot.map_or(Ok(()), clear::leftovers).map_err(failed)?;
            clear::empty(&dir).map_err(failed)
        })
        .await?
    }
}

#[async_trait]
impl Runtime for Proot {
    fn name(&self) -> &'static str {
        "proot"
    }

    fn isolation(&self) -> Isolation {
        Isolation::None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            keep: true,
            uses_environment: true,
            ..Capabilities::default()
        }
    }

    fn by_name_only(&self) -> bool {
        true
    }

    async fn check(&self) -> Vec<Check> {
        vec![tool::check(&self.starter.filters).await]
    }

    fn plan(&self, spec: &MachineSpec) -> Result<String, Error> {
        let shown = Shown::new(spec)?.arguments();
        let words: Vec<_> = shown.iter().map(|word| word.to_string_lossy()).collect();
        Ok(format!(
            "copy {} to {}, unless that was done before\n\
             as user {}, in its own session: proot {} /{} serve\n\
             isolate nothing, enforce no limit\n",
            spec.root.display(),
            start::tree_of(&spec.dir, spec.kept.as_ref()).display(),
            rustix::process::geteuid().as_raw(),
            words.join(" "),
            root::PROGRAM,
        ))
    }

    async fn create(&self, spec: &MachineSpec) -> Result<Machine, Error> {
        match self.start(spec).await {
            Ok(record) => Ok(Machine {
                id: spec.id.clone(),
                dir: spec.dir.clone(),
                limits: unenforced(&spec.limits, "proot enforces no limit"),
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
        let record = record::of(machine);
        let open = |record: Record| Some((record.open()?, record.guest?.open()?));
        let reason = match record.and_then(open) {
            None => "the machine is not there".to_string(),
            // proot runs as long as any process that the guest has started.
            Some((proot, guest)) => tokio::select! {
                biased;
                reason = record::ended(proot, PROOT) => reason,
                reason = record::ended(guest, GUEST) => reason,
            },
        };
        Ended { reason }
    }

    async fn alive(&self, machine: &Machine) -> bool {
        let record = record::of(machine).filter(|record| record.open().is_some());
        let guest = record.and_then(|record| record.guest);
        guest.is_some_and(|guest| guest.open().is_some())
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

    async fn discard(&self, kept: &Path) -> Result<(), Error> {
        let dir = kept.to_path_buf();
        let opened = move || match dir.exists() {
            true => clear::open_up(&dir),
            false => Ok(()),
        };
        blocking(opened)
            .await?
            .map_err(|error| Error::io("the machine's disks", &error))
    }

    fn has_disks(&self, kept: &Kept) -> bool {
        kept::workspace(&kept.dir).exists() && kept.dir.join(ROOT).exists()
    }

    async fn flush(&self, kept: &Kept) -> Result<(), Error> {
        let dir = kept.dir.clone();
        blocking(move || kept::settle(&dir)).await?
    }

    fn at_rest(&self, kept: &Kept, _root: &Path) -> Result<AtRest, Error> {
        Ok(AtRest {
            root: vec![RestLayer::Directory(kept.dir.join(ROOT))],
            workspace: vec![RestLayer::Directory(kept::workspace(&kept.dir))],
        })
    }

    fn surroundings(&self, machine: &Machine) -> Surroundings {
        let mark = (tree::MARK.to_string(), machine.dir.display().to_string());
        Surroundings {
            env: [mark].into(),
            workdir: None,
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Error::internal("work on a machine panicked"))
}
