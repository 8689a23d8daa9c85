//! The webhook: a receiver on loopback that fails, comes back, and counts.

use crate::events::listener::{events, kinds, until};
use crate::events::{done, kill_daemon, made};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use motu_testkit::story::Story;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

const SECRET: &str = "0123456789abcdef0123";

/// One request.
struct Sent {
    taken: bool,
    event: Value,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

type Arrived = Arc<Mutex<Vec<Sent>>>;

/// A service that answers with a status of the test's choice.
struct Receiver {
    url: String,
    status: Arc<AtomicU16>,
    arrived: Arrived,
}

impl Receiver {
    fn new(status: u16) -> Receiver {
        Receiver::with(status, None)
    }

    /// One that speaks TLS, if it has a certificate.
    fn with(status: u16, tls: Option<Arc<ServerConfig>>) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}/hook", listener.local_addr().unwrap());
        let (status, arrived) = (Arc::new(AtomicU16::new(status)), Arrived::default());
        let (answer, all) = (status.clone(), arrived.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(tls) = &tls else {
                    take(stream, &answer, &all);
                    continue;
                };
                let mut session = ServerConnection::new(tls.clone()).unwrap();
                // Whoever does not believe the certificate leaves in the middle.
                if session.complete_io(&mut stream).is_ok() && !session.is_handshaking() {
                    take(StreamOwned::new(session, stream), &answer, &all);
                }
            }
        });
        Receiver {
            url,
            status,
            arrived,
        }
    }

    fn answers(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// How often something was refused.
    fn refused(&self) -> usize {
        let arrived = self.arrived.lock().unwrap();
        arrived.iter().filter(|sent| !sent.taken).count()
    }

    /// The events that were taken, each once, in the order in which they came.
    fn taken(&self) -> Vec<Value> {
        let arrived = self.arrived.lock().unwrap();
        let taken = arrived.iter().filter(|sent| sent.taken);
        let mut taken: Vec<Value> = taken.map(|sent| sent.event.clone()).collect();
        // At least once: the last one before a kill may come again, at once.
        taken.dedup();
        taken
    }
}

/// Takes one request.
fn take(stream: impl Read + Write, status: &AtomicU16, all: &Arrived) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    // A client that finds out late that it does not believe the certificate says nothing.
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    assert_eq!(line, "POST /hook HTTP/1.1\r\n");
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_lowercase(), value.to_string()),
            None => break,
        };
    }
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let event: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(headers["webhook-id"], event["sequence"].to_string());
    assert_eq!(headers["content-type"], "application/json");
    let status = status.load(Ordering::SeqCst);
    all.lock().unwrap().push(Sent {
        taken: status == 200,
        event,
        headers,
        body,
    });
    let answer =
        format!("HTTP/1.1 {status} Said\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let _ = reader.get_mut().write_all(answer.as_bytes());
}

/// The signature as a program that is not ours makes it.
fn signature(sent: &Sent) -> String {
    let headers = &sent.headers;
    let script = "import base64, hashlib, hmac, sys\n\
                  head, secret = sys.argv[1].encode(), sys.argv[2].encode()\n\
                  tag = hmac.new(secret, head + sys.stdin.buffer.read(), hashlib.sha256).digest()\n\
                  print('v1,' + base64.b64encode(tag).decode(), end='')";
    let head = format!(
        "{}.{}.",
        headers["webhook-id"], headers["webhook-timestamp"]
    );
    let mut python = motu_needs::command("python3")
        .args(["-c", script, &head, SECRET])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(&sent.body).unwrap();
    String::from_utf8(python.wait_with_output().unwrap().stdout).unwrap()
}

fn hooked(receiver: &Receiver, more: &str) -> Story {
    let story = Story::new();
    let secret = story.path().join("hook");
    std::fs::write(&secret, SECRET).unwrap();
    story.configure(&format!(
        "runtime = \"container\"\n[webhook]\nurl = \"{}\"\nsecret_file = \"{}\"\n{more}",
        receiver.url,
        secret.display()
    ));
    done(&story, &["env", "pull", "busybox"]);
    story
}

#[test]
fn a_webhook_has_every_event_in_order_after_refusals_and_a_kill() {
    let receiver = Receiver::new(500);
    let story = hooked(&receiver, "");
    until(|| (receiver.refused() >= 2).then_some(()));
    assert!(receiver.taken().is_empty());
    // It is taken when the service is well again.
    receiver.answers(200);
    let id = made(&story, &[]);
    until(|| {
        kinds(&receiver.taken())
            .contains(&"sandbox.created".to_string())
            .then_some(())
    });
    // Refused again, and the daemon is killed while an event waits.
    receiver.answers(503);
    done(&story, &["rm", &id]);
    let before = receiver.refused();
    until(|| (receiver.refused() > before).then_some(()));
    kill_daemon(&story);
    receiver.answers(200);
    let all = events(&story, &[]);
    let taken = until(|| {
        let taken = receiver.taken();
        (taken.last() == all.last()).then_some(taken)
    });
    assert_eq!(taken, all, "every event once, in order");
    for sent in receiver.arrived.lock().unwrap().iter().take(4) {
        assert_eq!(sent.headers["webhook-signature"], signature(sent));
    }
}

#[test]
fn a_webhook_hears_the_kinds_it_wants_and_passes_over_what_nobody_takes() {
    let receiver = Receiver::new(400);
    let story = hooked(&receiver, "kinds = [\"sandbox.created\"]\ntries = 2\n");
    let first = made(&story, &[]);
    until(|| (receiver.refused() == 2).then_some(()));
    receiver.answers(200);
    let second = made(&story, &[]);
    let taken = until(|| Some(receiver.taken()).filter(|taken| !taken.is_empty()));
    assert_eq!(kinds(&taken), ["sandbox.created"]);
    assert_eq!(taken[0]["id"], second.as_str());
    assert_ne!(first, second);
    let log = std::fs::read_to_string(story.home().join("daemon.log")).unwrap();
    assert!(log.contains("passed over"), "{log}");
    assert!(!log.contains(SECRET));
}

/// Somebody who signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        Authority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn file(&self, path: &Path) -> String {
        let text = BASE64.encode(self.0.der());
        let text = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        std::fs::write(path, text).unwrap();
        format!("ca_file = \"{}\"\n", path.display())
    }

    /// The side of a server with this name.
    fn server(&self, name: &str) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_string()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key);
        Arc::new(config.unwrap())
    }
}

#[test]
fn a_webhook_over_tls_is_believed_by_its_authority_alone() {
    let authority = Authority::new();
    let receiver = Receiver::with(200, Some(authority.server("127.0.0.1")));
    let dir = tempfile::tempdir().unwrap();
    let ca = authority.file(&dir.path().join("ca.pem"));
    let story = hooked(&receiver, &ca);
    let id = made(&story, &[]);
    let taken = until(|| {
        let taken = receiver.taken();
        kinds(&taken)
            .contains(&"sandbox.created".to_string())
            .then_some(taken)
    });
    assert_eq!(taken.last().unwrap()["id"], id.as_str());
    let sent = receiver.arrived.lock().unwrap();
    assert_eq!(sent[0].headers["webhook-signature"], signature(&sent[0]));
    drop(sent);
    // Of another authority, and with another name: no event is told to either.
    let stranger = Authority::new();
    for server in [
        stranger.server("127.0.0.1"),
        authority.server("hooks.example"),
    ] {
        let receiver = Receiver::with(200, Some(server));
        let story = hooked(&receiver, &ca);
        made(&story, &[]);
        until(|| {
            let log = std::fs::read_to_string(story.home().join("daemon.log")).unwrap();
            log.contains("the webhook has not taken an event")
                .then_some(())
        });
        assert!(receiver.arrived.lock().unwrap().is_empty());
    }
}

#[test]
fn a_webhook_that_cannot_be_is_said_when_the_daemon_starts() {
    let story = Story::new();
    for (config, word) in [
        ("url = \"http://127.0.0.1:9/\"", "secret_file"),
        (
            "url = \"http://10.0.0.1/\"\nsecret_file = \"/dev/null\"",
            "https",
        ),
        (
            "url = \"https://a.example/\"\nsecret_file = \"/dev/null\"",
            "16 bytes",
        ),
        (
            "url = \"https://a.example/\"\nsecret_file = \"/nowhere\"",
            "/nowhere",
        ),
    ] {
        story.configure(&format!("[webhook]\n{config}\n"));
        let told = story.motu(&["serve"]);
        assert_ne!(told.code, 0, "{config}: {told}");
        assert!(told.stderr.contains(word), "{config}: {told}");
    }
}
