//! Disks that outlive a machine, and forks, where a runtime supports them.

use crate::bench::Bench;
use crate::life::{Life, argv, eventually, refused, shell};
use motu_core::sandbox::{CreateSandbox, Fork, Sandbox, State};
use motu_core::{ErrorKind, Service as _};

fn kept(life: &Life) -> CreateSandbox {
    CreateSandbox {
        keep: true,
        ..life.request()
    }
}

/// Whether the runtime keeps disks. If not, the request must be refused as unsupported.
async fn keeps(life: &Life) -> bool {
    if life.runtime.capabilities().keep {
        return true;
    }
    refused(
        ErrorKind::Unsupported,
        life.engine.create_sandbox(kept(life)).await,
    );
    false
}

async fn create(life: &Life) -> Sandbox {
    let made = life.engine.create_sandbox(kept(life)).await;
    made.expect("a sandbox is created")
}

pub async fn a_stopped_sandbox_starts_with_its_disks(life: Life) {
    if !keeps(&life).await {
        return;
    }
    let sandbox = create(&life).await;
    let id = &sandbox.sandbox_id;
    life.write(&sandbox, "file", b"before the stop").await;
    let stopped = life.engine.stop_sandbox(id).await.expect("stopped");
    assert_eq!(stopped.state, State::Stopped);
    let error = refused(
        ErrorKind::Conflict,
        life.engine.exec(id, argv(&["true"])).await,
    );
    assert!(error.hint.is_some(), "{error:?}");
    let again = life.engine.stop_sandbox(id).await.expect("stopped already");
    assert_eq!(again.state, State::Stopped);
    let started = life.engine.start_sandbox(id).await.expect("started");
    assert_eq!(started.state, State::Running);
    let read = life.read(&sandbox, "file").await.expect("read");
    assert_eq!(read, b"before the stop");
    assert_eq!(life.exec(&sandbox, argv(&["true"])).await.exit_code, 0);
    life.engine.start_sandbox(id).await.expect("runs already");
    life.engine.destroy_sandbox(id).await.expect("destroyed");
    assert!(!life.machine_dir(id).exists());
    assert!(!life.kept_dir(id).exists());
}

pub async fn what_is_not_kept_cannot_be_stopped(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    refused(ErrorKind::Conflict, life.engine.stop_sandbox(id).await);
    assert_eq!(life.get(id).await.state, State::Running);
}

pub async fn a_killed_machine_leaves_its_disks(life: Life) {
    if !keeps(&life).await {
        return;
    }
    let sandbox = create(&life).await;
    let id = &sandbox.sandbox_id;
    // Without an explicit flush: acknowledged writes are on disk.
    life.write(&sandbox, "file", b"written out").await;
    life.end_machine(id);
    eventually("the end is seen", || async {
        life.get(id).await.state == State::Stopped
    })
    .await;
    assert!(life.get(id).await.reason.is_some());
    life.engine.start_sandbox(id).await.expect("started");
    let read = life.read(&sandbox, "file").await.expect("read");
    assert_eq!(read, b"written out");
}

pub fn a_new_daemon_finds_what_was_stopped(bench: &Bench) {
    let id = bench.life(|life| async move {
        if !keeps(&life).await {
            return None;
        }
        let sandbox = create(&life).await;
        life.write(&sandbox, "file", b"kept").await;
        let stopped = life.engine.stop_sandbox(&sandbox.sandbox_id).await;
        stopped.expect("stopped");
        Some(sandbox.sandbox_id)
    });
    let Some(id) = id else { return };
    bench.life(|life| async move {
        assert_eq!(life.get(&id).await.state, State::Stopped);
        let started = life.engine.start_sandbox(&id).await.expect("started");
        assert_eq!(life.read(&started, "file").await.expect("read"), b"kept");
    });
}

pub fn a_machine_lost_meanwhile_is_stopped_not_failed(bench: &Bench) {
    let sandbox = bench.life(|life| async move {
        if !keeps(&life).await {
            return None;
        }
        let sandbox = create(&life).await;
        life.write(&sandbox, "file", b"kept").await;
        Some(sandbox)
    });
    let Some(sandbox) = sandbox else { return };
    bench.end_machine(&sandbox.sandbox_id);
    bench.life(|life| async move {
        // A killed process may take a moment to disappear.
        eventually("the end is seen", || async {
            life.get(&sandbox.sandbox_id).await.state == State::Stopped
        })
        .await;
        let found = life.get(&sandbox.sandbox_id).await;
        assert!(found.reason.is_some());
        let started = life.engine.start_sandbox(&sandbox.sandbox_id).await;
        let started = started.expect("started");
        assert_eq!(life.read(&started, "file").await.expect("read"), b"kept");
    });
}

pub async fn copies_go_on_by_themselves(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    if !life.runtime.capabilities().fork {
        refused(
            ErrorKind::Unsupported,
            life.engine.fork_sandbox(id, Fork { count: 2 }).await,
        );
        assert_eq!(
            life.engine
                .list_sandboxes(Default::default())
                .await
                .expect("a list")
                .len(),
            1
        );
        assert_eq!(life.exec(&sandbox, argv(&["true"])).await.exit_code, 0);
        return;
    }
    refused(
        ErrorKind::Invalid,
        life.engine.fork_sandbox(id, Fork { count: 0 }).await,
    );
    life.write(&sandbox, "file", b"shared past").await;
    let script = "n=0; while true; do n=$((n+1)); echo $n > count; sleep 0.1; done";
    let started = life.engine.exec_background(id, shell(script)).await;
    started.expect("started");
    eventually("the count begins", || life.exists(&sandbox, "count")).await;
    let copies = life
        .engine
        .fork_sandbox(id, Fork { count: 2 })
        .await
        .expect("copies");
    assert_eq!(copies.len(), 2);
    let mut names = vec![sandbox.sandbox_id.clone()];
    let mut numbers = Vec::new();
    for copy in &copies {
        assert_eq!(copy.state, State::Running);
        assert!(!names.contains(&copy.sandbox_id));
        names.push(copy.sandbox_id.clone());
        assert_eq!(life.read(copy, "file").await.expect("read"), b"shared past");
        let hostname = life.exec(copy, argv(&["hostname"])).await;
        assert_eq!(hostname.stdout.trim(), copy.sandbox_id.as_str());
        let random = "head -c 16 /dev/urandom | od -An -tx1; cat /proc/sys/kernel/random/uuid";
        numbers.push(life.exec(copy, shell(random)).await.stdout);
        // Processes continue in the fork.
        let before = life.read(copy, "count").await.expect("read");
        eventually("the copy counts on", || async {
            life.read(copy, "count").await.expect("read") != before
        })
        .await;
    }
    assert_ne!(numbers[0], numbers[1]);
    life.write(&copies[0], "file", b"own future").await;
    for other in [&sandbox, &copies[1]] {
        assert_eq!(
            life.read(other, "file").await.expect("read"),
            b"shared past"
        );
    }
    for id in names {
        life.engine.destroy_sandbox(&id).await.expect("destroyed");
        assert!(!life.machine_dir(&id).exists());
    }
}

pub async fn a_paused_sandbox_is_copied_running(life: Life) {
    if !life.runtime.capabilities().fork {
        return;
    }
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    life.write(&sandbox, "file", b"kept").await;
    life.engine.pause_sandbox(id).await.expect("paused");
    let copies = life
        .engine
        .fork_sandbox(id, Fork { count: 1 })
        .await
        .expect("a copy");
    assert_eq!(life.get(id).await.state, State::Paused);
    assert_eq!(life.read(&copies[0], "file").await.expect("read"), b"kept");
    life.engine.resume_sandbox(id).await.expect("resumed");
    assert_eq!(life.read(&sandbox, "file").await.expect("read"), b"kept");
}
