//! One connection: the sandbox's end, the host's end, and what passes between them.

mod agent;
mod border;
mod look;
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
use crate::look::flight;
use crate::rules::Rules;
use motu_border::h1::Rewriter;
use motu_border::session::Session;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::SendFlags;
use smoltcp::socket::tcp::State;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Bytes held until they are parsed, or until the other side takes them.
const HELD: usize = 64 * 1024;
/// Idle timeouts of a connection: shorter if one side has ended, or its protocol is not known yet.
const IDLE: Duration = Duration::from_secs(2 * 60 * 60);
const HALF: Duration = Duration::from_secs(10 * 60);
const UNKNOWN: Duration = Duration::from_secs(2 * 60);

/// The sandbox's port and the destination.
pub(super) type Key = (u16, IpAddr, u16);

/// State shared by all connections.
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
    /// The time of this turn.
    pub(super) now: Instant,
}

impl Desk {
    pub(super) fn tick(&self) -> smoltcp::time::Instant {
        let passed = self.now.saturating_duration_since(self.began);
        // Not zero: smoltcp uses zero for "at once".
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
    /// The gateway's own resolver. `out` waits to be sent.
    Names {
        waiting: bool,
        out: Vec<u8>,
    },
    /// The gateway's own SSH agent.
    Agent(agent::Signer),
}

/// How far a connection is inspected.
#[derive(Debug)]
enum Look {
    Not,
    First,
    /// TLS, in which another ClientHello may come.
    Hellos(flight::Records),
    /// Plain HTTP.
    Requests(Box<Rewriter>),
    /// TLS is terminated here.
    Border(Box<Session>),
}

/// The result of a turn.
#[derive(Debug)]
pub(super) enum Turn {
    /// It continues; call again at this time.
    On(Option<Instant>),
    Over(Verdict),
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) key: Key,
    pub(super) to: Destination,
    /// Names that resolved to its address when it began.
    names: Vec<String>,
    rule: Option<String>,
    end: End,
    link: Option<Link>,
    look: Look,
    /// The protocol of its first bytes, if they were inspected.
    flight: Option<Flight>,
    /// Bytes of the sandbox that are not judged yet, and those to be sent.
    held: Vec<u8>,
    ready: Vec<u8>,
    readable: bool,
    writable: bool,
    /// The host was sent FIN.
    shut: bool,
    /// The host has sent FIN.
    ended: bool,
    /// Why it ends, once the sandbox has been told.
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
            ready: Vec::new(),
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

    /// A connection that is allowed so far, with the host's side connecting.
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

    /// Whether its bytes count against the budget: those to the gateway itself do not.
    pub(super) fn spends(&self) -> bool {
        !matches!(self.end, End::Names { .. } | End::Agent(_))
    }

    /// The size of its buffers.
    pub(super) fn size(&self) -> usize {
        self.link.as_ref().map_or(0, |link| 2 * link.size)
    }

    /// The outcome of connecting, and the SYN packet; `None` if it is not connecting.
    pub(super) fn connected(&mut self, writable: bool) -> Option<(Result<(), Reason>, &[u8])> {
        match &mut self.end {
            End::Connecting(dial) => {
                let outcome = dial.outcome(writable)?;
                Some((outcome, dial.syn()))
            }
            _ => None,
        }
    }

    /// Both sides are connected: completes the sandbox's handshake.
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

    /// Marks the host's socket as readable or writable.
    pub(super) fn woken(&mut self, readable: bool, writable: bool) {
        self.readable |= readable;
        self.writable |= writable;
    }

    /// Handles one packet of the sandbox. [`Flow::pump`] moves the bytes.
    pub(super) fn take(&mut self, packet: &[u8], desk: &mut Desk) {
        let tick = desk.tick();
        if let Some(link) = &mut self.link {
            link.take(&mut desk.device, packet, tick);
            self.touched = desk.now;
        }
    }

    /// Moves bytes as far as possible, and returns the result.
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
        // A slow device wakes all connections once it has room.
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
        // The inspection above may have started TLS termination.
        if matches!(self.look, Look::Border(_)) {
            return self.across(desk);
        }
        self.inward(desk)
    }

    /// Moves bytes from the host to the sandbox.
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

    /// The verdict that ends it, if the current rules no longer allow it.
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
        (!allowed).then(|| Verdict::no(judge::why_ended(places, &self.to)))
    }

    /// The verdict that ends it, if it has been idle for too long.
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

    /// Resets both sides at once.
    pub(super) fn cut(&mut self, verdict: Verdict, desk: &mut Desk) -> Turn {
        let tick = desk.tick();
        if let Some(link) = &mut self.link {
            link.socket().abort();
            link.send(&mut desk.device, tick);
        }
        if let End::Host(host) = &self.end {
            // Linger 0 sends RST instead of FIN, so that the host sees a reset.
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

    /// Logs a decision about it.
    pub(super) fn decide(&self, event: Event, verdict: &Verdict, desk: &mut Desk) {
        let line = Decision::new(event, verdict).to(&self.to).name(self.name());
        desk.decisions.write(&line, desk.now);
    }

    /// Logs its end.
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
