//! Packets that are not TCP: datagrams, echo requests, neighbour discovery.

use super::Gateway;
use crate::gateway::exchange::{Exchange, Pair};
use crate::gateway::flow::Desk;
use crate::gateway::names::Asker;
use crate::gateway::packets::{self, Packet, Ping};
use crate::gateway::{DNS, GATEWAY, GATEWAY6};
use crate::judge::{self, Destination, Reason, Verdict};
use crate::rules::Protocol;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::net::IpAddr;

impl Gateway {
    pub(super) fn packet(&mut self, bytes: &[u8]) {
        match packets::read(bytes) {
            None | Some(Packet::Other) => {}
            Some(Packet::Tcp(segment)) => self.segment(bytes, &segment),
            Some(Packet::Udp {
                from,
                to: IpAddr::V4(GATEWAY),
                port: DNS,
                payload,
            }) => self.ask(payload, Asker::Port(from)),
            Some(Packet::Udp {
                from,
                to,
                port,
                payload,
            }) => {
                let to = Destination {
                    address: to,
                    port,
                    protocol: Protocol::Udp,
                };
                self.exchange((from, to), 0, payload, bytes);
            }
            Some(Packet::Ping(ping)) => self.ping(&ping, bytes),
            Some(Packet::Solicitation(asker)) => packets::neighbour(&mut self.desk.device, asker),
            Some(Packet::Icmp(to)) => self.refuse(to),
        }
    }

    fn ping(&mut self, ping: &Ping<'_>, packet: &[u8]) {
        // The gateway answers pings to itself.
        if [IpAddr::V4(GATEWAY), IpAddr::V6(GATEWAY6)].contains(&ping.to) {
            packets::pong(&mut self.desk.device, ping);
            return;
        }
        let to = Destination {
            address: ping.to,
            port: 0,
            protocol: Protocol::Icmp,
        };
        self.exchange((ping.ident, to), ping.number, ping.data, packet);
    }

    /// Sends a datagram, if an exchange with its destination is allowed.
    fn exchange(&mut self, pair: Pair, number: u16, data: &[u8], packet: &[u8]) {
        let known = self.pairs.get(&pair).copied();
        let Some(token) = known.or_else(|| self.begin_exchange(pair, packet)) else {
            return;
        };
        if let Some(exchange) = self.exchanges.get_mut(&token)
            && let Some(reason) = exchange.send(number, data, &mut self.desk)
        {
            self.end_exchange(token, reason);
        }
        if self.desk.budget.is_used_up() {
            self.end_exchanges(|_, _| Some(Reason::BytesUsedUp));
        }
    }

    /// Starts a new exchange, if it is allowed.
    fn begin_exchange(&mut self, pair: Pair, packet: &[u8]) -> Option<u64> {
        let (_, to) = pair;
        if is_to_many(to.address) {
            return None;
        }
        let names = self.names.pins.names(to.address, self.desk.now);
        let name = names.first().cloned();
        let verdict = if self.desk.places.stands_in(to.address) {
            Verdict::no(Reason::ProxyCarriesTcpOnly)
        } else {
            self.admit(&to, &names)
        };
        if !verdict.allowed {
            return self.turn_away(&to, &verdict, name.as_deref(), packet);
        }
        let token = self.token();
        let opened = Exchange::open(pair, names, verdict, packet, self.desk.now);
        let watched = opened.and_then(|exchange| {
            let data = EventData::new_u64(token);
            // Out of descriptors or kernel memory: treat it as full.
            epoll::add(&self.epoll, &exchange, data, EventFlags::IN)
                .map_err(|_| Reason::TooManyConnections)?;
            Ok(exchange)
        });
        match watched {
            Ok(exchange) => {
                exchange.decide(&mut self.desk);
                self.exchanges.insert(token, exchange);
                self.pairs.insert(pair, token);
                Some(token)
            }
            Err(reason) => self.turn_away(&to, &Verdict::no(reason), name.as_deref(), packet),
        }
    }

    /// Tells the sandbox and the log that a datagram was refused.
    fn turn_away(
        &mut self,
        to: &Destination,
        verdict: &Verdict,
        name: Option<&str>,
        packet: &[u8],
    ) -> Option<u64> {
        self.decide(verdict, to, name);
        if to.protocol == Protocol::Udp {
            packets::unreachable(&mut self.desk.device, to.address, packet);
        }
        None
    }

    /// Handles data received for an exchange.
    pub(super) fn heard(&mut self, token: u64) {
        if let Some(exchange) = self.exchanges.get_mut(&token)
            && let Some(reason) = exchange.heard(&mut self.desk)
        {
            self.end_exchange(token, reason);
        }
        if self.desk.budget.is_used_up() {
            self.end_exchanges(|_, _| Some(Reason::BytesUsedUp));
        }
    }

    fn end_exchange(&mut self, token: u64, reason: Reason) {
        if let Some(exchange) = self.exchanges.remove(&token) {
            self.pairs.remove(&exchange.pair);
            exchange.end(reason, &mut self.desk);
        }
    }

    /// Ends every exchange for which `why` gives a reason.
    pub(super) fn end_exchanges(&mut self, why: impl Fn(&Exchange, &Desk) -> Option<Reason>) {
        let found: Vec<(u64, Reason)> = self
            .exchanges
            .iter()
            .filter_map(|(token, exchange)| Some((*token, why(exchange, &self.desk)?)))
            .collect();
        for (token, reason) in found {
            self.end_exchange(token, reason);
        }
    }

    /// Refuses an ICMP message other than an echo request, whatever the rules say.
    fn refuse(&mut self, address: IpAddr) {
        let to = Destination {
            address,
            port: 0,
            protocol: Protocol::Icmp,
        };
        // Multicast that a device sends when it comes up is not logged.
        if is_to_many(address) {
            return;
        }
        let verdict = judge::connect(&self.desk.rules, &self.desk.places, &to, &[]);
        let reason = if verdict.allowed {
            Reason::ProtocolNotAllowed
        } else {
            verdict.reason
        };
        self.decide(&Verdict::no(reason), &to, None);
    }
}

/// Whether an address is broadcast or multicast.
fn is_to_many(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(to) if to.is_broadcast()) || address.is_multicast()
}
