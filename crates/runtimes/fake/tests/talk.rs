//! A fake machine as a host sees it: the real link, from hello to outcome.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use bytes::Bytes;
use motu_core::runtime::{Ask, Machine, MachineLimits, MachineSpec};
use motu_core::{Error, ErrorKind, Runtime, SandboxId};
use motu_fake::Fake;
use motu_link::message::{
    Attach, Exited, Failure, Init, Note, Outcome, Request, Said, Selector, Signal, Start, Verb,
};
use motu_link::{Event, Link, Stream};
use prost::Message as _;
use std::sync::Arc;

fn spec(id: &str) -> MachineSpec {
    let ask = Ask {
        value: 1,
        explicit: false,
    };
    MachineSpec {
        id: SandboxId::parse(id).unwrap(),
        dir: "/nowhere".into(),
        environment: "test".into(),
        root: "/nowhere".into(),
        hostname: id.to_string(),
        wants_sudo: false,
        limits: MachineLimits {
            vcpu_count: ask,
            mem_mib: ask,
            disk_mib: ask,
            pids_max: ask,
            nofile: ask,
            io_mbps: Ask::NONE,
            iops: Ask::NONE,
        },
        accel: motu_core::Accel::Auto,
        kept: None,
        network: None,
    }
}

async fn link(fake: &Fake, machine: &Machine) -> Link {
    let connection = fake.connect(machine).await.unwrap();
    let mut io = tokio::io::join(connection.read, connection.write);
    motu_link::hello::host(&mut io, [7; 16]).await.unwrap();
    let (read, write) = io.into_inner();
    Link::start(read, write, false).0
}

async fn new() -> (Arc<Fake>, Machine, Link) {
    let fake = Fake::new();
    let machine = fake.create(&spec("one")).await.unwrap();
    let link = link(&fake, &machine).await;
    (fake, machine, link)
}

async fn ask(link: &Link, verb: Verb) -> Stream {
    let request = Bytes::from(Request::from(verb).encode_to_vec());
    link.open(request).await.unwrap()
}

#[derive(Debug, Default)]
struct Seen {
    out: Vec<u8>,
    err: Vec<u8>,
    pid: u32,
    exited: Option<Exited>,
    outcome: Outcome,
}

async fn finish(mut stream: Stream) -> Seen {
    let mut seen = Seen::default();
    loop {
        match stream.rx.recv().await.unwrap() {
            Event::Data { channel: 1, bytes } => seen.out.extend_from_slice(&bytes),
            Event::Data { bytes, .. } => seen.err.extend_from_slice(&bytes),
            Event::Message(bytes) => match Note::decode(bytes).unwrap().said.unwrap() {
                Said::Started(started) => seen.pid = started.pid,
                Said::Exited(exited) => seen.exited = Some(exited),
                _ => {}
            },
            Event::End(bytes) => {
                seen.outcome = Outcome::decode(bytes).unwrap();
                return seen;
            }
            Event::Eof => {}
            Event::Reset => panic!("reset"),
        }
    }
}

fn start(argv: &[&str]) -> Start {
    Start {
        argv: argv
            .iter()
            .map(|word| Bytes::copy_from_slice(word.as_bytes()))
            .collect(),
        follow: true,
        ..Start::default()
    }
}

async fn run(link: &Link, argv: &[&str]) -> Seen {
    finish(ask(link, Verb::Start(start(argv))).await).await
}

#[tokio::test]
async fn commands_print_and_exit() {
    let (_fake, _machine, link) = new().await;
    let seen = run(&link, &["echo", "$(id)", ";"]).await;
    assert_eq!(seen.out, b"$(id) ;\n");
    assert_eq!(seen.exited.unwrap().code, 0);
    let script = "echo out; echo err >&2; X=1 && true; exit 3";
    let seen = run(&link, &["sh", "-c", script]).await;
    assert_eq!(seen.out, b"out\n");
    assert_eq!(seen.err, b"err\nsh: X=1: not found\n");
    assert_eq!(seen.exited.unwrap().code, 3);
    let seen = run(&link, &["flood", "300001"]).await;
    assert_eq!(seen.out.len(), 300_001);
}

#[tokio::test]
async fn a_missing_program_cannot_run() {
    let (_fake, _machine, link) = new().await;
    let seen = run(&link, &["nothing"]).await;
    assert_eq!(seen.outcome.kind, Failure::CannotRun as i32);
    assert_eq!(seen.outcome.errno, 2);
}

#[tokio::test]
async fn a_timeout_ends_the_whole_tree() {
    let (_fake, _machine, link) = new().await;
    let request = Start {
        timeout_ms: 50,
        ..start(&["sh", "-c", "echo before; sleep 100 & sleep 100"])
    };
    let seen = finish(ask(&link, Verb::Start(request)).await).await;
    assert_eq!(seen.out, b"before\n");
    assert!(seen.exited.unwrap().timed_out);
    let signal = Signal {
        process: Some(Selector {
            pid: seen.pid,
            tag: String::new(),
        }),
        signal: 0,
        tree: true,
    };
    assert_eq!(
        finish(ask(&link, Verb::Signal(signal)).await).await.outcome,
        Outcome::ok()
    );
}

#[tokio::test]
async fn the_environment_comes_from_the_identity_and_the_request() {
    let (_fake, _machine, link) = new().await;
    let init = Init {
        env: [("A".to_string(), "1".to_string())].into(),
        default_cwd: Bytes::from_static(b"/workspace"),
        ..Init::default()
    };
    finish(ask(&link, Verb::Init(init)).await).await;
    let request = Start {
        env: [("B".to_string(), "2".to_string())].into(),
        ..start(&["sh", "-c", "echo $A$B; pwd"])
    };
    let seen = finish(ask(&link, Verb::Start(request)).await).await;
    assert_eq!(seen.out, b"12\n/workspace\n");
}

#[tokio::test]
async fn a_background_process_outlives_its_link() {
    let (fake, machine, link) = new().await;
    let request = Start {
        tag: "job".to_string(),
        follow: false,
        stdin: true,
        ..start(&["sh", "-c", "echo first; cat; echo last"])
    };
    finish(ask(&link, Verb::Start(request)).await).await;
    assert!(fake.cut_links(&machine.id));
    link.closed().await;
    let again = self::link(&fake, &machine).await;
    let attach = Attach {
        process: Some(Selector {
            pid: 0,
            tag: "job".to_string(),
        }),
        from_oldest: true,
        ..Attach::default()
    };
    let stream = ask(&again, Verb::Attach(attach)).await;
    stream
        .tx
        .data(0, Bytes::from_static(b"middle\n"))
        .await
        .unwrap();
    stream.tx.eof().await.unwrap();
    let seen = finish(stream).await;
    assert_eq!(seen.out, b"first\nmiddle\nlast\n");
}

#[tokio::test]
async fn the_knobs_turn() {
    let fake = Fake::new();
    fake.fail_next_create(Error::unavailable("not today"));
    let failed = fake.create(&spec("one")).await.unwrap_err();
    assert_eq!(failed.kind, ErrorKind::Unavailable);
    let stall = fake.stall_create();
    let making = {
        let fake = fake.clone();
        tokio::spawn(async move { fake.create(&spec("one")).await })
    };
    stall.reached().await;
    assert_eq!(fake.counts().live, 0);
    drop(stall);
    let machine = making.await.unwrap().unwrap();
    assert!(fake.alive(&machine).await);
    assert!(fake.kill(&machine.id));
    assert_eq!(fake.ended(&machine).await.reason, "killed by the test");
    assert!(!fake.alive(&machine).await);
    fake.destroy(&machine).await.unwrap();
    fake.destroy(&machine).await.unwrap();
    let counts = fake.counts();
    assert_eq!((counts.live, counts.creates, counts.destroys), (0, 2, 1));
}
