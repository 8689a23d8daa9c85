//! IPv6: a way out where a rule says so, and the same places closed as over IPv4.

use crate::datagrams::{echo_socket, icmp, may_ping};
use crate::world::{GOOD, GOOD6, HOST6, METADATA6, OTHER6, PRIVATE6};
use crate::{allow, opaque, rules, world};
use motu_egress::dns::{Code, Kind};
use motu_egress::gateway::GATEWAY6;
use motu_egress::rules::{Allow, Protocol};
use rustix::net::{RecvFlags, SendFlags};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr};

fn both(host: &str) -> Allow {
    Allow {
        ipv6: true,
        ..allow(host)
    }
}

#[test]
fn a_name_leads_to_ipv6_where_its_rule_says_so() {
    let Some(world) = world(rules(vec![
        both("good.example.org"),
        allow("old.example.org"),
    ])) else {
        return;
    };
    let addresses = [IpAddr::from(GOOD), IpAddr::from(GOOD6)];
    world.name("good.example.org", &addresses);
    world.name("old.example.org", &[IpAddr::from(GOOD), OTHER6.into()]);
    world.serve_http(GOOD6, 80);
    world.serve_http(OTHER6, 80);
    let told = world.resolve_kind("good.example.org", Kind::Aaaa);
    assert_eq!(
        (told.code, told.addresses),
        (Code::Fine, vec![GOOD6.into()])
    );
    let (text, fine) = world.run("curl", &["-sS6", "http://good.example.org/x"]);
    assert!(
        fine && text.contains(&format!("{GOOD6} got GET /x")),
        "{text}"
    );
    world.decided(&[
        ("event", "connect".into()),
        ("address", GOOD6.to_string().into()),
        ("rule", "good.example.org".into()),
    ]);
    // For this sandbox the other name has only IPv4 addresses.
    let told = world.resolve_kind("old.example.org", Kind::Aaaa);
    assert_eq!((told.code, told.addresses), (Code::Fine, vec![]));
    let refused = world.connect(OTHER6, 80).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    // Another name on the same address is still another host.
    let (text, fine) = world.run(
        "curl",
        &[
            "-sS6",
            "-H",
            "Host: other.example.org",
            "http://good.example.org/",
        ],
    );
    assert!(!fine && !text.contains(" got "), "{text}");
}

#[test]
fn an_address_or_a_network_of_ipv6_needs_no_further_word() {
    let Some(world) = world(rules(vec![
        opaque("2600:22:33::44"),
        opaque("fd01::/16"),
        Allow {
            protocol: Protocol::Udp,
            ..allow("2600:22:33::/48")
        },
        icmp("2600:22:33::44"),
        opaque("*"),
    ])) else {
        return;
    };
    may_ping(&world);
    world.serve_echo(GOOD6, 7);
    world.serve_echo(PRIVATE6, 7);
    world.serve_echo(OTHER6, 7);
    for address in [GOOD6, PRIVATE6] {
        let mut stream = world.connect(address, 7).unwrap();
        let sent = vec![5; 1 << 20];
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn({
            let sent = sent.clone();
            move || writer.write_all(&sent).unwrap()
        });
        let mut back = vec![0; sent.len()];
        stream.read_exact(&mut back).unwrap();
        writing.join().unwrap();
        assert!(back == sent, "{address}");
    }
    // `*` covers only IPv4, unless the rule enables IPv6.
    assert!(world.connect(OTHER6, 7).is_err());
    world.decided(&[
        ("address", OTHER6.to_string().into()),
        ("allowed", false.into()),
    ]);
    world.serve_datagrams(OTHER6, 9);
    let socket = world.datagrams(OTHER6, 9);
    socket.send(b"six").unwrap();
    let mut back = [0; 9];
    assert_eq!(socket.recv(&mut back).unwrap(), 3);
    let socket = echo_socket(&world, GOOD6);
    let ping = [128, 0, 0, 0, 0, 0, 0, 1, 42];
    rustix::net::send(&socket, &ping, SendFlags::empty()).unwrap();
    let (count, _) = rustix::net::recv(&socket, &mut back[..], RecvFlags::empty()).unwrap();
    assert_eq!((count, back[0], back[8]), (9, 129, 42));
}

#[test]
fn whatever_the_rules_some_places_of_ipv6_are_never_reached() {
    let wide = |host: &str| Allow {
        ipv6: true,
        ..opaque(host)
    };
    let udp = Allow {
        protocol: Protocol::Udp,
        ..wide("::/0")
    };
    let Some(world) = world(rules(vec![wide("*"), wide("::/0"), udp])) else {
        return;
    };
    // Embedded IPv4 addresses: metadata behind NAT64, the host behind 6to4.
    let translated: Ipv6Addr = "64:ff9b::a9fe:a9fe".parse().unwrap();
    let tunnelled: Ipv6Addr = "2002:b00:1::1".parse().unwrap();
    let mapped: Ipv6Addr = "::ffff:169.254.169.254".parse().unwrap();
    let closed = [
        (METADATA6, "metadata_address"),
        (PRIVATE6, "private_address"),
        (HOST6, "host_address"),
        (translated, "metadata_address"),
        (tunnelled, "host_address"),
    ];
    for (address, reason) in closed {
        let refused = world.connect(address, 80).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{address}");
        let socket = world.datagrams(address, 80);
        socket.send(b"x").unwrap();
        for protocol in ["tcp", "udp"] {
            world.decided(&[
                ("address", address.to_string().into()),
                ("protocol", protocol.into()),
                ("reason", reason.into()),
            ]);
        }
    }
    // Names that resolve to closed addresses are not resolvable, nor are link-local and loopback
    // ones.
    let local: Ipv6Addr = "fe80::1".parse().unwrap();
    let more = [
        (mapped, "metadata_address"),
        (local, "link_local_address"),
        (Ipv6Addr::LOCALHOST, "loopback_address"),
        (GATEWAY6, "gateway_address"),
    ];
    for (number, (address, reason)) in closed.into_iter().chain(more).enumerate() {
        let name = format!("trick{number}.example.org");
        world.name(&name, &[address]);
        let told = world.resolve_kind(&name, Kind::Aaaa);
        assert_eq!(told.addresses, [] as [IpAddr; 0], "{name} {address}");
        world.decided(&[("name", name.clone().into()), ("reason", reason.into())]);
    }
    // The gateway answers echoes for itself.
    may_ping(&world);
    let socket = echo_socket(&world, GATEWAY6);
    let ping = [128, 0, 0, 0, 0, 0, 0, 1, 42];
    rustix::net::send(&socket, &ping, SendFlags::empty()).unwrap();
    let mut back = [0; 16];
    let (count, _) = rustix::net::recv(&socket, &mut back[..], RecvFlags::empty()).unwrap();
    assert_eq!((count, back[0]), (9, 129));
}
