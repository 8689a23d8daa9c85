//! Makes requests.

use super::wait::{FIRST_PROMPT, Waiter, asks};
use super::{End, Expect, Input, Poll, Record, Run, Send, SendPassword, Session, Shape, Ticket};
use crate::classify::{Confidence, Phase, Status};
use crate::error::TerminalError;
use crate::expect::{Cursor, Found, Look, Sent, Watch};
use crate::keys::{self, Key};
use crate::limits::*;
use crate::mouse::Event;
use crate::redact::REDACTED;
use std::time::Duration;

/// Sent texts whose echo is remembered.
const SENT: usize = 64;
/// Input typed without echo is treated as a secret from this length on.
const GUARDED_BYTES: usize = 4;
/// Ctrl-C and Ctrl-\, which a terminal takes for signals.
const INTERRUPT: u8 = 3;
const QUIT: u8 = 28;

impl Session {
    fn ticket(&mut self) -> Result<Ticket, TerminalError> {
        if self.ended.is_some() {
            return Err(TerminalError::Ended);
        }
        if self.waiters.len() >= WAITERS {
            return Err(TerminalError::TooManyWaiters {
                count: self.waiters.len(),
            });
        }
        self.tickets += 1;
        Ok(Ticket(self.tickets))
    }

    /// Runs a command line and waits for its end.
    pub fn run(&mut self, run: Run, now: Duration) -> Result<Ticket, TerminalError> {
        checked("the command", run.command.len())?;
        if self.waiters.iter().any(Waiter::is_run) {
            return Err(TerminalError::Busy);
        }
        let state = self.state(now);
        let computing = state.status == Status::Running
            && state.confidence >= Confidence::High
            && self.commands.phase == Phase::InCommand;
        if computing && !run.force {
            return Err(TerminalError::NotAtPrompt {
                status: "program that reads nothing",
            });
        }
        if state.status == Status::Password && !run.force {
            return Err(TerminalError::AsksForSecret);
        }
        let ticket = self.ticket()?;
        let waiter = Waiter::run(ticket, &run, self.end(), now);
        self.waiters.push(waiter);
        self.start_runs(now);
        self.look(now);
        Ok(ticket)
    }

    /// Types a run once the shell has drawn its prompt: input before that would be echoed twice.
    pub(super) fn start_runs(&mut self, now: Duration) {
        // A shell of ours without a first prompt is still reading its startup files.
        let starting = self.commands.phase == Phase::Unmarked
            && self.config.nonce.is_some()
            && now < FIRST_PROMPT;
        let drawing = starting || self.commands.phase == Phase::Between;
        if drawing {
            return;
        }
        let Some(at) = self.waiters.iter().position(Waiter::is_waiting_to_start) else {
            return;
        };
        let modes = self.screen.modes();
        let nested = self.commands.phase != Phase::AtPrompt;
        if !self.may_start(at, nested, now) || (nested && self.introduce(at, now)) {
            return;
        }
        let several = self.waiters[at]
            .command()
            .trim_end_matches('\n')
            .contains('\n');
        if several && !nested && !modes.bracketed_paste && !self.quiet(now) {
            // Some shells enable bracketed paste only after they have drawn the prompt.
            return;
        }
        let command = self.waiters[at].take_command();
        let text = command.trim_end_matches('\n');
        let mut bytes = if several && modes.bracketed_paste {
            keys::paste(text, &modes)
        } else if nested {
            text.replace('\n', "\r").into_bytes()
        } else {
            // A quoted newline is part of the command; a plain one would end it.
            text.replace('\n', "\x16\n").into_bytes()
        };
        bytes.push(b'\r');
        let (turn, end) = (self.turn_if_marked(), self.end());
        self.waiters[at].started(turn, nested, end, now);
        let secret = self.guard(&bytes, now);
        // The echo is compared after redaction, so redact the command too.
        let shown = self.redactor.scrub(&command);
        self.type_bytes(&bytes, if secret { "" } else { &shown }, now);
        let text = match secret {
            true => String::from_utf8_lossy(REDACTED).into_owned(),
            false => shown,
        };
        self.record(Record::Interaction {
            kind: "run",
            text,
            at: now,
        });
    }

    /// Whether a run may be typed now. Earlier input comes first: its end is not the end of this
    /// run.
    fn may_start(&mut self, at: usize, nested: bool, now: Duration) -> bool {
        if self.commands.pending || (self.commands.loose && !nested) {
            // If the kernel does not tell who reads, rely on silence.
            if !self.is_stuck(now) {
                self.waiters[at].wait_for_turn();
                return false;
            }
            self.commands.idle();
        }
        // After an earlier command, type only into a program that asks for input.
        let behind = nested && self.waiters[at].waits_for_turn();
        if behind {
            let asked = self.quiet(now) && self.fresh_facts().is_some() && asks(&self.state(now));
            return asked;
        }
        true
    }

    /// Types something, and waits for its effect.
    pub fn send(&mut self, send: &Send, now: Duration) -> Result<Ticket, TerminalError> {
        let modes = self.screen.modes();
        let (bytes, text) = match &send.input {
            Input::Text(text) => (text.clone().into_bytes(), text.clone()),
            Input::Paste(text) => (keys::paste(text, &modes), text.clone()),
            Input::Control(key) => (keys::control_key(key, &modes)?, String::new()),
            Input::Keys(names) => {
                let mut bytes = Vec::new();
                for name in names {
                    bytes.extend(match Event::parse(name) {
                        Some(event) => event?.bytes(self.screen.mouse(), self.config.size)?,
                        None => Key::parse(name)?.bytes(&modes),
                    });
                }
                (bytes, String::new())
            }
        };
        checked("the input", bytes.len())?;
        let ticket = self.ticket()?;
        let mut waiter = Waiter::send(ticket, send.timeout, send.shape, self.end(), now);
        waiter.at_turn(self.turn_if_marked());
        let line = matches!(bytes.last(), Some(b'\n' | b'\r'));
        waiter.of_a_line(line);
        if matches!(bytes[..], [INTERRUPT | QUIT]) {
            waiter.interrupts(self.asks_in_front(now));
        }
        let canonical = self
            .facts
            .as_ref()
            .is_some_and(|(facts, _)| facts.canonical);
        if canonical
            && text
                .split(['\n', '\r'])
                .any(|line| line.len() > CANONICAL_LINE_BYTES)
        {
            waiter.warn("a line is longer than the 4095 bytes a program in line mode can read; the kernel drops the rest");
        }
        let secret = self.guard(&bytes, now);
        waiter.of_a_secret(secret && line);
        self.waiters.push(waiter);
        let echo = self.redactor.scrub(&text);
        self.type_bytes(&bytes, if secret { "" } else { &echo }, now);
        let logged = match &send.input {
            _ if secret => String::from_utf8_lossy(REDACTED).into_owned(),
            Input::Text(text) | Input::Paste(text) => text.clone(),
            Input::Control(key) => format!("<{key}>"),
            Input::Keys(names) => names.iter().map(|name| format!("<{name}>")).collect(),
        };
        let text = self.redactor.scrub(&logged);
        self.record(Record::Interaction {
            kind: "send",
            text,
            at: now,
        });
        Ok(ticket)
    }

    /// Announces a signal to the foreground process: waits for its effect.
    pub fn signal(
        &mut self,
        name: &str,
        timeout: Duration,
        shape: Shape,
        now: Duration,
    ) -> Result<Ticket, TerminalError> {
        let ticket = self.ticket()?;
        let mut waiter = Waiter::send(ticket, timeout, shape, self.end(), now);
        waiter.at_turn(self.turn_if_marked());
        self.waiters.push(waiter);
        self.type_bytes(&[], "", now);
        self.record(Record::Interaction {
            kind: "signal",
            text: name.to_owned(),
            at: now,
        });
        Ok(ticket)
    }

    /// Types input of a person at the keyboard; no request waits for it, and it is not logged.
    pub fn type_in(&mut self, bytes: &[u8], now: Duration) -> Result<(), TerminalError> {
        checked("the input", bytes.len())?;
        if self.ended.is_some() {
            return Err(TerminalError::Ended);
        }
        self.type_bytes(bytes, "", now);
        Ok(())
    }

    /// Types a secret. Give fresh [`Session::facts`] first. It is refused where it would be
    /// displayed, unless forced, and is redacted from everything.
    pub fn send_password(
        &mut self,
        send: &SendPassword,
        now: Duration,
    ) -> Result<Ticket, TerminalError> {
        checked("the password", send.password.len())?;
        if !send.force {
            self.may_take_a_secret(now)?;
        }
        let ticket = self.ticket()?;
        if !self.redactor.watch(send.password.as_bytes(), now) {
            return Err(TerminalError::TooLong {
                what: "the password, or the list of them,",
                len: send.password.len(),
                limit: SECRET_BYTES,
            });
        }
        let mut waiter = Waiter::send(ticket, send.timeout, Shape::default(), self.end(), now);
        waiter.at_turn(self.turn_if_marked());
        waiter.of_a_line(true);
        waiter.of_a_secret(true);
        if self.commands.phase == Phase::AtPrompt {
            waiter.warn("a shell was at its prompt: it may have run the password as a command and kept it in its history");
        }
        self.waiters.push(waiter);
        let mut bytes = send.password.clone().into_bytes();
        bytes.push(b'\r');
        self.type_bytes(&bytes, "", now);
        self.record(Record::Interaction {
            kind: "password",
            text: String::new(),
            at: now,
        });
        Ok(ticket)
    }

    fn may_take_a_secret(&self, now: Duration) -> Result<(), TerminalError> {
        let refused = |reason| Err(TerminalError::EchoOn { reason });
        if self.commands.phase == Phase::AtPrompt {
            return refused("a shell is at its prompt: it would show the password and run it");
        }
        match &self.facts {
            Some(_) if self.facts_are_old() => refused(
                "it is not known what the terminal does with input now; look at the kernel first",
            ),
            Some((facts, _)) if facts.echo => refused("the terminal echoes what is typed"),
            Some((facts, _)) if !facts.canonical && self.state(now).status != Status::Password => {
                refused("the program in front reads single keys and may show them")
            }
            Some(_) => Ok(()),
            None if self.state(now).status == Status::Password => Ok(()),
            None => refused("nothing asks for a password"),
        }
    }

    /// Waits for output that has not been polled yet.
    pub fn poll(&mut self, poll: Poll, now: Duration) -> Result<Ticket, TerminalError> {
        let ticket = self.ticket()?;
        self.waiters
            .push(Waiter::poll(ticket, poll, self.polled, now));
        self.look(now);
        Ok(ticket)
    }

    /// Waits for text.
    pub fn expect(&mut self, expect: &Expect, now: Duration) -> Result<Ticket, TerminalError> {
        let whole = expect.from.is_none();
        let from = expect.from.unwrap_or(Cursor::at(self.top_of_screen()));
        let from = Cursor {
            offset: from.offset.clamp(self.ring.start(), self.ring.end()),
            skip: if from.offset < self.ring.start() {
                0
            } else {
                from.skip
            },
        };
        let mut waiter = Waiter::expect(Ticket(0), expect, from, (self.config.size.cols(), now))?;
        waiter.ticket = self.ticket()?;
        let ticket = waiter.ticket;
        if whole {
            waiter.tells_from(self.expect_from.offset.clamp(from.offset, self.end()));
        }
        if let Some(found) = self.seen(expect)?.filter(|_| whole) {
            self.finish(waiter, End::Matched, Some(found), now);
            return Ok(ticket);
        }
        self.replay(&mut waiter, from.offset);
        self.waiters.push(waiter);
        self.look(now);
        Ok(ticket)
    }

    /// Searches the screen of a full-screen program, whose stream tells little.
    fn seen(&self, expect: &Expect) -> Result<Option<Found>, TerminalError> {
        if expect.raw || !self.screen.modes().alternate_screen {
            return Ok(None);
        }
        let look = Look {
            cols: self.config.size.cols(),
            from: Cursor::at(0),
            raw: false,
            echo: true,
        };
        let mut watch = Watch::new(&expect.patterns, look)?;
        watch.take(self.screen.view().text().replace('\n', "\r\n").as_bytes());
        let after = Cursor::at(self.end());
        Ok(watch.find().map(|found| Found { after, ..found }))
    }

    /// Input typed at a prompt without echo is a secret, however it was sent.
    fn guard(&mut self, bytes: &[u8], now: Duration) -> bool {
        let hidden = self.commands.phase != Phase::AtPrompt
            && (self.state(now).status == Status::Password || !self.secret.is_empty());
        if !hidden {
            return false;
        }
        // If it is sent in parts, the whole is the secret.
        let part = std::mem::take(&mut self.secret);
        self.redactor.forget(&part);
        let lines = bytes.split(|byte| matches!(byte, b'\r' | b'\n' | 3 | 4));
        let mut line = part;
        let mut lines = lines.peekable();
        while let Some(piece) = lines.next() {
            line.extend_from_slice(piece);
            if line.len() >= GUARDED_BYTES {
                // If the list is full, the new one is not watched.
                let _ = self.redactor.watch(&line, now);
            }
            if lines.peek().is_some() {
                line.clear();
            }
        }
        self.secret = line;
        true
    }

    /// Feeds a new watch with the stream since its cursor.
    fn replay(&self, waiter: &mut Waiter, from: u64) {
        let end = self.ring.end();
        for sent in self.sent.iter().filter(|sent| sent.at >= from) {
            waiter.echo(&sent.text);
        }
        let mut at = from;
        for echo in self.commands.echoes(from, end) {
            waiter.watch(
                &self.ring.read(at, echo.start.max(at), usize::MAX).bytes,
                false,
            );
            at = at.max(echo.start);
            waiter.watch(&self.ring.read(at, echo.end, usize::MAX).bytes, true);
            at = at.max(echo.end);
        }
        waiter.watch(&self.ring.read(at, end, usize::MAX).bytes, false);
    }

    /// Waits until the started program waits for input, or is quiet.
    pub fn begin(&mut self, timeout: Duration, now: Duration) -> Result<Ticket, TerminalError> {
        if self.config.nonce.is_some() {
            return self.expect_prompt(timeout, now);
        }
        let ticket = self.ticket()?;
        let shape = Shape::default();
        self.waiters
            .push(Waiter::send(ticket, timeout, shape, self.end(), now));
        self.look(now);
        Ok(ticket)
    }

    /// Waits until a shell is ready for a command.
    pub fn expect_prompt(
        &mut self,
        timeout: Duration,
        now: Duration,
    ) -> Result<Ticket, TerminalError> {
        let ticket = self.ticket()?;
        self.waiters
            .push(Waiter::prompt(ticket, timeout, self.end(), now));
        self.look(now);
        Ok(ticket)
    }

    /// Cancels a request. Whatever runs continues.
    pub fn cancel(&mut self, ticket: Ticket, now: Duration) {
        if let Some(at) = self
            .waiters
            .iter()
            .position(|waiter| waiter.ticket == ticket)
        {
            let waiter = self.waiters.remove(at);
            self.finish(waiter, End::Cancelled, None, now);
        }
    }

    fn turn_if_marked(&self) -> Option<u64> {
        (self.commands.phase != Phase::Unmarked).then_some(self.commands.turn)
    }

    /// Types bytes; `text` is the possible echo.
    fn type_bytes(&mut self, bytes: &[u8], text: &str, now: Duration) {
        self.nested.forget_proof();
        self.input.extend_from_slice(bytes);
        self.typed += bytes.len() as u64;
        self.last_input = now;
        let end = self.end();
        let was_typing = self.commands.phase == Phase::AtPrompt;
        let lines = lines(bytes);
        self.commands.typed_lines(lines);
        if lines > 0 {
            self.reply.line();
        }
        self.expect_from = self.expect_from.max(Cursor::at(end));
        // At a marked prompt the marks tell where the echo of a line ends.
        if was_typing && bytes.ends_with(b"\r") {
            self.commands.typed(end);
            return;
        }
        // With echo off there is no echo.
        let silent = self
            .facts
            .as_ref()
            .is_some_and(|(facts, _)| !facts.echo && facts.canonical);
        if text.is_empty() || silent {
            return;
        }
        if self.sent.len() >= SENT {
            self.sent.pop_front();
        }
        if text.len() <= ECHO_BYTES {
            self.sent.push_back(Sent {
                at: end,
                text: text.to_owned(),
            });
            for waiter in &mut self.waiters {
                waiter.echo(text);
            }
        }
    }
}

/// Counts the lines that a shell would run; bracketed or quoted newlines do not count.
fn lines(bytes: &[u8]) -> usize {
    let mut pasted = false;
    let mut count = 0;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            0x1b if bytes[at..].starts_with(keys::PASTE_START) => pasted = true,
            0x1b if bytes[at..].starts_with(keys::PASTE_END) => pasted = false,
            b'\r' | b'\n' if !pasted && (at == 0 || bytes[at - 1] != 0x16) => count += 1,
            _ => {}
        }
    }
    count
}

fn checked(what: &'static str, len: usize) -> Result<(), TerminalError> {
    if len > INPUT_BYTES {
        return Err(TerminalError::TooLong {
            what,
            len,
            limit: INPUT_BYTES,
        });
    }
    Ok(())
}
