//! Makes the network device of a sandbox inside its namespace, in a forked child of the gateway.
//!
//! Only the child joins the namespaces; the gateway stays in the host's, where its sockets are.

use super::request::{call, checked, named, up};
use super::{fork, leave, veth};
use crate::gateway::spawn::{receive, send};
use crate::gateway::{DEVICE, GATEWAY, GATEWAY6, GUEST, GUEST_MAC, GUEST6, MTU, PREFIX, PREFIX6};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::WaitOptions;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TAP: i16 = 0x0002;
/// `IFF_NO_PI`: frames without a packet-information header.
const BARE: i16 = 0x1000;
/// How long the kernel may take to activate an address.
const ADDRESS_TIME: Duration = Duration::from_secs(5);
/// Longest error text from the child.
const WORDS: usize = 200;

/// Makes the device and configures addresses and routes. `v6`: fail if the kernel has no IPv6.
pub(in crate::gateway) fn make(
    net: OwnedFd,
    user: Option<OwnedFd>,
    v6: bool,
) -> io::Result<OwnedFd> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let Some(child) = fork()? else {
        let made = enter(&net, user.as_ref()).and_then(|()| build(v6));
        let mut words = [0; WORDS];
        let told = match &made {
            Ok(device) => send(&theirs, &words, &[device.as_fd()]),
            Err(error) => {
                let text = error.to_string();
                let length = text.len().min(WORDS);
                words[..length].copy_from_slice(&text.as_bytes()[..length]);
                send(&theirs, &words, &[])
            }
        };
        leave(i32::from(told.is_err()));
    };
    drop(theirs);
    let mut words = [0; WORDS];
    let given = receive(&ours, &mut words);
    rustix::process::waitpid(Some(child), WaitOptions::empty())?;
    match given?.pop() {
        Some(device) => Ok(device),
        None => {
            let text = String::from_utf8_lossy(&words);
            let text = text.trim_end_matches('\0');
            Err(io::Error::other(format!("the network device: {text}")))
        }
    }
}

fn enter(net: &OwnedFd, user: Option<&OwnedFd>) -> io::Result<()> {
    if let Some(user) = user {
        move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
    }
    move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

fn build(v6: bool) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let frames = frames(&socket)?;
    settle_v6();
    let_everybody_ping();
    let mut request = named(DEVICE);
    request.ifr_ifru.ifru_hwaddr = libc::sockaddr {
        sa_family: libc::ARPHRD_ETHER,
        sa_data: [0; 14],
    };
    // SAFETY: the field was just written.
    let hardware = unsafe { &mut request.ifr_ifru.ifru_hwaddr };
    for (to, from) in hardware.sa_data.iter_mut().zip(GUEST_MAC) {
        *to = from as libc::c_char;
    }
    call(&socket, libc::SIOCSIFHWADDR, &mut request)?;
    let mut request = named(DEVICE);
    request.ifr_ifru.ifru_mtu = MTU as i32;
    call(&socket, libc::SIOCSIFMTU, &mut request)?;
    let mut request = named(DEVICE);
    request.ifr_ifru.ifru_addr = address(GUEST);
    call(&socket, libc::SIOCSIFADDR, &mut request)?;
    let mut request = named(DEVICE);
    request.ifr_ifru.ifru_netmask = address(Ipv4Addr::from_bits(u32::MAX << (32 - PREFIX)));
    call(&socket, libc::SIOCSIFNETMASK, &mut request)?;
    up(&socket, DEVICE)?;
    up(&socket, "lo")?;
    route(&socket)?;
    match address_v6(v6) {
        Err(error) if v6 => Err(io::Error::other(format!(
            "the rules name IPv6, and this host's kernel gives none: {error}"
        ))),
        _ => Ok(frames),
    }
}

/// Disables automatic IPv6 addresses, router discovery and duplicate address detection: the device
/// has exactly the address it is given. A kernel without IPv6 lacks these settings.
fn settle_v6() {
    for (name, value) in [
        ("addr_gen_mode", "1"),
        ("accept_dad", "0"),
        ("accept_ra", "0"),
        ("router_solicitations", "0"),
        ("disable_ipv6", "0"),
    ] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{DEVICE}/{name}"), value);
    }
}

/// The kernel's `in6_rtmsg`, whose fields the C library does not declare.
#[repr(C)]
#[derive(Debug)]
struct Route6 {
    to: libc::in6_addr,
    from: libc::in6_addr,
    gateway: libc::in6_addr,
    kind: u32,
    to_bits: u16,
    from_bits: u16,
    metric: u32,
    info: libc::c_ulong,
    flags: u32,
    device: libc::c_int,
}

/// Lets every user of the sandbox ping; the rules decide about it. A user namespace may not map
/// that many groups.
fn let_everybody_ping() {
    let _ = std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
}

/// Waits until the kernel has activated the IPv6 address: before that it has no route, and packets
/// for it are dropped.
fn wait_for_address() -> io::Result<()> {
    let digits: String = GUEST6
        .octets()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let line = format!("{digits} 80 ");
    let begin = Instant::now();
    while begin.elapsed() < ADDRESS_TIME {
        let routes = std::fs::read_to_string("/proc/self/net/ipv6_route")?;
        if routes.lines().any(|route| route.starts_with(&line)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Sets the IPv6 address and its route. Waits for the address only if it will be used.
fn address_v6(used: bool) -> io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET6,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut request = named(DEVICE);
    call(&socket, libc::SIOCGIFINDEX, &mut request)?;
    // SAFETY: the kernel has just written the number.
    let device = unsafe { request.ifr_ifru.ifru_ifindex };
    let bytes = |address: Ipv6Addr| libc::in6_addr {
        s6_addr: address.octets(),
    };
    let given = libc::in6_ifreq {
        ifr6_addr: bytes(GUEST6),
        ifr6_prefixlen: PREFIX6.into(),
        ifr6_ifindex: device,
    };
    // SAFETY: the request lives for the call, which reads one in6_ifreq of a socket of IPv6.
    checked(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFADDR as libc::Ioctl,
            &raw const given,
        )
    })?;
    if used {
        wait_for_address()?;
    }
    let route = Route6 {
        to: bytes(Ipv6Addr::UNSPECIFIED),
        from: bytes(Ipv6Addr::UNSPECIFIED),
        gateway: bytes(GATEWAY6),
        kind: 0,
        to_bits: 0,
        from_bits: 0,
        metric: 1,
        info: 0,
        flags: u32::from(libc::RTF_UP | libc::RTF_GATEWAY),
        device,
    };
    // SAFETY: the route lives for the call, which reads one in6_rtmsg: the same fields in C.
    checked(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCADDRT as libc::Ioctl,
            &raw const route,
        )
    })
}

/// Makes the sandbox's device and returns its other end. A TAP is faster, but `/dev/net/tun` may
/// not be accessible: then a veth pair is used.
fn frames(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match rustix::fs::open("/dev/net/tun", flags, Mode::empty()) {
        Ok(tun) => tap(tun),
        Err(error) => veth::pair(socket).map_err(|second| {
            let first = io::Error::from(error);
            io::Error::other(format!("/dev/net/tun: {first}; a veth pair: {second}"))
        }),
    }
}

fn tap(tap: OwnedFd) -> io::Result<OwnedFd> {
    let mut request = named(DEVICE);
    request.ifr_ifru.ifru_flags = TAP | BARE;
    call(&tap, TUNSETIFF, &mut request)?;
    Ok(tap)
}

/// Sets the default route to the gateway.
fn route(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: integers, socket addresses and a pointer: zeroes are a value of it.
    let mut entry: libc::rtentry = unsafe { std::mem::zeroed() };
    entry.rt_dst = address(Ipv4Addr::UNSPECIFIED);
    entry.rt_genmask = address(Ipv4Addr::UNSPECIFIED);
    entry.rt_gateway = address(GATEWAY);
    entry.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    // SAFETY: the entry lives for the call; its device is null, which means any.
    checked(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCADDRT as libc::Ioctl,
            &raw const entry,
        )
    })
}

fn address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    for (to, from) in data[2..].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: data,
    }
}
