//! Decides when a request is answered.

mod answer;

use super::nested::NO_EXIT_CODE;
use super::{End, Expect, Poll, Run, Session, Shape, Ticket};
use crate::classify::{Confidence, Phase, State, Status};
use crate::error::TerminalError;
use crate::expect::{Cursor, Found, Look, Watch};
use std::time::Duration;

/// How long a shell without kernel facts may take to begin a typed line, before it is assumed to
/// want more input.
const UNSEEN: Duration = Duration::from_secs(5);
/// How long a shell may read its startup files before commands are typed without a mark.
pub(super) const FIRST_PROMPT: Duration = Duration::from_secs(5);
/// How long to wait for kernel facts before continuing without them.
const FACTS_PATIENCE: Duration = Duration::from_millis(500);
/// The pause between two looks at a shell that is about to wait.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long whoever was told a secret may say nothing.
const SECRET_PATIENCE: Duration = Duration::from_secs(10);
/// The longest pause between two looks at the kernel.
const FACTS_PAUSE: Duration = Duration::from_secs(2);

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub ticket: Ticket,
    kind: Kind,
    shape: Shape,
    /// The stream position when it was made.
    from: u64,
    made: Duration,
    deadline: Duration,
    /// The prompt at or after which it was typed.
    turn: Option<u64>,
    /// A run typed into a program, not at our shell's prompt.
    nested: bool,
    /// A whole line was sent: a program that has read it is busy with it.
    line: bool,
    /// A secret was sent, which a program thinks about without a word.
    secret: bool,
    /// The program that was asking when an interrupt was sent to it.
    interrupted: Option<u32>,
    /// A run that was made while earlier input was not begun.
    queued: bool,
    warnings: Vec<&'static str>,
}

#[derive(Debug)]
enum Kind {
    /// `waiting` until the command is typed.
    Run {
        command: String,
        waiting: bool,
    },
    Send,
    Poll,
    Expect {
        watch: Box<Watch>,
        fresh: bool,
    },
    Prompt,
}

impl Waiter {
    fn new(ticket: Ticket, kind: Kind, timeout: Duration, (from, now): (u64, Duration)) -> Waiter {
        Waiter {
            ticket,
            kind,
            shape: Shape::default(),
            from,
            made: now,
            deadline: now.saturating_add(timeout),
            turn: None,
            nested: false,
            line: false,
            secret: false,
            interrupted: None,
            queued: false,
            warnings: Vec::new(),
        }
    }

    pub fn run(ticket: Ticket, run: &Run, from: u64, now: Duration) -> Waiter {
        let kind = Kind::Run {
            command: run.command.clone(),
            waiting: true,
        };
        Waiter {
            shape: run.shape,
            ..Waiter::new(ticket, kind, run.timeout, (from, now))
        }
    }

    pub fn send(
        ticket: Ticket,
        timeout: Duration,
        shape: Shape,
        from: u64,
        now: Duration,
    ) -> Waiter {
        Waiter {
            shape,
            ..Waiter::new(ticket, Kind::Send, timeout, (from, now))
        }
    }

    pub fn poll(ticket: Ticket, poll: Poll, from: u64, now: Duration) -> Waiter {
        Waiter {
            shape: poll.shape,
            ..Waiter::new(ticket, Kind::Poll, poll.timeout, (from, now))
        }
    }

    pub fn prompt(ticket: Ticket, timeout: Duration, from: u64, now: Duration) -> Waiter {
        Waiter::new(ticket, Kind::Prompt, timeout, (from, now))
    }

    pub fn expect(
        ticket: Ticket,
        expect: &Expect,
        from: Cursor,
        (cols, now): (u16, Duration),
    ) -> Result<Waiter, TerminalError> {
        let look = Look {
            cols,
            from,
            raw: expect.raw,
            echo: expect.echo,
        };
        let watch = Box::new(Watch::new(&expect.patterns, look)?);
        let kind = Kind::Expect { watch, fresh: true };
        Ok(Waiter {
            shape: expect.shape,
            ..Waiter::new(ticket, kind, expect.timeout, (from.offset, now))
        })
    }

    pub fn warn(&mut self, warning: &'static str) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    pub fn tells_from(&mut self, from: u64) {
        self.from = from;
    }

    pub fn of_a_line(&mut self, line: bool) {
        self.line = line;
    }

    pub fn of_a_secret(&mut self, secret: bool) {
        self.secret = secret;
    }

    pub fn interrupts(&mut self, asking: Option<u32>) {
        self.interrupted = asking;
    }

    pub fn at_turn(&mut self, turn: Option<u64>) {
        self.turn = turn;
    }

    pub fn wait_for_turn(&mut self) {
        self.queued = true;
    }

    pub fn waits_for_turn(&self) -> bool {
        self.queued
    }

    pub fn is_run(&self) -> bool {
        matches!(self.kind, Kind::Run { .. })
    }

    pub fn is_waiting_to_start(&self) -> bool {
        matches!(self.kind, Kind::Run { waiting: true, .. })
    }

    /// A run that was typed where no marks tell of its end, and of which nothing was said yet.
    fn is_unmarked(&self) -> bool {
        matches!(self.kind, Kind::Run { waiting: false, .. })
            && (self.nested || self.turn.is_none())
            && !self.warnings.iter().any(|said| NO_EXIT_CODE.contains(said))
    }

    pub fn command(&self) -> &str {
        match &self.kind {
            Kind::Run { command, .. } => command,
            _ => "",
        }
    }

    pub fn take_command(&mut self) -> String {
        match &mut self.kind {
            Kind::Run { command, waiting } => {
                *waiting = false;
                command.clone()
            }
            _ => String::new(),
        }
    }

    pub fn started(&mut self, turn: Option<u64>, nested: bool, from: u64, now: Duration) {
        self.turn = turn;
        self.nested = nested;
        self.from = from;
        self.made = now;
    }

    /// Feeds the next bytes of the stream; `typing` if they are the shell's echo.
    pub fn watch(&mut self, bytes: &[u8], typing: bool) {
        if let Kind::Expect { watch, fresh } = &mut self.kind {
            if typing {
                watch.skip(bytes);
            } else {
                watch.take(bytes);
            }
            *fresh = true;
        }
    }

    pub fn echo(&mut self, text: &str) {
        if let Kind::Expect { watch, .. } = &mut self.kind {
            watch.expect_echo(text);
        }
    }

    /// Whether kernel facts could end this wait.
    fn needs_facts(&self, phase: Phase, pending: bool) -> bool {
        match self.kind {
            Kind::Run { waiting, .. } => !waiting || self.queued,
            Kind::Send | Kind::Prompt => phase != Phase::AtPrompt || pending,
            Kind::Poll | Kind::Expect { .. } => false,
        }
    }
}

/// Whether something waits for the caller.
pub(super) fn asks(state: &State) -> bool {
    state.status.wants_input()
        || (state.status == Status::Unknown && state.confidence >= Confidence::High)
}

impl Session {
    /// Answers every request that can be answered now.
    pub(super) fn look(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.adopt();
        self.start_runs(now);
        let mut at = 0;
        while at < self.waiters.len() {
            match self.decide(at, now) {
                Some((end, found)) => {
                    let waiter = self.waiters.remove(at);
                    self.finish(waiter, end, found, now);
                }
                None => at += 1,
            }
        }
    }

    /// A line that was typed ahead has become a command of the shell.
    fn adopt(&mut self) {
        let turn = self.commands.command_turn;
        if !self.commands.loose {
            return;
        }
        for waiter in &mut self.waiters {
            let typed = matches!(waiter.kind, Kind::Run { waiting: false, .. });
            if typed && waiter.nested && waiter.turn.is_some_and(|at| at < turn) {
                waiter.nested = false;
                waiter.turn = Some(turn);
                self.commands.loose = false;
            }
        }
    }

    fn decide(&mut self, at: usize, now: Duration) -> Option<(End, Option<Found>)> {
        if let Kind::Expect { watch, fresh } = &mut self.waiters[at].kind
            && std::mem::take(fresh)
            && let Some(found) = watch.find()
        {
            return Some((End::Matched, Some(found)));
        }
        let waiter = &self.waiters[at];
        let end = match &waiter.kind {
            Kind::Run { waiting: true, .. } => None,
            Kind::Run { .. } => self.decide_run(waiter, now),
            Kind::Send => self.decide_send(waiter, now),
            Kind::Poll => self.decide_poll(waiter, now),
            Kind::Expect { .. } => None,
            Kind::Prompt => self.decide_prompt(now),
        };
        let over = if self.ended.is_some() {
            Some(End::SessionEnded)
        } else {
            (now >= waiter.deadline).then_some(End::TimedOut)
        };
        end.or(over).map(|end| (end, None))
    }

    fn decide_run(&self, waiter: &Waiter, now: Duration) -> Option<End> {
        let Some(turn) = waiter.turn else {
            return self.decide_unmarked(now);
        };
        if self.commands.done_since(turn) {
            // A line that the program did not read becomes the shell's next command.
            let over = !(waiter.nested && self.commands.loose)
                || (!self.knows_readers(now) && self.quiet(now));
            return over.then_some(End::CommandEnded);
        }
        if waiter.nested {
            return self.decide_unmarked(now);
        }
        if self.commands.phase == Phase::AtPrompt {
            // Typed, but not begun: the shell asks for more input, or is slow. If neither it nor
            // the kernel tells, a long silence after everything was read means that it wants more.
            let silent = self.is_stuck(now) && self.has_read_everything(now);
            let more = self.commands.unfinished || silent;
            return more.then_some(End::WaitsForInput);
        }
        if !self.quiet(now) {
            return None;
        }
        match self.fresh_facts() {
            Some(_) => asks(&self.state(now)).then_some(End::WaitsForInput),
            // Without kernel facts, text ends a wait only after a long silence.
            None => (self.given_up_on_facts(now)
                && now >= self.last_activity() + self.config.silence
                && asks(&self.state(now)))
            .then_some(End::WaitsForInput),
        }
    }

    fn decide_unmarked(&self, now: Duration) -> Option<End> {
        if !self.quiet(now) || (self.fresh_facts().is_none() && !self.given_up_on_facts(now)) {
            return None;
        }
        let state = self.state(now);
        if asks(&state) {
            return Some(End::WaitsForInput);
        }
        let silent = now >= self.last_activity() + self.config.silence;
        (silent && state.confidence == Confidence::Low).then_some(End::Quiet)
    }

    fn decide_send(&self, waiter: &Waiter, now: Duration) -> Option<End> {
        if waiter
            .turn
            .is_some_and(|turn| self.commands.done_since(turn))
        {
            return Some(End::CommandEnded);
        }
        if !self.quiet(now) {
            return None;
        }
        if self.commands.phase == Phase::AtPrompt {
            let slow = self.commands.pending && !self.commands.unfinished;
            return (!slow || self.is_stuck(now)).then_some(End::Quiet);
        }
        if self.fresh_facts().is_none() && !self.given_up_on_facts(now) {
            return None;
        }
        let state = self.state(now);
        if asks(&state) {
            return Some(End::WaitsForInput);
        }
        // A program that does not read is still busy with its input.
        let busy = state.status == Status::Running && state.confidence >= Confidence::High;
        let taken = self
            .fresh_facts()
            .is_some_and(|facts| facts.unread_input == Some(0));
        if busy && waiter.line && taken {
            return None;
        }
        if waiter.secret {
            return self.decide_secret(now);
        }
        let silent = now >= self.last_activity() + self.config.silence;
        (silent || !busy).then_some(End::Quiet)
    }

    /// A secret was taken, and nothing asks yet: whoever checks it answers after a while, and a
    /// login goes on for a while after that.
    fn decide_secret(&self, now: Duration) -> Option<End> {
        let patience = match self.reply.is_awaited() {
            true => SECRET_PATIENCE,
            false => self.config.silence,
        };
        (now >= self.last_activity() + patience).then_some(End::Quiet)
    }

    fn decide_poll(&self, waiter: &Waiter, now: Duration) -> Option<End> {
        let came = self.ring.end() > waiter.from;
        let at_prompt = self.commands.phase == Phase::AtPrompt;
        (came && (at_prompt || self.quiet(now))).then_some(End::Quiet)
    }

    fn decide_prompt(&self, now: Duration) -> Option<End> {
        let known = self.commands.phase == Phase::AtPrompt
            || (self.quiet(now) && (self.fresh_facts().is_some() || self.given_up_on_facts(now)));
        (known && self.state(now).status == Status::Ready).then_some(End::WaitsForInput)
    }

    /// Whether the kernel tells who waits for the terminal, or may still tell.
    pub(super) fn knows_readers(&self, now: Duration) -> bool {
        match self.fresh_facts() {
            Some(facts) => facts.reading().is_some(),
            None => !self.blind && now < self.last_activity() + UNSEEN,
        }
    }

    /// Whether there was a long silence and the kernel does not tell who reads.
    pub(super) fn is_stuck(&self, now: Duration) -> bool {
        now >= self.last_activity() + UNSEEN && !self.knows_readers(now)
    }

    /// Whether all input has been read, by the facts or after waiting for them long enough.
    fn has_read_everything(&self, now: Duration) -> bool {
        match self.fresh_facts() {
            Some(facts) => facts.unread_input.unwrap_or(0) == 0,
            None => self.given_up_on_facts(now),
        }
    }

    /// The program in front, if the kernel says that it waits for an answer.
    pub(super) fn asks_in_front(&self, now: Duration) -> Option<u32> {
        let front = self.fresh_facts()?.front()?;
        let state = self.state(now);
        let asks = matches!(state.status, Status::Password | Status::Confirm);
        (asks && state.confidence == Confidence::High).then_some(front.pid)
    }

    pub(super) fn fresh_facts(&self) -> Option<&crate::classify::KernelFacts> {
        let (facts, _) = self.facts.as_ref()?;
        (!self.facts_are_old()).then_some(facts)
    }

    /// Whether the facts are overdue.
    fn given_up_on_facts(&self, now: Duration) -> bool {
        now >= self.last_activity() + self.config.quiet + FACTS_PATIENCE
    }

    /// Whether the guest should look at the kernel now.
    pub fn wants_facts(&self, now: Duration) -> bool {
        self.facts_at().is_some_and(|at| now >= at)
    }

    /// When the next look at the kernel is due.
    fn facts_at(&self) -> Option<Duration> {
        let phase = self.commands.phase;
        let pending = self.commands.pending || self.commands.loose;
        let needed = |waiter: &Waiter| waiter.needs_facts(phase, pending);
        // Who has answered as a shell is looked at again before a key is typed.
        if !self.waiters.iter().any(needed) && !self.nested.is_proven() {
            return None;
        }
        // At the prompt the shell only has to be seen waiting, without a silence first.
        if phase == Phase::AtPrompt && self.commands.loose && self.knows_readers(self.now) {
            return Some(self.last_activity().max(self.facts_asked + LOOK_AGAIN));
        }
        let quiet = self.last_activity() + self.config.quiet;
        let Some((_, last)) = self.facts.as_ref().filter(|_| !self.facts_are_old()) else {
            // If facts came too early, ask again, but not at once.
            let asked = self.facts_asked + self.config.quiet;
            let again = self.facts_asked >= quiet;
            return Some(if again { asked } else { quiet });
        };
        // Looks become rarer the longer nothing happens.
        let pause = (*last - self.last_activity().min(*last)).clamp(self.config.quiet, FACTS_PAUSE);
        Some(quiet.max(*last + pause))
    }

    /// When [`Session::tick`] is to be called next.
    pub fn wake_at(&self) -> Option<Duration> {
        let active = self.last_activity();
        let mut times = vec![self.facts_at()];
        if !self.waiters.is_empty() {
            let quiet = self.config.quiet;
            let silence = self.config.silence;
            for after in [
                quiet,
                UNSEEN,
                quiet + FACTS_PATIENCE,
                silence,
                SECRET_PATIENCE,
            ] {
                times.push(Some(active + after));
            }
        }
        if self.waiters.iter().any(Waiter::is_waiting_to_start) {
            times.push(Some(FIRST_PROMPT));
        }
        times.extend(self.waiters.iter().map(|waiter| Some(waiter.deadline)));
        times.push(self.redactor.held_until());
        times.push(self.nested.until());
        if !self.settled {
            times.push(Some(self.last_output + super::SETTLE_AFTER));
        }
        times
            .into_iter()
            .flatten()
            .filter(|at| *at > self.now)
            .min()
    }
}
