//! Datagrams and echoes: passed where a rule says so, refused at once where none does.

use crate::world::{GOOD, HOST, LONG, OTHER, PRIVATE, World, wait};
use crate::{allow, rules, world};
use motu_egress::rules::{Allow, Limits, Protocol, Rules};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// Datagrams to a host and a port.
fn udp(host: &str, port: u16) -> Allow {
    Allow {
        protocol: Protocol::Udp,
        ports: vec![port.into()],
        ..allow(host)
    }
}

pub fn icmp(host: &str) -> Allow {
    Allow {
        protocol: Protocol::Icmp,
        ..allow(host)
    }
}

/// Sends a datagram and returns the response.
fn exchange(socket: &UdpSocket, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    socket.send(bytes)?;
    let mut buffer = vec![0; 65_536];
    let count = socket.recv(&mut buffer)?;
    Ok(buffer[..count].to_vec())
}

#[test]
fn datagrams_go_out_and_come_back() {
    let Some(world) = world(rules(vec![udp("time.example.org", 123)])) else {
        return;
    };
    world.name("time.example.org", &[GOOD]);
    world.serve_datagrams(GOOD, 123);
    // Before the name is resolved, its address is not allowed.
    let early = world.datagrams(GOOD, 123);
    let refused = exchange(&early, b"early").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(world.resolve("time.example.org").addresses, [GOOD]);
    let socket = world.datagrams(GOOD, 123);
    assert_eq!(exchange(&socket, b"hello").unwrap(), b"hello");
    let long = vec![7; 40_000];
    assert_eq!(exchange(&socket, &long).unwrap(), long);
    assert_eq!(exchange(&socket, b"").unwrap(), b"");
    // Every socket of the sandbox is a separate exchange.
    let second = world.datagrams(GOOD, 123);
    assert_eq!(exchange(&second, b"second").unwrap(), b"second");
    assert_eq!(world.status().connections, 2);
    world.decided(&[
        ("event", "connect".into()),
        ("protocol", "udp".into()),
        ("name", "time.example.org".into()),
        ("rule", "time.example.org".into()),
    ]);
    world.replace(Rules::none());
    let end = world.decided(&[("event", "end".into()), ("bytes_out", 40_005.into())]);
    assert_eq!(
        (&end["bytes_in"], &end["reason"]),
        (&40_005.into(), &"rules_changed".into())
    );
    assert_eq!(world.status().connections, 0);
    let over = exchange(&socket, b"again").unwrap_err();
    assert_eq!(over.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn without_a_rule_for_them_datagrams_are_refused_at_once() {
    let Some(world) = world(rules(vec![
        allow("*"),
        allow("good.example.org"),
        udp("good.example.org", 123),
    ])) else {
        return;
    };
    world.name("good.example.org", &[GOOD]);
    world.resolve("good.example.org");
    // QUIC, and a name server other than the gateway.
    for port in [443, 53] {
        let count = world.serve_datagrams(GOOD, port);
        let refused = exchange(&world.datagrams(GOOD, port), b"initial").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{port}");
        world.decided(&[
            ("protocol", "udp".into()),
            ("port", port.into()),
            ("allowed", false.into()),
        ]);
        assert_eq!(*count.lock().unwrap(), 0, "{port}");
    }
    let refused = exchange(&world.datagrams(OTHER, 443), b"initial").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    world.decided(&[
        ("address", OTHER.to_string().into()),
        ("reason", "protocol_not_allowed".into()),
    ]);
}

#[test]
fn whatever_the_rules_no_datagram_reaches_some_places() {
    let any = |host: &str| Allow {
        ports: Vec::new(),
        ..udp(host, 1)
    };
    let Some(world) = world(rules(vec![any("*"), any("0.0.0.0/0"), icmp("0.0.0.0/0")])) else {
        return;
    };
    may_ping(&world);
    for (address, reason) in [
        (Ipv4Addr::new(169, 254, 169, 254), "metadata_address"),
        (PRIVATE, "private_address"),
        (HOST, "host_address"),
    ] {
        let refused = exchange(&world.datagrams(address, 80), b"x").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{address}");
        let ping = echo_socket(&world, address);
        rustix::net::send(&ping, &echo(1, b"x"), SendFlags::empty()).unwrap();
        for protocol in ["udp", "icmp"] {
            world.decided(&[
                ("address", address.to_string().into()),
                ("protocol", protocol.into()),
                ("reason", reason.into()),
            ]);
        }
    }
    // The gateway itself offers only DNS.
    let refused = exchange(&world.datagrams(motu_egress::gateway::GATEWAY, 123), b"x");
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(world.status().connections, 0);
}

#[test]
fn exchanges_and_their_bytes_are_bounded() {
    let limits = Limits {
        connections: 8,
        bytes: 1000,
        ..Limits::default()
    };
    let Some(world) = world(Rules {
        limits,
        ..rules(vec![udp("11.22.33.44", 7)])
    }) else {
        return;
    };
    world.serve_datagrams(GOOD, 7);
    let sockets: Vec<UdpSocket> = (0..8).map(|_| world.datagrams(GOOD, 7)).collect();
    for socket in &sockets {
        assert_eq!(exchange(socket, b"x").unwrap(), b"x");
    }
    let refused = exchange(&world.datagrams(GOOD, 7), b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    world.decided(&[("reason", "too_many_connections".into())]);
    // A datagram beyond the budget is dropped; using the budget up exactly ends all exchanges.
    sockets[0].send(&[1; 990]).unwrap();
    assert_eq!(exchange(&sockets[1], &[2; 492]).unwrap(), [2; 492]);
    world.decided(&[("event", "end".into()), ("reason", "bytes_used_up".into())]);
    let refused = exchange(&sockets[1], b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_port_that_nobody_listens_on_says_so() {
    let Some(world) = world(rules(vec![udp("11.22.33.44", 7)])) else {
        return;
    };
    let refused = exchange(&world.datagrams(GOOD, 7), b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    world.decided(&[("event", "end".into()), ("reason", "refused".into())]);
    assert_eq!(world.status().connections, 0);
}

/// Lets all users of host and sandbox ping.
pub fn may_ping(world: &World) {
    for net in [&world.host, &world.sandbox] {
        net.inside(|| {
            let range = "/proc/sys/net/ipv4/ping_group_range";
            std::fs::write(range, "0 2147483647").unwrap();
        });
    }
}

pub fn echo_socket(world: &World, to: impl Into<std::net::IpAddr>) -> OwnedFd {
    let to = SocketAddr::new(to.into(), 0);
    let (family, protocol) = match to {
        SocketAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        SocketAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    world.sandbox.inside(|| {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(protocol)).unwrap();
        rustix::net::connect(&socket, &to).unwrap();
        rustix::net::sockopt::set_socket_timeout(
            &socket,
            rustix::net::sockopt::Timeout::Recv,
            Some(LONG),
        )
        .unwrap();
        socket
    })
}

/// A request for an echo over IPv4.
fn echo(number: u8, data: &[u8]) -> Vec<u8> {
    [&[8, 0, 0, 0, 0, 0, 0, number], data].concat()
}

#[test]
fn an_echo_comes_back_where_a_rule_says_so() {
    let Some(world) = world(rules(vec![icmp("11.22.33.44")])) else {
        return;
    };
    may_ping(&world);
    let socket = echo_socket(&world, GOOD);
    for number in 1..4 {
        rustix::net::send(&socket, &echo(number, b"ball"), SendFlags::empty()).unwrap();
        let mut back = [0; 64];
        let (count, _) = rustix::net::recv(&socket, &mut back[..], RecvFlags::empty()).unwrap();
        assert_eq!((back[0], back[7]), (0, number));
        assert_eq!(&back[8..count], b"ball");
    }
    world.decided(&[
        ("event", "connect".into()),
        ("protocol", "icmp".into()),
        ("allowed", true.into()),
    ]);
    let other = echo_socket(&world, OTHER);
    rustix::net::send(&other, &echo(1, b"ball"), SendFlags::empty()).unwrap();
    world.decided(&[
        ("address", OTHER.to_string().into()),
        ("protocol", "icmp".into()),
        ("reason", "host_not_allowed".into()),
    ]);
    // If the host does not permit ping sockets, that is the reason.
    world.replace(Rules::none());
    world.host.inside(|| {
        std::fs::write("/proc/sys/net/ipv4/ping_group_range", "1 0").unwrap();
    });
    world.replace(rules(vec![icmp("11.22.33.44")]));
    rustix::net::send(&socket, &echo(9, b"ball"), SendFlags::empty()).unwrap();
    world.decided(&[("reason", "ping_not_permitted".into())]);
    assert!(wait(|| (world.status().connections == 0).then_some(())).is_some());
}
