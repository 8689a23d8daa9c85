//! A host whose proxy is the only way out: names go to the proxy, and the rules hold as without it.

use crate::world::{GOOD, OTHER, Setting, World, missing, skip};
use crate::{allow, opaque, rules};
use motu_egress::proxy::Proxy;
use motu_egress::rules::{Allow, Protocol, Rules};
use rustix::fd::{AsFd, OwnedFd};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Mutex};

/// The address of the test proxies, beyond the host.
const PLACE: Ipv4Addr = Ipv4Addr::new(11, 0, 0, 2);
const HTTP: u16 = 3128;
const SOCKS: u16 = 1080;

/// The destinations that a proxy was asked for.
type Asked = Arc<Mutex<Vec<String>>>;

fn world(rules: Rules, proxy: &str, direct: &str) -> Option<(World, Asked)> {
    if let Some(reason) = missing() {
        skip(reason);
        return None;
    }
    let mut proxy = Proxy::parse(proxy).unwrap();
    proxy.without(direct);
    let setting = Setting {
        proxy: Some(proxy),
        ..Setting::default()
    };
    let world = World::set(rules, setting);
    let asked = Asked::default();
    let (one, other) = (asked.clone(), asked.clone());
    // Servers run in threads of their own, which enter the proxies' namespace.
    let (here, there) = (world.internet.descriptor(), world.internet.descriptor());
    world.serve(PLACE, HTTP, move |stream| {
        enter(&here);
        http(stream, &one);
    });
    world.serve(PLACE, SOCKS, move |stream| {
        enter(&there);
        socks(stream, &other);
    });
    Some((world, asked))
}

fn enter(net: &OwnedFd) {
    move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// All names lead to one server; a name that contains `closed` is refused.
fn carry(mut stream: TcpStream, host: &str, port: u16, yes: &[u8], no: &[u8]) {
    let there = (!host.contains("closed")).then(|| TcpStream::connect((GOOD, port)));
    let Some(Ok(there)) = there else {
        let _ = stream.write_all(no);
        return;
    };
    let _ = stream.write_all(yes);
    let (mut from, mut to) = (there.try_clone().unwrap(), stream.try_clone().unwrap());
    let back = std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let _ = std::io::copy(&mut stream, &mut &there);
    let _ = there.shutdown(std::net::Shutdown::Write);
    let _ = back.join();
}

/// A proxy of HTTP that knows one user, `me` with the password `word`.
fn http(mut stream: TcpStream, asked: &Asked) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_err() {
            return;
        }
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let place = head.split(' ').nth(1).unwrap().to_owned();
    asked.lock().unwrap().push(place.clone());
    if !head.contains("Proxy-Authorization: Basic bWU6d29yZA==\r\n") {
        let _ = stream.write_all(b"HTTP/1.1 407 who are you\r\n\r\n");
        return;
    }
    let (host, port) = place.rsplit_once(':').unwrap();
    let yes = b"HTTP/1.1 200 here you are\r\nX: y\r\n\r\n";
    carry(
        stream,
        host,
        port.parse().unwrap(),
        yes,
        b"HTTP/1.1 502 no\r\n\r\n",
    );
}

fn socks(mut stream: TcpStream, asked: &Asked) {
    let mut read = |count: usize| {
        let mut bytes = vec![0; count];
        stream.read_exact(&mut bytes).ok().map(|()| bytes)
    };
    let talk = (|| {
        let methods = read(2)?[1];
        let methods = read(methods.into())?;
        Some(methods)
    })();
    let method = talk.map_or(255, |methods| if methods.contains(&2) { 2 } else { 255 });
    stream.write_all(&[5, method]).unwrap();
    if method != 2 {
        return;
    }
    let mut read = |count: usize| {
        let mut bytes = vec![0; count];
        stream
            .read_exact(&mut bytes)
            .ok()
            .map(|()| bytes)
            .unwrap_or_default()
    };
    assert_eq!(read(9), b"\x01\x02me\x04word");
    stream.write_all(&[1, 0]).unwrap();
    let mut head = [0; 5];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[..4], [5, 1, 0, 3]);
    let mut name = vec![0; usize::from(head[4]) + 2];
    stream.read_exact(&mut name).unwrap();
    let port = name.split_off(name.len() - 2);
    let port = u16::from_be_bytes([port[0], port[1]]);
    let name = String::from_utf8(name).unwrap();
    asked.lock().unwrap().push(format!("{name}:{port}"));
    let yes = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    carry(stream, &name, port, &yes, &[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]);
}

fn reaches_names_by(proxy: &str, refusal: &str) {
    let rules = rules(vec![
        allow("good.example.org"),
        allow("closed.example.org"),
        opaque("first.example.org"),
    ]);
    let Some((world, asked)) = world(rules, proxy, "") else {
        return;
    };
    world.serve_http(GOOD, 80);
    // A server that speaks first.
    world.serve(GOOD, 22, |mut stream| {
        let _ = stream.write_all(b"SSH-2.0-first\r\n");
    });
    let (text, fine) = world.run("curl", &["-sS", "http://good.example.org/x"]);
    assert!(fine && text.contains("got GET /x"), "{text}");
    let line = world.decided(&[("event", "connect".into()), ("via", "proxy".into())]);
    assert_eq!(line["name"], "good.example.org");
    assert_eq!(line["rule"], "good.example.org");
    assert!(line.get("address").is_none(), "{line}");
    // A name that the rules do not cover is asked of neither the proxy nor a resolver.
    let (_, fine) = world.run("curl", &["-sS", "http://other.example.org/"]);
    assert!(!fine);
    let (_, fine) = world.run(
        "curl",
        &[
            "-sS",
            "-H",
            "Host: evil.example.org",
            "http://good.example.org/",
        ],
    );
    assert!(!fine);
    let first = world.resolve("first.example.org").addresses[0];
    let mut stream = world.connect(first, 22).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert_eq!(said, "SSH-2.0-first\r\n");
    // A refusal of the proxy is passed on at once.
    let closed = world.resolve("closed.example.org").addresses[0];
    let refused = world.connect(closed, 80).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    world.decided(&[
        ("name", "closed.example.org".into()),
        ("reason", refusal.into()),
    ]);
    let asked = asked.lock().unwrap().clone();
    assert!(
        asked.contains(&"good.example.org:80".to_owned()),
        "{asked:?}"
    );
    assert!(
        !asked
            .iter()
            .any(|one| one.contains("other") || one.contains("evil")),
        "{asked:?}"
    );
    assert_eq!(world.asked(), [""; 0], "no resolver was asked");
    // The password occurs only in the dialogue.
    let log = std::fs::read_to_string(world.directory.path().join("decisions")).unwrap();
    assert!(!log.contains("word") && !log.contains("bWU6"), "{log}");
}

#[test]
fn names_are_reached_by_a_proxy_of_http() {
    reaches_names_by("http://me:word@11.0.0.2:3128", "proxy_refused");
}

#[test]
fn names_are_reached_by_a_proxy_of_socks() {
    reaches_names_by("socks5://me:word@11.0.0.2:1080", "refused");
}

#[test]
fn a_proxy_that_refuses_or_is_gone_is_the_reason() {
    for (proxy, reason) in [
        ("http://you:word@11.0.0.2:3128", "proxy_refused"),
        ("socks5://11.0.0.2:1080", "proxy_refused"),
        ("http://11.0.0.2:9", "proxy_unreachable"),
    ] {
        let Some((world, _)) = world(rules(vec![allow("good.example.org")]), proxy, "") else {
            return;
        };
        let address = world.resolve("good.example.org").addresses[0];
        let refused = world.connect(address, 80).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{proxy}");
        world.decided(&[("event", "connect".into()), ("reason", reason.into())]);
    }
}

#[test]
fn some_are_reached_without_the_proxy_and_closed_places_stay_closed() {
    let udp = Allow {
        protocol: Protocol::Udp,
        ..allow("far.example.org")
    };
    let rules = rules(vec![
        opaque("near.example.org"),
        opaque("far.example.org"),
        opaque("11.22.33.0/24"),
        udp,
    ]);
    let proxy = "http://me:word@11.0.0.2:3128";
    let Some((world, asked)) = world(rules, proxy, "near.example.org,11.22.33.45") else {
        return;
    };
    world.name("near.example.org", &[OTHER]);
    world.serve_echo(OTHER, 7);
    world.serve_echo(GOOD, 7);
    assert_eq!(world.resolve("near.example.org").addresses, [OTHER]);
    assert!(world.connect(OTHER, 7).is_ok());
    assert_eq!(*asked.lock().unwrap(), [""; 0]);
    // An address without a name is passed to the proxy as it is.
    assert!(world.connect(GOOD, 7).is_ok());
    assert_eq!(*asked.lock().unwrap(), ["11.22.33.44:7"]);
    for address in ["169.254.169.254", "10.1.2.3", "11.0.0.1", "198.18.0.99"] {
        let address: Ipv4Addr = address.parse().unwrap();
        assert!(world.connect(address, 7).is_err(), "{address}");
    }
    assert_eq!(asked.lock().unwrap().len(), 1);
    // Datagrams cannot use the proxy.
    let far = world.resolve("far.example.org").addresses[0];
    let socket = world.datagrams(far, 7);
    let _ = socket.send(b"x");
    world.decided(&[("reason", "proxy_carries_tcp_only".into())]);
}
