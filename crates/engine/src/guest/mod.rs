//! The host's side of a machine's guest.
//!
//! Keeps one link, opened when first needed and reopened if it breaks while the machine lives on.
//! Everything a guest sends is untrusted: it is decoded here, within the bounds of the link.

mod call;
pub mod exec;
pub mod files;
#[cfg(test)]
mod hostile;
mod lend;
mod system;
pub mod terminal;
pub mod workspace;

pub use call::{Bounds, taken_away};

use bytes::Bytes;
use call::{About, Call};
use motu_core::runtime::{Kept, Machine};
use motu_core::{Error, ErrorKind, Result, Runtime, SandboxId, limits};
use motu_link::frame::{CHANNEL_IN, MAX_PAYLOAD};
use motu_link::message::{Failure, Long, Note, Outcome, Request, Said, Verb};
use motu_link::{Event, Link, LinkError, Stream};
use prost::Message;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// How long a guest may take to answer a handshake. A silent guest is asked again on a new
/// connection: an earlier peer may have been cut off in the middle of a frame.
const HELLO_TIMEOUTS: [Duration; 3] = [
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];
/// Notes per answer: a full page of the longest paths needs fewer.
const MAX_NOTES: usize = 1024;
/// Bytes of the notes of one answer: a full page of the longest paths has fewer.
const MAX_NOTE_BYTES: usize = 64 * 1024 * 1024;
/// Protocol breaches before the machine is ended. A hostile guest repeats them at once; a single
/// one may be noise on a serial line.
const MAX_BREACHES: u32 = 3;

/// One machine's guest.
#[derive(Debug)]
pub struct Guest {
    me: Weak<Guest>,
    runtime: Arc<dyn Runtime>,
    machine: Machine,
    link: Mutex<Option<Link>>,
    /// The number of failed attempts to open a link, and the last error.
    failed: std::sync::Mutex<(u64, Option<Error>)>,
    about: Arc<About>,
    kills: Arc<Kills>,
    breaches: Arc<Breaches>,
    /// The machine's disks, if they are kept.
    kept: Option<Kept>,
}

/// Counts protocol breaches of one guest.
#[derive(Debug, Default)]
struct Breaches {
    count: AtomicU32,
    /// Why its machine must be ended.
    verdict: watch::Sender<Option<String>>,
}

impl Breaches {
    fn add(&self, id: &SandboxId, what: &str) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::warn!(%id, what, count, "a guest breached the protocol; its link was closed");
        if count >= MAX_BREACHES {
            let reason = format!("its guest broke the link's protocol: {what}");
            self.verdict.send_replace(Some(reason));
        }
    }
}

/// Counts kills by the host's memory limit, which the guest may not be able to see.
#[derive(Debug)]
struct Kills {
    runtime: Arc<dyn Runtime>,
    machine: Machine,
    seen: AtomicU64,
}

impl Kills {
    /// Whether the memory limit has killed a process since the last call.
    fn any_new(&self) -> bool {
        let now = self.runtime.memory_kills(&self.machine);
        now > self.seen.swap(now, Ordering::Relaxed)
    }
}

impl Guest {
    pub fn new(runtime: Arc<dyn Runtime>, machine: Machine, bounds: Bounds) -> Arc<Guest> {
        Guest::keeping(runtime, machine, bounds, None)
    }

    /// For a machine whose disks may be kept.
    pub fn keeping(
        runtime: Arc<dyn Runtime>,
        machine: Machine,
        bounds: Bounds,
        kept: Option<Kept>,
    ) -> Arc<Guest> {
        Arc::new_cyclic(|me| Guest {
            me: me.clone(),
            about: Arc::new(About::new(machine.id.clone(), bounds)),
            failed: std::sync::Mutex::default(),
            kills: Arc::new(Kills {
                runtime: runtime.clone(),
                machine: machine.clone(),
                seen: AtomicU64::new(0),
            }),
            runtime,
            machine,
            link: Mutex::new(None),
            breaches: Arc::default(),
            kept,
        })
    }

    /// Flushes received files to the host's disk, for runtimes whose guest cannot do it.
    async fn settle(&self) -> Result<()> {
        match &self.kept {
            Some(kept) if !self.runtime.guest_flushes() => self.runtime.flush(kept).await,
            _ => Ok(()),
        }
    }

    /// The link; opens one if none works.
    pub async fn link(&self) -> Result<Link> {
        let (before, _) = self.last_failure();
        let mut slot = self.link.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        // Callers that waited while another attempt failed share its error instead of retrying in
        // turn.
        if let (now, Some(error)) = self.last_failure()
            && now > before
        {
            return Err(error);
        }
        match self.reach().await {
            Ok(link) => {
                tokio::spawn(call::watch_silence(link.clone(), self.about.clone()));
                *slot = Some(link.clone());
                Ok(link)
            }
            Err(error) => {
                let mut failed = self.failed.lock().unwrap_or_else(|p| p.into_inner());
                *failed = (failed.0 + 1, Some(error.clone()));
                Err(error)
            }
        }
    }

    fn last_failure(&self) -> (u64, Option<Error>) {
        let failed = self.failed.lock().unwrap_or_else(|p| p.into_inner());
        failed.clone()
    }

    async fn reach(&self) -> Result<Link> {
        for patience in HELLO_TIMEOUTS {
            match tokio::time::timeout(patience, self.connect()).await {
                Ok(connected) => return connected,
                Err(_) => {
                    tracing::warn!(id = %self.machine.id, ?patience, "a guest did not answer the handshake");
                }
            }
        }
        Err(Error::unavailable(format!(
            "the guest of {} did not answer the handshake",
            self.machine.id
        ))
        .hint("the machine may be stopped or overloaded; its processes go on"))
    }

    /// Resolves when the guest has breached the protocol so often that its machine must be ended;
    /// gives the reason.
    pub async fn misbehaved(&self) -> String {
        let mut verdict = self.breaches.verdict.subscribe();
        let reason = verdict.wait_for(Option::is_some).await;
        // `wait_for` cannot fail: `self` holds the sender.
        reason
            .ok()
            .and_then(|reason| reason.clone())
            .unwrap_or_default()
    }

    /// Closes the link to a guest that has breached the protocol.
    async fn breach(&self, what: &str) -> Error {
        self.breaches.add(&self.machine.id, what);
        self.close().await;
        Error::transport(format!("{what}; the connection was dropped"))
    }

    /// Ends the link, and with it every call in progress.
    pub async fn close(&self) {
        if let Some(link) = self.link.lock().await.take() {
            link.close();
        }
    }

    async fn connect(&self) -> Result<Link> {
        let connection = self.runtime.connect(&self.machine).await?;
        let mut nonce = [0u8; 16];
        getrandom::fill(&mut nonce)
            .map_err(|error| Error::internal(format!("no random numbers: {error}")))?;
        let mut io = tokio::io::join(connection.read, connection.write);
        motu_link::hello::host(&mut io, nonce)
            .await
            .map_err(|error| Error::transport(error.to_string()))?;
        let (read, write) = io.into_inner();
        let link = Link::start(read, write, false).0;
        let (watched, breaches) = (link.clone(), self.breaches.clone());
        let id = self.machine.id.clone();
        tokio::spawn(async move {
            if let LinkError::Protocol(what) = watched.closed().await {
                breaches.add(&id, &what);
            }
        });
        Ok(link)
    }

    /// Opens a stream with a request.
    async fn open(&self, verb: Verb) -> Result<Call> {
        let in_use = self.about.in_use(&verb);
        // A guest that does not know of input would start the program without it.
        let has_input = matches!(&verb, Verb::Start(start) if !start.input.is_empty());
        let request = Bytes::from(Request::from(verb).encode_to_vec());
        let stream = match has_input || request.len() > MAX_PAYLOAD {
            true => self.long(request).await,
            false => self.stream(request).await,
        };
        let stream = stream.map_err(|error| self.going().unwrap_or(error))?;
        Ok(Call::new(stream, self.about.clone(), in_use))
    }

    /// A stream whose request is too long for a frame: it follows as data.
    async fn long(&self, request: Bytes) -> Result<Stream> {
        let bytes = request.len() as u64;
        let announced = Request::from(Verb::Long(Long { bytes }));
        let stream = self.stream(announced.encode_to_vec().into()).await?;
        // A guest that does not take it ends the stream, which is read as its answer.
        let _ = stream.tx.data(CHANNEL_IN, request).await;
        Ok(stream)
    }

    async fn stream(&self, request: Bytes) -> Result<Stream> {
        let link = self.link().await?;
        let stream = match link.open(request.clone()).await {
            // The link broke between two calls and nothing was sent: try once more on a new one.
            Err(_) if link.is_closed() => {
                let link = self.link().await?;
                link.open(request).await
            }
            other => other,
        };
        stream.map_err(broken)
    }

    /// A request that is answered by one note.
    async fn ask(&self, verb: Verb) -> Result<Said> {
        let mut stream = self.open(verb).await?;
        let note = next_note(&mut stream).await?;
        finish(&mut stream).await?;
        Ok(note)
    }

    /// A request that is answered by any number of notes.
    async fn ask_all(&self, verb: Verb) -> Result<Vec<Said>> {
        let mut stream = self.open(verb).await?;
        let mut notes = Vec::new();
        let (mut bytes_heard, mut entries) = (0, 0);
        loop {
            match stream.recv().await? {
                Event::Message(bytes) => {
                    let note = decode_note(&bytes)?;
                    bytes_heard += bytes.len();
                    entries += match &note {
                        Said::Entries(found) => found.entries.len(),
                        _ => 0,
                    };
                    notes.push(note);
                    if notes.len() > MAX_NOTES
                        || bytes_heard > MAX_NOTE_BYTES
                        || entries > limits::LIST_ENTRIES.max as usize
                    {
                        return Err(self.breach("the guest's answer has no end").await);
                    }
                }
                Event::End(bytes) => return outcome(&bytes).map(|()| notes),
                Event::Reset => return Err(broken(LinkError::Reset)),
                Event::Data { .. } | Event::Eof => {}
            }
        }
    }

    /// A request that is answered by success or failure alone.
    async fn tell(&self, verb: Verb) -> Result<()> {
        let mut stream = self.open(verb).await?;
        finish(&mut stream).await
    }
}

/// Waits for a note; an end before it is an error.
async fn next_note(stream: &mut Call) -> Result<Said> {
    loop {
        if let Some(note) = as_note(stream.recv().await?)? {
            return Ok(note);
        }
    }
}

/// Like [`next_note`], on a stream that may be silent for as long as its guest answers pings.
async fn note_some_day(stream: &mut Call) -> Result<Said> {
    loop {
        if let Some(note) = as_note(stream.recv_some_day().await?)? {
            return Ok(note);
        }
    }
}

fn as_note(event: Event) -> Result<Option<Said>> {
    match event {
        Event::Message(bytes) => decode_note(&bytes).map(Some),
        Event::End(bytes) => {
            outcome(&bytes)?;
            Err(unexpected())
        }
        Event::Reset => Err(broken(LinkError::Reset)),
        Event::Data { .. } | Event::Eof => Ok(None),
    }
}

/// Waits for the end of a stream, ignoring what comes before.
async fn finish(stream: &mut Call) -> Result<()> {
    loop {
        match stream.recv().await? {
            Event::End(bytes) => return outcome(&bytes),
            Event::Reset => return Err(broken(LinkError::Reset)),
            _ => {}
        }
    }
}

fn decode_note(bytes: &[u8]) -> Result<Said> {
    Note::decode(bytes)
        .ok()
        .and_then(|note| note.said)
        .ok_or_else(|| Error::transport("the guest sent a note that cannot be read"))
}

/// The error for an answer of the wrong type.
fn unexpected() -> Error {
    Error::transport("the guest gave an answer to another question")
}

fn broken(error: LinkError) -> Error {
    match error {
        LinkError::TooManyStreams => Error::limit(error.to_string()),
        LinkError::Silent(why) => Error::unavailable(why)
            .hint("the machine may be stopped or overloaded; its processes go on"),
        LinkError::Protocol(_) => Error::transport(format!("{error}; the connection was dropped")),
        _ => Error::transport(format!("the connection to the guest broke: {error}")),
    }
}

/// Decodes the outcome at the end of a stream.
fn outcome(bytes: &[u8]) -> Result<()> {
    let outcome = Outcome::decode(bytes)
        .map_err(|_| Error::transport("the guest sent an outcome that cannot be read"))?;
    failure(&outcome)
}

fn failure(outcome: &Outcome) -> Result<()> {
    let message: String = outcome.message.chars().take(500).collect();
    let kind = match Failure::try_from(outcome.kind) {
        Ok(Failure::None) => return Ok(()),
        Ok(Failure::Invalid | Failure::CannotRun | Failure::NoDirectory) => ErrorKind::Invalid,
        Ok(Failure::NotFound | Failure::NoUser) => ErrorKind::NotFound,
        Ok(Failure::Exists) => ErrorKind::Conflict,
        // The guest gave the call up because its machine or its link is ending.
        Ok(Failure::Cancelled) => ErrorKind::Transport,
        Ok(Failure::Denied) => ErrorKind::Denied,
        Ok(Failure::Limit) => ErrorKind::Limit,
        Ok(Failure::Unsupported) => ErrorKind::Unsupported,
        Ok(Failure::NoSpace) => {
            return Err(Error::limit(message).hint(
                "the sandbox's disk is full; remove files in it or create it with a larger disk_mib",
            ));
        }
        Ok(Failure::Io) | Err(_) => ErrorKind::Internal,
    };
    let error = Error::new(kind, message);
    Err(match reason(outcome) {
        Some(reason) => error.details(serde_json::json!({"reason": reason})),
        None => error,
    })
}

/// What a program tells the failures of one kind apart by. The number comes from the guest, and may
/// be any.
fn reason(outcome: &Outcome) -> Option<&'static str> {
    use rustix::io::Errno;
    const REASONS: [(Errno, &str); 9] = [
        (Errno::NOENT, "no_such_file"),
        (Errno::ACCESS, "permission_denied"),
        (Errno::PERM, "permission_denied"),
        (Errno::ISDIR, "is_a_directory"),
        (Errno::NOTDIR, "not_a_directory"),
        (Errno::EXIST, "file_exists"),
        (Errno::NOTEMPTY, "directory_not_empty"),
        (Errno::ROFS, "read_only"),
        (Errno::TOOBIG, "arguments_too_long"),
    ];
    match Failure::try_from(outcome.kind) {
        Ok(Failure::NoUser) => Some("no_such_user"),
        Ok(Failure::NoDirectory) => Some("no_such_directory"),
        _ => {
            let mut known = REASONS.into_iter();
            let found = known.find(|(errno, _)| errno.raw_os_error() == outcome.errno);
            found.map(|(_, reason)| reason)
        }
    }
}
