//! Pause and resume, where a runtime supports them.

use crate::life::{Life, argv, eventually, hear, hear_until, next, path, refused, shell, stdout};
use motu_core::files::StatFile;
use motu_core::sandbox::{CreateSandbox, OnIdle, PausedBy, Sandbox, State};
use motu_core::{ErrorKind, Service as _};
use std::time::Duration;

/// Whether the runtime supports it. If not, the request must be refused as unsupported.
async fn claimed(life: &Life) -> bool {
    let runtime = &life.runtime;
    if runtime.capabilities().pause {
        return true;
    }
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    refused(ErrorKind::Unsupported, life.engine.pause_sandbox(id).await);
    // A refused pause leaves the sandbox as it was.
    assert_eq!(life.get(id).await.state, State::Running);
    life.exec(&sandbox, argv(&["true"])).await;
    false
}

pub async fn a_paused_sandbox_refuses_and_continues(life: Life) {
    if !claimed(&life).await {
        return;
    }
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    let engine = &life.engine;
    life.write(&sandbox, "file", b"kept").await;
    let paused = engine.pause_sandbox(id).await.expect("paused");
    assert_eq!(paused.state, State::Paused);
    refused(ErrorKind::Conflict, engine.exec(id, argv(&["true"])).await);
    refused(
        ErrorKind::Conflict,
        engine
            .stat(
                id,
                StatFile {
                    path: path(&sandbox, "file"),
                    follow: true,
                    user: None,
                },
            )
            .await,
    );
    let again = engine.pause_sandbox(id).await.expect("paused already");
    assert_eq!(again.state, State::Paused);
    let resumed = engine.resume_sandbox(id).await.expect("resumed");
    assert_eq!(resumed.state, State::Running);
    assert_eq!(life.read(&sandbox, "file").await.expect("read"), b"kept");
    assert_eq!(life.exec(&sandbox, argv(&["true"])).await.exit_code, 0);
    engine.resume_sandbox(id).await.expect("resumed already");
}

pub async fn a_paused_process_stands_still(life: Life) {
    if !claimed(&life).await {
        return;
    }
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    let script = "echo one; sleep 1; echo two";
    let mut session = life.stream(&sandbox, shell(script)).await;
    hear_until(&mut session, "one\n").await;
    life.engine.pause_sandbox(id).await.expect("paused");
    // Only time can show that nothing happens.
    let early = tokio::time::timeout(Duration::from_secs(2), next(&mut session)).await;
    assert!(early.is_err(), "{early:?} came from a paused machine");
    life.engine.resume_sandbox(id).await.expect("resumed");
    let heard = hear(session).await;
    assert_eq!(heard.out, b"two\n");
    assert_eq!(heard.exited.expect("an end").exit_code, 0);
}

pub async fn a_paused_sandbox_can_be_destroyed(life: Life) {
    if !claimed(&life).await {
        return;
    }
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    life.engine.pause_sandbox(id).await.expect("paused");
    let gone = life.engine.destroy_sandbox(id).await.expect("destroyed");
    assert_eq!(gone.state, State::Destroyed);
    assert!(!life.machine_dir(id).exists());
}

/// A sandbox that is paused after one idle second; `None` where machines cannot be paused, which
/// must be refused.
async fn napping(life: &Life) -> Option<Sandbox> {
    let request = CreateSandbox {
        idle_seconds: Some(1),
        on_idle: OnIdle::Pause,
        ..life.request()
    };
    let made = life.engine.create_sandbox(request).await;
    if life.runtime.capabilities().pause {
        return Some(made.expect("created"));
    }
    refused(ErrorKind::Unsupported, made);
    None
}

async fn paused_by(life: &Life, sandbox: &Sandbox) -> Option<PausedBy> {
    let found = life.get(&sandbox.sandbox_id).await;
    assert_eq!(found.paused.is_some(), found.state == State::Paused);
    found.paused.map(|paused| paused.by)
}

pub async fn what_nobody_uses_is_paused_until_it_is_used(life: Life) {
    let Some(sandbox) = napping(&life).await else {
        return;
    };
    let id = &sandbox.sandbox_id;
    let background = life.engine.exec_background(id, argv(&["sleep", "600"]));
    let started = background.await.expect("started");
    let naps = async || paused_by(&life, &sandbox).await == Some(PausedBy::Idle);
    eventually("the first pause", naps).await;
    // The caller need not know of the pause, and processes continue.
    assert_eq!(
        stdout(&life.exec(&sandbox, argv(&["echo", "hi"])).await),
        b"hi\n"
    );
    assert!(life.process(&sandbox, started.pid).await.is_some());
    eventually("the second pause", naps).await;
    life.write(&sandbox, "file", b"woken").await;
    eventually("the third pause", naps).await;
    // Paused by a caller, it stays paused until a caller resumes it.
    let asked = life.engine.pause_sandbox(id).await.expect("paused");
    assert_eq!(asked.paused.map(|paused| paused.by), Some(PausedBy::Caller));
    refused(
        ErrorKind::Conflict,
        life.engine.exec(id, argv(&["true"])).await,
    );
    let resumed = life.engine.resume_sandbox(id).await.expect("resumed");
    assert_eq!((resumed.state, resumed.paused), (State::Running, None));
}

pub async fn what_runs_keeps_a_sandbox_awake(life: Life) {
    let Some(sandbox) = napping(&life).await else {
        return;
    };
    // Three times the idle time: if it were paused in between, it would not end.
    let result = life.exec(&sandbox, shell("sleep 3; echo done")).await;
    assert_eq!(stdout(&result), b"done\n");
    let naps = async || paused_by(&life, &sandbox).await == Some(PausedBy::Idle);
    eventually("the pause after it", naps).await;
}
