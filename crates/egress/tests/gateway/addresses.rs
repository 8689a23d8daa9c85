//! The host's own addresses are closed, also those that come while a sandbox runs.

use crate::world::{GOOD, GOOD6, OTHER, World, wait};
use crate::{opaque, rules, world};
use motu_egress::dns::Code;
use motu_egress::rules::{Allow, Protocol, Rules};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};

/// Everything that can be opened, by name and by address.
fn everything() -> Rules {
    let udp = |host: &str| Allow {
        protocol: Protocol::Udp,
        ..opaque(host)
    };
    rules(vec![
        Allow {
            ipv6: true,
            ..opaque("*")
        },
        opaque("0.0.0.0/0"),
        opaque("::/0"),
        udp("0.0.0.0/0"),
    ])
}

fn spoken(world: &World, address: impl Into<IpAddr>) -> TcpStream {
    let mut stream = world.connect(address, 7).unwrap();
    speaks(&mut stream);
    stream
}

fn speaks(stream: &mut TcpStream) {
    stream.write_all(b"a").unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

fn ended(world: &World, address: impl Into<IpAddr>, protocol: &str) {
    world.decided(&[
        ("event", "end".into()),
        ("address", address.into().to_string().into()),
        ("protocol", protocol.into()),
        ("allowed", false.into()),
        ("reason", "host_address".into()),
    ]);
}

fn is_closed(world: &World, address: impl Into<IpAddr> + Copy) {
    let error = world.connect(address, 7).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    world.decided(&[
        ("event", "connect".into()),
        ("address", address.into().to_string().into()),
        ("reason", "host_address".into()),
    ]);
}

#[test]
fn an_address_that_comes_later_is_the_hosts_as_well() {
    let Some(world) = world(everything()) else {
        return;
    };
    for address in [IpAddr::from(GOOD), OTHER.into(), GOOD6.into()] {
        world.serve_echo(address, 7);
    }
    world.serve_datagrams(GOOD, 9);
    world.name("late.example.org", &[GOOD]);
    // Services of the host, on whatever addresses it has.
    let (services, datagrams) = world.host.inside(|| {
        let any = Ipv4Addr::UNSPECIFIED;
        (
            TcpListener::bind((any, 7)).unwrap(),
            UdpSocket::bind((any, 9)).unwrap(),
        )
    });
    services.set_nonblocking(true).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let mut open = spoken(&world, GOOD);
    let mut six = spoken(&world, GOOD6);
    let mut beside = spoken(&world, OTHER);
    let exchange = world.datagrams(GOOD, 9);
    exchange.send(b"out").unwrap();
    assert_eq!(exchange.recv(&mut [0; 9]).unwrap(), 3);
    assert_eq!(world.resolve("late.example.org").code, Code::Fine);

    world.host.ip(&format!("addr add {GOOD}/32 dev lo"));
    // At once, before anybody was told.
    is_closed(&world, GOOD);
    ended(&world, GOOD, "tcp");
    ended(&world, GOOD, "udp");
    assert!(!matches!(open.read(&mut [0]), Ok(count) if count > 0));
    let _ = exchange.send(b"in");
    world.decided(&[
        ("event", "connect".into()),
        ("protocol", "udp".into()),
        ("reason", "host_address".into()),
    ]);
    assert_eq!(world.resolve("late.example.org").code, Code::Refused);
    // What is not the host's goes on.
    speaks(&mut beside);
    speaks(&mut six);
    world.host.ip(&format!("addr add {GOOD6}/128 dev lo nodad"));
    is_closed(&world, GOOD6);
    ended(&world, GOOD6, "tcp");
    let mapped: IpAddr = GOOD.to_ipv6_mapped().into();
    assert!(world.connect(mapped, 7).is_err());
    // A whole net that the host takes for its own is on no list of addresses.
    world.host.ip("route add local 11.22.34.0/24 dev lo");
    is_closed(&world, Ipv4Addr::new(11, 22, 34, 5));
    let nobody = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
    assert!(services.accept().is_err_and(nobody));
    assert!(datagrams.recv(&mut [0; 9]).is_err_and(nobody));

    // What has gone is somebody else's again.
    world.host.ip(&format!("addr del {GOOD}/32 dev lo"));
    assert!(wait(|| world.connect(GOOD, 7).ok()).is_some());
}

/// More notices than its socket holds: what was lost is found by reading the list.
#[test]
fn notices_that_were_lost_are_noticed() {
    let Some(world) = world(everything()) else {
        return;
    };
    world.serve_echo(GOOD, 7);
    let mut open = spoken(&world, GOOD);
    let gateway = Pid::from_raw(world.gateway.pid).unwrap();
    kill_process(gateway, Signal::STOP).unwrap();
    let mut all: Vec<String> = (0..2000u32)
        .map(|number| Ipv4Addr::from_bits(u32::from(Ipv4Addr::new(11, 50, 0, 0)) + number))
        .map(|address| format!("addr add {address}/32 dev lo"))
        .collect();
    all.push(format!("addr add {GOOD}/32 dev lo"));
    let file = world.directory.path().join("addresses");
    std::fs::write(&file, all.join("\n")).unwrap();
    world.host.ip(&format!("-batch {}", file.display()));
    kill_process(gateway, Signal::CONT).unwrap();
    ended(&world, GOOD, "tcp");
    assert!(!matches!(open.read(&mut [0]), Ok(count) if count > 0));
    is_closed(&world, Ipv4Addr::new(11, 50, 7, 207));
}
