//! A guest in the daemon: it speaks the link's protocol to the engine and the provider protocol to
//! the service.
//!
//! ```text
//!   mod       one task per stream: request in, outcome out
//!   exec      commands; table has those that run
//!   files     file verbs; look finds out what is wrong with a path
//! ```
//!
//! What the service has no call for is refused with the reason. Nothing here outlives the daemon;
//! persistent state (variables, directory) is in the machine's record.

mod exec;
mod files;
mod look;
mod table;

use crate::record::Record;
use crate::wire::{Offer, Peer, Standing};
pub(crate) use exec::probe;

use bytes::Bytes;
use motu_link::message::{Failure, Init, Metrics, Pong, Processes, Request, Said, Verb};
use motu_link::{LINK_VERSION, Link, Stream};
use motu_peer::answer::{Failed, end, note};
use motu_peer::{Fates, PeerError};
use prost::Message as _;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use table::Table;
use tokio::io::DuplexStream;

/// The usual reason for refusals.
pub(crate) const NO_CALL: &str = "the provider protocol has no call for it";

/// One machine's guest, on one connection.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) peer: Arc<Peer>,
    pub(crate) offer: Arc<Offer>,
    pub(crate) fates: Arc<Fates>,
    /// The machine's id at the service.
    pub(crate) id: String,
    pub(crate) dir: PathBuf,
    pub(crate) record: Mutex<Record>,
    table: Table,
    since: Instant,
}

impl Guest {
    pub(crate) fn new(
        (peer, offer, fates): (Arc<Peer>, Arc<Offer>, Arc<Fates>),
        id: String,
        dir: PathBuf,
        record: Record,
    ) -> Arc<Guest> {
        Arc::new(Guest {
            peer,
            offer,
            fates,
            id,
            dir,
            record: Mutex::new(record),
            table: Table::default(),
            since: Instant::now(),
        })
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
            Verb::Start(start) => return exec::run(self, start, stream).await,
            Verb::ListProcesses(_) => Said::Processes(Processes {
                processes: self.table.list(),
            }),
            Verb::Signal(signal) => return self.signal(signal),
            Verb::Forget(_) => return Ok(()),
            Verb::Ping(_) => Said::Pong(self.ping().await?),
            Verb::Init(init) => return self.init(init),
            Verb::Metrics(_) => Said::Metrics(self.metrics().await?),
            Verb::Attach(wanted) => {
                // A running command has its reader already, and nothing else can be attached.
                self.table.find(wanted.process)?;
                return Err(Failed::unsupported(
                    "follow a command of another call",
                    NO_CALL,
                ));
            }
            Verb::Input(_) | Verb::Resize(_) | Verb::LookAtTerminal(_) => {
                return Err(Failed::unsupported("type into a command", NO_CALL));
            }
            Verb::SignalForeground(_) => {
                return Err(Failed::unsupported("have terminals", NO_CALL));
            }
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

    /// A ping asks the service, not this process.
    async fn ping(&self) -> Result<Pong, Failed> {
        match self.peer.status(&self.id).await? {
            Standing::There => Ok(Pong {
                guest_version: format!("http {}", self.offer.version).trim().to_string(),
                uptime_ms: self.since.elapsed().as_millis() as u64,
                link_version: LINK_VERSION,
            }),
            Standing::Gone(reason) => Err(self.gone(&reason)),
        }
    }

    fn init(&self, init: Init) -> Result<(), Failed> {
        if !init.default_user.is_empty() {
            return Err(Failed::unsupported("run commands as a user", NO_CALL));
        }
        if !init.file_root.is_empty() || !init.nameserver.is_empty() {
            return Err(Failed::unsupported("set up a machine", NO_CALL));
        }
        let mut record = self.record();
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
        if !self.offer.has("stats") {
            let why = "the service does not offer the extension `stats`";
            return Err(Failed::unsupported("measure a machine", why));
        }
        let found = self.peer.stats(&self.id).await;
        let found = match found {
            Ok(found) => found,
            Err(error) => return Err(self.failed(error).await),
        };
        Ok(Metrics {
            cpu_us: found.cpu_us,
            cpus: found.cpus,
            memory_used_bytes: found.memory_bytes,
            memory_total_bytes: found.memory_limit_bytes,
            disk_used_bytes: found.disk_bytes,
            disk_total_bytes: found.disk_limit_bytes,
            processes: found.processes,
            uptime_ms: found.uptime_ms,
            ..Metrics::default()
        })
    }

    /// The default variables and directory of commands.
    fn surroundings(&self) -> (BTreeMap<String, String>, String) {
        let record = self.record();
        (record.env.clone(), record.workdir.clone())
    }

    fn record(&self) -> std::sync::MutexGuard<'_, Record> {
        self.record
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Reports the end of the machine to everyone who waits for it.
    fn gone(&self, reason: &str) -> Failed {
        self.fates.end(&self.id, reason);
        Failed::new(Failure::Cancelled, reason)
    }

    /// Interprets a failed call. A missing sandbox is not a missing file, and a broken connection
    /// may mean the machine's end: ask the service.
    async fn failed(&self, error: PeerError) -> Failed {
        let doubtful = match &error {
            PeerError::Refused { refusal, .. } => matches!(refusal.status, 404 | 410 | 500..),
            PeerError::Broken { .. } | PeerError::Nonsense { .. } => true,
            _ => false,
        };
        if doubtful && let Ok(Standing::Gone(reason)) = self.peer.status(&self.id).await {
            return self.gone(&reason);
        }
        match error.status() {
            // The machine exists, so something inside it is missing.
            Some(404) => Failed::new(Failure::NotFound, error.to_string()),
            _ => error.into(),
        }
    }
}

/// Closes a link when its serving task ends.
struct Closing(Link);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}
