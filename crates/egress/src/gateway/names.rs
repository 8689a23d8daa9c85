//! The resolver of a sandbox: only allowed names are queried, and only allowed addresses are
//! returned.

use super::decisions::{Decision, Event};
use super::flow::Desk;
use super::pins::Pins;
use super::stand_ins::StandIns;
use crate::dns::{self, Code, Kind, Question};
use crate::judge::{self, Reason, Verdict};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Queries pending at the same time.
const WAITING: usize = 256;
/// How long to wait for one resolver, and how many attempts to make.
const PATIENCE: Duration = Duration::from_secs(2);
const TRIES: usize = 4;
/// Longest TTL in a response.
const TTL: u32 = 300;
/// TTL of synthetic addresses.
const SHORT: u32 = 60;

/// Where a query came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// A datagram from this port.
    Port(u16),
    /// A TCP connection.
    Flow(u64),
}

/// A response and its recipient.
pub(super) type Told = (Asker, Vec<u8>);

#[derive(Debug)]
struct Waiting {
    asker: Asker,
    question: Question,
    name: String,
    id: u16,
    socket: OwnedFd,
    tries: usize,
    until: Instant,
}

#[derive(Debug)]
pub(super) struct Names {
    resolvers: Vec<SocketAddr>,
    waiting: HashMap<u64, Waiting>,
    pub(super) pins: Pins,
    stand_ins: StandIns,
}

/// The result of a query.
#[derive(Debug)]
pub(super) enum Asked {
    /// Answered at once.
    Told(Told),
    /// A resolver was asked; watch its socket under this token.
    Waits(u64),
    /// Not a query; no response.
    Nothing,
}

impl Names {
    pub(super) fn new(resolvers: Vec<SocketAddr>) -> Self {
        Self {
            resolvers,
            waiting: HashMap::new(),
            pins: Pins::default(),
            stand_ins: StandIns::default(),
        }
    }

    pub(super) fn socket(&self, token: u64) -> Option<&OwnedFd> {
        self.waiting.get(&token).map(|waiting| &waiting.socket)
    }

    /// The next timeout of a resolver.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| waiting.until).min()
    }

    /// Handles a message of the sandbox. `token` identifies the query if it has to wait.
    pub(super) fn ask(
        &mut self,
        message: &[u8],
        asker: Asker,
        token: u64,
        desk: &mut Desk,
    ) -> Asked {
        let question = match Question::read(message) {
            Ok(question) => question,
            Err(dns::NotAQuestion(id)) => {
                decide(&Verdict::no(Reason::Malformed), None, desk);
                return id.map_or(Asked::Nothing, |id| Asked::Told((asker, dns::refusal(id))));
            }
        };
        let given = question.name.clone().unwrap_or_default();
        if !desk.budget.question(desk.now) {
            decide(&Verdict::no(Reason::TooManyQuestions), Some(&given), desk);
            // "Try again", as programs understand it.
            return Asked::Told((asker, question.reply(Code::Failed, &[], 0)));
        }
        let (name, verdict) = judge::name(&desk.rules, &given);
        let Some(name) = name.filter(|_| verdict.allowed) else {
            decide(&verdict, Some(&given), desk);
            return Asked::Told((asker, question.reply(Code::Refused, &[], 0)));
        };
        match question.kind {
            Kind::A => {}
            Kind::Aaaa if desk.rules.name_leads_to_v6(&name) => {}
            // The name exists, without records of this type.
            Kind::Aaaa | Kind::Service => {
                return Asked::Told((asker, question.reply(Code::Fine, &[], 0)));
            }
            Kind::Other => {
                decide(
                    &Verdict::no(Reason::RecordTypeNotAllowed),
                    Some(&name),
                    desk,
                );
                return Asked::Told((asker, question.reply(Code::Refused, &[], 0)));
            }
        }
        if desk.proxy.resolves(&name) {
            let addresses = self.stand_in(&name, question.kind, desk.now);
            decide(&verdict, Some(&name), desk);
            return Asked::Told((asker, question.reply(Code::Fine, &addresses, SHORT)));
        }
        let started = (self.waiting.len() < WAITING)
            .then(|| self.start(&name, question.kind, 0))
            .flatten();
        let Some((id, socket)) = started else {
            decide(&Verdict::no(Reason::NoAnswer), Some(&name), desk);
            return Asked::Told((asker, question.reply(Code::Failed, &[], 0)));
        };
        self.waiting.insert(
            token,
            Waiting {
                asker,
                question,
                name,
                id,
                socket,
                tries: 1,
                until: desk.now + PATIENCE,
            },
        );
        Asked::Waits(token)
    }

    /// The response for a name that only the proxy can resolve.
    fn stand_in(&mut self, name: &str, kind: Kind, now: Instant) -> Vec<IpAddr> {
        if kind != Kind::A {
            return Vec::new();
        }
        let (address, new) = self.stand_ins.of(name);
        let address = IpAddr::V4(address);
        if new {
            self.pins.forget(address);
        }
        let ttl = Duration::from_secs(SHORT.into());
        self.pins.add(address, name, ttl, now);
        vec![address]
    }

    /// Queries a resolver, from a random port and with a random id.
    fn start(&self, name: &str, kind: Kind, tries: usize) -> Option<(u16, OwnedFd)> {
        let resolver = self.resolvers.get(tries % self.resolvers.len().max(1))?;
        let family = match resolver {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None).ok()?;
        rustix::net::connect(&socket, resolver).ok()?;
        let id = getrandom::u32().ok()? as u16;
        // A failed send is treated like a timeout: the next resolver is asked.
        let _ = rustix::net::send(&socket, &dns::ask(id, name, kind), SendFlags::NOSIGNAL);
        Some((id, socket))
    }

    /// Handles a resolver's response.
    pub(super) fn heard(&mut self, token: u64, desk: &mut Desk) -> Option<Told> {
        let waiting = self.waiting.get_mut(&token)?;
        let mut buffer = [0; dns::MOST];
        let answer = loop {
            match rustix::net::recv(&waiting.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                // Skip a response to another query.
                Ok((count, _)) => {
                    let kind = waiting.question.kind;
                    let answer = dns::answer(&buffer[..count], waiting.id, &waiting.name, kind);
                    if let Some(answer) = answer {
                        break answer;
                    }
                }
                Err(rustix::io::Errno::CONNREFUSED) => {
                    // Connection refused: there is no need to wait longer.
                    waiting.until = desk.now;
                    return None;
                }
                Err(_) => return None,
            }
        };
        let waiting = self.waiting.remove(&token)?;
        Some((waiting.asker, self.tell(&waiting, &answer, desk)))
    }

    /// The response for the sandbox: allowed addresses only, which are pinned to the name.
    fn tell(&mut self, waiting: &Waiting, answer: &dns::Answer, desk: &mut Desk) -> Vec<u8> {
        let name = &waiting.name;
        let only_v4 = answer.code == Code::Fine && waiting.question.kind == Kind::Aaaa;
        if only_v4 && answer.addresses.is_empty() {
            // Most names have no AAAA records; their A records are queried separately.
            return waiting.question.reply(Code::Fine, &[], 0);
        }
        if answer.code != Code::Fine || answer.addresses.is_empty() {
            let verdict = Verdict::no(Reason::NoAnswer);
            decide(&verdict, Some(name), desk);
            return waiting.question.reply(answer.code, &[], 0);
        }
        let seconds = answer.ttl.min(TTL);
        let mut told = Vec::new();
        let mut last = Verdict::no(Reason::NoAnswer);
        for address in &answer.addresses {
            let verdict = judge::answer(&desk.rules, &desk.places, name, *address);
            if verdict.allowed {
                let ttl = Duration::from_secs(seconds.into());
                self.pins.add(*address, name, ttl, desk.now);
                told.push(*address);
            }
            if last.reason == Reason::NoAnswer || verdict.allowed {
                last = verdict;
            }
        }
        decide(&last, Some(name), desk);
        // Refusing one record type would hide the other from programs that query both.
        let code = if told.is_empty() && waiting.question.kind == Kind::A {
            Code::Refused
        } else {
            Code::Fine
        };
        waiting.question.reply(code, &told, seconds)
    }

    /// Handles timeouts: asks another resolver, or gives up. The second list has the queries with a
    /// new socket.
    pub(super) fn late(&mut self, desk: &mut Desk) -> (Vec<Told>, Vec<u64>) {
        let late = self.waiting.iter().filter(|(_, one)| one.until <= desk.now);
        let late: Vec<u64> = late.map(|(token, _)| *token).collect();
        let (mut told, mut again) = (Vec::new(), Vec::new());
        for token in late {
            let Some(mut waiting) = self.waiting.remove(&token) else {
                continue;
            };
            let next = (waiting.tries < TRIES)
                .then(|| self.start(&waiting.name, waiting.question.kind, waiting.tries))
                .flatten();
            match next {
                Some((id, socket)) => {
                    (waiting.id, waiting.socket) = (id, socket);
                    waiting.tries += 1;
                    waiting.until = desk.now + PATIENCE;
                    self.waiting.insert(token, waiting);
                    again.push(token);
                }
                None => {
                    decide(&Verdict::no(Reason::NoAnswer), Some(&waiting.name), desk);
                    let message = waiting.question.reply(Code::Failed, &[], 0);
                    told.push((waiting.asker, message));
                }
            }
        }
        (told, again)
    }
}

/// Logs a decision about a name.
fn decide(verdict: &Verdict, name: Option<&str>, desk: &mut Desk) {
    let line = Decision::new(Event::Dns, verdict).name(name);
    desk.decisions.write(&line, desk.now);
}
