//! One call to a guest, and how long it may take.
//!
//! The host keeps three bounds, because a guest may be stopped, stuck or hostile:
//!
//! ```text
//!   silence   nothing at all comes from a guest somebody waits for, pings included:
//!             its link is given up, and every call on it is answered `unavailable`
//!   call      one call gets no sign of life from a guest that answers others: `timeout`
//!   command   a command outlives its own time limit and a grace (see `exec`): `timeout`
//! ```
//!
//! While the driver holds a machine (pause, fork) none of these bounds counts. But if it is held
//! because the host's disk is full, there is no end in sight: a call that has waited for one
//! `silence` is answered `limit`, with the reason.

use super::{Guest, broken, outcome};
use crate::clock;
use bytes::Bytes;
use motu_core::config::Config;
use motu_core::{Error, ErrorKind, Result, SandboxId};
use motu_link::message::{Ping, Request, Verb};
use motu_link::{Event, Link, LinkError, Receiver, Sender, Stream};
use prost::Message;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// How often the link is checked during one `silence`.
const LOOKS: u32 = 6;

/// How long a guest may be silent.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// On the whole link, while a call waits.
    pub silence: Duration,
    /// On one call.
    pub call: Duration,
}

impl From<&Config> for Bounds {
    fn from(config: &Config) -> Bounds {
        Bounds {
            silence: Duration::from_secs(config.guest_silence_seconds),
            call: Duration::from_secs(config.guest_call_seconds),
        }
    }
}

/// State that all calls to one guest share.
#[derive(Debug)]
pub(super) struct About {
    pub id: SandboxId,
    pub bounds: Bounds,
    /// The host has paused the machine.
    held: AtomicBool,
    /// Why it is paused, if for lack of disk space.
    shortage: watch::Sender<Option<String>>,
    /// Why the machine must be ended.
    doom: watch::Sender<Option<String>>,
    /// What somebody does to the machine, if that is the end of it.
    going: Mutex<Option<&'static str>>,
    /// Calls that count as use of the sandbox while they last.
    uses: AtomicUsize,
    /// When the last of these calls ended, in milliseconds since the host was started.
    used_ms: AtomicU64,
}

/// Whether a call only looks at what goes on.
fn looks_on(verb: &Verb) -> bool {
    match verb {
        Verb::Attach(_)
        | Verb::Watch(_)
        | Verb::Ping(_)
        | Verb::Metrics(_)
        | Verb::LookAtTerminal(_) => true,
        Verb::DoneAs(asked) => {
            let inner = Request::decode(asked.request.clone());
            inner.is_ok_and(|inner| inner.verb.as_ref().is_some_and(looks_on))
        }
        _ => false,
    }
}

/// Counts as one of [`About::uses`] until it is dropped.
#[derive(Debug)]
pub(super) struct InUse(Arc<About>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.used_ms.store(clock::boot_ms(), Ordering::SeqCst);
        self.0.uses.fetch_sub(1, Ordering::SeqCst);
    }
}

impl About {
    pub fn new(id: SandboxId, bounds: Bounds) -> About {
        About {
            id,
            bounds,
            held: AtomicBool::new(false),
            shortage: watch::Sender::new(None),
            doom: watch::Sender::new(None),
            going: Mutex::new(None),
            uses: AtomicUsize::new(0),
            used_ms: AtomicU64::new(0),
        }
    }

    /// A call counts as use of the sandbox until it is answered. Requests that the host makes for
    /// itself, and streams that a caller may follow unattended (attach, watch), do not.
    pub fn in_use(self: &Arc<About>, verb: &Verb) -> Option<InUse> {
        (!looks_on(verb)).then(|| {
            self.uses.fetch_add(1, Ordering::SeqCst);
            InUse(self.clone())
        })
    }

    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    pub fn starve(&self, reason: &str) {
        self.shortage.send_replace(Some(reason.to_string()));
    }

    /// Returns an error when the machine has been without disk space for one `silence`.
    pub async fn starved(&self) -> Error {
        let mut shortage = self.shortage.subscribe();
        // `wait_for` cannot fail: `self` holds the sender.
        loop {
            let begun = shortage.wait_for(Option::is_some).await;
            let reason = begun.ok().and_then(|why| why.clone()).unwrap_or_default();
            let over = shortage.wait_for(Option::is_none);
            let waited = tokio::time::timeout(self.bounds.silence, over)
                .await
                .is_err();
            if waited {
                return crate::shortage::shortage(&self.id, &reason);
            }
        }
    }

    fn set_going(&self, what: Option<&'static str>) {
        *self.going.lock().unwrap_or_else(|lost| lost.into_inner()) = what;
    }

    /// The error of every call to a machine that is being taken away.
    pub fn going(&self) -> Option<Error> {
        let what = *self.going.lock().unwrap_or_else(|lost| lost.into_inner());
        what.map(|what| taken_away(&self.id, what))
    }

    pub fn late(&self, what: &str) -> Error {
        Error::new(
            ErrorKind::Timeout,
            format!("the guest of {} {what}", self.id),
        )
        .details(serde_json::json!({ "sandbox_id": self.id }))
    }

    /// Asks the driver to end the machine.
    pub fn doom(&self, why: &str) {
        self.doom.send_replace(Some(why.to_string()));
    }
}

/// The error of a call that somebody else's stop, reset or end of the machine came between.
pub fn taken_away(id: &SandboxId, what: &str) -> Error {
    Error::conflict(format!("{id} is being {what}"))
        .hint("look at it when that is done, and try again if it runs")
        .details(serde_json::json!({ "sandbox_id": id, "being": what }))
}

impl Guest {
    /// From now on whatever fails does so because the machine is being stopped, reset or destroyed.
    pub fn goes(&self, what: &'static str) {
        self.about.set_going(Some(what));
    }

    /// It was not.
    pub fn stays(&self) {
        self.about.set_going(None);
    }

    pub fn going(&self) -> Option<Error> {
        self.about.going()
    }

    /// Marks the machine as paused by the host, so that silence is no fault.
    pub fn hold(&self) {
        self.about.held.store(true, Ordering::Relaxed);
    }

    /// Marks the machine as paused for lack of disk space.
    pub fn starve(&self, reason: &str) {
        self.about.starve(reason);
    }

    pub fn let_go(&self) {
        self.about.held.store(false, Ordering::Relaxed);
        self.about.shortage.send_replace(None);
    }

    /// When the guest was last used, in milliseconds since the host was started; now, if a call
    /// runs.
    pub fn last_used_ms(&self) -> u64 {
        match self.about.uses.load(Ordering::SeqCst) {
            0 => self.about.used_ms.load(Ordering::SeqCst),
            _ => clock::boot_ms(),
        }
    }

    /// Returns when the machine must be ended, with the reason.
    pub async fn doomed(&self) -> String {
        let mut doom = self.about.doom.subscribe();
        // `wait_for` cannot fail: `self` holds the sender.
        let found = doom.wait_for(Option::is_some).await;
        found.ok().and_then(|why| why.clone()).unwrap_or_default()
    }
}

/// A stream to a guest.
#[derive(Debug)]
pub(super) struct Call {
    pub tx: Sender,
    pub rx: Receiver,
    pub about: Arc<About>,
    pub in_use: Option<InUse>,
}

impl Call {
    pub fn new(stream: Stream, about: Arc<About>, in_use: Option<InUse>) -> Call {
        let Stream { tx, rx } = stream;
        Call {
            tx,
            rx,
            about,
            in_use,
        }
    }

    /// The next event; a timeout after `Bounds::call`.
    pub async fn recv(&mut self) -> Result<Event> {
        loop {
            let waiting = tokio::time::timeout(self.about.bounds.call, self.rx.recv());
            let waited = tokio::select! {
                waited = waiting => waited,
                error = self.about.starved() => return Err(error),
            };
            match waited {
                Ok(event) => return self.heard(event),
                Err(_) if self.about.is_held() => {}
                Err(_) => return Err(self.silent()),
            }
        }
    }

    /// The next event of a stream that may be silent for any time.
    pub async fn recv_some_day(&mut self) -> Result<Event> {
        let event = self.rx.recv().await;
        self.heard(event)
    }

    /// What came from the guest. A failure of one whose machine is being taken away is about that.
    pub fn heard(&self, heard: std::result::Result<Event, LinkError>) -> Result<Event> {
        let Some(going) = self.about.going() else {
            return heard.map_err(broken);
        };
        match heard {
            Ok(Event::End(last)) => match outcome(&last) {
                Err(error) if is_vague(error.kind) => Err(going),
                _ => Ok(Event::End(last)),
            },
            Ok(Event::Reset) | Err(_) => Err(going),
            Ok(event) => Ok(event),
        }
    }

    /// Sends data; a timeout if the guest grants no credit within `Bounds::call`.
    pub async fn data(&self, channel: u8, bytes: Bytes) -> std::result::Result<(), Refused> {
        let sending = self.tx.data(channel, bytes);
        match tokio::time::timeout(self.about.bounds.call, sending).await {
            Ok(sent) => sent.map_err(|_| Refused::Answered),
            Err(_) => Err(Refused::Late(self.silent())),
        }
    }

    fn silent(&self) -> Error {
        let seconds = self.about.bounds.call.as_secs();
        self.about
            .late(&format!("has said nothing about this call for {seconds} s"))
    }
}

/// Whether a failure may come of the machine's end, rather than of what was asked for.
fn is_vague(kind: ErrorKind) -> bool {
    use ErrorKind::{Internal, Invalid, Transport, Unavailable};
    matches!(kind, Internal | Invalid | Transport | Unavailable)
}

/// Why data was not sent.
#[derive(Debug)]
pub(super) enum Refused {
    /// The guest has ended the stream already; its outcome says why.
    Answered,
    Late(Error),
}

/// Closes a link whose guest sends nothing at all while a call waits for it. Time is counted in
/// checks, not by the clock: a daemon that was itself stopped for a while blames no guest.
pub(super) async fn watch_silence(link: Link, about: Arc<About>) {
    let pause = about.bounds.silence / LOOKS;
    while !link.is_closed() {
        link.used().await;
        let (mut heard, mut quiet) = (link.heard(), 0);
        while link.streams() > 0 && !link.is_closed() {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = link.closed() => return,
            }
            let now = link.heard();
            if now != heard || about.is_held() {
                (heard, quiet) = (now, 0);
                continue;
            }
            quiet += 1;
            if quiet == 1 {
                tokio::spawn(ping(link.clone()));
            } else if quiet >= LOOKS {
                let seconds = about.bounds.silence.as_secs();
                tracing::warn!(id = %about.id, seconds, "a guest is silent");
                link.give_up(format!(
                    "the guest of {} has not answered for {seconds} s",
                    about.id
                ));
            }
        }
    }
}

/// Makes an idle guest prove that it is alive.
async fn ping(link: Link) {
    let request = Request::from(Verb::Ping(Ping {})).encode_to_vec();
    if let Ok(mut stream) = link.open(Bytes::from(request)).await {
        while let Ok(event) = stream.rx.recv().await {
            if matches!(event, Event::End(_) | Event::Reset) {
                return;
            }
        }
    }
}
