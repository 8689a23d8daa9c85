//! The life of a sandbox, from creation to complete removal.

use crate::life::{Life, SOON, argv, eventually, hear, path, refused, shell};
use futures_util::StreamExt as _;
use motu_core::exec::{ExecEvent, RunRequest, Selector, SignalProcess};
use motu_core::files::{ListFiles, ListOptions, RemoveFile, StatFile};
use motu_core::metrics::{MetricsRange, ReadMetrics};
use motu_core::sandbox::{CreateSandbox, Keepalive, State};
use motu_core::{ErrorKind, SandboxId, Service as _};
use std::time::{Duration, Instant};

pub async fn create_gives_a_running_sandbox(life: Life) {
    let sandbox = life.create().await;
    assert!(!sandbox.sandbox_id.as_str().is_empty());
    assert_eq!(sandbox.state, State::Running);
    let found = life.get(&sandbox.sandbox_id).await;
    assert_eq!(found.state, State::Running);
    let listed = life
        .engine
        .list_sandboxes(Default::default())
        .await
        .expect("a list");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].sandbox_id, sandbox.sandbox_id);
    // Running means usable now.
    assert_eq!(life.exec(&sandbox, argv(&["true"])).await.exit_code, 0);
}

pub async fn a_sandbox_says_what_it_is(life: Life) {
    let runtime = &life.runtime;
    assert_eq!(runtime.name(), life.subject.name);
    let sandbox = life.create().await;
    assert_eq!(sandbox.runtime, runtime.name());
    assert_eq!(sandbox.isolation, runtime.isolation());
    // Without isolation the network is the host's.
    let network = match runtime.name() {
        "host" | "proot" => "host",
        _ if runtime.elsewhere() => "unknown",
        _ => "off",
    };
    assert_eq!(sandbox.network, network);
    assert_eq!(sandbox.environment, life.subject.request.environment);
    let result = life.exec(&sandbox, argv(&["true"])).await;
    assert_eq!(result.runtime, runtime.name());
    assert_eq!(result.isolation, runtime.isolation());
    assert_eq!(result.network, network);
    assert_eq!(result.sandbox_id, sandbox.sandbox_id);
}

pub async fn an_id_of_the_callers_own_is_kept(life: Life) {
    let id = SandboxId::parse("my-own-name").expect("an id");
    let request = CreateSandbox {
        sandbox_id: Some(id.clone()),
        ..life.request()
    };
    let sandbox = life.engine.create_sandbox(request).await.expect("created");
    assert_eq!(sandbox.sandbox_id, id);
    assert_eq!(life.get(&id).await.state, State::Running);
}

pub async fn destroy_leaves_nothing_and_may_be_repeated(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    let started = life
        .engine
        .exec_background(id, shell("sleep 600 & sleep 600"))
        .await;
    match life.lacks().await.background {
        true => drop(refused(ErrorKind::Unsupported, started)),
        false => drop(started.expect("started")),
    }
    let first = life.engine.destroy_sandbox(id).await.expect("destroyed");
    assert_eq!(first.state, State::Destroyed);
    let dir = life.machine_dir(id);
    assert!(!dir.exists(), "{} is still there", dir.display());
    assert!(
        life.engine
            .list_sandboxes(Default::default())
            .await
            .expect("a list")
            .is_empty()
    );
    let again = life.engine.destroy_sandbox(id).await.expect("no error");
    assert_eq!(again.state, State::Destroyed);
}

pub async fn after_destroy_everything_is_not_found(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    life.write(&sandbox, "file", b"x").await;
    life.engine.destroy_sandbox(id).await.expect("destroyed");
    let engine = &life.engine;
    let file = || path(&sandbox, "file");
    refused(ErrorKind::NotFound, engine.exec(id, argv(&["true"])).await);
    refused(
        ErrorKind::NotFound,
        engine.exec_background(id, argv(&["true"])).await,
    );
    refused(ErrorKind::NotFound, life.read(&sandbox, "file").await);
    refused(
        ErrorKind::NotFound,
        life.write_with(&sandbox, "file", b"y", Default::default())
            .await,
    );
    refused(
        ErrorKind::NotFound,
        engine
            .stat(
                id,
                StatFile {
                    path: file(),
                    follow: true,
                    user: None,
                },
            )
            .await,
    );
    refused(
        ErrorKind::NotFound,
        engine
            .list_files(id, ListFiles::new(file(), ListOptions::default()))
            .await,
    );
    refused(
        ErrorKind::NotFound,
        engine
            .remove_file(
                id,
                RemoveFile {
                    path: file(),
                    recursive: false,
                    user: None,
                },
            )
            .await,
    );
    refused(ErrorKind::NotFound, engine.list_processes(id).await);
    refused(ErrorKind::NotFound, engine.metrics(id).await);
    refused(ErrorKind::NotFound, engine.pause_sandbox(id).await);
    refused(
        ErrorKind::NotFound,
        engine.keepalive(id, Keepalive::default()).await,
    );
}

pub async fn what_never_was_is_not_found(life: Life) {
    let id = SandboxId::parse("never-was").expect("an id");
    let engine = &life.engine;
    refused(ErrorKind::NotFound, engine.get_sandbox(&id).await);
    refused(ErrorKind::NotFound, engine.destroy_sandbox(&id).await);
    refused(ErrorKind::NotFound, engine.exec(&id, argv(&["true"])).await);
}

pub async fn health_is_fast_and_changes_nothing(life: Life) {
    let runtime = &life.runtime;
    let began = Instant::now();
    let first = runtime.check().await;
    // Generous for a busy machine; a check takes a few system calls.
    assert!(began.elapsed() < Duration::from_secs(2), "{first:?}");
    assert!(!first.is_empty());
    let names = |checks: &[motu_core::report::Check]| -> Vec<String> {
        checks.iter().map(|check| check.name.clone()).collect()
    };
    assert_eq!(names(&runtime.check().await), names(&first));
    assert!(runtime.report().await.works, "{first:?}");
    assert!(
        life.engine
            .list_sandboxes(Default::default())
            .await
            .expect("a list")
            .is_empty()
    );
}

pub async fn a_plan_makes_nothing(life: Life) {
    let plan = life.engine.plan(life.request()).await.expect("a plan");
    assert!(!plan.trim().is_empty());
    assert!(
        life.engine
            .list_sandboxes(Default::default())
            .await
            .expect("a list")
            .is_empty()
    );
    let machines = life.machine_dir(&SandboxId::generate());
    let machines = machines.parent().expect("a parent");
    let left = std::fs::read_dir(machines).map_or(0, Iterator::count);
    assert_eq!(left, 0, "something is in {}", machines.display());
}

pub async fn a_one_shot_leaves_nothing(life: Life) {
    let request = RunRequest {
        sandbox: life.request(),
        exec: shell("echo hello; exit 5"),
    };
    let mut session = life.engine.run(request).await.expect("it runs");
    let first = session.events.next().await.expect("an event");
    let Ok(ExecEvent::Sandbox(sandbox)) = first else {
        panic!("the first event is {first:?}");
    };
    let heard = hear(session).await;
    assert_eq!(heard.out, b"hello\n");
    assert_eq!(heard.exited.expect("an end").exit_code, 5);
    assert!(
        life.engine
            .list_sandboxes(Default::default())
            .await
            .expect("a list")
            .is_empty()
    );
    assert!(!life.machine_dir(&sandbox.sandbox_id).exists());
}

pub async fn metrics_are_measured(life: Life) {
    let sandbox = life.create().await;
    let metrics = life.engine.metrics(&sandbox.sandbox_id).await;
    if life.lacks().await.metrics {
        refused(ErrorKind::Unsupported, metrics);
        return;
    }
    let metrics = metrics.expect("metrics");
    assert!(metrics.cpus > 0, "{metrics:?}");
    assert!(metrics.processes > 0, "{metrics:?}");
    assert!(metrics.memory_total_bytes > 0, "{metrics:?}");
}

/// A runtime that reaches nothing that listens inside says so to whoever looks and whoever dials.
pub async fn ports_are_seen_or_refused(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    let seen = life.engine.list_ports(id).await;
    if !life.lacks().await.ports {
        assert_eq!(seen.expect("a list").sandbox_id, *id);
        return;
    }
    refused(ErrorKind::Unsupported, seen);
    let error = refused(ErrorKind::Unsupported, life.engine.dial(id, &8000).await);
    assert!(error.message.contains("ports"), "{error}");
    let path = motu_core::files::AtPath {
        path: path(&sandbox, "socket"),
    };
    refused(
        ErrorKind::Unsupported,
        life.engine.dial_unix(id, path).await,
    );
}

pub async fn the_time_to_live_ends_a_sandbox(life: Life) {
    let request = CreateSandbox {
        ttl_seconds: Some(1),
        ..life.request()
    };
    let sandbox = life.engine.create_sandbox(request).await.expect("created");
    let id = &sandbox.sandbox_id;
    eventually("the end of its time", || async {
        life.get(id).await.state == State::Destroyed
    })
    .await;
    assert!(life.get(id).await.reason.is_some());
    refused(
        ErrorKind::NotFound,
        life.engine.exec(id, argv(&["true"])).await,
    );
    assert!(!life.machine_dir(id).exists());
}

pub async fn keepalive_postpones_the_end(life: Life) {
    let request = CreateSandbox {
        ttl_seconds: Some(60),
        ..life.request()
    };
    let sandbox = life.engine.create_sandbox(request).await.expect("created");
    let id = &sandbox.sandbox_id;
    let kept = life
        .engine
        .keepalive(
            id,
            Keepalive {
                ttl_seconds: Some(600),
                ..Keepalive::default()
            },
        )
        .await
        .expect("kept");
    assert_eq!(kept.ttl_seconds, 600);
    let (was, is) = (sandbox.expires_at, kept.expires_at);
    let (was, is) = (was.expect("it expires"), is.expect("it expires"));
    let later = is.duration_since(was);
    assert!(later.as_secs() >= 500, "{later:?} later");
    assert_eq!(kept.state, State::Running);
    refused(
        ErrorKind::Invalid,
        life.engine
            .keepalive(
                id,
                Keepalive {
                    ttl_seconds: Some(u64::MAX),
                    ..Keepalive::default()
                },
            )
            .await,
    );
}

pub async fn a_machine_that_dies_is_failed_with_a_reason(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    let mut session = life.stream(&sandbox, argv(&["sleep", "600"])).await;
    session
        .events
        .next()
        .await
        .expect("started")
        .expect("started");
    life.end_machine(id);
    let torn = tokio::time::timeout(SOON, async {
        loop {
            match session.events.next().await {
                Some(Err(error)) => return error,
                Some(Ok(_)) => {}
                None => panic!("the session ended as if nothing had happened"),
            }
        }
    });
    let torn = torn.await.expect("the session ends");
    assert_eq!(torn.kind, ErrorKind::Unavailable, "{torn:?}");
    eventually("the failure", || async {
        life.get(id).await.state == State::Failed
    })
    .await;
    let reason = life.get(id).await.reason.expect("a reason");
    assert!(!reason.is_empty());
    let error = refused(
        ErrorKind::Unavailable,
        life.engine.exec(id, argv(&["true"])).await,
    );
    assert!(error.message.contains(&reason), "{error}");
    let gone = life.engine.destroy_sandbox(id).await.expect("destroyed");
    assert_eq!(gone.state, State::Destroyed);
    assert!(!life.machine_dir(id).exists());
}

/// Runtimes with counters on the host.
const COUNTED: [&str; 3] = ["container", "gvisor", "qemu"];

pub async fn what_was_used_is_remembered(life: Life) {
    if !COUNTED.contains(&life.runtime.name()) {
        // Its guest is asked every 30 s: too rarely for a test.
        return;
    }
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    let busy = shell("while true; do :; done");
    let started = life
        .engine
        .exec_background(id, busy)
        .await
        .expect("started");
    let read = async |range| {
        let history = life.engine.metrics_history(id, ReadMetrics { range }).await;
        history.expect("a history").points
    };
    eventually("a busy processor", async || {
        let points = read(MetricsRange::TenMinutes).await;
        let busy = points.iter().any(|point| point.cpu_pct > 20.0);
        busy && points.iter().any(|point| point.disk_bytes > 0)
    })
    .await;
    let points = read(MetricsRange::TenMinutes).await;
    assert!(points.iter().all(|point| point.mem_bytes > 0), "{points:?}");
    assert!(points.is_sorted_by_key(|point| point.at), "{points:?}");
    assert!(read(MetricsRange::OneDay).await.is_empty());
    let kill = SignalProcess {
        signal: motu_core::Signal::KILL,
        tree: false,
    };
    let process = Selector::Pid(started.pid);
    life.engine
        .signal_process(id, &process, kill)
        .await
        .expect("killed");
    let flushed = life.engine.flush_metrics(id).await.expect("flushed");
    assert!(flushed.points_10m.len() >= points.len());
    let last = flushed.points_10m.last().expect("points").at;
    eventually("points after the flush", async || {
        let points = read(MetricsRange::TenMinutes).await;
        assert!(points.iter().all(|point| point.at > last), "{points:?}");
        !points.is_empty()
    })
    .await;
}
