//! Stopped workspaces that the daemon keeps no more of than their rows: the next use finds all of
//! them, whoever asks, how many at once, and whatever happened meanwhile.

use crate::workspaces::{asked, create, script};
use motu_core::Workspaces;
use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_testkit::world::{World, eventually};
use std::collections::BTreeMap;

/// A world whose stopped workspaces are soon dormant.
fn world() -> Option<World> {
    let mut world = World::bare()?;
    let config = "runtime = \"container\"\ndormant_seconds = 1\n";
    std::fs::write(world.home().join("config.toml"), config).unwrap();
    world.start();
    Some(world)
}

/// Makes a workspace with something of everything, and stops it.
async fn stopped(world: &World, id: &str) -> WorkspaceId {
    let secret = SecretSource {
        name: "TOKEN".to_string(),
        value: Some("s3cret-of-the-test".to_string()),
        path: None,
    };
    let made = create(
        world,
        CreateWorkspace {
            name: Some(format!("called-{id}")),
            labels: BTreeMap::from([("kind".to_string(), "kept".to_string())]),
            secrets: vec![secret],
            ..asked(id)
        },
    )
    .await;
    let client = world.client();
    let wrote = client.exec_workspace(&made, script("echo kept > file"));
    assert_eq!(wrote.await.unwrap().exit_code, 0);
    let saved = SaveAs {
        snapshot_name: "one".to_string(),
    };
    client.create_snapshot(&made, saved).await.unwrap();
    client.stop_workspace(&made).await.unwrap();
    made
}

/// Waits until the daemon has forgotten so many of them but for their rows.
async fn dormant(world: &World, times: usize) {
    eventually("they are dormant", async || {
        let log = world.log();
        let found = log.matches("a stopped sandbox is dormant").count();
        (found >= times, found)
    })
    .await;
}

async fn is_whole(world: &World, id: &WorkspaceId) {
    let client = world.client();
    let found = client.status_workspace(id).await.unwrap();
    assert_eq!(found.state, State::Stopped);
    assert_eq!(found.name, Some(format!("called-{id}")));
    assert_eq!(found.labels["kind"], "kept");
    assert_eq!(found.secrets[0].name, "TOKEN");
    assert_eq!((found.command_count, found.snapshot_count), (1, 1));
    let log = client.logs_workspace(id).await.unwrap();
    assert_eq!(log.entries[0].command, ["echo kept > file"]);
    client.start_workspace(id).await.unwrap();
    let said = WorkspaceExec {
        secret_env: vec![SecretEnv {
            secret: "TOKEN".to_string(),
            variable: None,
        }],
        ..script("cat file; echo $TOKEN; echo ${#TOKEN}")
    };
    let said = client.exec_workspace(id, said).await.unwrap();
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!((lines[0], lines[2]), ("kept", "18"), "{said:?}");
    assert!(!said.stdout.contains("s3cret"), "{said:?}");
}

#[tokio::test]
async fn a_dormant_workspace_is_whole_at_its_next_use() {
    let Some(mut world) = world() else { return };
    let (one, two) = (stopped(&world, "one").await, stopped(&world, "two").await);
    dormant(&world, 2).await;
    // Lists and names wake nobody.
    let client = world.client();
    let all = client.list_workspaces(Default::default()).await.unwrap();
    let summaries = all.workspaces.iter();
    let mut names: Vec<_> = summaries
        .map(|one| (one.name.clone(), one.state, one.command_count))
        .collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    let named = |id: &str| (Some(format!("called-{id}")), State::Stopped, 1);
    assert_eq!(names, [named("one"), named("two")]);
    let page = motu_core::Page {
        limit: Some(1),
        ..Default::default()
    };
    let first = client.list_workspaces(page).await.unwrap();
    assert_eq!(first.workspaces[0].workspace_id, one);
    assert!(first.next_cursor.is_some());
    let woken = || {
        world
            .log()
            .matches("reading a dormant sandbox again")
            .count()
    };
    assert_eq!(woken(), 0);
    // Many at once: one driver.
    let asks = (0..16).map(|_| {
        let (client, one) = (world.client(), one.clone());
        tokio::spawn(async move { client.status_workspace(&one).await })
    });
    for ask in asks.collect::<Vec<_>>() {
        assert_eq!(ask.await.unwrap().unwrap().state, State::Stopped);
    }
    assert_eq!(woken(), 1);
    is_whole(&world, &one).await;
    let told = world.motu(&["workspace", "status", "called-two", "--json"]);
    assert!(told.stdout.contains("\"two\""), "{told:?}");
    // A daemon that was killed finds them so.
    dormant(&world, 3).await;
    world.restart();
    is_whole(&world, &two).await;
    for id in [one, two] {
        let gone = world.client().delete_workspace(&id).await.unwrap();
        assert_eq!(gone.state, State::Destroyed);
    }
    assert!(world.traces.kept().is_empty());
}

#[tokio::test]
async fn what_was_damaged_meanwhile_is_found_beside_the_disks() {
    let Some(world) = world() else { return };
    let one = stopped(&world, "one").await;
    dormant(&world, 1).await;
    let store = rusqlite::Connection::open(world.home().join("motu.db")).unwrap();
    store
        .busy_timeout(std::time::Duration::from_secs(10))
        .unwrap();
    let damage = "UPDATE sandboxes SET launch = '{' WHERE sandbox_id = 'one'";
    assert_eq!(store.execute(damage, []).unwrap(), 1);
    let damage = "UPDATE workspaces SET workspace = CAST(x'7bff' AS TEXT)";
    assert_eq!(store.execute(damage, []).unwrap(), 1);
    is_whole(&world, &one).await;
}

/// What changes a dormant one is stored, and there after a kill.
#[tokio::test]
async fn a_change_of_a_dormant_workspace_is_kept() {
    let Some(mut world) = world() else { return };
    let one = stopped(&world, "one").await;
    dormant(&world, 1).await;
    let update = UpdateWorkspace {
        name: Some("another".to_string()),
        ..UpdateWorkspace::default()
    };
    world.client().update_workspace(&one, update).await.unwrap();
    world.restart();
    let found = world.client().status_workspace(&one).await.unwrap();
    assert_eq!(found.name.as_deref(), Some("another"));
    let told = world.motu(&["workspace", "status", "another", "--json"]);
    assert!(told.stdout.contains("\"one\""), "{told:?}");
}
