//! Concurrent creation and deletion of workspaces: none loses files because of another.

use motu_core::workspace::*;
use motu_core::{Program, SandboxId, Size, Workspaces};
use motu_testkit::world::{ENVIRONMENT, World, eventually};
use std::path::{Path, PathBuf};
use tokio::task::JoinSet;

const CLIENTS: usize = 8;
/// Workspaces per client; each client deletes every second one at once.
const EACH: usize = 4;

fn asked(id: &str, seed: &Path) -> CreateWorkspace {
    CreateWorkspace {
        environment: ENVIRONMENT.to_string(),
        workspace_id: Some(SandboxId::parse(id).unwrap()),
        runtime: Some("container".to_string()),
        seed_path: Some(seed.display().to_string()),
        size: Size::of(64, 64),
        ..CreateWorkspace::default()
    }
}

/// A seed with content that identifies this client.
fn seed(world: &World, client: usize) -> PathBuf {
    let dir = world.path().join(format!("seed-{client}"));
    std::fs::create_dir_all(dir.join("deep")).unwrap();
    for number in 0..20 {
        let text = format!("{client} {number}\n");
        std::fs::write(dir.join(format!("deep/file-{number}")), text).unwrap();
    }
    dir
}

async fn assert_seeded(client: &motu_api::Client, id: &WorkspaceId, number: usize) {
    let request = WorkspaceExec::from(Program::shell("cat deep/file-* | sort"));
    let found = client.exec_workspace(id, request).await.unwrap();
    let mut expected: Vec<String> = (0..20).map(|line| format!("{number} {line}\n")).collect();
    expected.sort();
    assert_eq!(found.stdout, expected.concat(), "{id}");
}

#[tokio::test]
async fn workspaces_deleted_beside_others_cost_them_nothing() {
    let Some(world) = World::new() else {
        return;
    };
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (client, source) = (world.client(), seed(&world, number));
        clients.spawn(async move {
            let mut kept = Vec::new();
            for turn in 0..EACH {
                let request = asked(&format!("ws-{number}-{turn}"), &source);
                let id = client.create_workspace(request).await.unwrap().workspace_id;
                match turn % 2 {
                    0 => drop(client.delete_workspace(&id).await.unwrap()),
                    _ => kept.push((id, number)),
                }
            }
            kept
        });
    }
    let kept = clients.join_all().await.concat();
    assert_eq!(kept.len(), CLIENTS * EACH / 2);
    eventually(
        "every workspace has its baseline, and nobody else",
        async || {
            let seeded = world.traces.seeded();
            (seeded.len() == kept.len(), seeded)
        },
    )
    .await;
    let client = world.client();
    for (id, number) in &kept {
        assert_seeded(&client, id, *number).await;
        let diff = client.diff_workspace(id, DiffOptions::default()).await;
        assert!(!diff.unwrap().changed, "{id}");
    }
    // A copy shares the baseline, and keeps it after its source is deleted.
    let (source, number) = &kept[0];
    let copies = client
        .fork_workspace(source, ForkWorkspace::default())
        .await;
    let copy = copies.unwrap().workspaces.remove(0).workspace_id;
    client.delete_workspace(source).await.unwrap();
    client.stop_workspace(&copy).await.unwrap();
    client.start_workspace(&copy).await.unwrap();
    assert_seeded(&client, &copy, *number).await;
}
