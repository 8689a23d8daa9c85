//! Missing parts of a state directory, and expired workspaces.

use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_core::{ErrorKind, Program, SandboxId, Size, Workspaces};
use motu_testkit::world::{ENVIRONMENT, World, eventually, refused};

fn asked(id: &str) -> CreateWorkspace {
    CreateWorkspace {
        environment: ENVIRONMENT.to_string(),
        workspace_id: Some(SandboxId::parse(id).unwrap()),
        runtime: Some("container".to_string()),
        size: Size::of(64, 64),
        ..CreateWorkspace::default()
    }
}

fn script(text: &str) -> WorkspaceExec {
    WorkspaceExec::from(Program::shell(text))
}

async fn create(world: &World, id: &str) -> WorkspaceId {
    let client = world.client();
    let made = client.create_workspace(asked(id)).await;
    let id = made.unwrap().workspace_id;
    let written = client.exec_workspace(&id, script("echo mine > own")).await;
    assert_eq!(written.unwrap().exit_code, 0);
    id
}

async fn assert_own(world: &World, id: &WorkspaceId) {
    let found = world.client().exec_workspace(id, script("cat own")).await;
    assert_eq!(found.unwrap().stdout, "mine\n");
}

#[tokio::test]
async fn a_disk_that_vanished_is_not_a_blank_one() {
    let Some(world) = World::new() else {
        return;
    };
    let id = create(&world, "ws-disk").await;
    let client = world.client();
    client.stop_workspace(&id).await.unwrap();
    let image = world.home().join("kept/ws-disk/disks-1/disk.img");
    let away = world.path().join("disk.img");
    std::fs::rename(&image, &away).unwrap();
    let error = refused(ErrorKind::NotFound, client.start_workspace(&id).await);
    assert!(error.message.contains("disks"), "{error:?}");
    assert!(!image.exists());
    // After the file is restored, the workspace is as before.
    std::fs::copy(&away, &image).unwrap();
    client.start_workspace(&id).await.unwrap();
    assert_own(&world, &id).await;
}

#[tokio::test]
async fn a_machine_without_its_directory_does_not_run() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = create(&world, "ws-machine").await;
    let machine = world.home().join("machines/container/ws-machine");
    // With a running daemon, and without one.
    for round in 0..2 {
        if round == 1 {
            world.kill();
        }
        std::fs::remove_dir_all(&machine).unwrap();
        if round == 1 {
            world.start();
        }
        eventually("it is stopped", async || {
            let status = world.client().status_workspace(&id).await.unwrap();
            (status.state == State::Stopped, status)
        })
        .await;
        eventually("nothing of it runs", async || {
            let busy = world.traces.processes("ws-machine");
            (busy.is_empty(), busy)
        })
        .await;
        world.client().start_workspace(&id).await.unwrap();
        assert_own(&world, &id).await;
    }
}

/// Changes the record beside a workspace's disks.
fn edit(world: &World, id: &WorkspaceId, runtime: &str) {
    let path = world
        .home()
        .join("kept")
        .join(id.as_str())
        .join("sandbox.json");
    let mut record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    record["sandbox"]["runtime"] = runtime.into();
    record["revision"] = (record["revision"].as_u64().unwrap() + 1).into();
    std::fs::write(&path, record.to_string()).unwrap();
}

#[tokio::test]
async fn a_workspace_of_an_unknown_runtime_keeps_its_name_and_its_history() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = create(&world, "ws-strange").await;
    world.client().stop_workspace(&id).await.unwrap();
    world.stop();
    edit(&world, &id, "nowhere");
    // Twice: an unknown workspace is not forgotten at the second start either.
    for _ in 0..2 {
        world.start();
        let status = world.client().status_workspace(&id).await.unwrap();
        assert_eq!(
            (status.state, status.runtime.as_str()),
            (State::Stopped, "nowhere")
        );
        assert!(status.reason.unwrap().contains("nowhere"));
        refused(
            ErrorKind::Unavailable,
            world.client().start_workspace(&id).await,
        );
        let log = world.client().logs_workspace(&id).await.unwrap();
        assert_eq!(log.entries.len(), 1, "{log:?}");
        world.stop();
    }
    edit(&world, &id, "container");
    world.start();
    world.client().start_workspace(&id).await.unwrap();
    assert_own(&world, &id).await;
}

#[tokio::test]
async fn a_workspace_whose_time_is_over_drops_its_baseline() {
    let Some(world) = World::new() else {
        return;
    };
    let seed = world.path().join("seed");
    std::fs::create_dir(&seed).unwrap();
    std::fs::write(seed.join("file"), "x").unwrap();
    let request = CreateWorkspace {
        seed_path: Some(seed.display().to_string()),
        ttl_seconds: Some(3),
        ..asked("ws-short")
    };
    let made = world.client().create_workspace(request).await.unwrap();
    assert!(made.expires_at.is_some());
    eventually("nothing of it is left", async || {
        let left = (world.traces.seeded(), world.traces.kept());
        (left.0.is_empty() && left.1.is_empty(), left)
    })
    .await;
}
