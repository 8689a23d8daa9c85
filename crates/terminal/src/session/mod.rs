//! One terminal session, as a state machine without I/O.
//!
//! The engine owns the PTY and the clock. It calls, with `now` as the time since
//! the session was made:
//!
//! ```text
//!   output(bytes, now)     bytes came from the PTY
//!   facts(facts, now)      the guest looked at the kernel, because wants_facts(now)
//!   ended(how, now)        the shell is gone
//!   tick(now)              the time wake_at() named has come
//! ```
//!
//! and after any of them, and after any request, does what it is told:
//!
//! ```text
//!   take_input()           write these bytes to the PTY
//!   take_outcomes()        answer these requests
//!   take_records()         hand these to the recorder
//!   wants_facts(now)       ask the guest for facts, then call facts()
//!   wake_at()              call tick() at this time
//! ```
//!
//! Requests (`run`, `send`, `poll`, `expect`, …) give a [`Ticket`] at once; any
//! number may wait, and none keeps another from being made. A `run` ends when
//! the shell's mark says so, when something waits for input, or at its timeout.
//!
//! ```text
//!            B mark             C mark             D mark
//!   Unmarked ──────► AtPrompt ──────► InCommand ──────► Between ──► AtPrompt …
//! ```

mod commands;
mod nested;
mod reading;
mod reply;
mod request;
mod requests;
#[cfg(test)]
mod tests;
mod wait;

pub use commands::Command;
pub use request::*;

use crate::classify::{self, Ended, Evidence, KernelFacts, Phase, State};
use crate::expect::{Cursor, Sent};
use crate::limits::RING_BYTES;
#[cfg(test)]
use crate::limits::{INPUT_BYTES, WAITERS};
use crate::osc::{Listener, Nonce, Notice};
use crate::output::{self, Excerpt, Show, Span};
use crate::record::Record;
use crate::redact::{Redactor, Values};
use crate::ring::Ring;
use crate::scan::{Piece, Scanner, Seen};
use crate::screen::{Screen, Size, View};
use commands::Commands;
use motu_redaction::Patterns;
use regex::Regex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;
use wait::Waiter;

/// Records queued for a slow recorder.
const RECORDS: usize = 4096;
/// Silence after which memory of a busy screen is released.
const SETTLE_AFTER: Duration = Duration::from_secs(5);

/// Options of a session.
#[derive(Clone, Debug)]
pub struct Config {
    pub size: Size,
    /// The start of the stream: the transcript's end, for a restored session.
    pub offset: u64,
    /// The nonce of our shell integration; `None` for a shell without one.
    pub nonce: Option<Nonce>,
    /// Silence after which a program without marks is examined.
    pub quiet: Duration,
    /// Silence after which a wait ends if neither marks nor the kernel can tell.
    pub silence: Duration,
    /// Recent output kept in memory.
    pub ring_bytes: usize,
    /// Whether records are made.
    pub record: bool,
    /// The caller's pattern for a shell's prompt.
    pub prompt_regex: Option<Regex>,
    /// Patterns of well-known credentials to redact.
    pub patterns: Patterns,
    /// Values to redact, besides typed passwords.
    pub values: Values,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            size: Size::default(),
            offset: 0,
            nonce: None,
            quiet: Duration::from_millis(100),
            silence: Duration::from_secs(2),
            ring_bytes: RING_BYTES,
            record: true,
            prompt_regex: None,
            patterns: Patterns::none(),
            values: Values::default(),
        }
    }
}

/// State from marks, to be stored separately: marks are not in the stored stream, where they could
/// be forged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    pub phase: Phase,
    /// The number of the newest prompt.
    pub turn: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The shell that drew it, and the prompt's number in that shell.
    #[serde(default)]
    pub key: (usize, u64),
    /// The nonces of nested shells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nested: Vec<String>,
}

/// The session.
#[derive(Debug)]
pub struct Session {
    config: Config,
    screen: Screen,
    scanner: Scanner,
    redactor: Redactor,
    listener: Listener,
    commands: Commands,
    nested: nested::Nested,
    ring: Ring,
    facts: Option<(KernelFacts, Duration)>,
    /// When the guest last answered.
    facts_asked: Duration,
    /// Bytes received from the PTY, before redaction.
    received: u64,
    ended: Option<Ended>,
    waiters: Vec<Waiter>,
    outcomes: Vec<(Ticket, Outcome)>,
    records: VecDeque<Record>,
    dropped_records: u64,
    input: Vec<u8>,
    /// Total bytes to type; the guest counts the same.
    typed: u64,
    /// Kernel facts are not available.
    blind: bool,
    sent: VecDeque<Sent>,
    /// Whether the last typed line has been answered.
    reply: reply::Reply,
    /// Where the next default `expect` begins.
    expect_from: Cursor,
    /// Where the screen was last cleared.
    wiped: u64,
    /// The part of a secret typed so far, at a prompt without echo.
    secret: Vec<u8>,
    /// Where the next `poll` begins.
    polled: u64,
    last_output: Duration,
    last_input: Duration,
    /// The latest known time.
    now: Duration,
    settled: bool,
    cwd_hint: Option<String>,
    tickets: u64,
}

impl Session {
    pub fn new(config: Config) -> Session {
        Session {
            screen: Screen::new(config.size),
            scanner: Scanner::default(),
            redactor: Redactor::new(config.patterns.clone(), config.values.clone()),
            listener: Listener::new(config.nonce.clone()),
            commands: Commands::default(),
            nested: nested::Nested::default(),
            ring: Ring::new(config.ring_bytes, config.offset),
            facts: None,
            facts_asked: Duration::ZERO,
            received: 0,
            ended: None,
            waiters: Vec::new(),
            outcomes: Vec::new(),
            records: VecDeque::new(),
            dropped_records: 0,
            input: Vec::new(),
            typed: 0,
            blind: false,
            sent: VecDeque::new(),
            reply: reply::Reply::default(),
            expect_from: Cursor::at(config.offset),
            wiped: config.offset,
            secret: Vec::new(),
            polled: config.offset,
            last_output: Duration::ZERO,
            last_input: Duration::ZERO,
            now: Duration::ZERO,
            settled: true,
            cwd_hint: None,
            tickets: 0,
            config,
        }
    }

    /// Replays the end of an older stream to the screen. It is neither recorded nor answered again.
    /// [`Config::offset`] is where `tail` begins.
    pub fn restore(&mut self, tail: &[u8], carried: &Carried) {
        self.screen.write(tail);
        self.screen.take_replies();
        self.ring.push(tail);
        self.expect_from = Cursor::at(self.ring.end());
        self.polled = self.ring.end();
        self.commands.phase = carried.phase;
        self.commands.turn = carried.turn;
        self.commands.cwd.clone_from(&carried.cwd);
        self.commands.key = carried.key;
        for nonce in carried.nested.iter().filter_map(|nonce| Nonce::new(nonce)) {
            self.listener.meet(nonce);
        }
    }

    // Events.

    /// Bytes came from the PTY.
    pub fn output(&mut self, bytes: &[u8], now: Duration) {
        self.received += bytes.len() as u64;
        let mut redactor = std::mem::take(&mut self.redactor);
        redactor.push(bytes, now, &mut |bytes| self.ingest(bytes, now));
        self.redactor = redactor;
        self.last_output = now;
        self.settled = false;
        let replies = self.screen.take_replies();
        self.typed += replies.len() as u64;
        self.input.extend_from_slice(&replies);
        self.look(now);
    }

    /// Handles kernel facts from the guest.
    pub fn facts(&mut self, facts: KernelFacts, now: Duration) {
        self.facts_asked = now;
        let heard = facts
            .output_bytes
            .is_none_or(|bytes| bytes <= self.received);
        let told = facts.input_bytes.is_none_or(|bytes| bytes >= self.typed);
        if heard && told {
            // Our own shell waits with nothing left to read: it has handled all input.
            let ours = facts.shell_in_front || self.commands.key.0 > 0;
            if ours && facts.reading() == Some(true) {
                self.commands.idle();
            }
            self.facts = Some((facts, now));
        }
        self.look(now);
    }

    /// Kernel facts are not available on this machine.
    pub fn cannot_look(&mut self, now: Duration) {
        self.blind = true;
        self.look(now);
    }

    /// The shell has ended, or the session was terminated.
    pub fn ended(&mut self, how: Ended, now: Duration) {
        self.flush(now, true);
        self.ended = Some(how);
        self.look(now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) {
        self.flush(now, false);
        if self.nested.until().is_some_and(|until| now >= until) {
            self.stop_introducing(now);
        }
        if !self.settled && now >= self.last_output + SETTLE_AFTER {
            self.screen.settle();
            self.settled = true;
        }
        self.look(now);
    }

    /// Releases bytes held as a possible secret when their time is up.
    fn flush(&mut self, now: Duration, all: bool) {
        let mut redactor = std::mem::take(&mut self.redactor);
        let then = if all {
            now + Redactor::longest_hold()
        } else {
            now
        };
        redactor.tick(then, &mut |bytes| self.ingest(bytes, now));
        self.redactor = redactor;
    }

    fn ingest(&mut self, bytes: &[u8], now: Duration) {
        let mut scanner = std::mem::take(&mut self.scanner);
        scanner.push(bytes, &mut |piece| self.piece(&piece, now));
        self.scanner = scanner;
    }

    fn piece(&mut self, piece: &Piece<'_>, now: Duration) {
        if self.hold(piece, now) {
            return;
        }
        let Some(Seen::Osc(payload)) = &piece.seen else {
            self.commands.output(piece.bytes);
            self.keep(piece, now);
            return;
        };
        let (notice, clean) = self.listener.hear(payload);
        let clean = clean.map(|payload| [b"\x1b]", payload.as_slice(), b"\x07"].concat());
        let at = self.ring.end();
        let kept = Piece {
            bytes: clean.as_deref().unwrap_or(piece.bytes),
            seen: piece.seen.clone(),
        };
        self.keep(&kept, now);
        if clean.is_none() {
            // Not a mark of ours: it is part of the command's output.
            self.commands.output(piece.bytes);
        }
        match notice {
            Notice::Mark(mark) => {
                let end = self.ring.end();
                self.commands.mark(&mark, at..end, now);
            }
            Notice::Cwd(path) => self.cwd_hint = Some(path),
            Notice::Other => {}
        }
    }

    fn keep(&mut self, piece: &Piece<'_>, now: Duration) {
        self.screen.write_piece(piece);
        if piece.seen.is_none() {
            self.reply.output(piece.bytes);
        }
        let from = self.ring.end();
        self.ring.push(piece.bytes);
        if let Some(at) = wiped(piece.bytes) {
            self.wiped = from + at as u64;
        }
        let typing = self.commands.is_typing();
        for waiter in &mut self.waiters {
            waiter.watch(piece.bytes, typing);
        }
        if self.config.record {
            self.record(Record::Output {
                from,
                bytes: piece.bytes.to_vec(),
                at: now,
            });
        }
    }

    fn record(&mut self, record: Record) {
        if !self.config.record {
            return;
        }
        if let Some(last) = self.records.back_mut()
            && last.join(&record)
        {
            return;
        }
        if self.records.len() >= RECORDS {
            self.records.pop_front();
            self.dropped_records += 1;
        }
        self.records.push_back(record);
    }

    // Actions for the engine.

    /// Bytes to write to the PTY.
    pub fn take_input(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.input)
    }

    /// Answered requests.
    pub fn take_outcomes(&mut self) -> Vec<(Ticket, Outcome)> {
        std::mem::take(&mut self.outcomes)
    }

    /// Records in order. Take them after every event.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records).into()
    }

    // Views; none of them waits or changes anything.

    pub fn view(&self) -> View {
        self.screen.view()
    }

    pub fn screen(&self) -> &Screen {
        &self.screen
    }

    /// The state by the last facts; ask the guest first if [`Session::facts_are_old`].
    pub fn state(&self, now: Duration) -> State {
        if self.ended.is_none()
            && self.commands.phase == Phase::AtPrompt
            && let Some(state) =
                classify::at_prompt(self.commands.pending, self.commands.unfinished)
        {
            return state;
        }
        if let Some(state) = classify::by_marks(self.commands.phase, self.ended) {
            return state;
        }
        let view = self.screen.view();
        let fresh = self.facts.as_ref().filter(|_| !self.facts_are_old());
        classify::classify(&Evidence {
            phase: self.commands.phase,
            facts: fresh.map(|(facts, _)| facts),
            view: &view,
            prompt_regex: self.config.prompt_regex.as_ref(),
            quiet: self.quiet(now),
            foreign_prompt: self.commands.foreign_prompt,
            unanswered: self.reply.is_awaited(),
            ended: self.ended,
        })
    }

    /// Whether something has happened since the last kernel facts.
    pub fn facts_are_old(&self) -> bool {
        self.facts
            .as_ref()
            .is_none_or(|(_, at)| *at < self.last_output || *at <= self.last_input)
    }

    /// Age of the kernel facts; `MAX` if something has happened since.
    pub fn facts_age(&self, now: Duration) -> Duration {
        match &self.facts {
            Some((_, at)) if !self.facts_are_old() => now.saturating_sub(*at),
            _ => Duration::MAX,
        }
    }

    fn quiet(&self, now: Duration) -> bool {
        now >= self.last_output.max(self.last_input) + self.config.quiet
    }

    /// The directory by our shell's marks, else by OSC 7.
    pub fn cwd(&self) -> Option<&str> {
        let marked = self.commands.cwd.as_deref();
        marked.or(self.cwd_hint.as_deref())
    }

    /// The newest group of commands, by marks.
    pub fn commands(&self) -> &[Command] {
        &self.commands.latest
    }

    pub fn phase(&self) -> Phase {
        self.commands.phase
    }

    pub fn last_activity(&self) -> Duration {
        self.last_output.max(self.last_input)
    }

    /// The last kernel facts, however old.
    pub fn last_facts(&self) -> Option<&KernelFacts> {
        self.facts.as_ref().map(|(facts, _)| facts)
    }

    /// Bytes received that are in the stream: the rest is held back, as an incomplete sequence or a
    /// possible secret. A restored session continues here.
    pub fn consumed(&self) -> u64 {
        let held = self.redactor.held() + self.scanner.held() + self.nested.held();
        self.received - held.min(self.received as usize) as u64
    }

    /// State that a restored session needs besides its stream.
    pub fn carried(&self) -> Carried {
        Carried {
            phase: self.commands.phase,
            turn: self.commands.turn,
            cwd: self.commands.cwd.clone(),
            key: self.commands.key,
            nested: self
                .listener
                .met()
                .map(|nonce| nonce.as_str().to_owned())
                .collect(),
        }
    }

    /// Bytes received from the PTY since the session was made; the guest counts the same.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes to type since the session was made.
    pub fn typed(&self) -> u64 {
        self.typed
    }

    /// Whether the marks alone determine the state.
    pub fn is_certain(&self) -> bool {
        !self.commands.pending && classify::by_marks(self.commands.phase, self.ended).is_some()
    }

    /// Empties the scrollback.
    pub fn clear_scrollback(&mut self) {
        self.screen.clear_scrollback();
    }

    /// Changes the size of the screen; the engine changes the PTY's.
    pub fn resize(&mut self, size: Size, now: Duration) {
        self.config.size = size;
        self.screen.resize(size);
        self.record(Record::Resize { size, at: now });
    }

    pub fn set_quiet(&mut self, quiet: Duration) {
        self.config.quiet = quiet;
    }

    pub fn set_prompt_regex(&mut self, regex: Option<Regex>) {
        self.config.prompt_regex = regex;
    }

    fn show(&self, shape: Shape) -> Show {
        Show {
            size: self.config.size,
            budget: shape.budget,
            raw: shape.raw,
        }
    }

    /// The approximate stream position of the screen's top.
    fn top_of_screen(&self) -> u64 {
        let end = self.ring.end();
        let tail = self.ring.read(self.wiped, end, self.config.ring_bytes);
        let rows = usize::from(self.config.size.rows());
        let lines = memchr::memrchr_iter(b'\n', &tail.bytes);
        let first = lines.take(rows).nth(rows - 1);
        tail.from + first.map_or(0, |at| at as u64 + 1)
    }

    /// The text of a range of the stream.
    fn excerpt(&self, range: Range<u64>, head: &[u8], shape: Shape) -> Excerpt {
        let tail = self
            .ring
            .read(range.start, range.end, self.config.ring_bytes);
        let tail = Span {
            from: tail.from,
            bytes: &tail.bytes,
        };
        // The head contains no marks, so its length is right only for the first of several
        // commands.
        let head = Span {
            from: range.start,
            bytes: if tail.from > range.start { head } else { &[] },
        };
        output::excerpt(head, tail, &self.show(shape))
    }
}

/// The last position where bytes clear the screen.
fn wiped(bytes: &[u8]) -> Option<usize> {
    let wipes: [&[u8]; 5] = [
        b"\x1b[2J",
        b"\x1b[H\x1b[J",
        b"\x1bc",
        b"\x1b[?1049",
        b"\x1b[?47",
    ];
    memchr::memchr(0x1b, bytes)?;
    let ends = wipes.iter().filter_map(|wipe| {
        let at = memchr::memmem::rfind(bytes, wipe)?;
        Some(at + wipe.len())
    });
    ends.max()
}
