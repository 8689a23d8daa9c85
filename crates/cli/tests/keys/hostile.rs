//! Callers that mean no good.

use crate::host::{Ask, Host};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
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

#[test]
fn connections_are_counted() {
    let host = Host::configured("", "connections = 3\nhead_seconds = 600\n");
    let held: Vec<TcpStream> = (0..3)
        .map(|_| {
            let mut stream = connect(&host);
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
                .unwrap();
            stream
        })
        .collect();
    // The fourth is closed without a word, and the local socket goes on.
    assert_eq!(heard(connect(&host)), "");
    assert_eq!(host.story.motu(&["ps"]).code, 0);
    drop(held);
    let end = Instant::now() + Duration::from_secs(20);
    while host.ask(Ask::get("/healthz")).status != 200 {
        assert!(Instant::now() < end, "those who left still count");
        std::thread::sleep(Duration::from_millis(20));
    }
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
