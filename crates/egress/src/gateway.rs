//! The gateway process of one sandbox.
//!
//! ```text
//!   spawn ──setup and descriptors──► run: device ► confine ► "ready" ► turns
//!                                              ▲                        │
//!        leash (a process ends: so does this) ─┤     frames ► flows ► host sockets
//!        control (new rules, status, stop) ────┘     questions ► names ► resolver
//! ```
//!
//! One thread, one epoll loop. Everything a sandbox can cause is bounded: connections, buffered
//! bytes, remembered names, pending queries, queries in a second, lines of decisions.

mod addresses;
mod budget;
mod confine;
pub mod control;
mod decisions;
mod device;
mod dial;
mod exchange;
mod flow;
mod host;
mod link;
mod names;
mod packets;
mod pins;
mod process;
mod spawn;
mod stand_ins;
mod sys;
mod turn;
mod way;

use crate::address::Network;
use smoltcp::wire::EthernetAddress;

pub use addresses::Addresses;
pub use budget::QUESTIONS_PER_SECOND;
pub use decisions::MOST as DECISION_BYTES;
pub use exchange::IDLE as EXCHANGE_IDLE;
pub use host::Memory;
pub use process::run;
pub use spawn::{Begin, Frames, Pending, Setup, Standby, Started, begin, spawn};
pub use turn::{Gateway, Parts};

/// The network between a sandbox and its gateway. All sandboxes use the same one; none can see
/// another.
pub const NETWORK: Network = Network::v4(10, 107, 0, 0, PREFIX);
/// The same over IPv6.
pub const NETWORK6: Network = Network::v6(
    std::net::Ipv6Addr::new(0xfd6d, 0x7475, 0, 0, 0, 0, 0, 0),
    PREFIX6,
);
/// The guest of a virtual machine configures its device with the same constants.
pub use motu_link::network::{ADDRESS as GUEST, DEVICE, GATEWAY, PREFIX};
pub use motu_link::network::{ADDRESS6 as GUEST6, GATEWAY6, PREFIX6};
/// Locally administered MAC addresses (second bit of the first byte).
pub const GATEWAY_MAC: [u8; 6] = [0x02, 0x6d, 0x74, 0x75, 0, 1];
pub const GUEST_MAC: [u8; 6] = [0x02, 0x6d, 0x74, 0x75, 0, 2];
/// The MTU of a device in a namespace: large frames make it fast.
pub const MTU: usize = 65_520;
/// The MTU over a socket, as used by virtual machines.
pub const SOCKET_MTU: usize = 1500;

const MAC: EthernetAddress = EthernetAddress(GATEWAY_MAC);

/// The port of the SSH agent.
const AGENT: u16 = motu_link::network::AGENT_PORT;

/// The port of DNS.
const DNS: u16 = 53;
