//! Damaged stores, moved state directories and unknown files: everything acknowledged is still
//! there, or is restored by the command that the error names.

use crate::support::{ENVIRONMENT, Told, World, eventually, refused};
use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_core::{ErrorKind, Program, SandboxId, Size, Workspaces};
use std::path::{Path, PathBuf};

fn asked(id: &str) -> CreateWorkspace {
    CreateWorkspace {
        environment: ENVIRONMENT.to_string(),
        workspace_id: Some(SandboxId::parse(id).unwrap()),
        runtime: Some("container".to_string()),
        name: Some(format!("name of {id}")),
        size: Size::of(64, 64),
        ..CreateWorkspace::default()
    }
}

/// A workspace with a seed and its own file, all acknowledged.
async fn make(world: &World, id: &str) -> WorkspaceId {
    let seed = world.path().join("seed");
    std::fs::create_dir_all(&seed).unwrap();
    std::fs::write(seed.join("seeded"), "seeded\n").unwrap();
    let request = CreateWorkspace {
        seed_path: Some(seed.display().to_string()),
        ..asked(id)
    };
    let client = world.client();
    let id = client.create_workspace(request).await.unwrap().workspace_id;
    let write = format!("echo {id} > own && sync -f own");
    let written = client.exec_workspace(&id, script(&write)).await.unwrap();
    assert_eq!(written.exit_code, 0, "{written:?}");
    id
}

fn script(text: &str) -> WorkspaceExec {
    WorkspaceExec::from(Program::shell(text))
}

/// Checks that the workspace exists under its name, and has its files.
async fn assert_there(world: &World, id: &WorkspaceId) {
    let client = world.client();
    let status = client.status_workspace(id).await.unwrap();
    assert_eq!(status.name, Some(format!("name of {id}")));
    if status.state == State::Stopped {
        client.start_workspace(id).await.unwrap();
    }
    let found = client.exec_workspace(id, script("cat seeded own")).await;
    assert_eq!(found.unwrap().stdout, format!("seeded\n{id}\n"));
}

fn file(world: &World, name: &str) -> PathBuf {
    world.home().join(name)
}

fn noise(path: &Path) {
    let length = std::fs::metadata(path).map_or(4096, |found| found.len());
    let bytes: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8 | 1).collect();
    std::fs::write(path, bytes).unwrap();
}

fn empty(path: &Path) {
    std::fs::write(path, "").unwrap();
}

fn halve(path: &Path) {
    let length = std::fs::metadata(path).unwrap().len();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(length / 2).unwrap();
}

fn remove(path: &Path) {
    std::fs::remove_file(path).unwrap();
}

/// The name of a kind of damage, and the function that does it to a file.
type Damage = (&'static str, fn(&Path));

/// Stops the daemon cleanly, as `motu serve --stop` does.
fn stop(world: &mut World) {
    world.stop();
}

fn succeeded(told: &Told) {
    assert_eq!(told.code, 0, "{told:?}");
}

#[tokio::test]
async fn a_damaged_log_of_the_store_costs_nothing() {
    let Some(mut world) = World::new() else {
        return;
    };
    let mut all = vec![make(&world, "ws-first").await];
    let damages: [Damage; 3] = [("missing", remove), ("cut", halve), ("noisy", noise)];
    for (name, damage) in damages {
        // Its rows are only in the write-ahead log.
        all.push(make(&world, &format!("ws-{name}")).await);
        world.kill();
        damage(&file(&world, "motu.db-wal"));
        world.start();
        for id in &all {
            assert_there(&world, id).await;
        }
    }
}

/// Without its log a store is in an earlier state, with workspaces that were deleted since.
#[tokio::test]
async fn a_lost_log_with_a_deletion_in_it_costs_nobody_the_start() {
    let Some(mut world) = World::new() else {
        return;
    };
    let stays = make(&world, "ws-stays").await;
    let goes = make(&world, "ws-goes").await;
    // After a clean stop everything is in the store itself.
    world.stop();
    world.start();
    world.client().delete_workspace(&goes).await.unwrap();
    world.kill();
    let _ = std::fs::remove_file(file(&world, "motu.db-wal"));
    world.start();
    assert_there(&world, &stays).await;
    // It has no disks and cannot run, but it can be deleted again.
    if world.client().status_workspace(&goes).await.is_ok() {
        let error = world.client().start_workspace(&goes).await.unwrap_err();
        assert!(!error.message.is_empty());
        world.client().delete_workspace(&goes).await.unwrap();
    }
}

#[tokio::test]
async fn a_lost_store_is_refused_and_made_again() {
    let Some(mut world) = World::new() else {
        return;
    };
    let all = [
        make(&world, "ws-running").await,
        make(&world, "ws-stopped").await,
    ];
    world.client().stop_workspace(&all[1]).await.unwrap();
    let damages: [Damage; 3] = [
        ("is empty", empty),
        ("is damaged", noise),
        ("is missing", remove),
    ];
    for (what, damage) in damages {
        world.kill();
        damage(&file(&world, "motu.db"));
        for log in ["motu.db-wal", "motu.db-shm"] {
            let _ = std::fs::remove_file(file(&world, log));
        }
        let error = world.motu(&["ps", "--json"]).error();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error:?}");
        assert!(error.message.contains(what), "{error:?}");
        assert!(error.hint.unwrap().contains("motu recover --rebuild"));
        succeeded(&world.motu(&["recover", "--rebuild"]));
        world.start();
        for id in &all {
            assert_there(&world, id).await;
        }
    }
    // Only damaged stores were set aside.
    let lost = world.motu(&["recover", "--json"]);
    let lost: serde_json::Value = serde_json::from_str(&lost.stdout).unwrap();
    let kinds: Vec<&str> = lost
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["kind"].as_str().unwrap())
        .collect();
    assert!(kinds.iter().all(|kind| *kind == "store"), "{lost}");
    // An undamaged store is not rebuilt.
    stop(&mut world);
    let error = world.motu(&["recover", "--rebuild", "--json"]).error();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error:?}");
}

#[tokio::test]
async fn what_nobody_knows_is_set_aside_and_comes_back() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = make(&world, "ws-odd").await;
    let other = make(&world, "ws-other").await;
    world.client().stop_workspace(&id).await.unwrap();
    world.kill();
    let record = file(&world, "kept/ws-odd/sandbox.json");
    let good = std::fs::read(&record).unwrap();
    empty(&record);
    remove(&file(&world, "motu.db"));
    let rebuilt = world.motu(&["recover", "--rebuild"]);
    succeeded(&rebuilt);
    assert!(
        rebuilt.stdout.contains("ws-odd  was left out"),
        "{rebuilt:?}"
    );
    world.start();
    assert_there(&world, &other).await;
    refused(
        ErrorKind::NotFound,
        world.client().status_workspace(&id).await,
    );
    assert!(world.log().contains("set aside"), "{}", world.log());
    stop(&mut world);
    let listed = world.motu(&["recover", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let entry = listed.as_array().unwrap().iter();
    let entry = entry.clone().find(|one| one["was_at"] == "kept/ws-odd");
    let entry = entry.unwrap_or_else(|| panic!("{listed}"))["entry"].clone();
    let content = file(&world, "lost")
        .join(entry.as_str().unwrap())
        .join("content");
    assert!(content.join("disks-1/disk.img").exists());
    // Without a record it is kept, but cannot be restored.
    let error = world.motu(&["recover", "ws-odd", "--json"]).error();
    assert_eq!(error.kind, ErrorKind::Unsupported, "{error:?}");
    std::fs::write(content.join("sandbox.json"), good).unwrap();
    succeeded(&world.motu(&["recover", "ws-odd"]));
    world.start();
    assert_there(&world, &id).await;
}

#[tokio::test]
async fn a_state_directory_that_was_moved_keeps_everything() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = make(&world, "ws-moved").await;
    world.client().stop_workspace(&id).await.unwrap();
    stop(&mut world);
    let moved = world.path().join("elsewhere");
    std::fs::rename(world.home(), &moved).unwrap();
    world.live_at(&moved);
    world.start();
    assert_there(&world, &id).await;
    world.client().stop_workspace(&id).await.unwrap();
    stop(&mut world);

    // The state directory is reached by a link whose target changes.
    let again = world.path().join("deeper/still");
    std::fs::create_dir(world.path().join("deeper")).unwrap();
    std::fs::rename(&moved, &again).unwrap();
    std::os::unix::fs::symlink(&again, &moved).unwrap();
    world.live_at(&moved);
    world.start();
    assert_there(&world, &id).await;
    stop(&mut world);
    let log = world.log();
    assert!(!log.contains("set aside"), "{log}");
}

#[tokio::test]
async fn a_copy_of_a_state_directory_leaves_the_machines_of_the_original_alone() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = make(&world, "ws-twin").await;
    let original = world.home().to_path_buf();
    world.kill();
    let copy = world.path().join("copy");
    let copied = motu_needs::command("cp")
        .args(["-a", "--"])
        .args([&original, &copy])
        .status();
    assert!(copied.unwrap().success());
    let first = world.traces.first_process(id.as_str());

    world.live_at(&copy);
    world.start();
    let status = world.client().status_workspace(&id).await.unwrap();
    assert_eq!(status.state, State::Stopped, "{status:?}");
    assert_there(&world, &id).await;
    world.client().delete_workspace(&id).await.unwrap();
    stop(&mut world);

    world.live_at(&original);
    world.start();
    assert_eq!(world.traces.first_process(id.as_str()), first);
    let status = world.client().status_workspace(&id).await.unwrap();
    assert_eq!(status.state, State::Running, "{status:?}");
    assert_there(&world, &id).await;
    eventually("nothing of the copy is left", async || {
        let left = crate::traces::Traces::of(&copy).left();
        (left.is_empty(), left)
    })
    .await;
}
