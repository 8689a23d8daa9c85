//! A veth pair in place of a TAP, where `/dev/net/tun` cannot be opened: one end for the sandbox,
//! and one in the same namespace whose frames a packet socket reads and writes.
//!
//! The gateway's end has no address, so nothing is gained by a program that finds it: every frame
//! sent through it is judged like any other.

use super::request::{call, checked, named, up};
use crate::gateway::{DEVICE, GATEWAY_MAC, MTU};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;

/// The gateway's end.
const PEER: &str = "motu0";
/// rtnetlink: create a link that must not exist, with an acknowledgement.
const NEW: u16 = 16;
const REQUEST: u16 = 0x1 | 0x4 | 0x200 | 0x400;
const NAME: u16 = 3;
const KIND: u16 = 18;
const KIND_NAME: u16 = 1;
const KIND_DATA: u16 = 2;
const PEER_DATA: u16 = 1;
/// Sizes of the netlink header and of `ifinfomsg`.
const HEADER: usize = 16;
const ABOUT: usize = 16;
/// `ETHTOOL_STXCSUM`.
const SET_CHECKSUMS: u32 = 0x17;

/// Makes the pair. Returns the packet socket of the gateway's end.
pub(super) fn pair(socket: &OwnedFd) -> io::Result<OwnedFd> {
    make()?;
    // Disable checksum offload, so that frames leave the sandbox with complete checksums.
    let mut off = [SET_CHECKSUMS, 0];
    let mut request = named(DEVICE);
    request.ifr_ifru.ifru_data = off.as_mut_ptr().cast();
    call(socket, libc::SIOCETHTOOL, &mut request)?;
    // The kernel itself must not send anything on this device.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{PEER}/disable_ipv6"), "1");
    let mut request = named(PEER);
    request.ifr_ifru.ifru_hwaddr = libc::sockaddr {
        sa_family: libc::ARPHRD_ETHER,
        sa_data: [0; 14],
    };
    // SAFETY: the field was just written.
    let hardware = unsafe { &mut request.ifr_ifru.ifru_hwaddr };
    for (to, from) in hardware.sa_data.iter_mut().zip(GATEWAY_MAC) {
        *to = from as libc::c_char;
    }
    call(socket, libc::SIOCSIFHWADDR, &mut request)?;
    let mut request = named(PEER);
    request.ifr_ifru.ifru_mtu = MTU as i32;
    call(socket, libc::SIOCSIFMTU, &mut request)?;
    // Set it up first: a packet socket on a device that is down starts with an error.
    up(socket, PEER)?;
    frames(socket)
}

/// A packet socket with every frame received by the gateway's end, without its own.
fn frames(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut request = named(PEER);
    call(socket, libc::SIOCGIFINDEX, &mut request)?;
    // SAFETY: the kernel has just written the number.
    let index = unsafe { request.ifr_ifru.ifru_ifindex };
    // Protocol 0: until it is bound, the socket receives nothing from any device.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let frames = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    let yes: libc::c_int = 1;
    // SAFETY: the value lives for the call and has the size that is said.
    checked(unsafe {
        libc::setsockopt(
            frames.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            (&raw const yes).cast(),
            size_of_val(&yes) as libc::socklen_t,
        )
    })?;
    // SAFETY: integers and bytes: zeroes are a value of it.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address lives for the call and has the size that is said.
    checked(unsafe { libc::bind(frames.as_raw_fd(), (&raw const address).cast(), size) })?;
    Ok(frames)
}

fn make() -> io::Result<()> {
    let kernel = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::send(&kernel, &message(), SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (count, _) = rustix::net::recv(&kernel, &mut answer[..], RecvFlags::empty())?;
    // A netlink acknowledgement: a header and 0, or a negative errno.
    let number = answer[..count].get(HEADER..HEADER + 4);
    let number = number.and_then(|bytes| bytes.first_chunk::<4>());
    match number.map(|bytes| i32::from_ne_bytes(*bytes)) {
        Some(0) => Ok(()),
        Some(error) => Err(Errno::from_raw_os_error(-error).into()),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The request for the pair.
fn message() -> Vec<u8> {
    let about = [0; ABOUT];
    let peer = [&about[..], &attribute(NAME, &text(PEER))].concat();
    let data = attribute(KIND_DATA, &attribute(PEER_DATA, &peer));
    let kind = [attribute(KIND_NAME, b"veth"), data].concat();
    let body = [
        &about[..],
        &attribute(NAME, &text(DEVICE)),
        &attribute(KIND, &kind),
    ]
    .concat();
    let mut out = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    out.extend(NEW.to_ne_bytes());
    out.extend(REQUEST.to_ne_bytes());
    out.extend([0; 8]);
    out.extend(body);
    out
}

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

/// A netlink attribute: length, type and content, padded to a multiple of four.
fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut out = ((4 + content.len()) as u16).to_ne_bytes().to_vec();
    out.extend(kind.to_ne_bytes());
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}
