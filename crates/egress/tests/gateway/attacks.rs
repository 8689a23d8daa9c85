//! Attacks of a hostile sandbox, which must all fail.

use crate::passing::tls_server;
use crate::world::{GOOD, HOST, LONG, OTHER, PRIVATE, RESOLVER, World, wait};
use crate::{allow, opaque, rules, world};
use motu_egress::dns::Code;
use motu_egress::gateway::{DEVICE, GATEWAY, GUEST, QUESTIONS_PER_SECOND};
use motu_egress::rules::Rules;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// Addresses that no rule opens, each with a server that would answer.
const CLOSED: [(Ipv4Addr, &str); 5] = [
    (Ipv4Addr::new(169, 254, 169, 254), "metadata_address"),
    (Ipv4Addr::new(100, 100, 100, 200), "metadata_address"),
    (PRIVATE, "private_address"),
    (HOST, "host_address"),
    (Ipv4Addr::new(10, 107, 0, 9), "gateway_address"),
];

#[test]
fn whatever_the_rules_some_places_are_never_reached() {
    let Some(world) = world(rules(vec![opaque("*"), opaque("0.0.0.0/0")])) else {
        return;
    };
    let _listener = world.host.inside(|| TcpListener::bind((HOST, 80)).unwrap());
    for (address, reason) in CLOSED {
        if address != HOST && !address.octets().starts_with(&[10, 107]) {
            world.serve_http(address, 80);
        }
        // The last one is in the sandbox's own network, where no server answers.
        if reason != "gateway_address" {
            let error = world.connect(address, 80).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{address}");
            world.decided(&[
                ("address", address.to_string().into()),
                ("reason", reason.into()),
            ]);
        }
    }
    // Names that resolve to them must not be resolvable.
    for (number, (address, reason)) in CLOSED
        .into_iter()
        .chain([(Ipv4Addr::LOCALHOST, "loopback_address")])
        .enumerate()
    {
        let name = format!("trick{number}.example.org");
        world.name(&name, &[address]);
        let told = world.resolve(&name);
        assert_eq!(
            (told.code, told.addresses),
            (Code::Refused, vec![]),
            "{name} {address}"
        );
        world.decided(&[("name", name.clone().into()), ("reason", reason.into())]);
    }
    // Of mixed addresses only the allowed one is returned.
    world.name("mixed.example.org", &[PRIVATE, GOOD, Ipv4Addr::LOCALHOST]);
    assert_eq!(world.resolve("mixed.example.org").addresses, [GOOD]);
    // Every notation of an address, and the sandbox's own loopback.
    for url in [
        "http://2852039166/",
        "http://0251.0376.0251.0376/",
        "http://0xa9fea9fe/",
        "http://169.254.43518/",
        "http://[::ffff:169.254.169.254]/",
        "http://10.66051/",
    ] {
        let (text, fine) = world.run("curl", &["-sS", "--connect-timeout", "60", url]);
        assert!(!fine && !text.contains(" got "), "{url}: {text}");
    }
}

#[test]
fn an_address_that_no_name_led_to_is_not_reached() {
    let Some(world) = world(rules(vec![allow("good.example.org")])) else {
        return;
    };
    world.name("good.example.org", &[GOOD]);
    world.serve_http(GOOD, 80);
    world.serve_http(OTHER, 80);
    for address in [GOOD, OTHER] {
        let error = world.connect(address, 80).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        world.decided(&[
            ("address", address.to_string().into()),
            ("reason", "host_not_allowed".into()),
        ]);
    }
    assert_eq!(world.resolve("good.example.org").addresses, [GOOD]);
    assert!(world.connect(GOOD, 80).is_ok());
    assert!(world.connect(OTHER, 80).is_err());
}

#[test]
fn a_name_that_is_not_allowed_is_not_asked_for() {
    let Some(world) = world(rules(vec![allow("*.example.org")])) else {
        return;
    };
    let tunnel = format!("{}.tunnel.example.net", "s3cr3t".repeat(9));
    for name in [
        &tunnel,
        "example.org",
        "localhost",
        "a.example.org.evil.net",
    ] {
        assert_eq!(world.resolve(name).code, Code::Refused, "{name}");
    }
    world.name("a.example.org", &[GOOD]);
    assert_eq!(world.resolve("a.example.org").code, Code::Fine);
    // The only query that reached the resolver.
    assert_eq!(world.asked(), ["a.example.org"]);
    // No resolver but the gateway's can be reached.
    world.sandbox.inside(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let message = motu_egress::dns::ask(9, "direct.example.org", motu_egress::dns::Kind::A);
        socket.send_to(&message, (RESOLVER, 53)).unwrap();
    });
    world.decided(&[
        ("address", RESOLVER.to_string().into()),
        ("protocol", "udp".into()),
        ("allowed", false.into()),
    ]);
    assert_eq!(world.asked(), ["a.example.org"]);
}

#[test]
fn another_name_inside_the_connection_is_found_out() {
    let Some(world) = world(rules(vec![
        allow("good.example.org"),
        allow("bad.example.org"),
    ])) else {
        return;
    };
    world.name("good.example.org", &[GOOD]);
    world.name("bad.example.org", &[OTHER]);
    world.serve_http(GOOD, 80);
    let _server = tls_server(&world, "good.example.org");
    // Domain fronting: the server name in the ClientHello is not the resolved one.
    for name in ["bad.example.org", "evil.example.net"] {
        let there = format!("{name}:443:{GOOD}");
        assert_eq!(world.resolve("good.example.org").code, Code::Fine);
        let (text, fine) = world.run(
            "curl",
            &["-sSk", "--resolve", &there, &format!("https://{name}/")],
        );
        assert!(!fine, "{text}");
        world.decided(&[
            ("event", "request".into()),
            ("name", name.into()),
            ("reason", "name_mismatch".into()),
            ("port", 443.into()),
        ]);
        let host = format!("Host: {name}");
        let (text, fine) = world.run("curl", &["-sS", "-H", &host, "http://good.example.org/"]);
        assert!(!fine && !text.contains(" got "), "{text}");
        world.decided(&[
            ("name", name.into()),
            ("reason", "name_mismatch".into()),
            ("port", 80.into()),
        ]);
    }
    // No server name at all, and a protocol that is neither TLS nor HTTP.
    let (text, fine) = world.run("curl", &["-sSk", "https://11.22.33.44/"]);
    assert!(!fine, "{text}");
    world.decided(&[("reason", "no_name".into()), ("port", 443.into())]);
    let mut stream = world.connect(GOOD, 80).unwrap();
    stream.write_all(b"SSH-2.0-tunnel\r\n").unwrap();
    assert!(!matches!(stream.read(&mut [0; 10]), Ok(count) if count > 0));
    world.decided(&[("reason", "unknown_protocol".into()), ("port", 80.into())]);
    // A second request on a good connection.
    let mut stream = world.connect(GOOD, 80).unwrap();
    write!(stream, "GET /1 HTTP/1.1\r\nHost: good.example.org\r\n\r\n").unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    write!(stream, "GET /2 HTTP/1.1\r\nHost: bad.example.org\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("/2"));
    // Request smuggling: two servers would parse this request differently.
    let mut stream = world.connect(GOOD, 80).unwrap();
    write!(stream, "POST /3 HTTP/1.1\r\nHost: good.example.org\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    let _ = stream.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("/3"));
    world.decided(&[("reason", "unknown_protocol".into())]);
}

/// A socket that sends whole frames from the sandbox's device.
fn raw(world: &World) -> OwnedFd {
    world.sandbox.inside(|| {
        let raw = rustix::net::socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let index = rustix::net::netdevice::name_to_index(&raw, DEVICE).unwrap();
        bind_packet(&raw, index);
        raw
    })
}

fn bind_packet(socket: &OwnedFd, index: u32) {
    use rustix::fd::AsRawFd;
    // SAFETY: zeroes are a value of it.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address lives for the call and has the size that is said.
    let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) };
    assert_eq!(done, 0);
}

/// A frame of IPv4 and TCP with right checksums and these numbers.
fn segment(from: Ipv4Addr, to: Ipv4Addr, ports: (u16, u16), flags: u8) -> Vec<u8> {
    let mut tcp = [0; 20];
    tcp[..2].copy_from_slice(&ports.0.to_be_bytes());
    tcp[2..4].copy_from_slice(&ports.1.to_be_bytes());
    tcp[12] = 5 << 4;
    tcp[13] = flags;
    tcp[14..16].copy_from_slice(&1000u16.to_be_bytes());
    let pseudo = [&from.octets()[..], &to.octets(), &[0, 6, 0, 20], &tcp].concat();
    tcp[16..18].copy_from_slice(&checksum(&pseudo));
    let mut ip = [
        0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    ip[12..16].copy_from_slice(&from.octets());
    ip[16..20].copy_from_slice(&to.octets());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    let ethernet = [
        &motu_egress::gateway::GATEWAY_MAC[..],
        &motu_egress::gateway::GUEST_MAC,
        &[8, 0],
    ]
    .concat();
    [&ethernet[..], &ip, &tcp].concat()
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes
        .chunks(2)
        .map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

#[test]
fn frames_that_are_wrong_in_every_way_do_nothing() {
    let Some(world) = world(Rules::public()) else {
        return;
    };
    world.serve_echo(GOOD, 7);
    let raw = raw(&world);
    let good = segment(GUEST, GOOD, (4000, 7), 2);
    let send = |frame: &[u8]| {
        let _ = rustix::net::send(&raw, frame, SendFlags::empty());
    };
    // Truncated at every length, every byte inverted, garbage after a valid start, and oversized.
    for length in 1..good.len() {
        send(&good[..length]);
    }
    for at in 12..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0xff;
        send(&bad);
    }
    let mut state = 12345u32;
    for length in (20..60_000).step_by(977) {
        let mut bad = good.clone();
        bad.extend((0..length).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        }));
        send(&bad);
        send(&bad[20..]);
    }
    // Every combination of TCP flags, and a foreign source address.
    for flags in 0..=255 {
        send(&segment(GUEST, GOOD, (5000 + u16::from(flags), 7), flags));
        send(&segment(
            Ipv4Addr::new(10, 107, 0, 77),
            GOOD,
            (5000, 7),
            flags,
        ));
    }
    let mut stream = world.connect(GOOD, 7).unwrap();
    stream.write_all(b"still here").unwrap();
    let mut back = [0; 10];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"still here");
}

#[test]
fn a_flood_of_connections_is_bounded() {
    let Some(world) = world(Rules::public()) else {
        return;
    };
    world.serve_echo(GOOD, 7);
    let raw = raw(&world);
    let mut round = 0;
    // The device drops what it cannot take, so repeat until the limit is reached.
    let bounded = wait(|| {
        for _ in 0..2000 {
            round += 1;
            // Unused addresses keep the host's connects pending.
            let to = Ipv4Addr::from_bits(u32::from(Ipv4Addr::new(11, 99, 0, 0)) + round % 60_000);
            let frame = segment(GUEST, to, (1024 + (round % 60_000) as u16, 7), 2);
            let _ = rustix::net::send(&raw, &frame, SendFlags::empty());
        }
        let decisions = world.decisions();
        let mut reasons = decisions.iter().map(|line| &line["reason"]);
        reasons
            .any(|reason| reason == "too_many_connections")
            .then_some(())
    });
    assert!(bounded.is_some());
    let status = world.status();
    assert!(status.connections <= 1024, "{status:?}");
    assert!(status.resident_bytes < 64 << 20, "{status:?}");
    // The decision log stayed bounded.
    assert!(world.decisions().len() < 5000);
    // New rules cut all of them, and the gateway keeps working.
    world.replace(rules(vec![opaque("11.22.33.44")]));
    assert_eq!(world.status().connections, 0);
    let mut stream = world.connect(GOOD, 7).unwrap();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

#[test]
fn rules_that_come_later_end_what_they_do_not_allow() {
    let Some(world) = world(rules(vec![opaque("11.22.33.44"), allow("11.22.33.45")])) else {
        return;
    };
    world.serve_echo(GOOD, 7);
    world.serve_echo(OTHER, 7);
    let mut stream = world.connect(GOOD, 7).unwrap();
    stream.write_all(b"a").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    // Still allowed: the connection continues.
    world.replace(rules(vec![opaque("11.22.0.0/16")]));
    stream.write_all(b"b").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    // No longer allowed: it is cut before the answer, and no byte is sent after it.
    world.replace(rules(vec![opaque("11.22.33.45")]));
    assert_eq!(world.status().connections, 0);
    assert_eq!(
        stream.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    let end = world.decided(&[("event", "end".into()), ("reason", "rules_changed".into())]);
    assert_eq!(end["bytes_out"], 2);
    assert!(world.connect(GOOD, 7).is_err());
    // An uninspected connection ends when the new rules require inspection.
    let mut other = world.connect(OTHER, 7).unwrap();
    other.write_all(b"a").unwrap();
    other.read_exact(&mut [0]).unwrap();
    world.replace(rules(vec![allow("11.22.33.45")]));
    assert!(!matches!(other.read(&mut [0]), Ok(count) if count > 0));
}

#[test]
fn nothing_but_tcp_and_the_gateways_names_gets_out() {
    let Some(world) = world(Rules::public()) else {
        return;
    };
    let heard = world
        .internet
        .inside(|| UdpSocket::bind((GOOD, 5353)).unwrap());
    heard.set_nonblocking(true).unwrap();
    world.sandbox.inside(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        socket.send_to(b"out", (GOOD, 5353)).unwrap();
    });
    world.decided(&[
        ("protocol", "udp".into()),
        ("port", 5353.into()),
        ("reason", "protocol_not_allowed".into()),
    ]);
    assert_eq!(
        heard.recv(&mut [0; 9]).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    // IPv6 is not routed at all.
    let sixth = world.sandbox.inside(|| {
        let to: SocketAddr = "[2606:4700::1111]:80".parse().unwrap();
        std::net::TcpStream::connect_timeout(&to, LONG)
    });
    assert!(sixth.is_err());
}

/// What leaves in names is bounded, also in those that are allowed.
#[test]
fn a_flood_of_questions_is_bounded() {
    let Some(world) = world(rules(vec![allow("*.example.org")])) else {
        return;
    };
    let begin = std::time::Instant::now();
    let kind = motu_egress::dns::Kind::A;
    let socket = world.datagrams(GATEWAY, 53);
    // The device drops what it cannot take, so repeat until the limit is reached.
    let refused = wait(|| {
        for number in 0..1000u16 {
            let name = format!("{number}.example.org");
            let _ = socket.send(&motu_egress::dns::ask(number, &name, kind));
        }
        let decisions = world.decisions();
        let mut reasons = decisions.iter().map(|line| &line["reason"]);
        reasons
            .any(|reason| reason == "too_many_questions")
            .then_some(())
    });
    assert!(refused.is_some());
    let asked = world.asked().len() as u64;
    let most = u64::from(QUESTIONS_PER_SECOND) * (begin.elapsed().as_secs() + 2);
    assert!((1..=most).contains(&asked), "{asked} of {most}");
    // It is over when the flood is.
    world.name("good.example.org", &[GOOD]);
    let socket = world.datagrams(GATEWAY, 53);
    let second = std::time::Duration::from_secs(1);
    socket.set_read_timeout(Some(second)).unwrap();
    let answered = wait(|| {
        let name = "good.example.org";
        socket.send(&motu_egress::dns::ask(77, name, kind)).unwrap();
        let mut buffer = [0; 4096];
        let count = socket.recv(&mut buffer).ok()?;
        let told = motu_egress::dns::answer(&buffer[..count], 77, name, kind)?;
        (told.code == Code::Fine).then_some(())
    });
    assert!(answered.is_some());
}

fn block(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

/// A ClientHello in one record, for a name, with one more extension.
fn hello(name: &str, more: &[u8]) -> Vec<u8> {
    let name = [&[0][..], &block(name.as_bytes())].concat();
    let extensions = [&[0, 0][..], &block(&block(&name)), more].concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0, 0, 2, 0x13, 1, 1, 0],
        &block(&extensions),
    ]
    .concat();
    let length = (body.len() as u32).to_be_bytes();
    let message = [&[1][..], &length[1..], &body].concat();
    [&[0x16, 3, 1][..], &block(&message)].concat()
}

/// A name that is allowed, and another one that the server goes by.
#[test]
fn the_name_of_a_connection_is_the_one_that_counts() {
    let Some(world) = world(rules(vec![allow("good.example.org")])) else {
        return;
    };
    world.name("good.example.org", &[GOOD]);
    let (heard, hears) = std::sync::mpsc::channel();
    let heard = std::sync::Mutex::new(heard);
    world.serve(GOOD, 443, move |mut stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        heard.lock().unwrap().send(bytes).unwrap();
    });
    assert_eq!(world.resolve("good.example.org").code, Code::Fine);
    let send = |bytes: &[u8]| {
        let mut stream = world.connect(GOOD, 443).unwrap();
        stream.write_all(bytes).unwrap();
        let cut = stream.read(&mut [0]).is_err();
        (cut, hears.recv_timeout(LONG).unwrap())
    };
    let inside = [&[0xfe, 0x0d][..], &block(&[1; 40])].concat();
    let hidden = hello("good.example.org", &inside);
    assert_eq!(send(&hidden), (true, Vec::new()));
    world.decided(&[
        ("event", "request".into()),
        ("name", "good.example.org".into()),
        ("reason", "name_encrypted".into()),
    ]);
    // Sent in answer to a HelloRetryRequest, behind a message that means nothing.
    let first = hello("good.example.org", &[]);
    let change = [0x14, 3, 3, 0, 1, 1];
    let second = hello("bad.example.org", &[]);
    let (cut, bytes) = send(&[&first[..], &change, &second].concat());
    assert!(cut && !bytes.windows(second.len()).any(|part| part == second));
    world.decided(&[
        ("event", "request".into()),
        ("name", "bad.example.org".into()),
        ("reason", "name_mismatch".into()),
    ]);
}
