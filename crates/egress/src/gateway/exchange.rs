//! UDP and ICMP echo: each pair of endpoints has its own connected socket on the host.
//!
//! Nothing is queued or retransmitted: without room a datagram is dropped, as on any link.

use super::decisions::{Decision, Event};
use super::flow::Desk;
use super::packets::{self, ECHO, Ping};
use crate::judge::{self, Destination, Reason, Verdict};
use crate::rules::Protocol;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// An exchange without datagrams in either direction ends after this time.
pub const IDLE: Duration = Duration::from_secs(120);
/// Datagrams read in one go before other events are handled.
const DATAGRAMS: usize = 64;
/// The longest datagram, and the part of a packet that is kept for an ICMP error.
const LONGEST: usize = 65_535;
const SAMPLE: usize = 48;

/// The sandbox's port or echo identifier, and the destination.
pub(super) type Pair = (u16, Destination);

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) pair: Pair,
    names: Vec<String>,
    rule: Option<String>,
    socket: OwnedFd,
    /// The beginning of the first packet.
    sample: Vec<u8>,
    out: u64,
    back: u64,
    began: Instant,
    touched: Instant,
}

impl Exchange {
    /// Opens an allowed exchange. Fails with the reason if the host cannot.
    pub(super) fn open(
        pair: Pair,
        names: Vec<String>,
        verdict: Verdict,
        packet: &[u8],
        now: Instant,
    ) -> Result<Self, Reason> {
        Ok(Self {
            pair,
            names,
            rule: verdict.rule,
            socket: socket(&pair.1)?,
            sample: packet[..packet.len().min(SAMPLE)].to_vec(),
            out: 0,
            back: 0,
            began: now,
            touched: now,
        })
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.names.first().map(String::as_str)
    }

    pub(super) fn verdict(&self, reason: Reason) -> Verdict {
        Verdict {
            allowed: true,
            rule: self.rule.clone(),
            reason,
        }
    }

    /// Sends a datagram of the sandbox. Returns the reason if the exchange is over.
    pub(super) fn send(&mut self, number: u16, data: &[u8], desk: &mut Desk) -> Option<Reason> {
        self.touched = desk.now;
        if desk.budget.room(data.len(), desk.now) < data.len() {
            return None;
        }
        let sent = match self.pair.1.protocol {
            Protocol::Icmp => {
                let mut message = vec![0; ECHO];
                // The kernel fills in its own identifier and the checksum.
                message[0] = if self.pair.1.address.is_ipv4() {
                    8
                } else {
                    128
                };
                message[6..].copy_from_slice(&number.to_be_bytes());
                message.extend_from_slice(data);
                rustix::net::send(&self.socket, &message, SendFlags::NOSIGNAL)
            }
            _ => rustix::net::send(&self.socket, data, SendFlags::NOSIGNAL),
        };
        match sent {
            Ok(_) => {
                desk.budget.spend(data.len());
                self.out += data.len() as u64;
                None
            }
            Err(error) => self.failed(error, desk),
        }
    }

    /// Passes received datagrams to the sandbox. Returns the reason if the exchange is over.
    pub(super) fn heard(&mut self, desk: &mut Desk) -> Option<Reason> {
        let mut buffer = vec![0; LONGEST];
        for _ in 0..DATAGRAMS {
            match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((count, _)) => self.pass(&buffer[..count], desk),
                Err(Errno::AGAIN) => break,
                Err(error) => return self.failed(error, desk),
            }
        }
        None
    }

    fn pass(&mut self, message: &[u8], desk: &mut Desk) {
        let (from, to) = self.pair;
        self.touched = desk.now;
        if desk.budget.room(message.len(), desk.now) < message.len() {
            return;
        }
        let (data, taken) = match to.protocol {
            Protocol::Icmp => {
                let Some((head, data)) = message.split_first_chunk::<ECHO>() else {
                    return;
                };
                if !matches!(head[0], 0 | 129) {
                    return;
                }
                let pong = Ping {
                    to: to.address,
                    ident: from,
                    number: u16::from_be_bytes([head[6], head[7]]),
                    data,
                };
                (data, packets::pong(&mut desk.device, &pong))
            }
            _ => {
                let end = (to.address, to.port);
                let taken = packets::datagram(&mut desk.device, end, from, message);
                (message, taken)
            }
        };
        if taken {
            desk.budget.spend(data.len());
            self.back += data.len() as u64;
        }
    }

    /// Maps a failed call to a reason; `None` if only one datagram is lost.
    fn failed(&mut self, error: Errno, desk: &mut Desk) -> Option<Reason> {
        let reason = match error {
            Errno::CONNREFUSED => Reason::Refused,
            Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN => Reason::Unreachable,
            _ => return None,
        };
        if self.pair.1.protocol == Protocol::Udp {
            packets::unreachable(&mut desk.device, self.pair.1.address, &self.sample);
        }
        Some(reason)
    }

    /// The reason to end it, if the current rules no longer allow it.
    pub(super) fn judged_again(&self, desk: &Desk) -> Option<Reason> {
        let verdict = judge::connect(&desk.rules, &desk.places, &self.pair.1, &self.names);
        (!verdict.allowed).then(|| judge::why_ended(&desk.places, &self.pair.1))
    }

    pub(super) fn is_idle(&self, now: Instant) -> Option<Reason> {
        let idle = now.saturating_duration_since(self.touched) > IDLE;
        idle.then_some(Reason::Idle)
    }

    /// Logs its start.
    pub(super) fn decide(&self, desk: &mut Desk) {
        let verdict = self.verdict(Reason::Allowed);
        let line = Decision::new(Event::Connect, &verdict).to(&self.pair.1);
        desk.decisions.write(&line.name(self.name()), desk.now);
    }

    /// Logs its end.
    pub(super) fn end(&self, reason: Reason, desk: &mut Desk) {
        let mut verdict = self.verdict(reason);
        let not_allowed = [
            Reason::RulesChanged,
            Reason::BytesUsedUp,
            Reason::HostAddress,
        ];
        if not_allowed.contains(&reason) {
            verdict = Verdict::no(reason);
        }
        let mut line = Decision::new(Event::End, &verdict)
            .to(&self.pair.1)
            .name(self.name());
        line.bytes_out = Some(self.out);
        line.bytes_in = Some(self.back);
        let passed = desk.now.saturating_duration_since(self.began);
        line.duration_ms = Some(passed.as_millis() as u64);
        desk.decisions.write(&line, desk.now);
    }
}

impl AsFd for Exchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn socket(to: &Destination) -> Result<OwnedFd, Reason> {
    let (family, echo) = match to.address {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let protocol = (to.protocol == Protocol::Icmp).then_some(echo);
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, protocol);
    let socket = socket.map_err(|error| match error {
        // The kernel refuses the ping socket itself if pinging is not permitted.
        Errno::ACCESS | Errno::PERM => Reason::PingNotPermitted,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS => Reason::TooManyConnections,
        _ => Reason::Unreachable,
    })?;
    let to = SocketAddr::new(to.address, to.port);
    rustix::net::connect(&socket, &to).map_err(|_| Reason::Unreachable)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_is_over_when_nothing_was_said_for_long() {
        let to = Destination {
            address: IpAddr::from([127, 0, 0, 1]),
            port: 9,
            protocol: Protocol::Udp,
        };
        let now = Instant::now();
        let verdict = Verdict::no(Reason::Allowed);
        let exchange = Exchange::open((1, to), Vec::new(), verdict, &[0; 500], now).unwrap();
        assert_eq!(exchange.sample.len(), SAMPLE);
        assert_eq!(exchange.is_idle(now + IDLE), None);
        let later = now + IDLE + Duration::from_millis(1);
        assert_eq!(exchange.is_idle(later), Some(Reason::Idle));
    }
}
