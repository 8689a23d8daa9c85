//! The task that owns one session.
//!
//! ```text
//!   asks of callers ─┐
//!   bytes, exit ─────┤            ┌─► input to the machine
//!   jobs it started ─┼─► Session ─┼─► answers, watchers
//!   the clock ───────┘            └─► the recorder
//! ```
//!
//! The task never blocks on any of them: whatever takes time is a job whose result comes back as
//! work. After the shell's end the task stays for `LINGER`, for further requests, and then ends;
//! the files have everything.

mod hearing;
mod looking;

use super::checks;
use super::join::{self, Lost};
use super::known::Known;
use super::watchers::Watchers;
use super::writer::{Pen, Position};
use crate::driver;
use crate::guest::Guest;
use crate::guest::terminal::Looked;
use crate::store::{TerminalEnd, TerminalRow};
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{BoxStream, FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use motu_core::exec::{ExecEvent, ExecInput, ExecSession, Exited, TtySize};
use motu_core::{Error, ErrorKind, Result};
use motu_terminal::TerminalError;
use motu_terminal::classify::{Ended, KernelFacts, Phase};
use motu_terminal::record::Record;
use motu_terminal::session::{End, Outcome, Session, Ticket};
use motu_terminal::{Size, State};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Output processed in one go before other events are handled.
const BATCH_BYTES: usize = 1024 * 1024;
/// Input queued for a program that does not read.
const OUTGOING_BYTES: usize = 4 * 1024 * 1024;
/// How long an answer waits for its input to reach the machine.
const REACH_TIME: Duration = Duration::from_secs(2);
/// Largest piece of input passed to the link.
const INPUT_PIECE: usize = 32 * 1024;
/// Maximum age of kernel facts for a view.
const VIEW_AGE: Duration = Duration::from_millis(50);
/// How long a view waits for new kernel facts.
const VIEW_PATIENCE: Duration = Duration::from_millis(200);
/// The same where a secret prompt must be recognized, or the session was just restored.
const LONG_PATIENCE: Duration = Duration::from_secs(2);
/// Pause after a guest failed to deliver kernel facts.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// How long the task of an ended session stays for further requests.
const LINGER: Duration = Duration::from_secs(10);

/// A closure that the task runs.
pub type Work = Box<dyn FnOnce(&mut Owner) + Send>;

/// How recent the kernel facts must be for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Whatever is known.
    Any,
    /// Newer than the last event, unless the marks already make the state certain.
    Fresh,
    /// Like `Fresh`, but only while a command is running that may read the input.
    InCommand,
    /// From a look that begins after the request.
    New,
}

/// A request to the task.
pub struct Ask {
    freshness: Freshness,
    work: Work,
}

impl Ask {
    pub fn new(freshness: Freshness, work: impl FnOnce(&mut Owner) + Send + 'static) -> Ask {
        Ask {
            freshness,
            work: Box::new(work),
        }
    }
}

/// A request that waits for kernel facts.
struct Deferred {
    ask: Ask,
    until: Instant,
    /// The number of looks begun when it was made.
    looks: u64,
}

/// The connection to the shell.
struct Wire {
    events: BoxStream<'static, Result<ExecEvent>>,
    input: mpsc::Sender<ExecInput>,
}

/// The initial state of an owner.
pub struct Begin {
    pub session: Session,
    pub known: Arc<Known>,
    /// `None` for an ended session.
    pub place: Option<Arc<driver::Handle>>,
    pub pen: Option<Pen>,
    /// The offset in the machine's output at which the session begins.
    pub machine_from: u64,
    /// The session was restored: output printed since is processed before any request.
    pub found: bool,
}

/// The owner of one session.
pub struct Owner {
    pub(super) session: Session,
    pub(super) known: Arc<Known>,
    /// Ends when everything that is known so far is stored.
    learnt: Option<oneshot::Receiver<()>>,
    place: Option<Arc<driver::Handle>>,
    pub(super) pen: Option<Pen>,
    pub(super) guest: Option<Arc<Guest>>,
    wire: Option<Wire>,
    /// The machine's output offset that corresponds to stream position 0.
    base: u64,
    start: Instant,
    waiting: Vec<(u64, Ticket, oneshot::Sender<Result<Outcome>>)>,
    deferred: Vec<Deferred>,
    jobs: FuturesUnordered<BoxFuture<'static, Work>>,
    outgoing: VecDeque<ExecInput>,
    outgoing_bytes: usize,
    /// The output position at the last input, until that input has reached the machine.
    typed: Option<u64>,
    looks: u64,
    looks_done: u64,
    look_after: Instant,
    /// The guest cannot deliver kernel facts at all.
    blind: bool,
    /// Output from before this daemon is still to come.
    behind: bool,
    /// Kernel facts that are ahead of the received output.
    early: Option<(u64, Looked)>,
    /// Input bytes the machine had received before this daemon typed anything.
    typed_before: Option<u64>,
    pub(super) cwd: Option<String>,
    /// The directory of the foreground process at the last look.
    pub(super) front_cwd: Option<String>,
    pub(super) pid: Option<u32>,
    pub(super) watchers: Watchers,
    pub(super) ended: Option<Ended>,
    /// The shell has ended, and that is being stored: until then it is not said.
    pub(super) ending: bool,
    /// When an ended session was last used.
    asked: Instant,
    /// The session is being forgotten: the task ends without lingering.
    forgotten: bool,
}

impl Owner {
    pub fn new(begin: Begin) -> Owner {
        let now = Instant::now();
        let mut owner = Owner {
            session: begin.session,
            known: begin.known,
            learnt: None,
            place: begin.place,
            pen: begin.pen,
            guest: None,
            wire: None,
            base: begin.machine_from,
            start: now,
            waiting: Vec::new(),
            deferred: Vec::new(),
            jobs: FuturesUnordered::new(),
            outgoing: VecDeque::new(),
            outgoing_bytes: 0,
            typed: None,
            looks: 0,
            looks_done: 0,
            look_after: now,
            blind: false,
            behind: begin.found,
            early: None,
            typed_before: (!begin.found).then_some(0),
            cwd: None,
            front_cwd: None,
            pid: None,
            watchers: Watchers::default(),
            ended: None,
            ending: false,
            asked: now,
            forgotten: false,
        };
        match owner.place.is_some() {
            true => owner.join(),
            false => owner.rest(),
        }
        owner
    }

    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Runs until the session has ended and `LINGER` is over, or all handles are dropped.
    pub async fn run(mut self, mut asks: mpsc::Receiver<Ask>) {
        loop {
            self.settle();
            let readable = self.pen.as_ref().is_none_or(|pen| !pen.is_full());
            let typing = !self.outgoing.is_empty();
            let input = self.wire.as_ref().filter(|_| typing);
            let input = input.map(|wire| wire.input.clone());
            let wake = self.wake();
            tokio::select! {
                biased;
                ask = asks.recv() => match ask {
                    Some(ask) => self.take(ask),
                    None => return,
                },
                Some(work) = self.jobs.next(), if !self.jobs.is_empty() => work(&mut self),
                event = next(&mut self.wire), if readable => self.hear(event),
                () = room(&self.pen), if !readable => {}
                permit = reserve(input), if typing => self.pass_on(permit),
                () = tokio::time::sleep_until(wake.into()) => {
                    let now = self.now();
                    self.session.tick(now);
                }
            }
            if self.ended.is_some() && self.may_leave() {
                asks.close();
                while let Ok(ask) = asks.try_recv() {
                    (ask.work)(&mut self);
                }
                return;
            }
        }
    }

    fn may_leave(&self) -> bool {
        let unwatched = self.watchers.is_empty() && self.asked.elapsed() >= LINGER;
        self.jobs.is_empty() && (self.forgotten || unwatched)
    }

    /// The next time something is due.
    fn wake(&self) -> Instant {
        let session = self.session.wake_at().map(|at| self.start + at);
        let deferred = self.deferred.iter().map(|deferred| deferred.until).min();
        let look = self
            .session
            .wants_facts(self.now())
            .then_some(self.look_after)
            .filter(|at| *at > Instant::now() && !self.blind);
        let leave = self.ended.map(|_| self.asked + LINGER);
        let all = [session, deferred, look, leave, self.watchers.wake()];
        let far = Instant::now() + Duration::from_secs(3600);
        all.into_iter().flatten().min().unwrap_or(far)
    }

    /// Does what the session needs after an event.
    fn settle(&mut self) {
        let now = self.now();
        self.answer_deferred();
        if self.session.wants_facts(now) {
            self.look();
        }
        let input = self.session.take_input();
        if !input.is_empty() {
            self.type_out(Bytes::from(input));
        }
        for (ticket, mut outcome) in self.outcomes() {
            if self.pen.as_ref().is_some_and(Pen::is_broken) {
                let lost = "what is printed is no longer written down: the disk is full or broken";
                outcome.warnings.push(lost);
            }
            if outcome.end == End::SessionEnded && self.ended == Some(Ended::Eof) {
                // The session does not know how its shell ended; the row does.
                if let Some(end) = &self.known.row().end {
                    outcome.exit_code = outcome.exit_code.or(end.exit_code);
                    outcome.state.reason = end.reason.clone();
                }
            }
            let found = self
                .waiting
                .iter()
                .position(|(_, known, _)| *known == ticket);
            if let Some(at) = found {
                let (_, _, reply) = self.waiting.swap_remove(at);
                self.answer(reply, outcome);
            }
        }
        let records = self.session.take_records();
        if !records.is_empty() {
            self.keep(records);
        }
        self.watchers.catch_up(&self.session);
    }

    /// Requests that are done; none while the shell's end is being stored.
    fn outcomes(&mut self) -> Vec<(Ticket, Outcome)> {
        match self.is_being_stored() {
            true => Vec::new(),
            false => self.session.take_outcomes(),
        }
    }

    /// Whether the shell has ended and that is not stored yet.
    fn is_being_stored(&self) -> bool {
        self.ending && self.ended.is_none()
    }

    /// Answers a request once its input has reached the machine: from then on a crash of the daemon
    /// loses none of it.
    fn answer(&mut self, reply: oneshot::Sender<Result<Outcome>>, outcome: Outcome) {
        let typed = self.typed.take_if(|at| *at == self.session.received());
        // Output after the input proves that it has arrived.
        let (Some(_), Some(wire), Some(guest)) = (typed, &self.wire, self.guest.clone()) else {
            // A failed send means that the caller has gone and cancelled the request.
            let _ = reply.send(Ok(outcome));
            return;
        };
        let input = wire.input.clone();
        self.job(async move {
            let reached = async {
                // Waiting for the whole capacity drains the queue; the ping is then handled after
                // all input.
                let _ = input.reserve_many(input.max_capacity()).await;
                guest.ping().await
            };
            let reached = tokio::time::timeout(REACH_TIME, reached).await;
            if !matches!(reached, Ok(Ok(_))) {
                tracing::debug!(?reached, "could not confirm that input reached the machine");
            }
            let _ = reply.send(Ok(outcome));
            Box::new(|_: &mut Owner| {}) as Work
        });
    }

    /// Passes output to watchers and records to the recorder.
    fn keep(&mut self, records: Vec<Record>) {
        if !self.watchers.is_empty() {
            for record in &records {
                if let Record::Output { from, bytes, .. } = record {
                    self.watchers.show(*from, bytes);
                }
            }
        }
        let Some(pen) = &self.pen else { return };
        pen.write(
            records,
            Position {
                tag: self.known.tag().unwrap_or_default(),
                machine: self.base + self.session.consumed(),
                stream: self.session.end(),
                carried: self.session.carried(),
            },
        );
    }

    // Requests of callers.

    fn take(&mut self, ask: Ask) {
        self.asked = Instant::now();
        if let Some(place) = &self.place {
            place.touch();
        }
        if self.knows_enough(ask.freshness, self.looks) {
            (ask.work)(self);
            return;
        }
        let patience = match ask.freshness {
            Freshness::New => LONG_PATIENCE,
            _ if self.behind => LONG_PATIENCE,
            _ => VIEW_PATIENCE,
        };
        self.deferred.push(Deferred {
            ask,
            until: Instant::now() + patience,
            looks: self.looks,
        });
        self.look();
    }

    /// Whether the kernel facts suffice for a request that was made after `looks` looks had begun.
    fn knows_enough(&self, freshness: Freshness, looks: u64) -> bool {
        if self.is_being_stored() || (self.behind && self.ended.is_none()) {
            return false;
        }
        if self.blind || self.wire.is_none() {
            return true;
        }
        let certain = self.session.is_certain();
        match freshness {
            Freshness::Any => true,
            Freshness::InCommand | Freshness::Fresh if certain => true,
            Freshness::InCommand if self.session.phase() != Phase::InCommand => true,
            // Programs come and go without output, so facts older than `VIEW_AGE` do not count.
            Freshness::InCommand | Freshness::Fresh => {
                self.looks_done > looks || self.session.facts_age(self.now()) < VIEW_AGE
            }
            Freshness::New => self.looks_done > looks,
        }
    }

    fn answer_deferred(&mut self) {
        if self.deferred.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut rest = Vec::new();
        for deferred in std::mem::take(&mut self.deferred) {
            let enough = self.knows_enough(deferred.ask.freshness, deferred.looks);
            if enough || now >= deferred.until {
                (deferred.ask.work)(self);
            } else {
                rest.push(deferred);
            }
        }
        // An answered request may have deferred new ones.
        rest.append(&mut self.deferred);
        self.deferred = rest;
        if !self.deferred.is_empty() {
            self.look();
        }
    }

    /// Makes a request; returns false if it was refused.
    pub fn request(
        &mut self,
        number: u64,
        make: impl FnOnce(&mut Session, Duration) -> std::result::Result<Ticket, TerminalError>,
        reply: oneshot::Sender<Result<Outcome>>,
    ) -> bool {
        if reply.is_closed() {
            return false;
        }
        let now = self.now();
        if self.outgoing_bytes >= OUTGOING_BYTES {
            let full = Error::limit("the program in front does not read what is typed").hint(
                "send it a signal, or terminate the session; what was typed before still waits",
            );
            let _ = reply.send(Err(full));
            return false;
        }
        match make(&mut self.session, now) {
            Ok(ticket) => {
                self.waiting.push((number, ticket, reply));
                true
            }
            Err(error) => {
                let _ = reply.send(Err(error.into()));
                false
            }
        }
    }

    /// Drops a request whose caller has gone.
    pub fn cancel(&mut self, number: u64) {
        let found = self
            .waiting
            .iter()
            .position(|(known, _, _)| *known == number);
        if let Some(at) = found {
            let (_, ticket, _) = self.waiting.swap_remove(at);
            let now = self.now();
            self.session.cancel(ticket, now);
        }
    }

    /// Answers a request with an error.
    pub fn fail(&mut self, number: u64, error: Error) {
        let found = self
            .waiting
            .iter()
            .position(|(known, _, _)| *known == number);
        if let Some(at) = found {
            let (_, ticket, reply) = self.waiting.swap_remove(at);
            let now = self.now();
            self.session.cancel(ticket, now);
            let _ = reply.send(Err(error));
        }
    }

    /// Starts a job.
    pub fn job(&mut self, job: impl Future<Output = Work> + Send + 'static) {
        self.jobs.push(job.boxed());
    }

    /// Gives the terminal another size.
    pub fn resize(&mut self, size: TtySize) {
        self.show_size(size);
        self.learn(move |row| row.size = size, |_| {});
    }

    fn show_size(&mut self, size: TtySize) {
        let now = self.now();
        self.session.resize(Size::new(size.cols, size.rows), now);
        self.outgoing.push_back(ExecInput::Resize(size));
    }

    /// Does as the row says by now: of several changes, the last one is both stored and done.
    pub fn configure(&mut self, with_size: bool) {
        let row = self.known.row();
        let regex = checks::prompt_regex(row.prompt_regex.as_deref()).unwrap_or(None);
        self.session.set_prompt_regex(regex);
        self.session
            .set_quiet(Duration::from_millis(row.quiescence_ms));
        if with_size && self.session.screen().size() != Size::new(row.size.cols, row.size.rows) {
            self.show_size(row.size);
        }
    }

    fn type_out(&mut self, mut bytes: Bytes) {
        self.typed = Some(self.session.received());
        self.outgoing_bytes += bytes.len();
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(INPUT_PIECE));
            self.outgoing.push_back(ExecInput::Stdin(piece));
        }
        // Fast path: if there is room, send now and save a turn of the loop.
        while let Some(wire) = &self.wire
            && let Ok(permit) = wire.input.try_reserve()
            && let Some(input) = self.outgoing.pop_front()
        {
            self.outgoing_bytes -= size_of_input(&input);
            permit.send(input);
        }
    }

    /// Sends the next input, now that there is room.
    fn pass_on(&mut self, permit: Option<mpsc::OwnedPermit<ExecInput>>) {
        let Some(permit) = permit else { return };
        if let Some(input) = self.outgoing.pop_front() {
            self.outgoing_bytes -= size_of_input(&input);
            permit.send(input);
        }
    }

    /// Stores what has happened, after what happened before, and then goes on.
    pub fn learn(
        &mut self,
        fact: impl FnOnce(&mut TerminalRow) + Send + 'static,
        then: impl FnOnce(&mut Owner) + Send + 'static,
    ) {
        let known = self.known.clone();
        let (stored, next) = oneshot::channel::<()>();
        let before = self.learnt.replace(next);
        self.job(async move {
            if let Some(before) = before {
                // Nothing is sent: the sender is dropped.
                let _ = before.await;
            }
            known.learn(fact).await;
            drop(stored);
            Box::new(then) as Work
        });
    }
}

fn size_of_input(input: &ExecInput) -> usize {
    match input {
        ExecInput::Stdin(bytes) => bytes.len(),
        _ => 0,
    }
}

/// The next event of the machine; pending forever without a connection.
async fn next(wire: &mut Option<Wire>) -> Option<Result<ExecEvent>> {
    match wire {
        Some(wire) => wire.events.next().await,
        None => std::future::pending().await,
    }
}

async fn reserve(input: Option<mpsc::Sender<ExecInput>>) -> Option<mpsc::OwnedPermit<ExecInput>> {
    match input {
        Some(input) => input.reserve_owned().await.ok(),
        None => std::future::pending().await,
    }
}

async fn room(pen: &Option<Pen>) {
    if let Some(pen) = pen {
        pen.room().await;
    }
}
