//! Processes that outlive the call that started them.

use crate::life::{Life, argv, eventually, hear, hear_until, refused, shell};
use motu_core::Signal;
use motu_core::exec::{
    AttachFrom, Background, ExecRequest, ExecSession, Process, Selector, SignalProcess,
};
use motu_core::sandbox::Sandbox;
use motu_core::{ErrorKind, Service as _};

fn tagged(tag: &str, request: ExecRequest) -> ExecRequest {
    ExecRequest {
        tag: Some(tag.to_string()),
        ..request
    }
}

/// Whether processes can outlive their call. If not, the request must be refused as unsupported.
async fn outlive(life: &Life) -> bool {
    if !life.lacks().await.background {
        return true;
    }
    let sandbox = life.create().await;
    let started = life
        .engine
        .exec_background(&sandbox.sandbox_id, argv(&["true"]))
        .await;
    refused(ErrorKind::Unsupported, started);
    false
}

async fn start(life: &Life, sandbox: &Sandbox, request: ExecRequest) -> Background {
    life.engine
        .exec_background(&sandbox.sandbox_id, request)
        .await
        .expect("a process starts")
}

async fn attach(
    life: &Life,
    sandbox: &Sandbox,
    process: Selector,
    from: AttachFrom,
) -> ExecSession {
    life.engine
        .attach(&sandbox.sandbox_id, &process, from.into())
        .await
        .expect("a process is found")
}

/// Waits until a process has ended; returns its entry in the list.
async fn ended(life: &Life, sandbox: &Sandbox, pid: u32) -> Process {
    eventually("the end of the process", || async {
        let found = life.process(sandbox, pid).await;
        found.is_some_and(|process| process.exited.is_some() && process.alive == 0)
    })
    .await;
    life.process(sandbox, pid)
        .await
        .expect("it is still listed")
}

pub async fn a_background_process_is_listed_and_ends(life: Life) {
    if !outlive(&life).await {
        return;
    }
    let sandbox = life.create().await;
    let request = tagged("worker", shell("echo up; sleep 600"));
    let started = start(&life, &sandbox, request).await;
    assert!(started.pid > 0);
    assert_eq!(started.tag, "worker");
    let listed = life.process(&sandbox, started.pid).await.expect("listed");
    assert_eq!(listed.tag, "worker");
    assert!(listed.exited.is_none());
    assert!(listed.alive >= 1);
    let quick = start(&life, &sandbox, shell("exit 4")).await;
    assert!(!quick.tag.is_empty(), "a process without a tag gets one");
    assert_ne!(quick.pid, started.pid);
    let exited = ended(&life, &sandbox, quick.pid)
        .await
        .exited
        .expect("ended");
    assert_eq!(exited.exit_code, 4);
}

pub async fn attach_finds_by_pid_and_by_tag(life: Life) {
    if !outlive(&life).await {
        return;
    }
    let sandbox = life.create().await;
    let request = tagged("talker", shell("echo out; echo err >&2"));
    let started = start(&life, &sandbox, request).await;
    for selector in [Selector::Pid(started.pid), Selector::Tag("talker".into())] {
        let session = attach(&life, &sandbox, selector, AttachFrom::Oldest).await;
        let heard = hear(session).await;
        assert_eq!(heard.started.expect("a start").pid, started.pid);
        assert_eq!(heard.out, b"out\n");
        assert_eq!(heard.err, b"err\n");
        assert_eq!(heard.exited.expect("an end").exit_code, 0);
    }
}

pub async fn attach_continues_at_an_offset(life: Life) {
    if !outlive(&life).await {
        return;
    }
    let sandbox = life.create().await;
    let started = start(&life, &sandbox, argv(&["echo", "0123456789"])).await;
    ended(&life, &sandbox, started.pid).await;
    let pid = || Selector::Pid(started.pid);
    let from = AttachFrom::Offsets {
        stdout: 5,
        stderr: 0,
    };
    let heard = hear(attach(&life, &sandbox, pid(), from).await).await;
    assert_eq!(heard.started.expect("a start").stdout_from, 5);
    assert_eq!(heard.out, b"56789\n");
    let heard = hear(attach(&life, &sandbox, pid(), AttachFrom::Newest).await).await;
    assert_eq!(heard.out, b"");
    assert_eq!(heard.exited.expect("an end").stdout_bytes, 11);
}

pub async fn two_readers_see_the_same(life: Life) {
    if !outlive(&life).await {
        return;
    }
    let sandbox = life.create().await;
    let request = tagged("shared", shell("echo one; sleep 1; echo two"));
    start(&life, &sandbox, request).await;
    let tag = || Selector::Tag("shared".into());
    let first = attach(&life, &sandbox, tag(), AttachFrom::Oldest).await;
    let mut gone = attach(&life, &sandbox, tag(), AttachFrom::Oldest).await;
    hear_until(&mut gone, "one\n").await;
    // A reader that leaves does not affect the others.
    drop(gone);
    let second = attach(&life, &sandbox, tag(), AttachFrom::Oldest).await;
    let (first, second) = tokio::join!(hear(first), hear(second));
    assert_eq!(first.out, b"one\ntwo\n");
    assert_eq!(second.out, b"one\ntwo\n");
}

pub async fn a_signal_ends_the_tree(life: Life) {
    if !outlive(&life).await {
        return;
    }
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    let request = tagged("doomed", shell("sleep 600 & sleep 600"));
    let started = start(&life, &sandbox, request).await;
    let tag = || Selector::Tag("doomed".into());
    let sent = life
        .engine
        .signal_process(
            id,
            &tag(),
            SignalProcess {
                signal: Signal::KILL,
                tree: true,
            },
        )
        .await;
    sent.expect("the signal is sent");
    let exited = ended(&life, &sandbox, started.pid).await.exited;
    let exited = exited.expect("an end");
    assert_eq!((exited.exit_code, exited.signal), (137, Some(9)));
    let heard = hear(attach(&life, &sandbox, tag(), AttachFrom::Oldest).await).await;
    assert_eq!(heard.exited.expect("an end").signal, Some(9));
    let polite = start(&life, &sandbox, argv(&["sleep", "600"])).await;
    let pid = Selector::Pid(polite.pid);
    let sent = life
        .engine
        .signal_process(
            id,
            &pid,
            SignalProcess {
                signal: Signal::TERM,
                tree: false,
            },
        )
        .await;
    sent.expect("the signal is sent");
    let exited = ended(&life, &sandbox, polite.pid).await.exited;
    assert_eq!(exited.expect("an end").signal, Some(15));
}

pub async fn a_tag_in_use_is_a_conflict(life: Life) {
    if !outlive(&life).await {
        return;
    }
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    start(&life, &sandbox, tagged("one", argv(&["sleep", "600"]))).await;
    let again = tagged("one", argv(&["true"]));
    refused(
        ErrorKind::Conflict,
        life.engine.exec_background(id, again).await,
    );
    let digits = tagged("123", argv(&["true"]));
    refused(
        ErrorKind::Invalid,
        life.engine.exec_background(id, digits).await,
    );
}

pub async fn an_unknown_process_is_not_found(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    let nobody = || Selector::Tag("nobody".into());
    let engine = &life.engine;
    refused(
        ErrorKind::NotFound,
        engine
            .attach(id, &nobody(), AttachFrom::Oldest.into())
            .await,
    );
    refused(
        ErrorKind::NotFound,
        engine
            .signal_process(
                id,
                &nobody(),
                SignalProcess {
                    signal: Signal::TERM,
                    tree: false,
                },
            )
            .await,
    );
}
