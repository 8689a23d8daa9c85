//! From the sandbox to the host: bytes are held until they are judged.

use super::border::{self, Judge, reason};
use super::{Desk, End, Flow, HELD, Look, write};
use crate::gateway::decisions::{Decision, Event};
use crate::judge::{self, Flight, Reason, Verdict};
use crate::look::flight::{self, Next, Records};
use motu_border::Out;
use rustix::io::Errno;
use rustix::net::Shutdown;
use smoltcp::socket::tcp::State;

impl Flow {
    /// Moves bytes from the sandbox to the host.
    pub(super) fn outward(&mut self, desk: &mut Desk) -> Result<(), Verdict> {
        let End::Host(_) = self.end else {
            return Ok(());
        };
        let mut moved = true;
        while moved && self.writable && !matches!(self.look, Look::Border(_)) {
            let nothing_held = self.held.is_empty() && self.ready.is_empty();
            moved = if matches!(self.look, Look::Not) && nothing_held {
                self.straight(desk)?
            } else {
                self.looked_at(desk)?
            };
        }
        let sent = self.held.is_empty() && self.ready.is_empty();
        if self.guest_is_done() && sent && !self.shut {
            self.shut = true;
            if let End::Host(host) = &self.end {
                // The socket may be closed already; the next read tells.
                let _ = rustix::net::shutdown(host, Shutdown::Write);
            }
        }
        Ok(())
    }

    /// Whether the sandbox has sent FIN and all its data was taken.
    pub(super) fn guest_is_done(&mut self) -> bool {
        self.link.as_mut().is_some_and(|link| {
            let socket = link.socket();
            let early = matches!(socket.state(), State::Listen | State::SynReceived);
            !early && !socket.may_recv() && socket.recv_queue() == 0
        })
    }

    /// Moves uninspected bytes from buffer to socket. Returns whether any were moved.
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

    /// Holds bytes until they are allowed. Returns whether any were moved.
    fn looked_at(&mut self, desk: &mut Desk) -> Result<bool, Verdict> {
        if let Some(link) = &mut self.link {
            let socket = link.socket();
            while socket.can_recv() && self.held.len() < HELD && self.ready.len() < HELD {
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
        if ended && !matches!(self.look, Look::Border(_)) {
            // What is incomplete can never be allowed: drop it.
            self.held.clear();
        }
        let End::Host(host) = &self.end else {
            return Ok(false);
        };
        let room = desk.budget.room(self.ready.len(), desk.now);
        let outcome = write(host, &self.ready[..room]);
        let written = *outcome.as_ref().unwrap_or(&0);
        self.ready.drain(..written);
        self.account(outcome, desk)
    }

    pub(super) fn account(
        &mut self,
        outcome: Result<usize, Errno>,
        desk: &mut Desk,
    ) -> Result<bool, Verdict> {
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

    /// Makes as much of the held bytes ready as the rules allow.
    fn look(&mut self, ended: bool, desk: &mut Desk) -> Result<(), Verdict> {
        loop {
            match &mut self.look {
                // `across` moves its bytes.
                Look::Border(_) => return Ok(()),
                Look::Not => {
                    self.ready.append(&mut self.held);
                    return Ok(());
                }
                _ if self.held.is_empty() => return Ok(()),
                Look::First => {
                    let Some(first) = flight::read(&self.held, ended) else {
                        return Ok(());
                    };
                    self.first(first, desk)?;
                }
                Look::Hellos(records) => match records.step(&self.held) {
                    Next::Need => return Ok(()),
                    Next::Pass(count) => self.ready.extend(self.held.drain(..count)),
                    Next::Done => self.look = Look::Not,
                    Next::Hello { length, flight } => {
                        self.judge(&flight, true, desk)?;
                        self.ready.extend(self.held.drain(..length));
                    }
                },
                Look::Requests(_) => return self.requests(desk),
            }
        }
    }

    /// The protocol is known: whether it may go on, and what is looked at from here.
    fn first(&mut self, first: Flight, desk: &mut Desk) -> Result<(), Verdict> {
        if let Some(session) = border::begin(&first, &self.to, &self.names, desk) {
            return self.enter(session, desk);
        }
        self.look = match &first {
            Flight::Http(_) => Look::Requests(Box::default()),
            Flight::Tls(_) | Flight::HiddenTls(_) => Look::Hellos(Records::after(&self.held)),
            Flight::Http2 | Flight::Other => Look::Not,
        };
        let requests = matches!(self.look, Look::Requests(_));
        let judged = self.judge(&first, !requests, desk);
        self.flight = Some(first);
        judged
    }

    /// Judges the first bytes of a protocol. What is allowed is logged if `says` is set; of requests
    /// each has a line of its own.
    fn judge(&self, first: &Flight, says: bool, desk: &mut Desk) -> Result<(), Verdict> {
        let (rules, places) = (&desk.rules, &desk.places);
        let verdict = judge::flight(rules, places, &self.to, &self.names, first);
        if !verdict.allowed || says {
            let name = match first {
                Flight::Tls(name) | Flight::HiddenTls(name) | Flight::Http(name) => name.as_deref(),
                Flight::Http2 | Flight::Other => None,
            };
            let line = Decision::new(Event::Request, &verdict).to(&self.to);
            desk.decisions.write(&line.name(name), desk.now);
        }
        if verdict.allowed {
            Ok(())
        } else {
            Err(verdict)
        }
    }

    /// Judges requests of plain HTTP, and writes those anew that are allowed.
    fn requests(&mut self, desk: &mut Desk) -> Result<(), Verdict> {
        let Look::Requests(requests) = &mut self.look else {
            return Ok(());
        };
        let mut judge = Judge::new(&self.to, &self.names, desk);
        let mut out = Out::default();
        let fed = requests.feed(&self.held, None, &mut judge, &mut out);
        let said = judge.refused.take();
        self.held.clear();
        self.ready.append(&mut out.forward);
        match (fed, said) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(verdict)) => Err(verdict),
            (Err(refusal), None) => {
                let verdict = Verdict::no(reason(refusal));
                self.decide(Event::Request, &verdict, desk);
                Err(verdict)
            }
        }
    }
}
