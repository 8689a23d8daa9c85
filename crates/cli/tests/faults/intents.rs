//! `kill -9` of the daemon in the middle of an operation on a machine.
//!
//! Each kill comes as soon as the store has the intent, and counts only if the store still has
//! it when the daemon is dead: between the intent and the state that follows.

use crate::machines::emulates;
use crate::workspaces::{asked, create, sh};
use motu_api::Client;
use motu_core::sandbox::{CreateSandbox, Fork, OnIdle, Sandbox, State};
use motu_core::workspace::ResetTo;
use motu_core::{ErrorKind, Result, SandboxId, Service, Size, Workspaces};
use motu_testkit::world::{ENVIRONMENT, World, eventually, refused, small};

/// Attempts until a kill falls between the two. Each costs a daemon.
const TRIES: usize = 60;

/// The intent in the store for the machine of a sandbox.
fn intent(store: &rusqlite::Connection, id: &SandboxId) -> Option<String> {
    let query = "SELECT json_extract(sandbox, '$.intent') FROM sandboxes WHERE sandbox_id = ?1";
    let found = store.query_row(query, [id.as_str()], |row| row.get(0));
    found.unwrap()
}

/// Makes a call and kills the daemon as soon as it has recorded the intent. Returns whether the
/// next daemon finds the operation unfinished.
async fn strike(
    world: &mut World,
    id: &SandboxId,
    wanted: &str,
    call: impl Future<Output = Result<()>>,
) -> bool {
    let store = rusqlite::Connection::open(world.home().join("motu.db")).unwrap();
    let begun = async {
        while intent(&store, id).as_deref() != Some(wanted) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = begun => {}
        done = call => done.unwrap(),
    }
    world.kill();
    intent(&store, id).as_deref() == Some(wanted)
}

/// Repeats this from the same state until a kill falls between the intent and what follows.
async fn cut_off(
    world: &mut World,
    id: &SandboxId,
    wanted: &str,
    before: impl AsyncFn(&Client, &SandboxId),
    call: impl AsyncFn(Client, SandboxId) -> Result<()>,
) {
    for tried in 1..=TRIES {
        before(&world.client(), id).await;
        let client = world.client();
        let hit = strike(world, id, wanted, call(client, id.clone())).await;
        world.start();
        if hit {
            println!("{wanted}: blow {tried} fell in the middle");
            return;
        }
    }
    panic!("no blow of {TRIES} fell while it was {wanted}");
}

async fn look(world: &World, id: &SandboxId) -> Sandbox {
    world.client().get_sandbox(id).await.unwrap()
}

async fn running(client: &Client, id: &SandboxId) {
    match client.get_sandbox(id).await.unwrap().state {
        State::Paused => drop(client.resume_sandbox(id).await.unwrap()),
        State::Stopped => drop(client.start_sandbox(id).await.unwrap()),
        _ => {}
    }
}

async fn paused(client: &Client, id: &SandboxId) {
    running(client, id).await;
    client.pause_sandbox(id).await.unwrap();
}

async fn stopped(client: &Client, id: &SandboxId) {
    running(client, id).await;
    client.stop_sandbox(id).await.unwrap();
}

/// An operation begun by a caller is finished by the next daemon, and programs do not notice.
async fn pause_and_resume(world: &mut World, id: &SandboxId) {
    world.sh(id, "sleep 3600 & echo $! > /tmp/pid").await;
    cut_off(world, id, "pausing", running, async |client, id| {
        client.pause_sandbox(&id).await.map(drop)
    })
    .await;
    assert_eq!(look(world, id).await.state, State::Paused);
    let used = world
        .client()
        .exec(id, motu_testkit::world::shell("true"))
        .await;
    refused(ErrorKind::Conflict, used);
    cut_off(world, id, "resuming", paused, async |client, id| {
        client.resume_sandbox(&id).await.map(drop)
    })
    .await;
    assert_eq!(look(world, id).await.state, State::Running);
    let alive = world.sh(id, "kill -0 $(cat /tmp/pid) && echo alive").await;
    assert_eq!(alive.stdout, "alive\n");
}

#[tokio::test]
async fn a_pause_that_was_begun_is_finished_and_so_is_its_end() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = world.create().await;
    pause_and_resume(&mut world, &id).await;
}

#[tokio::test]
async fn a_virtual_machine_keeps_its_memory_when_its_pause_is_cut_off() {
    let Some(mut world) = World::new() else {
        return;
    };
    if !emulates(&world) {
        return;
    }
    let request = CreateSandbox {
        environment: ENVIRONMENT.to_string(),
        runtime: Some("qemu".to_string()),
        accel: motu_needs::accelerator().parse().unwrap(),
        size: Size::of(256, 64),
        ..CreateSandbox::default()
    };
    let id = world.create_with(request).await.sandbox_id;
    pause_and_resume(&mut world, &id).await;
    cut_off(&mut world, &id, "forking", running, async |client, id| {
        client.fork_sandbox(&id, Fork { count: 1 }).await.map(drop)
    })
    .await;
    // The source continues; the copy either does not exist or is complete.
    assert_eq!(look(&world, &id).await.state, State::Running);
    let alive = world.sh(&id, "kill -0 $(cat /tmp/pid) && echo alive").await;
    assert_eq!(alive.stdout, "alive\n");
    let listed = world
        .client()
        .list_sandboxes(Default::default())
        .await
        .unwrap();
    let listed: Vec<_> = listed.iter().map(|one| one.sandbox_id.clone()).collect();
    assert_eq!(listed, [id]);
    eventually("the copy has no directory", async || {
        let machines = world.traces.machines("qemu");
        (machines.len() == 1, machines)
    })
    .await;
}

#[tokio::test]
async fn a_stop_that_was_begun_is_finished_and_a_start_is_undone() {
    let Some(mut world) = World::new() else {
        return;
    };
    let kept = CreateSandbox {
        keep: true,
        ..small()
    };
    let id = world.create_with(kept).await.sandbox_id;
    world.sh(&id, "echo kept > /root/mark").await;
    cut_off(&mut world, &id, "stopping", running, async |client, id| {
        client.stop_sandbox(&id).await.map(drop)
    })
    .await;
    eventually("it is stopped, as it was asked to be", async || {
        let sandbox = look(&world, &id).await;
        let so = sandbox.state == State::Stopped && sandbox.reason.is_none();
        (so, (sandbox.state, sandbox.reason))
    })
    .await;
    cut_off(&mut world, &id, "starting", stopped, async |client, id| {
        client.start_sandbox(&id).await.map(drop)
    })
    .await;
    assert_eq!(look(&world, &id).await.state, State::Stopped);
    eventually("no machine is left of it", async || {
        let found = world.traces.found();
        (found.busy.is_empty() && found.cgroups.is_empty(), found)
    })
    .await;
    world.client().start_sandbox(&id).await.unwrap();
    assert_eq!(world.sh(&id, "cat /root/mark").await.stdout, "kept\n");
}

#[tokio::test]
async fn a_paused_machine_whose_stop_was_begun_is_stopped() {
    let Some(mut world) = World::new() else {
        return;
    };
    let kept = CreateSandbox {
        keep: true,
        ..small()
    };
    let id = world.create_with(kept).await.sandbox_id;
    cut_off(&mut world, &id, "stopping", paused, async |client, id| {
        client.stop_sandbox(&id).await.map(drop)
    })
    .await;
    eventually("it is stopped", async || {
        let state = look(&world, &id).await.state;
        (state == State::Stopped, state)
    })
    .await;
    world.client().start_sandbox(&id).await.unwrap();
    world.assert_works(&id).await;
}

#[tokio::test]
async fn a_pause_by_inactivity_that_was_begun_is_undone_and_comes_again() {
    let Some(mut world) = World::new() else {
        return;
    };
    let asked = CreateSandbox {
        idle_seconds: Some(1),
        on_idle: OnIdle::Pause,
        ..small()
    };
    let id = world.create_with(asked).await.sandbox_id;
    world.sh(&id, "sleep 3600 & echo $! > /tmp/pid").await;
    let paused = async |client: Client, id: SandboxId| {
        eventually("it is paused", async || {
            let state = client.get_sandbox(&id).await.map(|found| found.state);
            (state == Ok(State::Paused), state)
        })
        .await;
        Ok(())
    };
    cut_off(&mut world, &id, "holding", running, paused).await;
    let alive = world.sh(&id, "kill -0 $(cat /tmp/pid) && echo alive").await;
    assert_eq!(alive.stdout, "alive\n");
    paused(world.client(), id).await.unwrap();
}

#[tokio::test]
async fn a_reset_that_was_begun_leaves_the_old_files() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = create(&world, asked("begun")).await;
    let files = async |client: &Client, id: &SandboxId| {
        running(client, id).await;
        let text = "echo old > /workspace/file && sync /workspace/file";
        let written = client.exec_workspace(id, crate::workspaces::script(text));
        assert_eq!(written.await.unwrap().exit_code, 0);
    };
    cut_off(&mut world, &id, "recreating", files, async |client, id| {
        client
            .reset_workspace(&id, ResetTo::default())
            .await
            .map(drop)
    })
    .await;
    eventually("it is stopped, and says why", async || {
        let sandbox = look(&world, &id).await;
        let why = sandbox.reason.as_deref() == Some("it was being reset");
        (
            sandbox.state == State::Stopped && why,
            (sandbox.state, sandbox.reason),
        )
    })
    .await;
    world.client().start_workspace(&id).await.unwrap();
    assert_eq!(sh(&world, &id, "cat /workspace/file").await.stdout, "old\n");
}
