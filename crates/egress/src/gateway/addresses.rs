//! The addresses of the host, and the kernel's notices that they have changed.
//!
//! An address may come at any time: from DHCP, with a VPN, a bridge or a new IPv6 prefix. Three
//! questions to the kernel keep them closed, over sockets that are opened before confinement:
//!
//! - notices say that something has changed (a lost notice says so too);
//! - the list is read again, and what is open is judged by it;
//! - a new connection is asked about by itself: whether its packets would stay on this host. That
//!   also knows routes of type `local`, which are on no list.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR`.
const GROUPS: u32 = 0x10 | 0x100;
/// Types of messages: `RTM_NEWADDR`, `RTM_GETADDR`, `RTM_NEWROUTE`, `RTM_GETROUTE`.
const ADDRESS: u16 = 20;
const GET_ADDRESSES: u16 = 22;
const ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_REQUEST`, and with it `NLM_F_DUMP`.
const ONE: u16 = 0x1;
const ALL: u16 = 0x301;
/// `NLM_F_DUMP_INTR`: the list changed while it was read.
const CHANGED: u16 = 0x10;
/// Attributes: `IFA_ADDRESS` (with a peer: the peer's), `IFA_LOCAL`, `RTA_DST`.
const GIVEN: u16 = 1;
const LOCAL: u16 = 2;
const TO: u16 = 1;
/// Types of routes whose packets stay here: `RTN_LOCAL`, `RTN_ANYCAST`.
const STAYS: [u8; 2] = [2, 4];
/// Sizes of a message's header, of `ifaddrmsg` and of `rtmsg`.
const HEADER: usize = 16;
const ABOUT_ADDRESS: usize = 8;
const ABOUT_ROUTE: usize = 12;
/// The kernel's largest part of a list is 32 KiB.
const PART: usize = 64 * 1024;
/// How often a list is read that keeps changing.
const TRIES: usize = 8;

/// What the kernel says about this network namespace.
#[derive(Debug)]
pub struct Addresses {
    notices: OwnedFd,
    asks: OwnedFd,
}

impl Addresses {
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            notices: socket(GROUPS)?,
            asks: socket(0)?,
        })
    }

    /// Takes the notices that have come. Returns whether anything may have changed.
    pub(super) fn have_changed(&self) -> bool {
        let mut buffer = [0; 4096];
        let mut changed = false;
        loop {
            match rustix::net::recv(&self.notices, &mut buffer[..], RecvFlags::empty()) {
                Ok((0, _)) | Err(Errno::AGAIN) => return changed,
                // Too many for the socket's buffer: some are lost, which says enough.
                Ok(_) | Err(Errno::NOBUFS) => changed = true,
                Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    /// Every address of every device.
    pub(super) fn all(&self) -> io::Result<Vec<IpAddr>> {
        for _ in 0..TRIES {
            if let Some(found) = self.list()? {
                return Ok(found);
            }
        }
        Err(io::Error::other("the addresses of the host keep changing"))
    }

    /// The list; `None` if it changed while it was read.
    fn list(&self) -> io::Result<Option<Vec<IpAddr>>> {
        self.ask(GET_ADDRESSES, ALL, &[0; ABOUT_ADDRESS])?;
        let (mut found, mut whole) = (Vec::new(), true);
        let mut buffer = vec![0; PART];
        loop {
            let count = self.hear(&mut buffer)?;
            for message in Messages(&buffer[..count]) {
                whole &= message.flags & CHANGED == 0;
                match message.kind {
                    DONE => return Ok(whole.then_some(found)),
                    ERROR => return Err(io::Error::other("the kernel lists no addresses")),
                    ADDRESS => found.extend(own(message.body)),
                    _ => {}
                }
            }
        }
    }

    /// Whether packets to an address would stay on this host.
    pub(super) fn stays_here(&self, address: IpAddr) -> io::Result<bool> {
        let (family, bits, octets) = match address {
            IpAddr::V4(address) => (libc::AF_INET, 32, address.octets().to_vec()),
            IpAddr::V6(address) => (libc::AF_INET6, 128, address.octets().to_vec()),
        };
        let mut body = [0; ABOUT_ROUTE].to_vec();
        (body[0], body[1]) = (family as u8, bits);
        body.extend(((4 + octets.len()) as u16).to_ne_bytes());
        body.extend(TO.to_ne_bytes());
        body.extend(octets);
        self.ask(GET_ROUTE, ONE, &body)?;
        let mut buffer = [0; 4096];
        let count = self.hear(&mut buffer)?;
        let answer = Messages(&buffer[..count]).next();
        // Without a route there is an error, and a connection fails by itself.
        Ok(answer.is_some_and(|answer| {
            let kind = answer.body.get(7);
            answer.kind == ROUTE && kind.is_some_and(|kind| STAYS.contains(kind))
        }))
    }

    fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        // Nothing of an earlier question may be taken for the answer.
        let mut rest = [0; 1024];
        while rustix::net::recv(&self.asks, &mut rest[..], RecvFlags::empty()).is_ok() {}
        let mut out = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.extend(flags.to_ne_bytes());
        out.extend([0; 8]);
        out.extend(body);
        rustix::net::send(&self.asks, &out, SendFlags::empty())?;
        Ok(())
    }

    /// A part of an answer. The kernel writes it while it is asked: there is nothing to wait for.
    fn hear(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match rustix::net::recv(&self.asks, buffer, RecvFlags::empty())? {
            (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            (count, _) => Ok(count),
        }
    }
}

/// Readable when there are notices.
impl AsFd for Addresses {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notices.as_fd()
    }
}

fn socket(groups: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // No protocol is the first one, NETLINK_ROUTE.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// The address that a message about one gives this host.
fn own(body: &[u8]) -> Option<IpAddr> {
    let mut rest = body.get(ABOUT_ADDRESS..)?;
    let (mut given, mut local) = (None, None);
    while let [a, b, c, d, ..] = rest {
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        let content = rest.get(4..length)?;
        match u16::from_ne_bytes([*c, *d]) {
            GIVEN => given = address(content),
            LOCAL => local = address(content),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    local.or(given)
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => Some(Ipv4Addr::from(*octets.first_chunk::<4>()?).into()),
        16 => Some(Ipv6Addr::from(*octets.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// The messages of one part.
struct Messages<'a>(&'a [u8]);

struct Message<'a> {
    kind: u16,
    flags: u16,
    body: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let head = self.0.first_chunk::<HEADER>()?;
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let body = self.0.get(HEADER..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes([head[4], head[5]]),
            flags: u16::from_ne_bytes([head[6], head[7]]),
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_this_host_are_found_and_known_to_stay_here() {
        let addresses = Addresses::open().unwrap();
        let found = addresses.all().unwrap();
        let loopback = IpAddr::from([127, 0, 0, 1]);
        assert!(found.contains(&loopback), "{found:?}");
        assert!(addresses.stays_here(loopback).unwrap());
        // All of its net stays here, which no list says.
        assert!(addresses.stays_here([127, 1, 2, 3].into()).unwrap());
        assert!(!addresses.stays_here([192, 0, 2, 77].into()).unwrap());
    }

    #[test]
    fn of_a_pair_of_ends_the_own_one_is_taken() {
        let attribute = |kind: u16, octets: [u8; 4]| {
            let head = [8u16.to_ne_bytes(), kind.to_ne_bytes()].concat();
            [head, octets.to_vec()].concat()
        };
        let peer = attribute(GIVEN, [10, 0, 0, 2]);
        let mine = attribute(LOCAL, [10, 0, 0, 1]);
        let body = [&[0; ABOUT_ADDRESS][..], &peer, &mine].concat();
        assert_eq!(own(&body), Some(IpAddr::from([10, 0, 0, 1])));
        assert_eq!(
            own(&body[..body.len() - 8]),
            Some(IpAddr::from([10, 0, 0, 2]))
        );
        for cut in 0..body.len() {
            let _ = own(&body[..cut]);
        }
        // A length of nothing would be read for ever.
        assert_eq!(own(&[0; 12]), None);
    }
}
