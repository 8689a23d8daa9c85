//! Places in a quota, with the fake runtime: who has them, and who waits for one.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

use futures_util::StreamExt;
use motu_core::exec::{ExecEvent, ExecRequest, RunRequest};
use motu_core::sandbox::CreateSandbox;
use motu_core::{Program, SandboxId, Service};
use motu_engine::{Engine, Home, Setup};
use motu_environments::{Environments, Privilege};
use motu_fake::Fake;
use std::path::Path;
use std::sync::Arc;

async fn open(home: &Path) -> Arc<Engine> {
    Engine::open(Setup {
        home: Home::open(home).unwrap(),
        runtimes: vec![Fake::new()],
        environments: Environments::open(home, Privilege::detect()).unwrap(),
        gateway: None,
    })
    .await
    .unwrap()
}

fn fake_sandbox() -> CreateSandbox {
    CreateSandbox {
        environment: "fake".to_string(),
        runtime: Some("fake".to_string()),
        ..CreateSandbox::default()
    }
}

async fn answered(engine: &Engine, sandbox: CreateSandbox) {
    let exec = ExecRequest::from(Program::argv(["true"]));
    let session = engine.run(RunRequest { sandbox, exec }).await.unwrap();
    let events: Vec<ExecEvent> = session.events.map(Result::unwrap).collect().await;
    assert!(matches!(events.last(), Some(ExecEvent::Exited(_))));
}

/// Their machines may still be on their way out.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_shots_that_were_answered_take_nobodys_place() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.toml"), "[quota]\nsandboxes = 2\n").unwrap();
    let engine = open(home.path()).await;
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
