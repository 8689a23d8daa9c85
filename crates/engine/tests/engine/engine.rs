//! The engine with the fake runtime: failures above the machines. Requirements on machines are in
//! the conformance suite.

mod places;

use futures_util::StreamExt;
use motu_core::exec::{AttachFrom, ExecEvent, ExecRequest, RunRequest, Selector};
use motu_core::sandbox::{CreateSandbox, Keepalive, ListSandboxes, State};
use motu_core::{Error, ErrorKind, Program, SandboxId, Service, Size};
use motu_engine::{Engine, Home, Setup};
use motu_environments::{Environments, Privilege};
use motu_fake::Fake;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

async fn open(home: &Path, fake: &Arc<Fake>) -> Arc<Engine> {
    Engine::open(Setup {
        home: Home::open(home).unwrap(),
        runtimes: vec![fake.clone()],
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

fn command(words: &[&str]) -> ExecRequest {
    ExecRequest::from(Program::argv(words.iter().copied()))
}

/// Polls for a condition that has no event, with a deadline.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !holds().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "never happened: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn machines(home: &Path) -> usize {
    std::fs::read_dir(home.join("machines/fake")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn a_failed_create_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let engine = open(home.path(), &fake).await;
    fake.fail_next_create(Error::unavailable("the test says no"));
    let error = engine.create_sandbox(fake_sandbox()).await.unwrap_err();
    assert_eq!(error.message, "the test says no");
    assert_eq!(engine.live(), 0);
    assert_eq!(machines(home.path()), 0);
    assert!(
        engine
            .list_sandboxes(Default::default())
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_caller_that_leaves_during_create_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let engine = open(home.path(), &fake).await;
    let stall = fake.stall_create();
    let creating = tokio::spawn({
        let engine = engine.clone();
        async move { engine.create_sandbox(fake_sandbox()).await }
    });
    stall.reached().await;
    creating.abort();
    drop(stall);
    eventually("the sandbox nobody knows is gone", async || {
        engine.live() == 0 && machines(home.path()) == 0
    })
    .await;
}

#[tokio::test]
async fn a_restart_adopts_what_runs() {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let engine = open(home.path(), &fake).await;
    let id = engine
        .create_sandbox(fake_sandbox())
        .await
        .unwrap()
        .sandbox_id;
    let background = engine
        .exec_background(
            &id,
            command(&["sh", "-c", "echo before; sleep 0.2; echo after"]),
        )
        .await
        .unwrap();
    drop(engine);

    let engine = open(home.path(), &fake).await;
    assert_eq!(engine.get_sandbox(&id).await.unwrap().state, State::Running);
    let mut session = engine
        .attach(
            &id,
            &Selector::Tag(background.tag),
            AttachFrom::Oldest.into(),
        )
        .await
        .unwrap();
    let mut output = Vec::new();
    let mut code = None;
    while let Some(event) = session.events.next().await {
        match event.unwrap() {
            ExecEvent::Stdout(bytes) => output.extend_from_slice(&bytes),
            ExecEvent::Exited(exited) => code = Some(exited.exit_code),
            _ => {}
        }
    }
    assert_eq!(String::from_utf8_lossy(&output), "before\nafter\n");
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn a_machine_that_is_gone_after_a_restart_has_failed() {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let engine = open(home.path(), &fake).await;
    let id = engine
        .create_sandbox(fake_sandbox())
        .await
        .unwrap()
        .sandbox_id;
    drop(engine);

    // A new fake simulates a reboot of the host: it knows no machines.
    let engine = open(home.path(), &Fake::new()).await;
    let sandbox = engine.get_sandbox(&id).await.unwrap();
    assert_eq!(sandbox.state, State::Failed);
    assert!(sandbox.reason.unwrap().contains("gone"));
    assert_eq!(machines(home.path()), 0);
    let error = engine.exec(&id, command(&["true"])).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    engine.destroy_sandbox(&id).await.unwrap();
    assert_eq!(
        engine.get_sandbox(&id).await.unwrap().state,
        State::Destroyed
    );
}

#[tokio::test]
async fn directories_nobody_knows_are_swept_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    let stray = home.path().join("machines/fake/sb-stray");
    std::fs::create_dir_all(stray.join("deep/inside")).unwrap();
    open(home.path(), &Fake::new()).await;
    assert!(!stray.exists());
}

#[tokio::test]
async fn a_killed_machine_is_reported_with_its_reason() {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let engine = open(home.path(), &fake).await;
    let id = engine
        .create_sandbox(fake_sandbox())
        .await
        .unwrap()
        .sandbox_id;
    let running = tokio::spawn({
        let (engine, id) = (engine.clone(), id.clone());
        async move { engine.exec(&id, command(&["sleep", "60"])).await }
    });
    eventually("the command runs", async || {
        !engine.list_processes(&id).await.unwrap().is_empty()
    })
    .await;
    assert!(fake.kill(&id));
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert!(error.message.contains("killed by the test"), "{error}");
    assert_eq!(engine.get_sandbox(&id).await.unwrap().state, State::Failed);
    eventually("its resources are gone", async || fake.counts().live == 0).await;
}

#[tokio::test]
async fn destroying_during_a_command_ends_it_with_a_typed_error() {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let engine = open(home.path(), &fake).await;
    let id = engine
        .create_sandbox(fake_sandbox())
        .await
        .unwrap()
        .sandbox_id;
    let running = tokio::spawn({
        let (engine, id) = (engine.clone(), id.clone());
        async move { engine.exec(&id, command(&["sleep", "60"])).await }
    });
    eventually("the command runs", async || {
        !engine.list_processes(&id).await.unwrap().is_empty()
    })
    .await;
    engine.destroy_sandbox(&id).await.unwrap();
    let error = running.await.unwrap().unwrap_err();
    assert!(
        matches!(error.kind, ErrorKind::NotFound | ErrorKind::Conflict),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_broken_link_is_opened_again() {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let engine = open(home.path(), &fake).await;
    let id = engine
        .create_sandbox(fake_sandbox())
        .await
        .unwrap()
        .sandbox_id;
    for _ in 0..3 {
        assert!(fake.cut_links(&id));
        eventually("the next command works", async || {
            engine.exec(&id, command(&["true"])).await.is_ok()
        })
        .await;
    }
}

#[tokio::test]
async fn a_guest_that_breaks_the_protocol_again_and_again_is_ended_with_that_reason() {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let engine = open(home.path(), &fake).await;
    let id = engine
        .create_sandbox(fake_sandbox())
        .await
        .unwrap()
        .sandbox_id;
    fake.play_guest(Arc::new(|mut io| {
        Box::pin(async move {
            if motu_link::hello::guest(&mut io).await.is_ok() {
                // The header of an unknown kind of frame.
                let noise = [0, 0, 0, 0, 1, 0, 0, 0, 99, 0, 0, 0];
                let _ = tokio::io::AsyncWriteExt::write_all(&mut io, &noise).await;
                std::future::pending::<()>().await;
            }
        })
    }));
    eventually("the machine is ended", async || {
        let _ = engine.exec(&id, command(&["true"])).await;
        let now = engine.get_sandbox(&id).await.unwrap();
        now.state == State::Failed
    })
    .await;
    let ended = engine.get_sandbox(&id).await.unwrap();
    let reason = ended.reason.unwrap();
    assert!(reason.contains("broke the link's protocol"), "{reason}");
    assert_eq!(fake.counts().live, 0, "the machine is gone");
    engine.destroy_sandbox(&id).await.unwrap();
}

#[tokio::test]
async fn time_to_live_and_idle_time_end_sandboxes() {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let engine = open(home.path(), &fake).await;
    let mut short = fake_sandbox();
    short.ttl_seconds = Some(1);
    let mut idle = fake_sandbox();
    idle.idle_seconds = Some(1);
    let short = engine.create_sandbox(short).await.unwrap().sandbox_id;
    let idle = engine.create_sandbox(idle).await.unwrap().sandbox_id;
    let kept = engine
        .create_sandbox(fake_sandbox())
        .await
        .unwrap()
        .sandbox_id;
    eventually("both are gone", async || engine.live() == 1).await;
    for (id, why) in [(short, "time to live"), (idle, "nobody used it")] {
        let sandbox = engine.get_sandbox(&id).await.unwrap();
        assert_eq!(sandbox.state, State::Destroyed);
        assert!(sandbox.reason.unwrap().contains(why));
    }
    assert_eq!(
        engine.get_sandbox(&kept).await.unwrap().state,
        State::Running
    );
}

#[tokio::test]
async fn keepalive_moves_the_end() {
    let home = tempfile::tempdir().unwrap();
    let engine = open(home.path(), &Fake::new()).await;
    let before = engine.create_sandbox(fake_sandbox()).await.unwrap();
    let after = engine
        .keepalive(
            &before.sandbox_id,
            Keepalive {
                ttl_seconds: Some(7200),
                ..Keepalive::default()
            },
        )
        .await
        .unwrap();
    assert!(after.expires_at > before.expires_at);
    assert_eq!(after.ttl_seconds, 7200);
    let ask = |ttl_seconds| Keepalive {
        ttl_seconds: Some(ttl_seconds),
        ..Keepalive::default()
    };
    let error = engine.keepalive(&before.sandbox_id, ask(2_592_001)).await;
    assert_eq!(error.unwrap_err().kind, ErrorKind::Invalid);
    // Until it is destroyed: neither the call that says so nor the next one gives it an end.
    let forever = engine.keepalive(&before.sandbox_id, ask(0)).await.unwrap();
    assert_eq!((forever.ttl_seconds, forever.expires_at), (0, None));
    let after = engine.keepalive(&before.sandbox_id, Keepalive::default());
    assert_eq!(after.await.unwrap().expires_at, None);
}

#[tokio::test]
async fn the_number_of_sandboxes_is_bounded() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.toml"), "max_sandboxes = 2").unwrap();
    let engine = open(home.path(), &Fake::new()).await;
    engine.create_sandbox(fake_sandbox()).await.unwrap();
    engine.create_sandbox(fake_sandbox()).await.unwrap();
    let error = engine.create_sandbox(fake_sandbox()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Limit);
    assert!(error.message.contains("max_sandboxes"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_owner_has_no_more_than_their_quota_however_many_ask_at_once() {
    let home = tempfile::tempdir().unwrap();
    let config = "[quota]\nsandboxes = 3\nmem_mib = 4096\n";
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    let engine = open(home.path(), &Fake::new()).await;
    let of = |owner: &str, mem_mib| CreateSandbox {
        owner: owner.to_string(),
        size: Size {
            mem_mib: Some(mem_mib),
            ..fake_sandbox().size
        },
        ..fake_sandbox()
    };
    let races = (0..24).map(|_| {
        let (engine, request) = (engine.clone(), of("a", 64));
        tokio::spawn(async move { engine.create_sandbox(request).await })
    });
    let races: Vec<_> = races.collect();
    let mut made = Vec::new();
    for race in races {
        match race.await.unwrap() {
            Ok(sandbox) => made.push(sandbox.sandbox_id),
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Limit, "{error}");
                assert_eq!(error.details["code"], "quota", "{error}");
                assert_eq!(error.details["limit"], "quota_sandboxes", "{error}");
            }
        }
    }
    assert_eq!(made.len(), 3);
    // Another caller has a separate quota, for memory too.
    engine.create_sandbox(of("b", 4000)).await.unwrap();
    let error = engine.create_sandbox(of("b", 200)).await.unwrap_err();
    assert_eq!(error.details["limit"], "quota_mem_mib", "{error}");
    // Destroyed sandboxes free their quota.
    engine.destroy_sandbox(&made[0]).await.unwrap();
    engine.create_sandbox(of("a", 64)).await.unwrap();
}

#[tokio::test]
async fn a_page_reads_what_is_on_it_and_one_more() {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let engine = open(home.path(), &fake).await;
    let mut all = Vec::new();
    for number in 0..8 {
        let owner = ["project:acme", "uid:0"][number % 2].to_string();
        let ask = CreateSandbox {
            owner,
            ..fake_sandbox()
        };
        all.push(engine.create_sandbox(ask).await.unwrap().sandbox_id);
    }
    // Half of each owner's is gone, between those that live.
    for id in &all[2..6] {
        engine.destroy_sandbox(id).await.unwrap();
    }
    let page = async |owner: &str, all: bool, cursor: Option<String>| {
        let ask = ListSandboxes {
            owner: owner.to_string(),
            limit: Some(2),
            all,
            cursor,
        };
        let list = engine.list_sandboxes(ask).await.unwrap().sandboxes;
        list.into_iter()
            .map(|one| one.sandbox_id)
            .collect::<Vec<_>>()
    };
    let pick = |numbers: &[usize]| -> Vec<SandboxId> {
        numbers.iter().map(|number| all[*number].clone()).collect()
    };
    assert_eq!(page("uid:0", false, None).await, pick(&[0, 1, 6]));
    assert_eq!(page("uid:0", true, None).await, pick(&[0, 1, 2]));
    assert_eq!(page("project:acme", false, None).await, pick(&[0, 6]));
    assert_eq!(page("project:acme", true, None).await, pick(&[0, 2, 4]));
    let first = engine.get_sandbox(&all[2]).await.unwrap();
    let cursor = motu_core::page::cursor_of(&(first.created_at, &first.sandbox_id)).unwrap();
    let next = page("project:acme", true, Some(cursor)).await;
    assert_eq!(next, pick(&[4, 6]));
}

#[tokio::test]
async fn a_name_is_taken_once_and_free_again_after_destroy() {
    let home = tempfile::tempdir().unwrap();
    let engine = open(home.path(), &Fake::new()).await;
    let mut named = fake_sandbox();
    named.sandbox_id = Some(SandboxId::parse("mine").unwrap());
    let id = engine
        .create_sandbox(named.clone())
        .await
        .unwrap()
        .sandbox_id;
    let error = engine.create_sandbox(named.clone()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    engine.destroy_sandbox(&id).await.unwrap();
    engine.create_sandbox(named).await.unwrap();
}

#[tokio::test]
async fn a_one_shot_is_gone_when_its_command_is() {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let engine = open(home.path(), &fake).await;
    let request = RunRequest {
        sandbox: fake_sandbox(),
        exec: command(&["sh", "-c", "echo hi; exit 3"]),
    };
    let session = engine.run(request).await.unwrap();
    let events: Vec<ExecEvent> = session.events.map(Result::unwrap).collect().await;
    assert!(matches!(events[0], ExecEvent::Sandbox(_)));
    assert!(matches!(events.last().unwrap(), ExecEvent::Exited(exited) if exited.exit_code == 3));
    // Its machine may still be on its way out; whoever looks waits for that.
    let listed = engine.list_sandboxes(Default::default()).await.unwrap();
    assert!(listed.is_empty(), "{listed:?}");
    assert_eq!(engine.live(), 0);
    assert_eq!(fake.counts().live, 0);
    assert_eq!(machines(home.path()), 0);
}

#[tokio::test]
async fn a_one_shot_nobody_listens_to_is_ended() {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let engine = open(home.path(), &fake).await;
    let request = RunRequest {
        sandbox: fake_sandbox(),
        exec: command(&["sleep", "60"]),
    };
    let session = engine.run(request).await.unwrap();
    assert_eq!(engine.live(), 1);
    drop(session);
    eventually("it is gone", async || {
        engine.live() == 0 && fake.counts().live == 0
    })
    .await;
}

#[tokio::test]
async fn refusals_come_before_anything_is_made() {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let engine = open(home.path(), &fake).await;
    let with = |change: fn(&mut CreateSandbox)| {
        let mut request = fake_sandbox();
        change(&mut request);
        request
    };
    for (request, kind) in [
        (with(|r| r.network = true), ErrorKind::Unsupported),
        (with(|r| r.environment.clear()), ErrorKind::Invalid),
        (with(|r| r.size.mem_mib = Some(1)), ErrorKind::Invalid),
        (
            with(|r| r.runtime = Some("nope".into())),
            ErrorKind::Invalid,
        ),
        (
            with(|r| r.isolation = Some(motu_core::Isolation::Vm)),
            ErrorKind::Denied,
        ),
        (with(|r| r.runtime = None), ErrorKind::Unavailable),
        (
            with(|r| r.workdir = Some("relative".into())),
            ErrorKind::Invalid,
        ),
        (
            with(|r| drop(r.env.insert("A=B".into(), String::new()))),
            ErrorKind::Invalid,
        ),
    ] {
        let shown = format!("{request:?}");
        let error = engine.create_sandbox(request).await.unwrap_err();
        assert_eq!(error.kind, kind, "{shown}: {error}");
    }
    assert_eq!(fake.counts().creates, 0);
}

#[tokio::test]
async fn the_pool_is_filled_again_when_its_caller_has_been_served() {
    let home = tempfile::tempdir().unwrap();
    let settings = "[[pool]]\nenvironment = \"fake\"\nruntime = \"fake\"\nready = 1\n";
    std::fs::write(home.path().join("config.toml"), settings).unwrap();
    let engine = open(home.path(), &Fake::new()).await;
    eventually("the pool is full", async || machines(home.path()) == 1).await;

    let one_shot = async |words: &[&str]| {
        let request = RunRequest {
            sandbox: fake_sandbox(),
            exec: command(words),
        };
        engine.run(request).await.unwrap().events
    };
    // The pool is not refilled while the caller's command runs: otherwise it would be full in every
    // round. A slow host may show it full in some, because refilling begins as soon as the end is
    // reported.
    const ROUNDS: usize = 20;
    let mut beside = 0;
    for _ in 0..ROUNDS {
        let mut events = one_shot(&["true"]).await;
        while let Some(event) = events.next().await {
            if let ExecEvent::Exited(_) = event.unwrap() {
                beside += usize::from(machines(home.path()) > 1);
            }
        }
        drop(events);
        eventually("the pool is full again", async || {
            machines(home.path()) == 1
        })
        .await;
    }
    assert!(beside < ROUNDS, "the pool was filled beside every caller");

    // A long command does not keep the pool empty.
    let mut events = one_shot(&["sleep", "60"]).await;
    assert!(matches!(
        events.next().await,
        Some(Ok(ExecEvent::Sandbox(_)))
    ));
    eventually("beside a long command too", async || {
        machines(home.path()) == 2
    })
    .await;
    drop(events);
    engine.close().await;
}
