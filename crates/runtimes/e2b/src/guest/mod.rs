//! A guest in the daemon: it speaks the link's protocol to the engine, and the agent's protocol to
//! the machine.
//!
//! ```text
//!   mod         one task per stream: request in, outcome out; what failures mean
//!   plan        a request as a command of the agent
//!   direct      commands whose caller waits
//!   kept        those that outlive their caller: watched here, found again by a new daemon
//!   spool       what they print, in files of the machine; ring: what terminals print, here
//!   still       what is done around a pause
//!   listen      what callers say to a process that they follow
//!   table       all of them, by number and name
//!   signals     signals, to a process or to all that it started
//!   script      short commands of our own
//!   files       file verbs; write, find: those that are more than one call
//! ```
//!
//! What the agent has no call for is done by a short command in the machine, or refused with the
//! reason. One guest serves all connections to its machine; persistent state is in the machine's
//! record and in the machine.

mod direct;
mod files;
mod find;
mod kept;
mod listen;
mod plan;
mod ring;
pub(crate) mod script;
mod signals;
mod spool;
mod still;
mod table;
mod write;

use crate::record::Record;
use crate::wire::{Control, Envd, Standing};
use bytes::Bytes;
use motu_core::turns::Turns;
use motu_link::message::{
    Failure, Init, Input, Metrics, Pong, Processes, Request, Resize, Said, Start, Verb,
};
use motu_link::{Event, LINK_VERSION, Link, LinkError, Stream};
use motu_peer::answer::{Failed, end, note};
use motu_peer::{Fates, PeerError};
use prost::Message as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use table::{Running, Table};
use tokio::io::DuplexStream;
use tokio::sync::watch;

/// The usual reason for refusals.
pub(crate) const NO_CALL: &str = "its agent has no call for it";
/// The user for operations that the agent does as root.
pub(crate) const ROOT: &str = "root";

/// One machine's guest.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) control: Arc<Control>,
    pub(crate) envd: Envd,
    pub(crate) fates: Arc<Fates>,
    /// The machine's id at the service.
    pub(crate) id: String,
    dir: PathBuf,
    record: Mutex<Record>,
    table: Table,
    /// Files that are being replaced, by path.
    writing: Turns,
    /// Whether the machine is paused: no calls are made then.
    paused: watch::Sender<bool>,
    /// Commands that were stopped before the pause.
    held: Mutex<Vec<Arc<Running>>>,
    /// The agent's version, as reported by the service.
    version: String,
    since: Instant,
}

impl Guest {
    pub(crate) fn new(
        (control, fates): (Arc<Control>, Arc<Fates>),
        (envd, version): (Envd, String),
        (id, dir): (String, PathBuf),
        record: Record,
    ) -> Arc<Guest> {
        Arc::new(Guest {
            control,
            envd,
            fates,
            id,
            dir,
            record: Mutex::new(record),
            table: Table::default(),
            writing: Turns::default(),
            paused: watch::Sender::new(false),
            held: Mutex::default(),
            version,
            since: Instant::now(),
        })
    }

    /// Adopts what a previous daemon left in the machine.
    pub(crate) fn take_up(self: &Arc<Self>) {
        kept::recall(self);
        tokio::spawn(kept::adopt(self.clone()));
    }

    /// Records whether the machine is paused.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.send_replace(paused);
    }

    /// Waits until the machine is resumed.
    async fn going(&self) {
        let mut paused = self.paused.subscribe();
        // `self` holds the sender, so waiting cannot fail.
        let _ = paused.wait_for(|paused| !paused).await;
    }

    /// Serves one connection until the host leaves or the machine has ended.
    pub(crate) async fn serve(self: Arc<Self>, mut io: DuplexStream) {
        let mut fate = self.fates.watch(&self.id);
        if motu_link::hello::guest(&mut io).await.is_err() {
            return;
        }
        let (read, write) = tokio::io::split(io);
        let (link, mut incoming) = Link::start(read, write, true);
        let _closing = Closing(link);
        loop {
            let next = tokio::select! {
                next = incoming.next() => next,
                // An error means that the fate was removed: the machine was destroyed.
                _ = fate.wait_for(Option::is_some) => return,
            };
            let Some((request, stream)) = next else {
                return;
            };
            tokio::spawn(self.clone().answer(request, stream));
        }
    }

    async fn answer(self: Arc<Self>, request: Bytes, mut stream: Stream) {
        let verb = Request::decode(request).ok().and_then(|found| found.verb);
        let result = match verb {
            None => Err(Failed::new(Failure::Unsupported, "an unknown request")),
            Some(verb) => self.dispatch(verb, &mut stream).await,
        };
        end(&stream.tx, result).await;
    }

    async fn dispatch(self: &Arc<Self>, verb: Verb, stream: &mut Stream) -> Result<(), Failed> {
        let said = match verb {
            Verb::Start(start) => return self.start(start, stream).await,
            Verb::Attach(wanted) => return kept::attach(self, wanted, stream).await,
            Verb::ListProcesses(_) => Said::Processes(Processes {
                processes: self.table.list(),
            }),
            Verb::Signal(signal) => return self.signal(signal).await,
            Verb::SignalForeground(signal) => return self.signal_foreground(signal).await,
            Verb::Forget(process) => return kept::forget(self, process).await,
            Verb::Input(input) => return self.input(input, stream).await,
            Verb::Resize(resize) => return self.resize(resize).await,
            Verb::LookAtTerminal(_) => {
                return Err(Failed::unsupported("look at a terminal", NO_CALL));
            }
            Verb::Ping(_) => Said::Pong(self.ping().await?),
            Verb::Init(init) => return self.init(init),
            Verb::Metrics(_) => Said::Metrics(self.metrics().await?),
            Verb::Dial(_) | Verb::ListPorts(_) => {
                return Err(Failed::unsupported("reach ports", NO_CALL));
            }
            Verb::SetClock(_) | Verb::Reseed(_) | Verb::Shutdown(_) => {
                return Err(Failed::unsupported("do that to a machine", NO_CALL));
            }
            Verb::Changes(_)
            | Verb::ReadBase(_)
            | Verb::Pick(_)
            | Verb::Restore(_)
            | Verb::Apply(_) => return Err(Failed::unsupported("keep workspaces", NO_CALL)),
            files => return files::answer(self, files, stream).await,
        };
        Ok(note(&stream.tx, said).await?)
    }

    /// Starts a command, and follows it for a waiting caller.
    async fn start(self: &Arc<Self>, start: Start, stream: &mut Stream) -> Result<(), Failed> {
        let plan = plan::planned(self, &start)?;
        let _reserved = self.table.reserve(&start.tag)?;
        match start.follow {
            true => direct::run(self, plan, stream).await,
            false => kept::start(self, plan, stream).await,
        }
    }

    /// A ping asks the service, not this process.
    async fn ping(&self) -> Result<Pong, Failed> {
        let found = self.control.detail(&self.id).await;
        match found.map_err(meaning)? {
            Standing::There(_) => Ok(Pong {
                guest_version: format!("envd {}", self.version).trim().to_string(),
                uptime_ms: self.since.elapsed().as_millis() as u64,
                link_version: LINK_VERSION,
            }),
            Standing::Gone(reason) => Err(self.gone(&reason)),
        }
    }

    fn init(&self, init: Init) -> Result<(), Failed> {
        let outside = !init.nameserver.is_empty() || !init.certificates.is_empty() || init.agent;
        if outside || !init.file_root.is_empty() {
            return Err(Failed::unsupported("set up a machine", NO_CALL));
        }
        let mut record = self.record();
        record.user = init.default_user;
        record.env = init.env.into_iter().collect();
        if let Ok(cwd) = std::str::from_utf8(&init.default_cwd)
            && !cwd.is_empty()
        {
            record.workdir = cwd.to_string();
        }
        // A restarted daemon needs it too.
        let stored = record.store(&self.dir);
        stored.map_err(|error| Failed::new(Failure::Io, error.message))
    }

    async fn metrics(&self) -> Result<Metrics, Failed> {
        let found = match self.envd.metrics().await {
            Ok(found) => found,
            Err(error) => return Err(self.failed(error).await),
        };
        let (processes, cpu_us, uptime_ms) = script::counted(&self.envd).await?;
        Ok(Metrics {
            cpu_us,
            cpus: found.cpu_count,
            memory_used_bytes: found.mem_used,
            memory_total_bytes: found.mem_total,
            disk_used_bytes: found.disk_used,
            disk_total_bytes: found.disk_total,
            processes,
            uptime_ms,
            ..Metrics::default()
        })
    }

    /// Sends a stream of input to a process.
    async fn input(&self, input: Input, stream: &mut Stream) -> Result<(), Failed> {
        let process = self.table.find(input.process)?;
        loop {
            match stream.rx.recv().await? {
                Event::Data { bytes, .. } => self.typed(&process, &bytes).await?,
                Event::Eof => break,
                Event::Message(_) => {}
                Event::Reset | Event::End(_) => return Err(LinkError::Reset.into()),
            }
        }
        match input.close {
            true => self.told(self.envd.close_stdin(process.pid).await).await,
            false => Ok(()),
        }
    }

    async fn resize(&self, resize: Resize) -> Result<(), Failed> {
        let process = self.table.find(resize.process)?;
        let size = resize.size.unwrap_or_default();
        let size = (size.cols, size.rows);
        self.told(self.envd.resize(process.pid, size).await).await
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user of a file or command.
    fn user(&self, asked: &str) -> String {
        match asked.is_empty() {
            true => self.record().user.clone(),
            false => asked.to_string(),
        }
    }

    /// Reports the end of the machine to everyone who waits for it.
    fn gone(&self, reason: &str) -> Failed {
        self.fates.end(&self.id, reason);
        Failed::new(Failure::Cancelled, reason)
    }

    async fn told<T>(&self, outcome: Result<T, PeerError>) -> Result<T, Failed> {
        match outcome {
            Ok(found) => Ok(found),
            Err(error) => Err(self.failed(error).await),
        }
    }

    /// Interprets a failed call. Proxies refuse calls to a missing machine in many ways, and a
    /// broken connection may mean its end: ask the service.
    async fn failed(&self, error: PeerError) -> Failed {
        let doubtful = match &error {
            // An error code of the agent means that the machine has answered.
            PeerError::Refused { refusal, .. } => {
                refusal.code.is_empty() && matches!(refusal.status, 404 | 410 | 500..)
            }
            PeerError::Broken { .. } | PeerError::Nonsense { .. } => true,
            _ => false,
        };
        if doubtful && let Ok(Standing::Gone(reason)) = self.control.detail(&self.id).await {
            return self.gone(&reason);
        }
        meaning(error)
    }
}

/// Maps an error to the link's failure kind.
pub(crate) fn meaning(error: PeerError) -> Failed {
    let PeerError::Refused { refusal, .. } = &error else {
        return error.into();
    };
    let kind = match (refusal.code.as_str(), refusal.status) {
        ("not_found", _) | ("", 404) => Failure::NotFound,
        ("already_exists", _) | ("", 409) => Failure::Exists,
        ("invalid_argument" | "out_of_range" | "failed_precondition", _) | ("", 400 | 422) => {
            Failure::Invalid
        }
        ("permission_denied" | "unauthenticated", _) | ("", 401 | 403) => Failure::Denied,
        ("resource_exhausted", _) | ("", 413 | 429) => Failure::Limit,
        ("unimplemented", _) | ("", 405 | 501) => Failure::Unsupported,
        ("", 507) => Failure::NoSpace,
        ("unavailable" | "deadline_exceeded" | "canceled", _) | ("", 408 | 502..=504) => {
            Failure::Cancelled
        }
        _ => Failure::Io,
    };
    Failed::new(kind, error.to_string())
}

/// Whether the agent reports that something does not exist.
pub(crate) fn is_missing(error: &PeerError) -> bool {
    match error {
        PeerError::Refused { refusal, .. } => refusal.code == "not_found" || refusal.status == 404,
        _ => false,
    }
}

/// Closes a link when its serving task ends.
struct Closing(Link);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}
