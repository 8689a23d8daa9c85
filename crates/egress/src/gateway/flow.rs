//! One connection: the sandbox's end, the host's end, and what passes between them.

mod agent;
mod border;
mod questions;

use super::budget::Budget;
use super::decisions::{Decision, Decisions, Event};
use super::device::Device;
use super::dial::Dial;
use super::link::Link;
use super::way::Upstream;
use crate::address::Places;
use crate::border::Post;
use crate::judge::{self, Destination, Flight, Reason, Verdict};
use crate::look::{flight, http};
use crate::rules::Rules;
use motu_border::session::Session;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use smoltcp::socket::tcp::State;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Bytes of a connection that wait to be understood, or to be taken by the other side.
const HELD: usize = 64 * 1024;
/// A connection on which nothing happens is closed, sooner when one side has ended already or
/// what it is for is not known yet.
const IDLE: Duration = Duration::from_secs(2 * 60 * 60);
const HALF: Duration = Duration::from_secs(10 * 60);
const UNKNOWN: Duration = Duration::from_secs(2 * 60);

/// The sandbox's port, and where it connects to.
pub(super) type Key = (u16, IpAddr, u16);

/// What every connection works with.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) device: Device,
    pub(super) rules: Rules,
    /// Secrets that are bound to hosts.
    pub(super) border: Option<Post>,
    pub(super) places: Places,
    pub(super) budget: Budget,
    pub(super) decisions: Decisions,
    pub(super) proxy: Upstream,
    pub(super) began: Instant,
    /// This turn's time.
    pub(super) now: Instant,
}

impl Desk {
    pub(super) fn tick(&self) -> smoltcp::time::Instant {
        let passed = self.now.saturating_duration_since(self.began);
        // Not zero: that is how the stack says "at once".
        smoltcp::time::Instant::from_micros(1_000_000 + passed.as_micros() as i64)
    }

    fn instant(&self, tick: smoltcp::time::Instant) -> Instant {
        let micros = tick.total_micros().saturating_sub(1_000_000).max(0);
        self.began + Duration::from_micros(micros as u64)
    }
}

/// The other end of a connection.
#[derive(Debug)]
enum End {
    /// The host is connecting.
    Connecting(Dial),
    Host(OwnedFd),
    /// The gateway itself, which answers questions for names. `out` waits to be sent.
    Names {
        waiting: bool,
        out: Vec<u8>,
    },
    /// The gateway itself, which signs with keys that the sandbox does not have.
    Agent(agent::Signer),
}

/// How far a connection is looked into.
#[derive(Debug)]
enum Look {
    Not,
    First,
    Requests(http::Reader),
    /// TLS is ended here.
    Border(Box<Session>),
}

/// What became of a connection.
#[derive(Debug)]
pub(super) enum Turn {
    /// It goes on; to be looked at again at this time.
    On(Option<Instant>),
    Over(Verdict),
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) key: Key,
    pub(super) to: Destination,
    /// Those that were resolved to its address when it began.
    names: Vec<String>,
    rule: Option<String>,
    end: End,
    link: Option<Link>,
    look: Look,
    /// What its first bytes were, if they were looked at.
    flight: Option<Flight>,
    held: Vec<u8>,
    cleared: usize,
    readable: bool,
    writable: bool,
    /// The host was told that nothing more comes.
    shut: bool,
    /// The host said that nothing more comes.
    ended: bool,
    /// Why it is over, as soon as the sandbox has been told.
    refused: Option<Verdict>,
    out: u64,
    back: u64,
    began: Instant,
    touched: Instant,
    pub(super) timer: Option<Instant>,
    pub(super) dirty: bool,
}

impl Flow {
    fn new(key: Key, to: Destination, names: Vec<String>, end: End, now: Instant) -> Self {
        Self {
            key,
            to,
            names,
            rule: None,
            end,
            link: None,
            look: Look::Not,
            flight: None,
            held: Vec::new(),
            cleared: 0,
            readable: true,
            writable: true,
            shut: false,
            ended: false,
            refused: None,
            out: 0,
            back: 0,
            began: now,
            touched: now,
            timer: None,
            dirty: false,
        }
    }

    /// A connection that is allowed so far, whose host end is connecting.
    pub(super) fn connecting(
        key: Key,
        to: Destination,
        names: Vec<String>,
        verdict: Verdict,
        dial: Dial,
        desk: &Desk,
    ) -> Self {
        let bound = desk.border.as_ref().is_some_and(|post| post.covers(&names));
        let look = bound || judge::must_look(&desk.rules, &desk.places, &to, &names);
        let mut flow = Self::new(key, to, names, End::Connecting(dial), desk.now);
        flow.rule = verdict.rule;
        if look {
            flow.look = Look::First;
        }
        flow
    }

    /// A connection to the gateway's own agent.
    pub(super) fn agent(key: Key, to: Destination, link: Link, now: Instant) -> Self {
        let end = End::Agent(agent::Signer::default());
        let mut flow = Self::new(key, to, Vec::new(), end, now);
        flow.link = Some(link);
        flow
    }

    /// A connection to the gateway's own resolver.
    pub(super) fn names(key: Key, to: Destination, link: Link, now: Instant) -> Self {
        let end = End::Names {
            waiting: false,
            out: Vec::new(),
        };
        let mut flow = Self::new(key, to, Vec::new(), end, now);
        flow.link = Some(link);
        flow
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.names.first().map(String::as_str)
    }

    /// Whether its bytes count: those to the gateway itself do not.
    pub(super) fn spends(&self) -> bool {
        !matches!(self.end, End::Names { .. } | End::Agent(_))
    }

    /// The bytes its buffers take.
    pub(super) fn size(&self) -> usize {
        self.link.as_ref().map_or(0, |link| 2 * link.size)
    }

    /// What its host end has come to, and the first packet, if it is connecting.
    pub(super) fn connected(&mut self, writable: bool) -> Option<(Result<(), Reason>, &[u8])> {
        match &mut self.end {
            End::Connecting(dial) => {
                let outcome = dial.outcome(writable)?;
                Some((outcome, dial.syn()))
            }
            _ => None,
        }
    }

    /// Both ends are there: the sandbox is told.
    pub(super) fn open(&mut self, mut link: Link, desk: &mut Desk) {
        let names = End::Names {
            waiting: false,
            out: Vec::new(),
        };
        if let End::Connecting(dial) = std::mem::replace(&mut self.end, names) {
            let (host, syn) = dial.into_parts();
            let tick = desk.tick();
            link.take(&mut desk.device, &syn, tick);
            self.end = End::Host(host);
        }
        self.link = Some(link);
        self.decide(Event::Connect, &self.verdict(true, Reason::Allowed), desk);
    }

    /// The host end can be read or written again.
    pub(super) fn woken(&mut self, readable: bool, writable: bool) {
        self.readable |= readable;
        self.writable |= writable;
    }

    /// Takes one packet of the sandbox. The bytes are moved by [`Flow::pump`].
    pub(super) fn take(&mut self, packet: &[u8], desk: &mut Desk) {
        let tick = desk.tick();
        if let Some(link) = &mut self.link {
            link.take(&mut desk.device, packet, tick);
            self.touched = desk.now;
        }
    }

    /// Moves what can be moved, and says what became of it.
    pub(super) fn pump(&mut self, desk: &mut Desk) -> Turn {
        if self.link.is_none() {
            return Turn::On(None);
        }
        if let Err(verdict) = self.move_all(desk) {
            return self.cut(verdict, desk);
        }
        let tick = desk.tick();
        let Some(link) = &mut self.link else {
            return Turn::On(None);
        };
        let again = link.send(&mut desk.device, tick);
        let slow = desk.device.is_slow();
        match link.socket().state() {
            State::TimeWait | State::Closed if self.shut && self.ended => {
                let closed = self.verdict(true, Reason::Closed);
                return Turn::Over(self.refused.take().unwrap_or(closed));
            }
            State::Closed => return self.cut(self.verdict(true, Reason::Reset), desk),
            _ => {}
        }
        // A device that is slow wakes everybody when it is not any more.
        let again = again.filter(|_| !slow).map(|tick| desk.instant(tick));
        let soonest = desk.now + Duration::from_millis(1);
        let wait = (desk.budget.room(1, desk.now) == 0).then(|| desk.now + desk.budget.pause());
        Turn::On(
            again
                .map(|at| at.max(soonest))
                .into_iter()
                .chain(wait)
                .min(),
        )
    }

    fn move_all(&mut self, desk: &mut Desk) -> Result<(), Verdict> {
        if matches!(self.end, End::Agent(_)) {
            return self.serve(desk);
        }
        if !matches!(self.look, Look::Border(_)) {
            self.outward(desk)?;
        }
        // What was looked at just now may have begun it.
        if matches!(self.look, Look::Border(_)) {
            return self.across(desk);
        }
        self.inward(desk)
    }

    /// From the sandbox to the host.
    fn outward(&mut self, desk: &mut Desk) -> Result<(), Verdict> {
        let End::Host(_) = self.end else {
            return Ok(());
        };
        let mut moved = true;
        while moved && self.writable && !matches!(self.look, Look::Border(_)) {
            let straight = matches!(self.look, Look::Not) && self.held.is_empty();
            moved = if straight {
                self.straight(desk)?
            } else {
                self.looked_at(desk)?
            };
        }
        if self.guest_is_done() && self.held.is_empty() && !self.shut {
            self.shut = true;
            if let End::Host(host) = &self.end {
                // It may be gone already, which reading tells.
                let _ = rustix::net::shutdown(host, Shutdown::Write);
            }
        }
        Ok(())
    }

    /// Whether the sandbox has ended its side and everything it sent was taken.
    fn guest_is_done(&mut self) -> bool {
        self.link.as_mut().is_some_and(|link| {
            let socket = link.socket();
            let early = matches!(socket.state(), State::Listen | State::SynReceived);
            !early && !socket.may_recv() && socket.recv_queue() == 0
        })
    }

    /// Bytes that nobody looks at go from buffer to socket. Says whether any went.
    fn straight(&mut self, desk: &mut Desk) -> Result<bool, Verdict> {
        let (End::Host(host), Some(link)) = (&self.end, &mut self.link) else {
            return Ok(false);
        };
        let socket = link.socket();
        if !socket.can_recv() {
            return Ok(false);
        }
        let room = desk.budget.room(socket.recv_queue(), desk.now);
        let written = socket.recv(|bytes| {
            let part = &bytes[..bytes.len().min(room)];
            let outcome = write(host, part);
            (*outcome.as_ref().unwrap_or(&0), outcome)
        });
        self.account(written.unwrap_or(Ok(0)), desk)
    }

    /// Bytes wait until it is known what they ask for. Says whether any went.
    fn looked_at(&mut self, desk: &mut Desk) -> Result<bool, Verdict> {
        if let Some(link) = &mut self.link {
            let socket = link.socket();
            while socket.can_recv() && self.held.len() < HELD {
                let room = HELD - self.held.len();
                let held = &mut self.held;
                let taken = socket.recv(|bytes| {
                    let part = &bytes[..bytes.len().min(room)];
                    held.extend_from_slice(part);
                    (part.len(), ())
                });
                if taken.is_err() {
                    break;
                }
            }
        }
        let ended = self.guest_is_done();
        self.look(ended, desk)?;
        if ended {
            // Half a request is nothing that could be allowed.
            self.held.truncate(self.cleared);
        }
        let End::Host(host) = &self.end else {
            return Ok(false);
        };
        let room = desk.budget.room(self.cleared, desk.now);
        let outcome = write(host, &self.held[..room]);
        let written = *outcome.as_ref().unwrap_or(&0);
        self.held.drain(..written);
        self.cleared -= written;
        self.account(outcome, desk)
    }

    fn account(&mut self, outcome: Result<usize, Errno>, desk: &mut Desk) -> Result<bool, Verdict> {
        match outcome {
            Ok(count) => {
                desk.budget.spend(count);
                self.out += count as u64;
                Ok(count > 0)
            }
            Err(Errno::AGAIN) => {
                self.writable = false;
                Ok(false)
            }
            Err(Errno::INTR) => Ok(true),
            Err(_) => Err(self.verdict(true, Reason::Reset)),
        }
    }

    /// Clears as much of what is held as the rules allow.
    fn look(&mut self, ended: bool, desk: &mut Desk) -> Result<(), Verdict> {
        loop {
            let unread = &self.held[self.cleared..];
            let (rules, places) = (&desk.rules, &desk.places);
            match &mut self.look {
                // Its bytes are moved by `across`.
                Look::Border(_) => return Ok(()),
                Look::Not => {
                    self.cleared = self.held.len();
                    return Ok(());
                }
                Look::First if unread.is_empty() => return Ok(()),
                Look::First => {
                    let Some(first) = flight::read(unread, ended) else {
                        return Ok(());
                    };
                    if let Some(session) = border::begin(&first, &self.to, &self.names, desk) {
                        return self.enter(session, desk);
                    }
                    let (rules, places) = (&desk.rules, &desk.places);
                    let verdict = judge::flight(rules, places, &self.to, &self.names, &first);
                    self.look = match &first {
                        Flight::Http(_) => Look::Requests(http::Reader::default()),
                        _ => Look::Not,
                    };
                    if !verdict.allowed || matches!(self.look, Look::Not) {
                        let name = match &first {
                            Flight::Tls(name) | Flight::Http(name) => name.as_deref(),
                            Flight::Http2 | Flight::Other => None,
                        };
                        let line = Decision::new(Event::Request, &verdict).to(&self.to);
                        desk.decisions.write(&line.name(name), desk.now);
                    }
                    self.flight = Some(first);
                    if !verdict.allowed {
                        return Err(verdict);
                    }
                }
                Look::Requests(reader) => match reader.step(unread) {
                    Ok(http::Step::Need) => return Ok(()),
                    Ok(http::Step::Pass(count)) => self.cleared += count,
                    Ok(http::Step::Head { length, request }) => {
                        let verdict =
                            judge::request(rules, places, &self.to, &self.names, &request);
                        let line = Decision::new(Event::Request, &verdict)
                            .to(&self.to)
                            .name(request.host.as_deref())
                            .request(&request.method, &request.path);
                        desk.decisions.write(&line, desk.now);
                        if !verdict.allowed {
                            return Err(verdict);
                        }
                        self.cleared += length;
                    }
                    Err(http::Malformed) => {
                        let verdict = Verdict::no(Reason::Malformed);
                        self.decide(Event::Request, &verdict, desk);
                        return Err(verdict);
                    }
                },
            }
        }
    }

    /// From the host to the sandbox.
    fn inward(&mut self, desk: &mut Desk) -> Result<(), Verdict> {
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        let socket = link.socket();
        match &mut self.end {
            End::Connecting(_) | End::Agent(_) => {}
            End::Names { out, .. } => {
                while !out.is_empty() && socket.can_send() {
                    let Ok(count) = socket.send_slice(out) else {
                        break;
                    };
                    out.drain(..count);
                }
                if socket.state() == State::CloseWait && out.is_empty() {
                    (self.shut, self.ended) = (true, true);
                    socket.close();
                }
            }
            End::Host(host) => {
                while self.readable && !self.ended && socket.can_send() {
                    let room = desk.budget.room(usize::MAX, desk.now);
                    if room == 0 {
                        break;
                    }
                    let outcome = socket.send(|buffer| {
                        let most = buffer.len().min(room);
                        let outcome = rustix::io::read(&*host, &mut buffer[..most]);
                        (*outcome.as_ref().unwrap_or(&0), outcome)
                    });
                    match outcome {
                        Ok(Ok(0)) => {
                            self.ended = true;
                            socket.close();
                        }
                        Ok(Ok(count)) => {
                            desk.budget.spend(count);
                            self.back += count as u64;
                            self.touched = desk.now;
                        }
                        Ok(Err(Errno::AGAIN)) => self.readable = false,
                        Ok(Err(Errno::INTR)) => {}
                        Ok(Err(_)) => return Err(self.verdict(true, Reason::Reset)),
                        Err(_) => break,
                    }
                }
            }
        }
        Ok(())
    }

    /// Why it may not go on, if the rules that are in force now do not allow it.
    pub(super) fn judged_again(&self, desk: &Desk) -> Option<Verdict> {
        if !self.spends() {
            return None;
        }
        let (rules, places) = (&desk.rules, &desk.places);
        let allowed = match &self.flight {
            Some(first) => judge::flight(rules, places, &self.to, &self.names, first).allowed,
            None => {
                let looked = !matches!(self.look, Look::Not);
                judge::connect(rules, places, &self.to, &self.names).allowed
                    && (looked || !judge::must_look(rules, places, &self.to, &self.names))
            }
        };
        (!allowed).then(|| Verdict::no(Reason::RulesChanged))
    }

    /// Why it has waited long enough, if it has.
    pub(super) fn is_idle(&self, now: Instant) -> Option<Verdict> {
        let begins = matches!(self.look, Look::First)
            || matches!(self.end, End::Names { .. } | End::Connecting(_));
        let most = if self.shut || self.ended {
            HALF
        } else if begins {
            UNKNOWN
        } else {
            IDLE
        };
        let idle = now.saturating_duration_since(self.touched) > most;
        idle.then(|| self.verdict(true, Reason::Idle))
    }

    /// Ends it at once, on both sides.
    pub(super) fn cut(&mut self, verdict: Verdict, desk: &mut Desk) -> Turn {
        let tick = desk.tick();
        if let Some(link) = &mut self.link {
            link.socket().abort();
            link.send(&mut desk.device, tick);
        }
        if let End::Host(host) = &self.end {
            // So that the other side learns that it was cut, not ended.
            let _ = rustix::net::sockopt::set_socket_linger(host, Some(Duration::ZERO));
        }
        Turn::Over(verdict)
    }

    pub(super) fn verdict(&self, allowed: bool, reason: Reason) -> Verdict {
        Verdict {
            allowed,
            rule: self.rule.clone(),
            reason,
        }
    }

    /// Writes what was decided about it.
    pub(super) fn decide(&self, event: Event, verdict: &Verdict, desk: &mut Desk) {
        let line = Decision::new(event, verdict).to(&self.to).name(self.name());
        desk.decisions.write(&line, desk.now);
    }

    /// Writes how it ended.
    pub(super) fn end(&self, verdict: &Verdict, desk: &mut Desk) {
        if !self.spends() {
            return;
        }
        let mut line = Decision::new(Event::End, verdict)
            .to(&self.to)
            .name(self.name());
        line.bytes_out = Some(self.out);
        line.bytes_in = Some(self.back);
        let passed = desk.now.saturating_duration_since(self.began);
        line.duration_ms = Some(passed.as_millis() as u64);
        desk.decisions.write(&line, desk.now);
    }
}

fn write(host: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    if bytes.is_empty() {
        return Ok(0);
    }
    rustix::net::send(host, bytes, SendFlags::NOSIGNAL)
}
