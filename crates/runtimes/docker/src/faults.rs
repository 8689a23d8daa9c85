//! Tests with engines that hang, die, lie or are something else altogether.
//!
//! Each is a socket with a few lines behind it. Calls to them end soon, with an error of the right
//! kind.

use crate::api::{Api, Patience};
use crate::machine::{self, Maker};
use crate::{Docker, Settings};
use motu_core::report::Health;
use motu_core::runtime::{Ask, MachineLimits, MachineSpec};
use motu_core::{Accel, Error, ErrorKind, Runtime, SandboxId};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

/// The timeouts for such an engine.
const SHORT: Patience = Patience {
    probe: Duration::from_millis(300),
    call: Duration::from_millis(300),
    import: Duration::from_millis(600),
};
/// The time limit of a test on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// A faulty behaviour.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Never answers.
    Hangs,
    /// Answers with something that is not HTTP.
    Rubbish,
    /// Answers with something that is not JSON.
    Page,
    /// Closes the connection in the middle of an answer.
    Dies,
    /// Closes the connection at once.
    Leaves,
    /// Never ends its answer.
    Floods,
    /// Answers, a byte at a time, for ever.
    Drips,
    /// Refuses.
    Refuses,
}

const ALL: [Fault; 8] = [
    Fault::Hangs,
    Fault::Rubbish,
    Fault::Page,
    Fault::Dies,
    Fault::Leaves,
    Fault::Floods,
    Fault::Drips,
    Fault::Refuses,
];

impl Fault {
    async fn answer(self, mut stream: UnixStream) -> std::io::Result<()> {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        match self {
            Fault::Hangs => std::future::pending().await,
            Fault::Rubbish => stream.write_all(b"\0\xff SSH-2.0-nonsense\r\n\r\n").await,
            Fault::Page => {
                let page = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>";
                stream.write_all(page).await
            }
            Fault::Dies => {
                let half = b"HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n{\"Id\":";
                stream.write_all(half).await
            }
            Fault::Leaves => Ok(()),
            Fault::Floods => {
                stream.write_all(head).await?;
                let piece = [b"10000\r\n".as_slice(), &[b' '; 65536], b"\r\n"].concat();
                loop {
                    stream.write_all(&piece).await?;
                }
            }
            Fault::Drips => {
                stream.write_all(head).await?;
                loop {
                    stream.write_all(b"1\r\n \r\n").await?;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            Fault::Refuses => {
                let body = br#"{"message":"no\nspace\u0007 left"}"#;
                let head = format!("HTTP/1.1 500 X\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(body).await
            }
        }
    }

    /// The expected error kinds.
    fn kinds(self) -> &'static [ErrorKind] {
        match self {
            Fault::Hangs | Fault::Drips => &[ErrorKind::Timeout],
            Fault::Rubbish | Fault::Page | Fault::Dies | Fault::Leaves => &[ErrorKind::Transport],
            // Whichever comes first on a busy machine.
            Fault::Floods => &[ErrorKind::Limit, ErrorKind::Timeout],
            Fault::Refuses => &[ErrorKind::Unavailable],
        }
    }
}

/// Serves a fault until it is dropped.
struct Engine {
    dir: TempDir,
    _tasks: tokio::task::JoinSet<()>,
}

impl Engine {
    fn with(fault: Fault) -> Engine {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("sock")).unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let mut calls = tokio::task::JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                calls.spawn(async move {
                    let mut head = [0; 1024];
                    let _ = stream.read(&mut head).await;
                    let _ = fault.answer(stream).await;
                });
            }
        });
        Engine { dir, _tasks: tasks }
    }

    fn api(&self) -> Api {
        let mut api = Api::new(&self.dir.path().join("sock"));
        api.patience = SHORT;
        api
    }
}

fn maker(home: &Path, socket: &Path) -> Maker {
    let mut maker = Maker::new(Settings {
        guest: bytes::Bytes::from_static(b"guest"),
        home: home.to_path_buf(),
        socket: Some(socket.to_path_buf()),
        runtime: None,
    });
    maker.patience = Some(SHORT);
    maker
}

fn spec(home: &Path) -> MachineSpec {
    let ask = |value| Ask {
        value,
        explicit: false,
    };
    let dir = home.join("machine");
    let root = home.join(format!("sha256-{}/root", "a".repeat(64)));
    for place in [&dir, &root] {
        std::fs::create_dir_all(place).unwrap();
    }
    MachineSpec {
        id: SandboxId::parse("sb-faulty").unwrap(),
        dir,
        environment: "test".into(),
        root,
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

fn told(fault: Fault, what: &str, error: impl Into<Error>, begun: Instant) {
    let error = error.into();
    assert!(
        fault.kinds().contains(&error.kind),
        "{fault:?} {what}: {error:?}"
    );
    assert!(!error.message.contains(['\n', '\u{7}']), "{error:?}");
    assert!(begun.elapsed() < SOON, "{fault:?} {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_a_faulty_engine_ends_with_a_typed_error() {
    for fault in ALL {
        let engine = Engine::with(fault);
        let (api, begun) = (engine.api(), Instant::now());
        told(fault, "ping", api.ping().await.unwrap_err(), begun);
        told(fault, "info", api.info().await.unwrap_err(), begun);
        told(fault, "images", api.images("x").await.unwrap_err(), begun);
        let body = serde_json::json!({ "Image": "x" });
        let made = api.create("x", &body).await;
        told(fault, "create", made.unwrap_err(), begun);
        told(fault, "look", api.inspect("x").await.unwrap_err(), begun);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_into_a_faulty_engine_ends_with_a_typed_error() {
    let root = tempfile::tempdir().unwrap();
    // More than the socket and the buffered pieces hold.
    std::fs::write(root.path().join("file"), vec![1u8; 16 << 20]).unwrap();
    for fault in ALL {
        let engine = Engine::with(fault);
        let (api, begun) = (engine.api(), Instant::now());
        let pieces = crate::archive::of(root.path()).unwrap();
        let error = Error::from(api.import("x", &[], pieces).await.unwrap_err());
        // If the engine answers before it has read everything, the broken connection may be noticed
        // first.
        let known = fault.kinds().contains(&error.kind) || error.kind == ErrorKind::Transport;
        assert!(known, "{fault:?}: {error:?}");
        assert!(begun.elapsed() < SOON, "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_of_a_faulty_engine_is_not_made_and_leaves_nothing() {
    for fault in ALL {
        let engine = Engine::with(fault);
        let home = tempfile::tempdir().unwrap();
        let maker = maker(home.path(), &engine.dir.path().join("sock"));
        let (spec, begun) = (spec(home.path()), Instant::now());
        let error = machine::create(&maker, &spec).await.unwrap_err();
        assert!(
            fault.kinds().contains(&error.kind) || error.kind == ErrorKind::Transport,
            "{fault:?}: {error:?}"
        );
        assert!(begun.elapsed() < SOON, "{fault:?}");
        // A failed cleanup stays recorded for the next sweep.
        let swept = machine::remove(&maker, &spec.id, &spec.dir, None).await;
        swept.unwrap();
        assert_eq!(std::fs::read_dir(&spec.dir).unwrap().count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_says_what_is_wrong_and_how_to_set_it_right() {
    for fault in ALL {
        let engine = Engine::with(fault);
        let home = tempfile::tempdir().unwrap();
        let maker = maker(home.path(), &engine.dir.path().join("sock"));
        let checks = crate::check::all(&maker).await;
        assert_eq!(checks[0].health, Health::Failed, "{fault:?}: {checks:?}");
        assert!(checks[0].fix.is_some(), "{fault:?}");
    }
    let home = tempfile::tempdir().unwrap();
    let docker = Docker::new(Settings {
        guest: bytes::Bytes::from_static(b"guest"),
        home: home.path().to_path_buf(),
        socket: Some(home.path().join("nobody.sock")),
        runtime: None,
    });
    let report = docker.report().await;
    assert!(!report.works && report.fix.is_some(), "{report:?}");
    // A check changes nothing.
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_not_there_is_unavailable() {
    let home = tempfile::tempdir().unwrap();
    let maker = maker(home.path(), &home.path().join("nobody.sock"));
    let spec = spec(home.path());
    let error = machine::create(&maker, &spec).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.hint.is_some());
}
