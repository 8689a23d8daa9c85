//! Tests with faulty services.
//!
//! Each test has its own service on loopback that does one thing wrong.

mod tls;

use crate::{Http, Settings};
use motu_core::report::Health;
use motu_core::runtime::{Ask, MachineLimits, MachineSpec};
use motu_core::{Accel, Error, ErrorKind, Runtime as _, SandboxId};
use motu_peer::Patience;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The answer to a request with this head; empty: never answers.
type Script = Arc<dyn Fn(&str) -> Vec<u8> + Send + Sync>;

/// A scripted service that records its requests.
struct Service {
    url: String,
    heard: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    dir: TempDir,
}

impl Service {
    async fn start(script: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Service {
        Service::listen(script, None).await
    }

    async fn listen(
        script: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let connections: Arc<AtomicUsize> = Arc::default();
        let script: Script = Arc::new(script);
        tokio::spawn({
            let (heard, connections) = (heard.clone(), connections.clone());
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    connections.fetch_add(1, Ordering::SeqCst);
                    let (script, heard) = (script.clone(), heard.clone());
                    let tls = tls.clone();
                    tokio::spawn(async move {
                        match tls {
                            None => answer(stream, script, heard).await,
                            Some(tls) => {
                                if let Ok(stream) = tls.accept(stream).await {
                                    answer(stream, script, heard).await;
                                }
                            }
                        }
                    });
                }
            }
        });
        Service {
            url,
            heard,
            connections,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// With timeouts for a busy machine.
    fn runtime(&self) -> Http {
        self.waiting(Duration::from_secs(20))
    }

    fn waiting(&self, patience: Duration) -> Http {
        let settings = Settings {
            url: self.url.clone(),
            key_file: None,
            ca_file: None,
        };
        let patience = Patience {
            connect: patience,
            call: patience,
            spawn: patience,
        };
        Http::with(settings, patience).unwrap()
    }

    fn connected(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn heard(&self, begins: &str) -> usize {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|line| line.starts_with(begins)).count()
    }

    /// Creates a machine, which must fail soon.
    async fn refused(&self) -> Error {
        self.refused_by(self.runtime()).await
    }

    async fn refused_by(&self, runtime: Http) -> Error {
        let begun = Instant::now();
        let made = runtime.create(&spec(self.dir.path())).await;
        assert!(begun.elapsed() < Duration::from_secs(60));
        made.unwrap_err()
    }
}

/// Handles requests on one connection. An answer without a length ends it.
async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    script: Script,
    heard: Arc<Mutex<Vec<String>>>,
) {
    let mut read = Vec::new();
    loop {
        let end = read.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end else {
            let mut piece = [0; 4096];
            match stream.read(&mut piece).await {
                Ok(count) if count > 0 => read.extend_from_slice(&piece[..count]),
                _ => return,
            }
            continue;
        };
        let head = String::from_utf8_lossy(&read[..end]).into_owned();
        let length = head
            .lines()
            .filter_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            })
            .next()
            .unwrap_or(0usize);
        while read.len() < end + 4 + length {
            let mut piece = [0; 4096];
            match stream.read(&mut piece).await {
                Ok(count) if count > 0 => read.extend_from_slice(&piece[..count]),
                _ => return,
            }
        }
        read.drain(..end + 4 + length);
        heard.lock().unwrap().push(head.clone());
        let said = script(&head);
        if said.is_empty() {
            return std::future::pending().await;
        }
        let keeps = said[..said.len().min(100)]
            .windows(15)
            .any(|part| part.eq_ignore_ascii_case(b"content-length:"));
        if stream.write_all(&said).await.is_err() || !keeps {
            return;
        }
    }
}

fn json(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// A service that works, except for one path.
fn except(path: &'static str, said: Vec<u8>) -> impl Fn(&str) -> Vec<u8> + Send + Sync {
    move |head| match head {
        head if head.contains(path) => said.clone(),
        head if head.starts_with("GET /health") => {
            json(200, r#"{"id_prefix":"pv-","extensions":["spawn_id"]}"#)
        }
        head if head.starts_with("POST /spawn") => json(200, r#"{"id":"pv-one"}"#),
        head if head.starts_with("POST /exec") => {
            json(200, r#"{"exit_code":0,"stdout":"/work\n","stderr":""}"#)
        }
        head if head.starts_with("GET /status") => json(200, r#"{"state":"running"}"#),
        _ => json(204, ""),
    }
}

fn spec(dir: &Path) -> MachineSpec {
    let ask = |value| Ask {
        value,
        explicit: false,
    };
    MachineSpec {
        id: SandboxId::parse("sb-faulty").unwrap(),
        dir: dir.to_path_buf(),
        environment: "image".into(),
        root: "".into(),
        hostname: "sb-faulty".into(),
        wants_sudo: false,
        limits: MachineLimits {
            vcpu_count: ask(1),
            mem_mib: ask(64),
            disk_mib: ask(64),
            pids_max: ask(64),
            nofile: ask(64),
            io_mbps: Ask::NONE,
            iops: Ask::NONE,
        },
        accel: Accel::Auto,
        kept: None,
        network: None,
    }
}

#[tokio::test]
async fn all_goes_well_on_one_connection() {
    let service = Service::start(except("nowhere", Vec::new())).await;
    let runtime = service.runtime();
    let machine = runtime.create(&spec(service.dir.path())).await.unwrap();
    assert_eq!(
        runtime.surroundings(&machine).workdir.as_deref(),
        Some("/work")
    );
    assert!(runtime.alive(&machine).await);
    runtime.destroy(&machine).await.unwrap();
    assert_eq!(service.heard("DELETE /sandboxes/pv-one"), 1);
    assert_eq!(service.connected(), 1);
    assert_eq!(std::fs::read_dir(service.dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_service_that_hangs_is_given_up_and_what_it_may_have_made_is_destroyed() {
    let service = Service::start(except("POST /spawn", Vec::new())).await;
    let soon = Duration::from_secs(1);
    let error = service.refused_by(service.waiting(soon)).await;
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    // We chose the id, so it can be destroyed without an answer.
    assert_eq!(service.heard("DELETE /sandboxes/pv-"), 1);
    let silent = Service::start(|_| Vec::new()).await;
    let error = silent.refused_by(silent.waiting(soon)).await;
    assert_eq!(error.kind, ErrorKind::Timeout);
    let checks = silent.waiting(soon).check().await;
    assert_eq!(checks[0].health, Health::Failed);
}

#[tokio::test]
async fn rubbish_is_no_answer() {
    for said in [
        &b"SSH-2.0-x\r\n"[..],
        b"HTTP/1.1 200 x\r\ncontent-length: 3\r\n\r\nhey",
        b"HTTP/1.1 200 x\r\ncontent-length: 9\r\n\r\n{\"id\":\"\"}",
        b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n6\r\n{\"id\":",
        b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let service = Service::start(except("POST /spawn", said.to_vec())).await;
        let error = service.refused().await;
        assert_eq!(error.kind, ErrorKind::Transport, "{error}");
        assert_eq!(service.heard("POST /spawn"), 1, "it is not asked twice");
    }
}

#[tokio::test]
async fn an_answer_without_an_end_is_cut_off() {
    let mut endless = b"HTTP/1.1 200 x\r\n\r\n".to_vec();
    let most = motu_core::limits::HTTP_ANSWER_BYTES.default as usize;
    endless.resize(most + 4096, b' ');
    let service = Service::start(except("POST /spawn", endless)).await;
    let error = service.refused().await;
    assert_eq!(error.kind, ErrorKind::Limit, "{error}");
    assert!(error.message.contains("http_answer_bytes"), "{error}");
}

#[tokio::test]
async fn statuses_are_what_they_mean() {
    for (status, code, kind) in [
        (401, "", ErrorKind::Denied),
        (429, "", ErrorKind::Limit),
        (503, "", ErrorKind::Unavailable),
        (500, "", ErrorKind::Unavailable),
        (400, "IMAGE_NOT_FOUND", ErrorKind::NotFound),
        (400, "", ErrorKind::Invalid),
    ] {
        let body = format!(r#"{{"code":"{code}","message":"no\u0007"}}"#);
        let service = Service::start(except("POST /spawn", json(status, &body))).await;
        let error = service.refused().await;
        assert_eq!(error.kind, kind, "{status}: {error}");
        assert!(!error.message.contains('\u{7}'), "{error}");
        // The service refused: there is nothing to destroy or remember.
        assert_eq!(service.heard("DELETE"), 0);
        assert_eq!(std::fs::read_dir(service.dir.path()).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn a_machine_that_runs_nothing_does_not_stay() {
    let service = Service::start(except("POST /exec", json(500, "broken"))).await;
    let error = service.refused().await;
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert_eq!(service.heard("DELETE /sandboxes/pv-one"), 1);
}

#[tokio::test]
async fn only_a_service_that_says_so_has_lost_a_machine() {
    let said = Arc::new(Mutex::new(json(200, r#"{"state":""}"#)));
    let service = Service::start({
        let said = said.clone();
        move |head| match head.starts_with("GET /status") {
            true => said.lock().unwrap().clone(),
            false => except("nowhere", Vec::new())(head),
        }
    })
    .await;
    let runtime = service.runtime();
    let machine = runtime.create(&spec(service.dir.path())).await.unwrap();
    for (answer, alive) in [
        (json(500, ""), true),
        (json(503, ""), true),
        (b"rubbish\r\n\r\n".to_vec(), true),
        (json(200, r#"{"state":"failed"}"#), false),
        (json(404, ""), false),
        (json(410, ""), false),
    ] {
        *said.lock().unwrap() = answer;
        assert_eq!(runtime.alive(&machine).await, alive);
    }
    // A missing machine and a destroyed one have different reasons.
    *said.lock().unwrap() = json(404, "");
    assert!(runtime.ended(&machine).await.reason.contains("not_found"));
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_not_an_error() {
    // Chunked: by HTTP the connection stays open, but this service closes it.
    let running = r#"{"state":"running"}"#;
    let running = format!(
        "HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{running}\r\n0\r\n\r\n",
        running.len()
    );
    let service = Service::start(except("GET /status", running.into_bytes())).await;
    let runtime = service.runtime();
    let machine = runtime.create(&spec(service.dir.path())).await.unwrap();
    for _ in 0..20 {
        // Only an explicit answer means that it is not alive.
        assert!(runtime.alive(&machine).await);
    }
    let looks = service.heard("GET /status");
    assert!(looks >= 20, "{looks} of 20 looks were answered");
    assert!(service.connected() >= 20);
}

#[tokio::test]
async fn a_key_is_sent_and_never_shown() {
    let service = Service::start(except("nowhere", Vec::new())).await;
    let file = service.dir.path().join("key");
    std::fs::write(&file, "the-secret-itself\n").unwrap();
    let settings = Settings {
        url: service.url.clone(),
        key_file: Some(file.clone()),
        ca_file: None,
    };
    let runtime = Http::new(settings).unwrap();
    let shown = format!("{runtime:?} {:?}", runtime.check().await);
    assert!(!shown.contains("the-secret-itself"), "{shown}");
    let heard = service.heard.lock().unwrap().join("\n");
    assert!(heard.contains("x-api-key: the-secret-itself"), "{heard}");
    // The key is readable by others, which is reported.
    assert!(shown.contains("chmod 600"), "{shown}");
    std::fs::remove_file(&file).unwrap();
    let checks = runtime.check().await;
    assert_eq!(checks[0].health, Health::Failed, "{checks:?}");
}
