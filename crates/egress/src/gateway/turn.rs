//! The event loop: handles what happened since the last turn.

mod calls;
mod datagrams;
mod places;

use super::budget::Budget;
use super::control::Caller;
use super::decisions::{Decision, Decisions, Event};
use super::device::{Device, HEADER};
use super::dial::Dial;
use super::exchange::{Exchange, Pair};
use super::flow::{Desk, Flow, Key, Turn};
use super::host::Memory;
use super::link::{LARGE, Link, SMALL};
use super::names::{Asked, Asker, Names, Told};
use super::packets::{self, Packet, Segment};
use super::stand_ins;
use super::way::Upstream;
use super::{AGENT, Addresses, DNS, GATEWAY, NETWORK, NETWORK6};
use crate::address::Places;
use crate::border::{Border, Post};
use crate::judge::{self, Destination, Reason, Verdict};
use crate::proxy::Proxy;
use crate::rules::{Protocol, Rules};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

const DEVICE: u64 = 0;
const LEASH: u64 = 1;
const CONTROL: u64 = 2;
const ADDRESSES: u64 = 3;
/// The first token of connections, queries and callers.
const FIRST: u64 = 16;

/// Frames read in one go before other events are handled.
const FRAMES: usize = 64;
/// Total size of connection buffers beyond which new connections get small ones.
const BUFFERS: usize = 64 << 20;
/// How often idle connections are searched for.
const SWEEP: Duration = Duration::from_secs(30);

/// Makes a connection to a service of the gateway itself.
type Own = fn(Key, Destination, Link, Instant) -> Flow;

/// Everything a gateway is made of.
#[derive(Debug)]
pub struct Parts {
    /// One frame per read and write.
    pub frames: OwnedFd,
    /// The MTU.
    pub mtu: usize,
    pub control: Option<OwnedFd>,
    pub decisions: OwnedFd,
    pub rules: Rules,
    pub border: Option<Border>,
    /// Of the host. Without them, as in tests of this crate, no address is the host's.
    pub addresses: Option<Addresses>,
    pub resolvers: Vec<SocketAddr>,
    /// The proxy and its address.
    pub proxy: Option<(Proxy, SocketAddr)>,
    pub memory: Option<Memory>,
}

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    epoll: OwnedFd,
    desk: Desk,
    names: Names,
    flows: HashMap<u64, Flow>,
    keys: HashMap<Key, u64>,
    exchanges: HashMap<u64, Exchange>,
    pairs: HashMap<Pair, u64>,
    /// Connections to handle in this turn.
    dirty: Vec<u64>,
    timers: BTreeSet<(Instant, u64)>,
    next: u64,
    buffers: usize,
    sweep: Instant,
    leash: Option<OwnedFd>,
    control: Option<UnixListener>,
    callers: HashMap<u64, Caller>,
    addresses: Option<Addresses>,
    memory: Option<Memory>,
    frame: Vec<u8>,
    /// Whether the device is also watched for writability.
    waiting: bool,
    stopped: bool,
}

impl Gateway {
    pub fn new(parts: Parts) -> io::Result<Self> {
        let now = Instant::now();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let device = Device::new(parts.frames, parts.mtu);
        epoll::add(&epoll, &device, EventData::new_u64(DEVICE), EventFlags::IN)?;
        let control = parts.control.map(UnixListener::from);
        if let Some(control) = &control {
            control.set_nonblocking(true)?;
            epoll::add(&epoll, control, EventData::new_u64(CONTROL), EventFlags::IN)?;
        }
        // Watched before they are listed: a change in between is heard of.
        if let Some(addresses) = &parts.addresses {
            let data = EventData::new_u64(ADDRESSES);
            epoll::add(&epoll, addresses, data, EventFlags::IN)?;
        }
        let known = parts.addresses.as_ref().map(Addresses::all).transpose()?;
        let stand_ins = parts.proxy.is_some().then_some(stand_ins::NETWORK);
        let mut decisions = Decisions::new(parts.decisions);
        decisions.stand_ins = stand_ins;
        Ok(Self {
            epoll,
            desk: Desk {
                device,
                budget: Budget::new(parts.rules.limits, now),
                rules: parts.rules,
                border: parts
                    .border
                    .map(Post::new)
                    .transpose()
                    .map_err(io::Error::other)?,
                places: Places {
                    host: known.unwrap_or_default(),
                    gateway: vec![NETWORK, NETWORK6],
                    stand_ins,
                },
                decisions,
                proxy: Upstream(parts.proxy),
                began: now,
                now,
            },
            names: Names::new(parts.resolvers),
            flows: HashMap::new(),
            keys: HashMap::new(),
            exchanges: HashMap::new(),
            pairs: HashMap::new(),
            dirty: Vec::new(),
            timers: BTreeSet::new(),
            next: FIRST,
            buffers: 0,
            sweep: now + SWEEP,
            leash: None,
            control,
            callers: HashMap::new(),
            addresses: parts.addresses,
            memory: parts.memory,
            frame: vec![0; HEADER + super::MTU + 4],
            waiting: false,
            stopped: false,
        })
    }

    /// Ends with the process behind this pidfd from now on.
    pub(super) fn hold(&mut self, leash: OwnedFd) -> io::Result<()> {
        let data = EventData::new_u64(LEASH);
        epoll::add(&self.epoll, &leash, data, EventFlags::IN)?;
        self.leash = Some(leash);
        Ok(())
    }

    /// Waits for events and handles them. Returns whether to continue.
    pub fn turn(&mut self) -> io::Result<bool> {
        let next = [self.timers.first().map(|(at, _)| *at), self.names.next()];
        let until = next.into_iter().flatten().fold(self.sweep, Instant::min);
        let wait = until.saturating_duration_since(Instant::now());
        // Nanosecond precision: rounding to milliseconds would spin at the end.
        let wait = rustix::time::Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: wait.subsec_nanos().into(),
        };
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 256];
        let events = match epoll::wait(&self.epoll, &mut events, Some(&wait)) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => &mut [],
            Err(error) => return Err(error.into()),
        };
        self.desk.now = Instant::now();
        // First, so that nothing else of this turn is judged by addresses that were.
        if events.iter().any(|event| event.data.u64() == ADDRESSES) {
            self.moved()?;
        }
        for event in &*events {
            let (data, flags) = (event.data, event.flags);
            match data.u64() {
                ADDRESSES => {}
                DEVICE => self.frames(flags)?,
                LEASH => self.stopped = true,
                CONTROL => self.call(),
                token => self.woken(token, flags),
            }
        }
        self.settle();
        self.watch_device()?;
        if self.stopped {
            self.stop();
        }
        Ok(!self.stopped)
    }

    /// Handles the consequences of the frames taken, without waiting.
    pub fn settle(&mut self) {
        self.clock();
        self.pump();
    }

    fn stop(&mut self) {
        for (_, flow) in self.flows.drain() {
            let verdict = flow.verdict(true, Reason::Stopped);
            flow.end(&verdict, &mut self.desk);
        }
        self.end_exchanges(|_, _| Some(Reason::Stopped));
        drop(self.leash.take());
    }

    fn frames(&mut self, flags: EventFlags) -> io::Result<()> {
        if flags.contains(EventFlags::OUT) {
            self.desk.device.flush();
            if !self.desk.device.is_slow() {
                let all: Vec<u64> = self.flows.keys().copied().collect();
                all.into_iter().for_each(|token| self.touch(token));
            }
        }
        let mut buffer = std::mem::take(&mut self.frame);
        for _ in 0..FRAMES {
            match self.desk.device.read(&mut buffer) {
                Ok(Some(count)) => self.frame(&buffer[..count]),
                Ok(None) => break,
                // The device is gone, and with it the sandbox.
                Err(error) => {
                    self.frame = buffer;
                    return Err(error);
                }
            }
        }
        self.frame = buffer;
        Ok(())
    }

    /// Handles one frame of the sandbox.
    pub fn frame(&mut self, frame: &[u8]) {
        let Some((header, packet)) = frame.split_first_chunk::<HEADER>() else {
            return;
        };
        let kind = u16::from_be_bytes([header[12], header[13]]);
        if let Some(from) = header[6..12].first_chunk() {
            self.desk.device.heard(*from);
        }
        match kind {
            packets::ARP => packets::arp(&mut self.desk.device, packet),
            packets::IPV4 | packets::IPV6 => self.packet(packet),
            _ => {}
        }
    }

    fn decide(&mut self, verdict: &Verdict, to: &Destination, name: Option<&str>) {
        let line = Decision::new(Event::Connect, verdict).to(to).name(name);
        self.desk.decisions.write(&line, self.desk.now);
    }

    fn segment(&mut self, packet: &[u8], segment: &Segment) {
        let key = (segment.from, segment.to, segment.port);
        if let Some(token) = self.keys.get(&key).copied() {
            if let Some(flow) = self.flows.get_mut(&token) {
                flow.take(packet, &mut self.desk);
            }
            self.touch(token);
        } else if segment.syn && !segment.ack && !segment.rst {
            self.begin(key, packet, segment);
        } else {
            packets::reset(&mut self.desk.device, segment);
        }
    }

    /// Starts a new connection, if it is allowed.
    fn begin(&mut self, key: Key, packet: &[u8], segment: &Segment) {
        let to = Destination {
            address: segment.to,
            port: segment.port,
            protocol: Protocol::Tcp,
        };
        let names = self.names.pins.names(segment.to, self.desk.now);
        let own = self.own_service(&to).filter(|_| !self.is_full());
        if let Some(make) = own {
            return self.begin_own(key, to, packet, make);
        }
        let verdict = self.admit(&to, &names);
        if !verdict.allowed {
            self.decide(&verdict, &to, names.first().map(String::as_str));
            return packets::reset(&mut self.desk.device, segment);
        }
        let (place, dialogue) = self.desk.proxy.way(&to, &names);
        match Dial::begin(place, dialogue, packet) {
            Ok(dial) => {
                let token = self.token();
                let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
                // Out of descriptors or kernel memory: treat it as full.
                if epoll::add(&self.epoll, dial.host(), EventData::new_u64(token), flags).is_err() {
                    return packets::reset(&mut self.desk.device, segment);
                }
                let flow = Flow::connecting(key, to, names, verdict, dial, &self.desk);
                self.flows.insert(token, flow);
                self.keys.insert(key, token);
            }
            Err(reason) => {
                let verdict = Verdict { reason, ..verdict };
                self.decide(&verdict, &to, names.first().map(String::as_str));
                packets::reset(&mut self.desk.device, segment);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.flows.len() + self.exchanges.len() >= self.desk.budget.most_connections()
    }

    /// Whether one more connection or exchange may begin now.
    fn admit(&mut self, to: &Destination, names: &[String]) -> Verdict {
        if self.is_full() {
            return Verdict::no(Reason::TooManyConnections);
        }
        if self.desk.budget.is_used_up() {
            return Verdict::no(Reason::BytesUsedUp);
        }
        let verdict = judge::connect(&self.desk.rules, &self.desk.places, to, names);
        if verdict.allowed && self.is_here(to.address) {
            return Verdict::no(Reason::HostAddress);
        }
        if verdict.allowed && !self.desk.budget.connect(self.desk.now) {
            return Verdict::no(Reason::TooManyConnects);
        }
        verdict
    }

    /// The gateway's own service at this port, if there is one.
    fn own_service(&self, to: &Destination) -> Option<Own> {
        let has_keys = || self.desk.border.as_ref().is_some_and(Post::has_keys);
        match to.port {
            _ if to.address != IpAddr::V4(GATEWAY) => None,
            DNS => Some(Flow::names),
            AGENT if has_keys() => Some(Flow::agent),
            _ => None,
        }
    }

    fn begin_own(&mut self, key: Key, to: Destination, packet: &[u8], make: Own) {
        // Nothing is begun with numbers that can be guessed.
        let Ok(seed) = getrandom::u64() else { return };
        let tick = self.desk.tick();
        let link = Link::new(&mut self.desk.device, (key.1, key.2), SMALL, seed, tick);
        let Some(mut link) = link else { return };
        link.take(&mut self.desk.device, packet, tick);
        let token = self.token();
        self.buffers += 2 * SMALL;
        self.flows.insert(token, make(key, to, link, self.desk.now));
        self.keys.insert(key, token);
        self.touch(token);
    }

    fn token(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn touch(&mut self, token: u64) {
        if let Some(flow) = self.flows.get_mut(&token)
            && !flow.dirty
        {
            flow.dirty = true;
            self.dirty.push(token);
        }
    }

    /// Handles an event of a host socket.
    fn woken(&mut self, token: u64, flags: EventFlags) {
        if self.names.socket(token).is_some() {
            if let Some(told) = self.names.heard(token, &mut self.desk) {
                self.tell(told);
            }
            return;
        }
        if self.callers.contains_key(&token) {
            return self.requests(token);
        }
        if self.exchanges.contains_key(&token) {
            return self.heard(token);
        }
        let Some(flow) = self.flows.get_mut(&token) else {
            return;
        };
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let readable = flags.intersects(EventFlags::IN | EventFlags::RDHUP) || broken;
        let writable = flags.contains(EventFlags::OUT) || broken;
        flow.woken(readable, writable);
        if let Some((outcome, syn)) = flow.connected(writable) {
            let segment = match packets::read(syn) {
                Some(Packet::Tcp(segment)) => segment,
                _ => return,
            };
            match outcome {
                Ok(()) => self.opened(token),
                Err(reason) => self.failed(token, reason, &segment),
            }
        }
        self.touch(token);
    }

    fn opened(&mut self, token: u64) {
        let large = self.buffers + 2 * LARGE <= BUFFERS;
        let size = if large { LARGE } else { SMALL };
        let Ok(seed) = getrandom::u64() else { return };
        let tick = self.desk.tick();
        let Some(flow) = self.flows.get_mut(&token) else {
            return;
        };
        let to = (flow.key.1, flow.key.2);
        if let Some(link) = Link::new(&mut self.desk.device, to, size, seed, tick) {
            self.buffers += 2 * size;
            flow.open(link, &mut self.desk);
        }
    }

    /// The host could not connect: refuses the sandbox's connection.
    fn failed(&mut self, token: u64, reason: Reason, segment: &Segment) {
        let Some(flow) = self.remove(token) else {
            return;
        };
        flow.decide(Event::Connect, &flow.verdict(true, reason), &mut self.desk);
        // A connection that timed out here times out in the sandbox by itself.
        if reason != Reason::TimedOut {
            packets::reset(&mut self.desk.device, segment);
        }
    }

    fn remove(&mut self, token: u64) -> Option<Flow> {
        let flow = self.flows.remove(&token)?;
        self.keys.remove(&flow.key);
        self.buffers -= flow.size();
        if let Some(at) = flow.timer {
            self.timers.remove(&(at, token));
        }
        Some(flow)
    }

    /// Handles timers.
    fn clock(&mut self) {
        let now = self.desk.now;
        while let Some((at, token)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, token));
            if let Some(flow) = self.flows.get_mut(&token) {
                flow.timer = None;
            }
            self.touch(token);
        }
        if self.names.next().is_some_and(|at| at <= now) {
            let (told, again) = self.names.late(&mut self.desk);
            told.into_iter().for_each(|told| self.tell(told));
            again.into_iter().for_each(|token| self.watch(token));
        }
        if self.sweep <= now {
            self.sweep = now + SWEEP;
            self.cut(|flow, desk| flow.is_idle(desk.now));
            self.end_exchanges(|exchange, desk| exchange.is_idle(desk.now));
        }
    }

    /// Cuts every connection for which `reason` gives a verdict.
    fn cut(&mut self, reason: impl Fn(&Flow, &Desk) -> Option<Verdict>) {
        let found: Vec<(u64, Verdict)> = self
            .flows
            .iter()
            .filter_map(|(token, flow)| Some((*token, reason(flow, &self.desk)?)))
            .collect();
        for (token, verdict) in found {
            if let Some(mut flow) = self.remove(token) {
                flow.cut(verdict.clone(), &mut self.desk);
                flow.end(&verdict, &mut self.desk);
            }
        }
    }

    /// Moves the bytes of all dirty connections.
    fn pump(&mut self) {
        while let Some(token) = self.dirty.pop() {
            let Some(flow) = self.flows.get_mut(&token) else {
                continue;
            };
            flow.dirty = false;
            match flow.pump(&mut self.desk) {
                Turn::On(at) => {
                    // A later time is recomputed when the earlier one comes.
                    if let Some(at) = at.filter(|at| flow.timer.is_none_or(|old| *at < old)) {
                        if let Some(old) = flow.timer.replace(at) {
                            self.timers.remove(&(old, token));
                        }
                        self.timers.insert((at, token));
                    }
                    if let Some(message) = flow.question() {
                        self.ask(&message, Asker::Flow(token));
                    }
                }
                Turn::Over(verdict) => {
                    if let Some(flow) = self.remove(token) {
                        flow.end(&verdict, &mut self.desk);
                    }
                }
            }
            if self.desk.budget.is_used_up() {
                self.cut(|flow, _| flow.spends().then(|| Verdict::no(Reason::BytesUsedUp)));
            }
        }
    }

    fn ask(&mut self, message: &[u8], asker: Asker) {
        let token = self.token();
        match self.names.ask(message, asker, token, &mut self.desk) {
            Asked::Told(told) => self.tell(told),
            Asked::Waits(token) => self.watch(token),
            Asked::Nothing => {}
        }
    }

    fn watch(&mut self, token: u64) {
        if let Some(socket) = self.names.socket(token) {
            // If the socket cannot be watched, the query times out and is repeated.
            let _ = epoll::add(
                &self.epoll,
                socket,
                EventData::new_u64(token),
                EventFlags::IN,
            );
        }
    }

    fn tell(&mut self, (asker, message): Told) {
        match asker {
            Asker::Port(port) => {
                let from = (IpAddr::V4(GATEWAY), DNS);
                packets::datagram(&mut self.desk.device, from, port, &message);
            }
            Asker::Flow(token) => {
                if let Some(flow) = self.flows.get_mut(&token) {
                    flow.answer(&message);
                }
                self.touch(token);
            }
        }
    }

    /// Watches the device for writability while frames are queued.
    fn watch_device(&mut self) -> io::Result<()> {
        let waits = self.desk.device.has_waiting();
        if waits != self.waiting {
            self.waiting = waits;
            let flags = if waits {
                EventFlags::IN | EventFlags::OUT
            } else {
                EventFlags::IN
            };
            let data = EventData::new_u64(DEVICE);
            epoll::modify(&self.epoll, &self.desk.device, data, flags)?;
        }
        Ok(())
    }
}
