//! Allowed traffic arrives complete.

use crate::world::{GOOD, LONG, OTHER, PRIVATE};
use crate::{allow, opaque, rules, world};
use motu_egress::dns::{self, Code};
use motu_egress::gateway::GATEWAY;
use motu_egress::rules::{Allow, HttpRule, Limits, Rules};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};

#[test]
fn bytes_go_out_and_come_back() {
    let Some(world) = world(Rules::public()) else {
        return;
    };
    world.serve_echo(GOOD, 7);
    let mut stream = world.connect(GOOD, 7).unwrap();
    stream.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
    // After one side's FIN the other side closes too.
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut back).unwrap(), 0);
    let end = world.decided(&[("event", "end".into()), ("port", 7.into())]);
    assert_eq!(
        (&end["bytes_out"], &end["bytes_in"]),
        (&5.into(), &5.into())
    );
    assert_eq!(end["reason"], "closed");
    assert_eq!(
        world.decided(&[("event", "connect".into())])["rule"],
        "public"
    );
}

/// A pseudo-random pattern, so that misplaced bytes are noticed.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

#[test]
fn many_bytes_arrive_whole_in_both_directions() {
    let Some(world) = world(Rules::public()) else {
        return;
    };
    world.serve_echo(GOOD, 7);
    let stream = world.connect(GOOD, 7).unwrap();
    let sent = pattern(20 << 20);
    let mut writer = stream.try_clone().unwrap();
    let writing = {
        let sent = sent.clone();
        std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        })
    };
    let mut reader = stream;
    let mut back = Vec::new();
    reader.read_to_end(&mut back).unwrap();
    writing.join().unwrap();
    assert!(
        back == sent,
        "{} of {} bytes, or others",
        back.len(),
        sent.len()
    );
}

#[test]
fn a_reader_that_stops_holds_up_its_own_connection_only() {
    let Some(world) = world(Rules::public()) else {
        return;
    };
    // A server that sends forever to clients that do not read.
    world.serve(GOOD, 19, |mut stream| {
        let block = pattern(1 << 16);
        while stream.write_all(&block).is_ok() {}
    });
    world.serve_echo(GOOD, 7);
    let stuck: Vec<TcpStream> = (0..20).map(|_| world.connect(GOOD, 19).unwrap()).collect();
    let mut stream = world.connect(GOOD, 7).unwrap();
    for round in 0..200u32 {
        stream.write_all(&round.to_be_bytes()).unwrap();
        let mut back = [0; 4];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(u32::from_be_bytes(back), round);
    }
    // The memory for stuck connections is bounded.
    let resident = world.status().resident_bytes;
    assert!(resident < 64 << 20, "{resident}");
    drop(stuck);
}

#[test]
fn a_thousand_connections_at_once() {
    let Some(world) = world(Rules::public()) else {
        return;
    };
    world.serve_echo(GOOD, 7);
    let mut streams: Vec<TcpStream> = (0..1000).map(|_| world.connect(GOOD, 7).unwrap()).collect();
    assert_eq!(world.status().connections, 1000);
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&number.to_be_bytes()).unwrap();
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        let mut back = [0; 8];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(usize::from_be_bytes(back), number);
    }
    drop(streams);
    assert!(crate::world::wait(|| (world.status().connections == 0).then_some(())).is_some());
}

#[test]
fn curl_reaches_an_allowed_name_over_http_and_tls() {
    let Some(world) = world(rules(vec![
        allow("good.example.org"),
        allow("*.below.example.org"),
    ])) else {
        return;
    };
    world.name("good.example.org", &[GOOD]);
    world.name("a.below.example.org", &[OTHER]);
    world.serve_http(GOOD, 80);
    world.serve_http(OTHER, 80);
    let (text, fine) = world.run("curl", &["-sS", "http://good.example.org/x"]);
    assert!(
        fine && text.contains("11.22.33.44 got GET /x HTTP/1.1"),
        "{text}"
    );
    let (text, fine) = world.run("curl", &["-sS", "http://a.below.example.org/y"]);
    assert!(fine && text.contains("11.22.33.45 got GET /y"), "{text}");
    let _server = tls_server(&world, "good.example.org");
    let (text, fine) = world.run("curl", &["-sSk", "https://good.example.org/"]);
    assert!(fine && text.contains("s_server"), "{text}");
    world.decided(&[
        ("event", "request".into()),
        ("name", "good.example.org".into()),
        ("port", 443.into()),
    ]);
    world.decided(&[
        ("event", "dns".into()),
        ("name", "good.example.org".into()),
        ("allowed", true.into()),
    ]);
}

/// A real server of TLS, until this is dropped.
pub(crate) struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn tls_server(world: &crate::world::World, name: &str) -> Server {
    let directory = world.directory.path();
    let (key, certificate) = (directory.join("key.pem"), directory.join("cert.pem"));
    let made = motu_needs::command("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
        ])
        .args([
            "-nodes",
            "-days",
            "2",
            "-subj",
            &format!("/CN={name}"),
            "-keyout",
        ])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let server = world.internet.inside(|| {
        motu_needs::command("openssl")
            .args([
                "s_server",
                "-www",
                "-quiet",
                "-accept",
                "11.22.33.44:443",
                "-key",
            ])
            .arg(&key)
            .arg("-cert")
            .arg(&certificate)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap()
    });
    let server = Server(server);
    let up = || {
        world
            .internet
            .inside(|| TcpStream::connect((GOOD, 443)).ok())
    };
    assert!(crate::world::wait(up).is_some());
    server
}

#[test]
fn names_are_resolved_over_datagrams_and_connections() {
    let Some(world) = world(rules(vec![allow("good.example.org")])) else {
        return;
    };
    world.name("good.example.org", &[GOOD, OTHER]);
    let told = world.resolve("good.example.org");
    assert_eq!(
        (told.code, told.addresses),
        (Code::Fine, vec![GOOD.into(), OTHER.into()])
    );
    // Two queries on one connection.
    let mut stream = world.connect(GATEWAY, 53).unwrap();
    for id in [5, 6] {
        let message = dns::ask(id, "good.example.org", dns::Kind::A);
        stream
            .write_all(&(message.len() as u16).to_be_bytes())
            .unwrap();
        stream.write_all(&message).unwrap();
    }
    for id in [5, 6] {
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut reply = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(
            dns::answer(&reply, id, "good.example.org", dns::Kind::A)
                .unwrap()
                .addresses,
            [GOOD, OTHER]
        );
    }
    // NXDOMAIN is passed on.
    world.replace(rules(vec![allow("*.example.org")]));
    assert_eq!(world.resolve("none.example.org").code, Code::NoSuchName);
}

#[test]
fn what_is_refused_is_refused_and_not_a_timeout() {
    let Some(world) = world(Rules::public()) else {
        return;
    };
    // Nobody listens.
    let error = world.connect(GOOD, 81).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    world.decided(&[
        ("reason", "refused".into()),
        ("allowed", true.into()),
        ("port", 81.into()),
    ]);
}

#[test]
fn a_private_address_is_reached_by_name_only_where_the_rule_says_so() {
    let own = Allow {
        private: true,
        ..allow("registry.example.org")
    };
    let Some(world) = world(rules(vec![own, allow("*.example.org")])) else {
        return;
    };
    world.serve_http(PRIVATE, 80);
    world.name("registry.example.org", &[PRIVATE]);
    world.name("other.example.org", &[PRIVATE]);
    let (text, fine) = world.run("curl", &["-sS", "http://registry.example.org/"]);
    assert!(fine && text.contains("10.1.2.3 got"), "{text}");
    assert_eq!(world.resolve("other.example.org").code, Code::Refused);
    world.decided(&[
        ("name", "other.example.org".into()),
        ("reason", "private_address".into()),
    ]);
    // Another name on the same address is still not the allowed name.
    let (text, fine) = world.run(
        "curl",
        &[
            "-sS",
            "-H",
            "Host: other.example.org",
            "http://registry.example.org/",
        ],
    );
    assert!(!fine, "{text}");
}

#[test]
fn requests_are_allowed_one_by_one_on_one_connection() {
    let only = Allow {
        http: vec![HttpRule {
            methods: vec!["GET".to_owned()],
            path: "/simple".to_owned(),
            ..HttpRule::default()
        }],
        ..allow("good.example.org")
    };
    let Some(world) = world(rules(vec![only])) else {
        return;
    };
    world.name("good.example.org", &[GOOD]);
    world.serve_http(GOOD, 80);
    assert_eq!(world.resolve("good.example.org").code, Code::Fine);
    let mut stream = world.connect(GOOD, 80).unwrap();
    let host = "Host: good.example.org\r\n\r\n";
    // The first two are pipelined; the third must never arrive.
    write!(
        stream,
        "GET /simple/a HTTP/1.1\r\n{host}GET /simple/b HTTP/1.1\r\n{host}"
    )
    .unwrap();
    write!(stream, "GET /secret?token=hush HTTP/1.1\r\n{host}").unwrap();
    let mut text = Vec::new();
    // The connection is cut; it is undefined how much of the answers came before.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    assert!(!text.contains("/secret"), "{text}");
    let line = world.decided(&[("reason", "request_not_allowed".into())]);
    assert_eq!(
        (&line["method"], &line["path"]),
        (&"GET".into(), &"/secret".into())
    );
    assert!(
        !world
            .decisions()
            .iter()
            .any(|line| line.to_string().contains("hush"))
    );
    let (text, fine) = world.run("curl", &["-sS", "http://good.example.org/simple/c"]);
    assert!(fine && text.contains("/simple/c"), "{text}");
    let (text, fine) = world.run(
        "curl",
        &["-sS", "-X", "POST", "http://good.example.org/simple/c"],
    );
    assert!(!fine, "{text}");
}

#[test]
fn limits_hold() {
    let limited = |limits| Rules {
        limits,
        ..rules(vec![opaque("*")])
    };
    let Some(world) = world(limited(Limits {
        connections: 3,
        ..Limits::default()
    })) else {
        return;
    };
    world.serve_echo(GOOD, 7);
    let open: Vec<TcpStream> = (0..3).map(|_| world.connect(GOOD, 7).unwrap()).collect();
    assert!(world.connect(GOOD, 7).is_err());
    world.decided(&[("reason", "too_many_connections".into())]);
    drop(open);
    assert!(crate::world::wait(|| (world.status().connections == 0).then_some(())).is_some());
    let used = world.status().bytes;
    world.replace(limited(Limits {
        bytes: used + 100_000,
        ..Limits::default()
    }));
    let mut stream = world.connect(GOOD, 7).unwrap();
    let sent = stream.write_all(&pattern(1 << 20));
    let mut back = Vec::new();
    let read = stream.read_to_end(&mut back);
    assert!(
        sent.is_err() || read.is_err() || back.len() < 100_000,
        "{}",
        back.len()
    );
    assert_eq!(world.status().bytes, used + 100_000);
    world.decided(&[("reason", "bytes_used_up".into())]);
    assert!(world.connect(GOOD, 7).is_err());
}

#[test]
fn the_gateway_answers_to_its_own_address() {
    let Some(world) = world(Rules::none()) else {
        return;
    };
    let (text, _) = world.run("ip", &["-4", "addr", "show", "eth0"]);
    assert!(text.contains("inet 10.107.0.2/24"), "{text}");
    let (text, _) = world.run("ip", &["route"]);
    assert!(text.contains("default via 10.107.0.1"), "{text}");
    let reply = world.sandbox.inside(|| {
        use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
        let raw = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(ipproto::ICMP),
        )
        .unwrap();
        rustix::net::sockopt::set_socket_timeout(
            &raw,
            rustix::net::sockopt::Timeout::Recv,
            Some(LONG),
        )
        .unwrap();
        rustix::net::connect(&raw, &std::net::SocketAddrV4::new(GATEWAY, 0)).unwrap();
        // An echo request, number 1, without data; 0xf7fe is its checksum.
        rustix::net::send(&raw, &[8, 0, 0xf7, 0xfe, 0, 0, 0, 1], SendFlags::empty()).unwrap();
        let mut buffer = [0; 100];
        let (count, _) = rustix::net::recv(&raw, &mut buffer, RecvFlags::empty()).unwrap();
        buffer[..count].to_vec()
    });
    assert_eq!(
        Ipv4Addr::new(reply[12], reply[13], reply[14], reply[15]),
        GATEWAY
    );
    assert_eq!(reply[20], 0, "an echo reply");
}
