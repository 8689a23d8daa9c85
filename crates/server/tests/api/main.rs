//! The server and the client, over a real socket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

/// Makes a call: what is sent reaches the service, and what it answers comes back.
macro_rules! verb {
    ($world:ident . $verb:ident ( $($argument:expr),* ) of $call:ident gets $got:tt, answers $answer:expr) => {{
        let answer = &$answer;
        $world.recorder.always::<motu_core::verb::$call>(answer.clone());
        let came = within($world.client.$verb($($argument),*)).await.unwrap();
        assert_eq!(&came, answer);
        assert_eq!($world.called(), (stringify!($verb), json!($got)));
    }};
}

mod document;
mod files;
mod leaving;
mod live;
mod problems;
mod raw;
mod sandboxes;
mod terminals;
mod workspaces;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use motu_api::Client;
use motu_api::client::SocketAt;
use motu_core::collect::Collector;
use motu_core::exec::*;
use motu_core::files::*;
use motu_core::sandbox::Sandbox;
use motu_core::verb::{self, Recorder};
use motu_core::{Error, ErrorKind, Program, SandboxId, Service, hint};
use motu_gate::Gate;
use motu_server::{Activity, serve};
use motu_testkit::answers::{self, Sessions};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

struct World {
    recorder: Recorder,
    sessions: Sessions,
    client: Client,
    activity: Activity,
    socket: PathBuf,
    _home: tempfile::TempDir,
}

fn world() -> World {
    world_until(std::future::pending()).0
}

/// A world that is served until it is told to stop.
fn world_until(stop: impl Future<Output = ()> + Send + 'static) -> (World, JoinHandle<()>) {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("daemon.sock");
    let listener = motu_api::socket::listen(&socket).unwrap();
    let (recorder, sessions) = (recorder(), Sessions::default());
    sessions.tell(&recorder);
    let activity = Activity::default();
    let gate = Gate::new(Arc::new(recorder.clone()));
    let server = tokio::spawn(serve(gate, listener, activity.clone(), stop));
    let world = World {
        recorder,
        sessions,
        client: Client::new(SocketAt(socket.clone())),
        activity,
        socket,
        _home: home,
    };
    (world, server)
}

/// Knows its version, by which clients learn that the daemon lives.
fn recorder() -> Recorder {
    let recorder = Recorder::default();
    recorder.always::<verb::VersionOf>(answers::version());
    recorder
}

/// No sandbox is `missing`.
fn found(call: verb::GetSandbox) -> motu_core::Result<Sandbox> {
    match call.id.as_str() {
        "missing" => Err(Error::not_found("no sandbox missing")
            .hint(hint![hint::verb("list_sandboxes"), " lists them"])),
        _ => Ok(answers::sandbox(&call.id)),
    }
}

impl World {
    /// The verb that was called since the last time, and with what.
    fn called(&self) -> (&'static str, serde_json::Value) {
        answers::called(&self.recorder)
    }

    /// Sends raw HTTP and reads the answer to its end.
    async fn raw(&self, head: &str, body: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        let request = format!(
            "{head}\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

fn id() -> SandboxId {
    SandboxId::parse("sb-a").unwrap()
}

fn path(text: &str) -> GuestPath {
    GuestPath::new(text.as_bytes().to_vec()).unwrap()
}

fn exec(words: &[&str]) -> ExecRequest {
    ExecRequest::from(Program::argv(words.iter().copied()))
}

fn content(text: &'static str) -> ByteStream {
    stream::iter([Ok(Bytes::from_static(text.as_bytes()))]).boxed()
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), what)
        .await
        .expect("took too long")
}

#[tokio::test]
async fn a_one_shot_streams_and_ends() {
    let world = world();
    let request = RunRequest {
        exec: exec(&["both"]),
        ..RunRequest::default()
    };
    let mut collector = Collector::new(None).unwrap();
    let session = world.client.run(request).await.unwrap();
    collector.add_all(session).await.unwrap();
    let result = collector.finish().unwrap();
    assert_eq!((result.exit_code, result.stdout.as_str()), (3, "out"));
    assert_eq!(result.stderr_base64.as_deref(), Some("ZXJy/w=="));
}

#[tokio::test]
async fn a_one_shot_without_a_stream_is_one_json_value() {
    let world = world();
    let body = r#"{"sandbox":{"environment":"debian:12"},"exec":{"command":["both"],"max_output_bytes":2}}"#;
    let answer = world.raw("POST /v1/run HTTP/1.1", body).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("motu-api: 1\r\n"), "{answer}");
    assert!(answer.contains(r#""stdout":"ou""#), "{answer}");
    assert!(answer.contains(r#""truncated":true"#), "{answer}");
}

#[tokio::test]
async fn input_resizes_and_signals_reach_the_command() {
    let world = world();
    let mut session = world
        .client
        .exec_stream(&id(), exec(&["cat"]))
        .await
        .unwrap();
    assert!(matches!(
        session.events.next().await,
        Some(Ok(ExecEvent::Started(_)))
    ));
    // Longer than one frame, so that it is cut and put together again.
    let long = Bytes::from(vec![7u8; 3 << 20]);
    session
        .input
        .send(ExecInput::Stdin(long.clone()))
        .await
        .unwrap();
    let mut echoed = Vec::new();
    while echoed.len() < long.len() {
        match session.events.next().await.unwrap().unwrap() {
            ExecEvent::Stdout(bytes) => echoed.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
    assert!(echoed == long);
    let size = TtySize { cols: 80, rows: 24 };
    session.input.send(ExecInput::Resize(size)).await.unwrap();
    let event = session.events.next().await.unwrap().unwrap();
    assert_eq!(event, ExecEvent::Stdout("80x24\n".into()));
    session.input.send(ExecInput::Signal(15)).await.unwrap();
    match session.events.next().await.unwrap().unwrap() {
        ExecEvent::Exited(exited) => assert_eq!(exited.exit_code, 143),
        other => panic!("{other:?}"),
    }
    assert!(session.events.next().await.is_none());
}

#[tokio::test]
async fn the_end_of_the_request_closes_standard_input() {
    let world = world();
    let ExecSession {
        mut events, input, ..
    } = world
        .client
        .exec_stream(&id(), exec(&["cat"]))
        .await
        .unwrap();
    drop(input);
    let last = within(async {
        while let Some(Ok(event)) = events.next().await {
            if let ExecEvent::Exited(exited) = event {
                return Some(exited);
            }
        }
        None
    })
    .await;
    assert_eq!(last.unwrap().exit_code, 0);
}

#[tokio::test]
async fn a_session_that_breaks_says_why() {
    let world = world();
    let mut session = world
        .client
        .exec_stream(&id(), exec(&["fail"]))
        .await
        .unwrap();
    session.events.next().await.unwrap().unwrap();
    let error = session.events.next().await.unwrap().unwrap_err();
    assert_eq!(error, Error::transport("the guest is gone"));
    assert!(session.events.next().await.is_none());
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_work() {
    let world = world();
    let mut session = world
        .client
        .exec_stream(&id(), exec(&["sleep"]))
        .await
        .unwrap();
    session.events.next().await.unwrap().unwrap();
    drop(session);
    within(world.sessions.killed.notified()).await;
    within(world.activity.idle_for(Duration::ZERO)).await;

    // The same for a call that is still waiting for its one answer.
    let sessions = world.sessions.clone();
    let it = &world.recorder;
    it.on_with(move |_: verb::Exec, ()| sessions.forever());
    let id = id();
    let call = world.client.exec(&id, exec(&["sleep"]));
    assert!(
        tokio::time::timeout(Duration::from_millis(100), call)
            .await
            .is_err()
    );
    within(world.sessions.killed.notified()).await;
}

#[tokio::test]
async fn a_connection_is_used_again_and_replaced_when_it_is_gone() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("daemon.sock");
    let client = Client::new(SocketAt(socket.clone()));
    for _ in 0..3 {
        let listener = motu_api::socket::listen(&socket).unwrap();
        let activity = Activity::default();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let shutdown = async { drop(stopped.await) };
        let recorder = recorder();
        recorder.on(found);
        let gate = Gate::new(Arc::new(recorder));
        let server = tokio::spawn(serve(gate, listener, activity.clone(), shutdown));
        for _ in 0..5 {
            within(client.version()).await.unwrap();
            let missing = SandboxId::parse("missing").unwrap();
            within(client.get_sandbox(&missing)).await.unwrap_err();
        }
        assert_eq!(activity.ever(), 1);
        // Two at once need two, and both are kept.
        let (one, two) = tokio::join!(client.version(), client.version());
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(activity.open(), 2);
        stop.send(()).unwrap();
        within(server).await.unwrap();
        assert_eq!(activity.open(), 0);
    }
}

#[tokio::test]
async fn a_slow_reader_slows_the_command() {
    let world = world();
    let chunks = 4096;
    let flood = exec(&["flood", &chunks.to_string()]);
    let mut session = world.client.exec_stream(&id(), flood).await.unwrap();
    session.events.next().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let ahead = world.sessions.produced.load(Ordering::Relaxed);
    assert!(
        ahead < 200,
        "{ahead} of {chunks} chunks were produced for nobody"
    );
    let mut bytes = 0;
    while let Some(event) = within(session.events.next()).await {
        if let ExecEvent::Stdout(piece) = event.unwrap() {
            bytes += piece.len();
        }
    }
    assert_eq!(bytes, chunks * 64 * 1024);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gigabyte_of_output_arrives_whole() {
    let world = world();
    let chunks = 16 * 1024;
    let flood = exec(&["flood", &chunks.to_string()]);
    let mut session = world.client.exec_stream(&id(), flood).await.unwrap();
    let mut bytes = 0;
    while let Some(event) = session.events.next().await {
        if let ExecEvent::Stdout(piece) = event.unwrap() {
            bytes += piece.len();
        }
    }
    assert_eq!(bytes, chunks * 64 * 1024);
}

#[tokio::test]
async fn every_failure_has_the_same_shape() {
    let world = world();
    let it = &world.recorder;
    it.on(found);
    it.on(|_: verb::ResumeSandbox| Err(Error::conflict("it is not paused")));
    it.on(|_: verb::Examine| panic!("as asked"));
    let missing = SandboxId::parse("missing").unwrap();
    let error = world.client.get_sandbox(&missing).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert_eq!(
        error.hint.as_deref(),
        Some("`GET /v1/sandboxes` (list_sandboxes) lists them")
    );
    assert_eq!(error.next[0], hint::verb("list_sandboxes").into());

    let cases = [
        ("GET /v1/nowhere HTTP/1.1", "", "404", "not_found"),
        ("PATCH /v1/version HTTP/1.1", "", "405", "invalid"),
        ("POST /v1/sandboxes HTTP/1.1", "{", "400", "invalid"),
        (
            "POST /v1/sandboxes HTTP/1.1",
            r#"{"colour":1}"#,
            "400",
            "invalid",
        ),
        ("GET /v1/sandboxes/UPPER HTTP/1.1", "", "400", "invalid"),
        (
            "GET /v1/sandboxes/sb-a/files HTTP/1.1",
            "",
            "400",
            "invalid",
        ),
        (
            "GET /v1/sandboxes/sb-a/files?colour=1 HTTP/1.1",
            "",
            "400",
            "invalid",
        ),
        (
            "GET /v1/sandboxes/sb-a/ports/99999/dial HTTP/1.1",
            "",
            "400",
            "invalid",
        ),
        (
            "GET /v1/sandboxes/sb-a/ports/80/dial HTTP/1.1",
            "",
            "400",
            "invalid",
        ),
        ("GET /v1/run/ws HTTP/1.1", "", "400", "invalid"),
        (
            "POST /v1/sandboxes/sb-a/resume HTTP/1.1",
            "",
            "409",
            "conflict",
        ),
        ("GET /v1/doctor HTTP/1.1", "", "500", "internal"),
        (
            "POST /v1/sandboxes/sb-a/exec HTTP/1.1",
            r#"{"command":["x"],"colour":1}"#,
            "400",
            "invalid",
        ),
    ];
    for (head, body, status, kind) in cases {
        let answer = world.raw(head, body).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{head}: {answer}"
        );
        assert!(
            answer.contains(&format!(r#"{{"error":{{"kind":"{kind}""#)),
            "{head}: {answer}"
        );
        assert!(answer.contains("motu-api: 1\r\n"), "{head}: {answer}");
    }
    // The daemon lives on after a handler panicked.
    world.client.version().await.unwrap();
}

#[tokio::test]
async fn a_request_that_is_too_long_is_a_limit() {
    let world = world();
    let request = motu_core::sandbox::CreateSandbox {
        environment: "x".repeat(3 << 20),
        ..Default::default()
    };
    let error = world.client.create_sandbox(request).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Limit, "{error:?}");
}

#[tokio::test]
async fn broken_frames_end_the_session_with_an_error() {
    let world = world();
    for (body, message) in [
        (
            "\x00\x00\x00\x00\x02{}\x09\x00\x00\x00\x00",
            "unknown kind 9",
        ),
        ("\x01\x00\x00\x00\x02{}", "does not begin with a request"),
    ] {
        let body = body
            .replace("\x02{}", "\x14{\"command\":[\"sleep\"]}")
            .replace("\x14", "\x15");
        let head = "POST /v1/sandboxes/sb-a/exec HTTP/1.1\r\nAccept: application/vnd.motu.stream";
        let answer = within(world.raw(head, &body)).await;
        assert!(answer.contains(message), "{answer:?}");
    }
}

#[tokio::test]
async fn a_stop_serves_who_is_there_and_refuses_who_comes() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("daemon.sock");
    let listener = motu_api::socket::listen(&socket).unwrap();
    // Queued before anybody accepts.
    let early = UnixStream::connect(&socket).await.unwrap();
    let gate = Gate::new(Arc::new(recorder()));
    let server = motu_server::Server::new(gate, Activity::default());
    let stop = std::future::ready(());
    let late = server.clone().accept_until(listener, stop).await;
    assert!(late <= 1);
    assert!(UnixStream::connect(&socket).await.is_err());
    let (mut read, mut write) = early.into_split();
    write
        .write_all(b"GET /v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    read.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    within(server.finish()).await;
}

#[tokio::test]
async fn a_daemon_of_another_version_is_refused_with_a_next_step() {
    let world = world();
    let client = world.client.clone().expect_version("9.9.9");
    let error = client.version().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.hint.unwrap().contains("motu serve --stop"));
}
