//! Pause and resume, where a runtime claims them.

use crate::life::{Life, argv, hear, hear_until, next, path, refused, shell};
use motu_core::files::StatFile;
use motu_core::sandbox::State;
use motu_core::{ErrorKind, Service as _};
use std::time::Duration;

/// Whether the runtime claims it. If not, asking must be refused as unsupported.
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
