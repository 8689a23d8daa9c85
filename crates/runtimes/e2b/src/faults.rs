//! Tests with faulty services and agents.
//!
//! Each test has its own service on loopback that does one thing wrong.

use crate::wire::envelope::sealed;
use crate::wire::event::{End, Happened};
use crate::wire::{Envd, Events, Run};
use crate::{E2b, Settings};
use motu_core::report::Health;
use motu_core::runtime::{Ask, MachineLimits, MachineSpec};
use motu_core::{Accel, Error, ErrorKind, Runtime as _, SandboxId, limits};
use motu_peer::{Address, Patience, PeerError};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The answer to a request with this head; empty: never answers.
type Script = Arc<dyn Fn(&str) -> Vec<u8> + Send + Sync>;

/// A scripted service that records its requests.
struct Service {
    url: String,
    heard: Arc<Mutex<Vec<String>>>,
    dir: TempDir,
}

impl Service {
    async fn start(script: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let script: Script = Arc::new(script);
        let noted = heard.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, script.clone(), noted.clone()));
            }
        });
        let dir = tempfile::tempdir().unwrap();
        Service { url, heard, dir }
    }

    fn waiting(&self, patience: Duration) -> E2b {
        let settings = Settings {
            api_url: self.url.clone(),
            sandbox_url: Some(self.url.clone()),
            ..Settings::default()
        };
        E2b::with(settings, all(patience)).unwrap()
    }

    /// With timeouts for a busy machine.
    fn runtime(&self) -> E2b {
        self.waiting(Duration::from_secs(20))
    }

    fn heard(&self, begins: &str) -> usize {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|line| line.starts_with(begins)).count()
    }

    /// Makes a machine, which must fail.
    async fn refused(&self) -> Error {
        self.runtime()
            .create(&spec(self.dir.path()))
            .await
            .unwrap_err()
    }

    fn agent(&self) -> Envd {
        let address = Address::parse("url", &self.url).unwrap();
        Envd::new(address, "one".into(), all(Duration::from_secs(20)))
    }

    /// Starts a command and collects its events.
    async fn run(&self) -> Result<Vec<Happened>, PeerError> {
        let (_, mut events): (u32, Events) = self.agent().start(&Run::default()).await?;
        let mut heard = Vec::new();
        loop {
            match events.next().await? {
                Happened::Over => return Ok(heard),
                said => heard.push(said),
            }
        }
    }
}

fn all(patience: Duration) -> Patience {
    Patience {
        connect: patience,
        call: patience,
        spawn: patience,
    }
}

/// Handles requests on one connection. An answer without a length ends it.
async fn answer(mut stream: TcpStream, script: Script, heard: Arc<Mutex<Vec<String>>>) {
    let mut read = Vec::new();
    loop {
        let end = read.windows(4).position(|four| four == b"\r\n\r\n");
        let wanted = end.map(|end| {
            let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            end + 4 + length.map_or(0, |length| length.parse::<usize>().unwrap())
        });
        match wanted {
            Some(wanted) if read.len() >= wanted => {
                let rest = read.split_off(wanted);
                let head = String::from_utf8_lossy(&read).into_owned();
                read = rest;
                heard.lock().unwrap().push(head.clone());
                let said = script(&head);
                if said.is_empty() {
                    return std::future::pending().await;
                }
                let head = &said[..said.len().min(100)];
                let keeps = head.windows(15).any(|part| part == b"content-length:");
                if stream.write_all(&said).await.is_err() || !keeps {
                    return;
                }
            }
            _ => {
                let mut piece = [0; 4096];
                match stream.read(&mut piece).await {
                    Ok(count) if count > 0 => read.extend_from_slice(&piece[..count]),
                    _ => return,
                }
            }
        }
    }
}

fn json(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

fn last(text: &str) -> Vec<u8> {
    let mut message = sealed(text.as_bytes()).to_vec();
    message[0] = 2;
    message
}

/// A stream of messages on the wire; it ends with the connection.
fn stream(messages: &[&[u8]]) -> Vec<u8> {
    let mut said = b"HTTP/1.1 200 x\r\ncontent-type: application/connect+json\r\n\r\n".to_vec();
    messages
        .iter()
        .for_each(|message| said.extend_from_slice(message));
    said
}

fn started() -> Vec<u8> {
    sealed(br#"{"event":{"start":{"pid":7}}}"#).to_vec()
}

/// The answer of a new machine about its directories.
fn places() -> Vec<u8> {
    stream(&[
        &started(),
        &sealed(br#"{"event":{"data":{"stdout":"L2hvbWUKL3RtcAo="}}}"#),
        &sealed(br#"{"event":{"end":{"exited":true,"status":"exit status 0"}}}"#),
        &last("{}"),
    ])
}

const MADE: &str = r#"{"sandboxID":"one","templateID":"t","clientID":"c","envdVersion":"0.6.13","envdAccessToken":"the-token-itself"}"#;

/// A service that works, except for one path.
fn except(path: &'static str, said: Vec<u8>) -> impl Fn(&str) -> Vec<u8> + Send + Sync {
    move |head| match head {
        head if head.starts_with(path) => said.clone(),
        head if head.starts_with("POST /v2/sandboxes ") => json(201, MADE),
        head if head.starts_with("GET /sandboxes/one") => json(200, r#"{"state":"running"}"#),
        head if head.starts_with("GET /v2/sandboxes") => json(200, r#"[{"sandboxID":"found"}]"#),
        head if head.starts_with("POST /process.Process/Start") => places(),
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
        environment: "base".into(),
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
async fn all_goes_well_and_nothing_is_left() {
    let service = Service::start(except("nowhere", Vec::new())).await;
    let runtime = service.runtime();
    let machine = runtime.create(&spec(service.dir.path())).await.unwrap();
    let around = runtime.surroundings(&machine);
    assert_eq!(around.workdir.as_deref(), Some("/home"));
    assert!(runtime.alive(&machine).await);
    let written = std::fs::read_to_string(service.dir.path().join("machine.json")).unwrap();
    let shown = format!("{written} {machine:?} {runtime:?}");
    assert!(!shown.contains("the-token-itself"), "{shown}");
    runtime.destroy(&machine).await.unwrap();
    assert_eq!(service.heard("DELETE /sandboxes/one"), 1);
    assert_eq!(std::fs::read_dir(service.dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_service_that_hangs_is_given_up_and_what_it_may_have_made_is_destroyed() {
    let service = Service::start(except("POST /v2/sandboxes ", Vec::new())).await;
    let runtime = service.waiting(Duration::from_secs(1));
    let error = runtime.create(&spec(service.dir.path())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    // The machine was searched by our name, and killed.
    assert_eq!(
        service.heard("GET /v2/sandboxes?metadata=motu_machine%3D"),
        1
    );
    assert_eq!(service.heard("DELETE /sandboxes/found"), 1);
    let checks = Service::start(|_| Vec::new()).await;
    let checks = checks.waiting(Duration::from_secs(1)).check().await;
    assert_eq!(checks[0].health, Health::Failed);
}

#[tokio::test]
async fn rubbish_is_no_answer() {
    for said in [
        &b"SSH-2.0-x\r\n"[..],
        b"HTTP/1.1 200 x\r\ncontent-length: 3\r\n\r\nhey",
        b"HTTP/1.1 201 x\r\ncontent-length: 16\r\n\r\n{\"sandboxID\":\"\"}",
        b"HTTP/1.1 201 x\r\ncontent-length: 20\r\n\r\n{\"sandboxID\":\"../x\"}",
        b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n6\r\n{\"id\":",
    ] {
        let service = Service::start(except("POST /v2/sandboxes ", said.to_vec())).await;
        let error = service.refused().await;
        assert_eq!(error.kind, ErrorKind::Transport, "{error}");
        assert_eq!(
            service.heard("POST /v2/sandboxes "),
            1,
            "it is not asked twice"
        );
    }
}

#[tokio::test]
async fn statuses_are_what_they_mean() {
    for (status, kind) in [
        (401, ErrorKind::Denied),
        (404, ErrorKind::NotFound),
        (429, ErrorKind::Limit),
        (503, ErrorKind::Unavailable),
        (500, ErrorKind::Unavailable),
        (400, ErrorKind::Invalid),
    ] {
        let said = json(
            status,
            &format!(r#"{{"code":{status},"message":"no\u0007"}}"#),
        );
        let service = Service::start(move |head: &str| match head.starts_with("POST") {
            true => said.clone(),
            false => json(404, ""),
        });
        let service = service.await;
        let error = service.refused().await;
        assert_eq!(error.kind, kind, "{status}: {error}");
        assert!(!error.message.contains('\u{7}'), "{error}");
        // The service refused: there is nothing to destroy or remember.
        assert_eq!(service.heard("DELETE"), 0);
        assert_eq!(std::fs::read_dir(service.dir.path()).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn an_answer_without_an_end_is_cut_off() {
    let mut endless = b"HTTP/1.1 200 x\r\n\r\n".to_vec();
    let most = limits::HTTP_ANSWER_BYTES.default as usize;
    endless.resize(most + 4096, b' ');
    let service = Service::start(except("POST /v2/sandboxes ", endless)).await;
    let error = service.refused().await;
    assert_eq!(error.kind, ErrorKind::Limit, "{error}");
}

#[tokio::test]
async fn a_machine_that_is_not_what_was_asked_for_does_not_stay() {
    let old = MADE.replace("0.6.13", "0.4.0");
    let open = r#"{"state":"running","allowInternetAccess":true}"#;
    let faults = [
        (
            "POST /process.Process/Start",
            json(500, "broken"),
            ErrorKind::Unavailable,
        ),
        (
            "POST /v2/sandboxes ",
            json(201, &old),
            ErrorKind::Unsupported,
        ),
        ("GET /sandboxes/one", json(200, open), ErrorKind::Denied),
    ];
    for (path, said, kind) in faults {
        let service = Service::start(except(path, said)).await;
        let error = service.refused().await;
        assert_eq!(error.kind, kind, "{error}");
        assert_eq!(service.heard("DELETE /sandboxes/one"), 1);
    }
}

#[tokio::test]
async fn only_a_service_that_says_so_has_lost_a_machine() {
    let said = Arc::new(Mutex::new(json(200, r#"{"state":"running"}"#)));
    let other = except("nowhere", Vec::new());
    let current = said.clone();
    let service = Service::start(
        move |head: &str| match head.starts_with("GET /sandboxes/one") {
            true => current.lock().unwrap().clone(),
            false => other(head),
        },
    );
    let service = service.await;
    let runtime = service.runtime();
    let machine = runtime.create(&spec(service.dir.path())).await.unwrap();
    for (answer, alive) in [
        (json(500, ""), true),
        (
            json(502, r#"{"message":"The sandbox was not found"}"#),
            true,
        ),
        (b"rubbish\r\n\r\n".to_vec(), true),
        (json(200, r#"{"state":"paused"}"#), true),
        (json(404, ""), false),
    ] {
        *said.lock().unwrap() = answer;
        assert_eq!(runtime.alive(&machine).await, alive);
    }
    assert!(runtime.ended(&machine).await.reason.contains("not_found"));
}

#[tokio::test]
async fn a_stream_is_whole_or_an_error() {
    let out = sealed(br#"{"event":{"data":{"stdout":"aGk="}}}"#).to_vec();
    let end = sealed(br#"{"event":{"end":{"exitCode":3}}}"#).to_vec();
    let whole = stream(&[&started(), &out, &end, &last("{}")]);
    let service = Service::start(except("POST /process", whole.clone())).await;
    let ended = Happened::Ended(End { code: 3, signal: 0 });
    assert_eq!(
        service.run().await.unwrap(),
        [Happened::Out("hi".into()), ended]
    );

    let too_long = (limits::E2B_MESSAGE_BYTES.default as u32 + 1).to_be_bytes();
    let too_long = [&[0][..], &too_long].concat();
    let broken = |error: &PeerError| matches!(error, PeerError::Broken { .. });
    let nonsense = |error: &PeerError| matches!(error, PeerError::Nonsense { .. });
    type Is<'a> = &'a dyn Fn(&PeerError) -> bool;
    let faults: [(&str, Vec<u8>, Is<'_>); 9] = [
        ("no end", stream(&[&started(), &out]), &broken),
        ("a torn message", whole[..whole.len() - 9].to_vec(), &broken),
        ("nothing at all", stream(&[]), &broken),
        ("no beginning", stream(&[&out]), &nonsense),
        (
            "compressed",
            stream(&[&started(), &[1, 0, 0, 0, 0]]),
            &nonsense,
        ),
        ("no JSON", stream(&[&started(), &sealed(b"[")]), &nonsense),
        (
            "no base64",
            stream(&[&started(), &sealed(br#"{"event":{"data":{"stdout":"?"}}}"#)]),
            &nonsense,
        ),
        ("too long", stream(&[&started(), &too_long]), &|error| {
            matches!(error, PeerError::TooLong { .. })
        }),
        (
            "a complaint",
            stream(&[&last(r#"{"error":{"code":"not_found","message":"no"}}"#)]),
            &|error| error.status() == Some(404),
        ),
    ];
    for (what, said, is) in faults {
        let service = Service::start(except("POST /process", said)).await;
        let error = service.run().await.unwrap_err();
        assert!(is(&error), "{what}: {error:?}");
    }
}

#[tokio::test]
async fn an_agent_that_says_nothing_is_given_up() {
    for silent in [Vec::new(), stream(&[])] {
        // The second one starts an answer and then hangs.
        let hangs = silent.is_empty();
        let service = Service::start(except("POST /process", silent)).await;
        let address = Address::parse("url", &service.url).unwrap();
        let agent = Envd::new(address, "one".into(), all(Duration::from_secs(1)));
        let error = agent.start(&Run::default()).await.unwrap_err();
        assert_eq!(matches!(error, PeerError::Slow { .. }), hangs, "{error:?}");
    }
}

#[tokio::test]
async fn a_key_is_sent_and_never_shown() {
    let service = Service::start(except("nowhere", Vec::new())).await;
    let file = service.dir.path().join("key");
    std::fs::write(&file, "the-secret-itself\n").unwrap();
    let settings = Settings {
        api_url: service.url.clone(),
        sandbox_url: Some(service.url.clone()),
        key_file: Some(file.clone()),
        ..Settings::default()
    };
    let runtime = E2b::new(settings).unwrap();
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
