//! The machine itself: ports, identity, numbers, malformed requests and its end.

use crate::support::*;
use bytes::Bytes;
use motu_link::frame::CHANNEL_OUT;
use motu_link::message::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};

#[tokio::test]
async fn a_ping_is_answered() {
    let machine = Machine::start().await;
    let said = machine.call(Verb::Ping(Ping {})).await.ok();
    let Some(Said::Pong(pong)) = said.notes.last() else {
        panic!()
    };
    assert_eq!(pong.guest_version, env!("CARGO_PKG_VERSION"));
    assert_eq!(pong.link_version, motu_link::LINK_VERSION);
}

#[tokio::test]
async fn a_port_is_dialled_both_ways_with_half_close() {
    let machine = Machine::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = u32::from(listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        peer.read_to_end(&mut all).await.unwrap();
        // The other direction is still open.
        peer.write_all(&all).await.unwrap();
    });
    let data: Vec<u8> = (0..4_000_000u32).map(|at| (at % 249) as u8).collect();
    let said = machine
        .call_with(
            Verb::Dial(Dial {
                port,
                unix: Bytes::new(),
            }),
            &data,
        )
        .await
        .ok();
    assert!(matches!(said.notes[..], [Said::Connected(_)]));
    assert!(said.out == data);
    server.await.unwrap();
    machine
        .call(Verb::Dial(Dial {
            port,
            unix: Bytes::new(),
        }))
        .await
        .fails(Failure::NotFound);
    machine
        .call(Verb::Dial(Dial {
            port: 0,
            unix: Bytes::new(),
        }))
        .await
        .fails(Failure::Invalid);
    machine
        .call(Verb::Dial(Dial {
            port: 70_000,
            unix: Bytes::new(),
        }))
        .await
        .fails(Failure::Invalid);
}

#[tokio::test]
async fn ipv6_is_tried_too() {
    let machine = Machine::start().await;
    let Ok(listener) = TcpListener::bind("[::1]:0").await else {
        eprintln!("skipped: no IPv6 loopback");
        return;
    };
    let port = u32::from(listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        listener
            .accept()
            .await
            .unwrap()
            .0
            .write_all(b"six")
            .await
            .unwrap()
    });
    let said = machine
        .call_with(
            Verb::Dial(Dial {
                port,
                unix: Bytes::new(),
            }),
            b"",
        )
        .await
        .ok();
    assert_eq!(said.out, b"six");
    server.await.unwrap();
}

#[tokio::test]
async fn a_unix_socket_is_dialled_below_the_root() {
    let machine = Machine::start().await;
    let listener = UnixListener::bind(machine.file("socket")).unwrap();
    let server = tokio::spawn(async move {
        listener
            .accept()
            .await
            .unwrap()
            .0
            .write_all(b"hello")
            .await
            .unwrap()
    });
    let dial = |name: &str| {
        Verb::Dial(Dial {
            port: 0,
            unix: path(name),
        })
    };
    assert_eq!(
        machine.call_with(dial("/socket"), b"").await.ok().out,
        b"hello"
    );
    server.await.unwrap();
    machine
        .call(dial("/../link"))
        .await
        .fails(Failure::NotFound);
    machine.call(dial("relative")).await.fails(Failure::Invalid);
}

#[tokio::test]
async fn a_peer_that_does_not_read_does_not_hide_a_reset() {
    let machine = Machine::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = u32::from(listener.local_addr().unwrap().port());
    let stream = machine
        .open(Verb::Dial(Dial {
            port,
            unix: Bytes::new(),
        }))
        .await;
    let (mut peer, _) = listener.accept().await.unwrap();
    let sender = stream.tx.clone();
    let flood = tokio::spawn(async move {
        let mut sent = 0u64;
        while sender.data(0, Bytes::from(vec![0; 65_536])).await.is_ok() {
            sent += 65_536;
        }
        sent
    });
    // Other streams continue while this one is blocked.
    for _ in 0..20 {
        machine.call(Verb::Ping(Ping {})).await.ok();
    }
    stream.tx.reset();
    drop(stream);
    flood.await.unwrap();
    // The peer's connection is closed, whatever it has read so far.
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, peer.read_to_end(&mut rest))
        .await
        .expect("the guest hangs up");
}

#[tokio::test]
async fn listening_ports_are_found_with_their_process() {
    let machine = Machine::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = u32::from(listener.local_addr().unwrap().port());
    let said = machine.call(Verb::ListPorts(ListPorts {})).await.ok();
    let Some(Said::Ports(ports)) = said.notes.last() else {
        panic!()
    };
    let found = ports.ports.iter().find(|found| found.port == port).unwrap();
    assert_eq!(
        (found.address.as_str(), found.pid),
        ("127.0.0.1", std::process::id())
    );
    assert!(!found.process.is_empty());
}

#[tokio::test]
async fn numbers_are_plausible() {
    let machine = Machine::start().await;
    let said = machine.call(Verb::Metrics(MetricsRequest {})).await.ok();
    let Some(Said::Metrics(metrics)) = said.notes.last() else {
        panic!()
    };
    assert!(metrics.cpus >= 1 && metrics.cpu_us > 0);
    assert!(
        metrics.memory_used_bytes > 0 && metrics.memory_used_bytes <= metrics.memory_total_bytes
    );
    assert!(metrics.disk_used_bytes <= metrics.disk_total_bytes);
    assert!(metrics.processes >= 2 && metrics.guest_rss_bytes > 0);
}

#[tokio::test]
async fn init_checks_everything_before_it_changes_anything() {
    let machine = Machine::start().await;
    let good = || Init {
        file_root: bytes_of(&machine.root()),
        ..Init::default()
    };
    std::fs::write(machine.file("here"), "").unwrap();
    let bad = [
        Init {
            file_root: path("/no/such/root"),
            ..good()
        },
        Init {
            file_root: path("relative"),
            ..good()
        },
        Init {
            default_user: "no-such-user".into(),
            ..good()
        },
        Init {
            default_cwd: path("relative"),
            ..good()
        },
        Init {
            env: [("A=B".to_string(), String::new())].into(),
            ..good()
        },
    ];
    for init in bad {
        assert_ne!(
            machine.call(Verb::Init(init)).await.failure(),
            Failure::None
        );
    }
    machine
        .call(Verb::Stat(Stat {
            path: path("/here"),
            follow: false,
            ..Default::default()
        }))
        .await
        .ok();
    let init = Init {
        entropy: Bytes::from_static(b"randomness"),
        hostname: "ignored-outside-of-a-machine".into(),
        ..good()
    };
    machine.call(Verb::Init(init)).await.ok();
    machine
        .call(Verb::Reseed(Reseed {
            entropy: Bytes::from_static(b"more"),
        }))
        .await
        .ok();
}

#[tokio::test]
async fn malformed_requests_are_answered() {
    let machine = Machine::start().await;
    for request in [
        &b""[..],
        b"\xff\xff\xff\xff",
        b"\x0a\xff\x01",
        b"\xfa\x7f\x00",
        &[0x0a; 1000],
    ] {
        let stream = machine
            .link
            .open(Bytes::copy_from_slice(request))
            .await
            .unwrap();
        let kind = finish(stream).await.failure();
        assert!(
            matches!(kind, Failure::Invalid | Failure::Unsupported),
            "{kind:?}"
        );
    }
    machine.call(Verb::Ping(Ping {})).await.ok();
}

#[tokio::test]
async fn noise_on_a_connection_hurts_nobody() {
    let machine = Machine::start().await;
    let mut noise = tokio::net::UnixStream::connect(machine.place.path().join("link"))
        .await
        .unwrap();
    noise.write_all(&[0x4d; 100_000]).await.unwrap();
    noise
        .write_all(b"MOTULINKH\x01\0\0\0\x01\0\0\x000123456789abcdef")
        .await
        .unwrap();
    noise.write_all(&[0xff; 100_000]).await.unwrap_or_default();
    machine.call(Verb::Ping(Ping {})).await.ok();
}

#[tokio::test]
async fn a_shutdown_ends_everything_with_grace() {
    let machine = Machine::start().await;
    let flag = machine.file("flag");
    let script = format!(
        "trap 'echo bye > {}; exit 0' TERM; echo up; while :; do sleep 0.01; done",
        flag.display()
    );
    let mut polite = machine.open(Verb::Start(sh(&script))).await;
    read_until(&mut polite, "up").await;
    let mut stubborn = machine
        .open(Verb::Start(sh(
            "trap '' TERM; echo up; setsid sleep 1000 & sleep 1000",
        )))
        .await;
    let pid = match next(&mut stubborn).await {
        Next::Note(Said::Started(started)) => started.pid,
        other => panic!("{other:?}"),
    };
    read_until(&mut stubborn, "up").await;
    machine
        .call(Verb::Shutdown(Shutdown { grace_ms: 500 }))
        .await
        .ok();
    assert_eq!(std::fs::read(&flag).unwrap(), b"bye\n");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    machine.link.closed().await;
}

#[tokio::test]
async fn many_processes_at_once_are_all_reported() {
    let machine = Machine::start().await;
    let mut streams = Vec::new();
    for number in 0..100 {
        streams.push((
            number,
            machine
                .open(Verb::Start(sh(&format!(
                    "sleep 0.05; echo {number}; exit {number}"
                ))))
                .await,
        ));
    }
    for (number, stream) in streams {
        let said = finish(stream).await.ok();
        assert_eq!(said.exited().code, number);
        assert_eq!(said.out, format!("{number}\n").into_bytes());
    }
}

/// Prints the duration of a start; the target is about a millisecond for a release build.
#[tokio::test]
async fn a_start_is_quick() {
    let machine = Machine::start().await;
    machine.call(Verb::Start(argv(&["/bin/true"]))).await.ok();
    let begin = std::time::Instant::now();
    for _ in 0..50 {
        let mut stream = machine.open(Verb::Start(argv(&["/bin/true"]))).await;
        while !matches!(next(&mut stream).await, Next::End(_)) {}
    }
    let each = begin.elapsed() / 50;
    eprintln!("start to exit: {each:?} (channel {CHANNEL_OUT})");
    assert!(each < std::time::Duration::from_millis(200));
}

#[tokio::test]
async fn as_init_it_reaps_hides_itself_and_takes_everybody_along() {
    let Some(machine) = Machine::start_as_init().await else {
        eprintln!("skipped: no pid namespaces here");
        return;
    };
    let init = Init {
        file_root: bytes_of(&machine.root()),
        hostname: "island".into(),
        ..Init::default()
    };
    machine.call(Verb::Init(init)).await.ok();
    assert_eq!(
        machine
            .shell("cat /proc/sys/kernel/hostname")
            .await
            .ok()
            .out,
        b"island\n"
    );
    // An unprivileged program learns nothing about init.
    let start = Start {
        user: "12345:12345".into(),
        ..sh("cat /proc/1/environ; ls /proc/1/fd; kill -9 1; echo $?")
    };
    let said = machine.call(Verb::Start(start)).await.ok();
    assert_eq!(said.out, b"1\n", "{}", String::from_utf8_lossy(&said.err));
    let mut stubborn = machine
        .open(Verb::Start(sh(
            "trap '' TERM; echo up; (setsid sleep 1000 &); sleep 1000",
        )))
        .await;
    read_until(&mut stubborn, "up").await;
    machine
        .call(Verb::Shutdown(Shutdown { grace_ms: 100 }))
        .await
        .ok();
    let said = finish(stubborn).await.ok();
    assert_eq!(said.exited().code, 137);
    machine.link.closed().await;
}
