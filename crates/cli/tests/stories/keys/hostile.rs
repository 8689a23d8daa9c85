//! Callers that mean no good.

use motu_testkit::host::{Ask, Host};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Opens a connection that waits for half a minute at most.
fn connect(host: &Host) -> TcpStream {
    let stream = TcpStream::connect(host.address).unwrap();
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).unwrap();
    stream
}

/// What a connection says until its end.
fn heard(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn whoever_says_nothing_is_let_go() {
    let host = Host::configured("", "head_seconds = 1\n");
    for beginning in ["", "GET /v1/version HTT", "PRI", "PRI * HTTP/2.0\r\n"] {
        let begin = Instant::now();
        let mut stream = connect(&host);
        stream.write_all(beginning.as_bytes()).unwrap();
        let said = heard(stream);
        let took = begin.elapsed();
        assert!(!said.contains("200 OK"), "{beginning:?}: {said}");
        assert!(took < Duration::from_secs(25), "{beginning:?}: {took:?}");
    }
}

#[test]
fn whoever_says_nothing_within_tls_is_let_go() {
    let host = Host::configured("", "head_seconds = 1\ncertificate = \"self\"\n");
    let trusted = host.story.home().join("tls/self.pem");
    let mut roots = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_file(trusted).unwrap();
    roots.add(trusted).unwrap();
    for protocol in ["h2", "http/1.1"] {
        let provider = Arc::new(ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.into()];
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(session, connect(&host));
        let begin = Instant::now();
        let _ = stream.read_to_end(&mut Vec::new());
        assert_eq!(stream.conn.alpn_protocol(), Some(protocol.as_bytes()));
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(25), "{protocol}: {took:?}");
    }
    // Nor may the handshake last.
    let begin = Instant::now();
    assert_eq!(heard(connect(&host)), "");
    assert!(begin.elapsed() < Duration::from_secs(25));
}

#[test]
fn a_body_may_not_pause_for_long() {
    let host = Host::configured("", "body_seconds = 1\n");
    let key = host.key(&[]);
    let mut stream = connect(&host);
    let head = format!(
        "POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\
         Content-Length: 100\r\nConnection: close\r\n\r\n{{"
    );
    let begin = Instant::now();
    stream.write_all(head.as_bytes()).unwrap();
    let said = heard(stream);
    assert!(said.contains("listen_body_seconds"), "{said}");
    assert!(begin.elapsed() < Duration::from_secs(20));
}

/// How HTTP/2 begins: the preface, and settings that are those of everybody.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0motumotu";

/// Pings until the other side closes, or it is told to stop.
fn ping(mut stream: TcpStream, stop: &AtomicBool) {
    stream.set_nonblocking(true).unwrap();
    let mut begun = stream.write_all(HTTP2).is_ok();
    while begun && !stop.load(Ordering::Relaxed) {
        begun = stream.write_all(PING).is_ok();
        loop {
            match stream.read(&mut [0; 4096]) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn whoever_only_pings_is_let_go() {
    let host = Host::configured("", "head_seconds = 1\n");
    let begin = Instant::now();
    ping(connect(&host), &AtomicBool::new(false));
    let took = begin.elapsed();
    assert!(took > Duration::from_millis(900), "{took:?}");
    assert!(took < Duration::from_secs(25), "{took:?}");
}

#[test]
fn a_good_key_is_served_while_strangers_take_all_they_can_get() {
    let host = Host::configured("", "connections = 8\nstrangers = 128\nhead_seconds = 600\n");
    let key = host.key(&[]);
    // One that was there before stays, whatever comes.
    let mut kept = connect(&host);
    let ask = format!("GET /v1/version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n");
    let version = |stream: &mut TcpStream| {
        stream.write_all(ask.as_bytes()).unwrap();
        let mut bytes = vec![0; 64 * 1024];
        let length = stream.read(&mut bytes).unwrap();
        let said = String::from_utf8_lossy(&bytes[..length]).into_owned();
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    };
    version(&mut kept);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // More than one address has places for.
        for _ in 0..80 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if let Ok(stream) = TcpStream::connect(host.address) {
                        ping(stream, &stop);
                    }
                }
            });
        }
        // Those who have no key are refused, served or closed; nobody waits.
        let served = (0..20).filter(|_| host.call(&key, Ask::get("/v1/version")).status == 200);
        let served = served.count();
        version(&mut kept);
        stop.store(true, Ordering::Relaxed);
        assert!(
            served >= 18,
            "{served} of 20 calls with a good key were served"
        );
    });
    assert_eq!(host.story.motu(&["ps"]).code, 0);
}

#[test]
fn no_project_has_all_places() {
    let host = Host::configured("", "connections = 4\n");
    let (ours, theirs) = (
        host.key(&["--project", "acme"]),
        host.key(&["--project", "beta"]),
    );
    let held: Vec<TcpStream> = (0..3)
        .map(|_| {
            let mut stream = connect(&host);
            let ask = format!(
                "GET /v1/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\
                Authorization: Bearer {ours}\r\n\r\n"
            );
            stream.write_all(ask.as_bytes()).unwrap();
            let mut begin = [0; 12];
            stream.read_exact(&mut begin).unwrap();
            assert_eq!(&begin, b"HTTP/1.1 200");
            stream
        })
        .collect();
    let more = host.call(&ours, Ask::get("/v1/version"));
    assert_eq!(more.status, 429, "{more}");
    assert_eq!(more.json["error"]["details"]["limit"], "listen_connections");
    assert_eq!(host.call(&theirs, Ask::get("/v1/version")).status, 200);
    drop(held);
    let end = Instant::now() + Duration::from_secs(20);
    while host.call(&ours, Ask::get("/v1/version")).status != 200 {
        assert!(Instant::now() < end, "those who left still count");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn wrong_keys_are_in_the_audit_log_once_a_minute() {
    let host = Host::configured("", "");
    let wrong = format!("motu_aaaaaaaaaaaa_{}", "0".repeat(64));
    for key in ["", &wrong, "x", &wrong] {
        assert_eq!(host.call(key, Ask::get("/v1/version")).status, 401);
    }
    let end = Instant::now() + Duration::from_secs(20);
    let found = loop {
        let log = host.story.motu(&["audit", "list", "--failed", "--json"]);
        let log: serde_json::Value = serde_json::from_str(&log.stdout).unwrap();
        let entries = log["entries"].as_array().unwrap().iter();
        let found = entries.filter(|entry| entry["verb"] == "introduce");
        let found: Vec<_> = found.cloned().collect();
        if !found.is_empty() {
            break found;
        }
        assert!(Instant::now() < end, "nothing is in the log: {log}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["caller"]["who"], "address:127.0.0.1");
    assert_eq!(found[0]["outcome"], "unauthenticated");
    assert!(
        found[0]["time"].as_str().unwrap().ends_with('Z'),
        "{found:?}"
    );
    assert!(!found[0].to_string().contains("aaaaaaaaaaaa"));
    assert_eq!(host.story.motu(&["audit", "verify"]).code, 0);
}

#[test]
fn heads_and_bodies_are_bounded() {
    let host = Host::configured("", "");
    let key = host.key(&[]);
    let long = format!("X-Long: {}", "x".repeat(70_000));
    let answer = host.call(&key, Ask::get("/v1/version").header(&long));
    assert_eq!(answer.status, 431, "{answer}");
    let details = &answer.json["error"]["details"];
    assert_eq!(details["limit"], "listen_head_bytes");
    let long = format!("X-Long: {}", "x".repeat(1_000_000));
    let file = host.story.path().join("header");
    std::fs::write(&file, long).unwrap();
    let from_file = format!("@{}", file.display());
    let answer = host.call(&key, Ask::get("/v1/version").header(&from_file));
    assert_eq!(answer.status, 431, "{answer}");
    let body = vec![b' '; 3 * 1024 * 1024];
    let answer = host.call(&key, Ask::new("POST", "/v1/sandboxes").bytes(body));
    assert_eq!(answer.status, 429, "{answer}");
    assert_eq!(
        answer.json["error"]["details"]["limit"],
        "request_body_bytes"
    );
    // A body is not read of whoever is not known.
    let body = vec![b' '; 3 * 1024 * 1024];
    let answer = host.call("x", Ask::new("POST", "/v1/sandboxes").bytes(body));
    assert_eq!(answer.status, 401, "{answer}");
}

#[test]
fn pages_of_other_origins_get_nothing() {
    let host = Host::configured("", "");
    let key = host.key(&[]);
    let preflight = Ask::new("OPTIONS", "/v1/sandboxes")
        .header("Origin: https://evil.example")
        .header("Access-Control-Request-Method: POST");
    let answer = host.ask(preflight);
    assert_eq!(answer.status, 401, "{answer}");
    let asked = Ask::get("/v1/version").header("Origin: https://evil.example");
    let answer = host.call(&key, asked);
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[test]
fn two_keys_are_none() {
    let host = Host::configured("", "");
    let key = host.key(&[]);
    let two = Ask::get("/v1/version").header("Authorization: Bearer x");
    assert_eq!(host.call(&key, two).status, 401);
}
