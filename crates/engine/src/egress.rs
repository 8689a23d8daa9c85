//! Gateways: one process for each machine that has a network, outside of it.
//!
//! ```text
//!   run/egress/ID/   gateway.json   which process it is
//!                    control        where it is asked and told
//!   egress/ID.jsonl                 what it decided; stays when the sandbox is gone, for a while
//! ```
//!
//! A gateway lives as long as its machine, whatever becomes of the daemon. Without one, nothing
//! gets in or out: it holds the other end of the machine's only device.

use crate::blocking::blocking;
use crate::clock::boot_id;
use crate::home::Home;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::network::{Attached, Frames, Uplink};
use motu_core::{Error, ErrorKind, Result, SandboxId, limits};
use motu_egress::border::Border;
use motu_egress::gateway::control::{self, Answer, Request};
use motu_egress::gateway::{self, Begin, Pending, Standby, Started};
use motu_egress::proxy::Proxy;
use motu_egress::rules::Rules;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

// The table of limits must agree with the constants of the gateway.
const _: () = assert!(limits::DECISION_LOG_BYTES.max == gateway::DECISION_BYTES);
const _: () =
    assert!(limits::EGRESS_QUESTIONS_PER_SECOND.max == gateway::QUESTIONS_PER_SECOND as u64);
const _: () = assert!(limits::EGRESS_EXCHANGE_SECONDS.max == gateway::EXCHANGE_IDLE.as_secs());

/// How long a gateway may take to answer, and to exit after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a gateway may take to exit by itself after its machine has ended.
const GRACE: Duration = Duration::from_secs(1);
/// User ids of gateways: outside the ranges of people, of machines and of QEMU, and low enough for
/// the groups that hosts commonly allow to ping (`net.ipv4.ping_group_range`, up to 2147483647).
const FIRST_ID: u32 = 0x7400_0000;
const ID_COUNT: u64 = 0x0080_0000;
const CONTROL: &str = "control";
const RECORD: &str = "gateway.json";

/// Every gateway of one state directory.
#[derive(Clone, Debug)]
pub struct Gateways {
    run: PathBuf,
    decisions: PathBuf,
    program: Option<PathBuf>,
    /// A gateway process that was started ahead for the next machine.
    standby: Arc<Mutex<Option<Standby>>>,
}

/// Which process a gateway is. The boot id guards against a reused pid after a reboot.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    boot_id: String,
    process: Started,
}

impl Gateways {
    pub fn open(home: &Home, program: Option<PathBuf>) -> Result<Gateways> {
        let gateways = Gateways {
            run: home.path().join("run/egress"),
            decisions: home.path().join("egress"),
            program,
            standby: Arc::default(),
        };
        gateways.sweep();
        Ok(gateways)
    }

    /// Removes the directories of gateways that no longer run.
    fn sweep(&self) {
        let entries = std::fs::read_dir(&self.run).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| find(&entry.path()).is_none()) {
            // The directory holds only a record and a socket; neither is needed without the
            // process.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }

    fn place(&self, id: &SandboxId) -> PathBuf {
        self.run.join(id.as_str())
    }

    fn log(&self, id: &SandboxId) -> PathBuf {
        self.decisions.join(format!("{id}.jsonl"))
    }

    /// The uplink that connects a machine to its gateway, with these rules and secrets.
    pub fn uplink(&self, id: &SandboxId, rules: Rules, border: Option<Border>) -> Arc<dyn Uplink> {
        Arc::new(Gateway {
            id: id.clone(),
            gateways: self.clone(),
            rules,
            border,
        })
    }

    /// A process that waits to become a gateway: the standby, or a new one.
    fn take(&self, program: &Path) -> io::Result<Standby> {
        let waiting = self.standby.lock().ok().and_then(|mut one| one.take());
        if let Some(mut one) = waiting
            && one.waits()
        {
            return Ok(one);
        }
        Standby::start(program, &[crate::GATEWAY])
    }

    /// Starts the next standby in the background: starting a program takes longer than all the rest
    /// of setting up a gateway.
    fn stand_by(&self, program: PathBuf) {
        let standby = self.standby.clone();
        std::thread::spawn(move || {
            let Ok(next) = Standby::start(&program, &[crate::GATEWAY]) else {
                // The next machine starts its own gateway then, and reports the error.
                return;
            };
            if let Ok(mut place) = standby.lock() {
                // If another thread was faster, this process is dropped: one standby is enough.
                place.get_or_insert(next);
            }
        });
    }

    /// Whether a machine's gateway runs.
    pub fn lives(&self, id: &SandboxId) -> bool {
        find(&self.place(id)).is_some()
    }

    /// Ends the gateway of a machine that is gone, and waits for its exit.
    pub async fn end(&self, id: &SandboxId) {
        let place = self.place(id);
        if !place.exists() {
            return;
        }
        let ended = blocking(move || {
            // A gateway exits with its machine, after it has logged how its connections ended.
            if let Some(gateway) = find(&place)
                && wait(&gateway, GRACE).is_err()
            {
                let _ = pidfd_send_signal(&gateway, Signal::KILL);
                wait(&gateway, PATIENCE).map_err(|error| Error::io("a gateway", &error))?;
            }
            std::fs::remove_dir_all(&place).map_err(|error| Error::io("a gateway", &error))
        });
        if let Err(error) = ended.await {
            tracing::warn!(%id, %error, "could not remove a gateway's directory");
        }
    }

    /// Replaces the rules of a running gateway.
    pub async fn replace(&self, id: &SandboxId, rules: Rules) -> Result<()> {
        match self.ask(id, Request::Replace(rules)).await? {
            Answer::Done => Ok(()),
            other => Err(Error::internal(format!("the gateway said {other:?}"))),
        }
    }

    /// Replaces the secrets of a running gateway.
    pub async fn bind(&self, id: &SandboxId, border: Border) -> Result<()> {
        match self.ask(id, Request::Bind(border)).await? {
            Answer::Done => Ok(()),
            other => Err(Error::internal(format!("the gateway said {other:?}"))),
        }
    }

    async fn ask(&self, id: &SandboxId, request: Request) -> Result<Answer> {
        let (place, id) = (self.place(id), id.clone());
        let failed = move |error: io::Error| {
            Error::new(
                ErrorKind::Unavailable,
                format!("the gateway of {id} does not answer: {error}"),
            )
            .hint("without its gateway a sandbox reaches nothing; stop and start it, or make it again")
        };
        blocking(move || {
            let ask = || {
                let stream = connect(&place)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                control::ask(&stream, &request)
            };
            ask().map_err(failed)
        })
        .await
    }

    /// Where the decisions about a sandbox are, if there are any.
    pub fn decisions(&self, id: &SandboxId) -> Option<PathBuf> {
        Some(self.log(id)).filter(|log| log.exists())
    }

    /// Opens the decision log of a new machine; the oldest logs of destroyed sandboxes are removed.
    fn make_log(&self, id: &SandboxId) -> io::Result<OwnedFd> {
        make_private(&self.decisions)?;
        self.forget_oldest()?;
        let mut options = std::fs::File::options();
        let file = options.create(true).append(true).mode(0o600);
        Ok(file.open(self.log(id))?.into())
    }

    fn forget_oldest(&self) -> io::Result<()> {
        let mut logs = Vec::new();
        for entry in std::fs::read_dir(&self.decisions)?.flatten() {
            logs.push((entry.metadata()?.modified()?, entry.path()));
        }
        let most = limits::DECISION_LOGS.max as usize;
        if logs.len() < most {
            return Ok(());
        }
        logs.sort();
        let live = |log: &Path| {
            let id = log.file_stem().unwrap_or_default();
            self.run.join(id).exists()
        };
        let spare = logs.len() + 1 - most;
        for (_, log) in logs.into_iter().filter(|(_, log)| !live(log)).take(spare) {
            std::fs::remove_file(log)?;
        }
        Ok(())
    }
}

/// The gateway of a machine that is being made.
#[derive(Debug)]
struct Gateway {
    id: SandboxId,
    gateways: Gateways,
    rules: Rules,
    border: Option<Border>,
}

impl Uplink for Gateway {
    fn attach(&self, frames: Frames) -> Result<Box<dyn Attached>> {
        let Some(program) = &self.gateways.program else {
            return Err(Error::unsupported("this daemon has no gateway program"));
        };
        let place = self.gateways.place(&self.id);
        let failed = |error: io::Error| Error::io("the gateway of a sandbox", &error);
        make_private(&place).map_err(failed)?;
        let begin = Begin {
            frames: match frames {
                Frames::Namespace { net, user } => gateway::Frames::Namespace { net, user },
                Frames::Socket(socket) => gateway::Frames::Socket(socket),
            },
            rules: self.rules.clone(),
            border: self.border.clone(),
            decisions: self.gateways.make_log(&self.id).map_err(failed)?,
            control: listen(&place).map_err(failed)?.into(),
            user: identity(&place).map_err(failed)?,
            resolvers: Vec::new(),
            proxy: proxy(&self.rules)?,
        };
        let standby = self.gateways.take(program).map_err(failed)?;
        let begun = standby.begin(begin);
        self.gateways.stand_by(program.clone());
        let pending = begun.map_err(|error| {
            let _ = std::fs::remove_dir_all(&place);
            Error::new(
                ErrorKind::Unavailable,
                format!("the gateway of the sandbox did not come up: {error}"),
            )
            .hint(hint![
                verb("doctor"),
                " says whether sandboxes can have a network here"
            ])
        })?;
        Ok(Box::new(Waiting { pending, place }))
    }
}

/// The proxy of these rules, else of the daemon's environment variables.
fn proxy(rules: &Rules) -> Result<Option<Proxy>> {
    let found = match rules.proxy.as_str() {
        "" => Proxy::of_variables(|name| std::env::var(name).ok()),
        "none" => Ok(None),
        text => Proxy::parse(text).map(Some),
    };
    found.map_err(|error| {
        Error::invalid(format!("the proxy of sandboxes is {error}"))
            .hint("HTTPS_PROXY or ALL_PROXY of the daemon names it; `proxy` in [network] of a policy comes first")
    })
}

/// A gateway that dies with this daemon until it is given its machine (`hold`).
#[derive(Debug)]
struct Waiting {
    pending: Pending,
    place: PathBuf,
}

impl Attached for Waiting {
    fn hold(self: Box<Self>, machine: OwnedFd) -> Result<()> {
        let failed = |error: io::Error| Error::io("the gateway of a sandbox", &error);
        let record = Record {
            boot_id: boot_id().to_string(),
            process: self.pending.started,
        };
        let text =
            serde_json::to_vec(&record).map_err(|error| Error::internal(error.to_string()))?;
        std::fs::write(self.place.join(RECORD), text).map_err(failed)?;
        self.pending.hold(&machine).map(drop).map_err(failed)
    }
}

fn make_private(dir: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir)
}

/// A Unix socket address holds 107 bytes, and a state directory may be deeper: sockets are reached
/// through `/proc/self/fd` of their directory.
fn socket(place: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(place, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{CONTROL}", dir.as_raw_fd());
    Ok((dir, path.into()))
}

fn listen(place: &Path) -> io::Result<UnixListener> {
    let (_dir, path) = socket(place)?;
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

fn connect(place: &Path) -> io::Result<UnixStream> {
    let (_dir, path) = socket(place)?;
    UnixStream::connect(path)
}

/// A pidfd of the gateway that this directory records, if that very process still runs.
fn find(place: &Path) -> Option<OwnedFd> {
    let text = std::fs::read(place.join(RECORD)).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    (record.boot_id == boot_id()).then(|| record.process.open())?
}

fn wait(process: &OwnedFd, patience: Duration) -> io::Result<()> {
    let patience = Timespec {
        tv_sec: patience.as_secs() as i64,
        tv_nsec: patience.subsec_nanos().into(),
    };
    loop {
        let mut watched = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut watched, Some(&patience)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The uid and gid of a gateway that root starts, derived from its directory's inode number, which
/// is unique while the directory exists.
fn identity(place: &Path) -> io::Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let number = std::os::unix::fs::MetadataExt::ino(&place.metadata()?);
    let own = FIRST_ID + (number % ID_COUNT) as u32;
    let mapped = |map: &str| {
        let text = std::fs::read_to_string(map).unwrap_or_default();
        text.lines().any(|line| covers(line, own))
    };
    // Root in a user namespace may have no other ids mapped; the gateway then keeps its id, but
    // drops all capabilities.
    let possible = mapped("/proc/self/uid_map") && mapped("/proc/self/gid_map");
    Ok(possible.then_some((own, own)))
}

/// Whether a line of `uid_map` or `gid_map` contains this id.
fn covers(line: &str, id: u32) -> bool {
    let mut numbers = line.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(first)), Some(Ok(count))) = (numbers.next(), numbers.nth(1)) else {
        return false;
    };
    (first..first + count).contains(&u64::from(id))
}
