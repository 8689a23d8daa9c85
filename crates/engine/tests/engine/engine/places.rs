//! Places in a quota: who has them, and who waits for one.

use super::{command, fake_sandbox, open};
use futures_util::StreamExt;
use motu_core::exec::{ExecEvent, RunRequest};
use motu_core::sandbox::CreateSandbox;
use motu_core::{SandboxId, Service};
use motu_engine::Engine;
use motu_fake::Fake;

async fn answered(engine: &Engine, sandbox: CreateSandbox) {
    let exec = command(&["true"]);
    let session = engine.run(RunRequest { sandbox, exec }).await.unwrap();
    let events: Vec<ExecEvent> = session.events.map(Result::unwrap).collect().await;
    assert!(matches!(events.last(), Some(ExecEvent::Exited(_))));
}

/// Their machines may still be on their way out.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_shots_that_were_answered_take_nobodys_place() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.toml"), "[quota]\nsandboxes = 2\n").unwrap();
    let engine = open(home.path(), &Fake::new()).await;
    let callers = [(), ()].map(|()| {
        let engine = engine.clone();
        tokio::spawn(async move {
            for _ in 0..50 {
                answered(&engine, fake_sandbox()).await;
            }
        })
    });
    for caller in callers {
        caller.await.unwrap();
    }
    let mut named = fake_sandbox();
    named.sandbox_id = Some(SandboxId::parse("mine").unwrap());
    for _ in 0..20 {
        answered(&engine, named.clone()).await;
    }
    for _ in 0..10 {
        tokio::join!(
            answered(&engine, fake_sandbox()),
            answered(&engine, fake_sandbox())
        );
        let one = engine.create_sandbox(fake_sandbox()).await.unwrap();
        let other = engine.create_sandbox(fake_sandbox()).await.unwrap();
        for sandbox in [one, other] {
            engine.destroy_sandbox(&sandbox.sandbox_id).await.unwrap();
        }
    }
}
