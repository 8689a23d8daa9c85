//! Damaged stores, moved state directories and unknown files: everything acknowledged is still
//! there, or is restored by the command that the error names.

use motu_core::key::{CreateKey, KeyId};
use motu_core::sandbox::State;
use motu_core::secret::SetSecret;
use motu_core::template::TemplateDefinition;
use motu_core::workspace::*;
use motu_core::{ErrorKind, Program, SandboxId, Service, Size, Workspaces};
use motu_testkit::story::Told;
use motu_testkit::world::{ENVIRONMENT, World, eventually, refused};
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

/// What is on the disk of a killed daemon whose log is damaged: keys are as they were, and what
/// was lost is said.
#[tokio::test]
async fn a_revoked_key_never_comes_back_and_a_lost_log_is_said() {
    let Some(mut world) = World::new() else {
        return;
    };
    let key = async |world: &World, name: &str| {
        let ask = CreateKey {
            name: Some(name.to_string()),
            ..CreateKey::default()
        };
        world.client().create_key(ask).await.unwrap().about.key_id
    };
    let definition = |environment: &str| TemplateDefinition {
        environment: environment.to_string(),
        ..TemplateDefinition::default()
    };
    let mut revoked = vec![key(&world, "first").await];
    // After a clean stop everything is in the store itself, where it used to be good.
    world.stop();
    world.start();
    let damages: [Damage; 3] = [("missing", remove), ("cut", halve), ("noisy", noise)];
    for (name, damage) in damages {
        let client = world.client();
        client.revoke_key(revoked.last().unwrap()).await.unwrap();
        let made = key(&world, name).await;
        let (sink, _progress) = tokio::sync::mpsc::channel(8);
        let put = client.put_template(name, definition(ENVIRONMENT), sink);
        put.await.unwrap();
        world.kill();
        damage(&file(&world, "motu.db-wal"));
        world.start();
        let client = world.client();
        let keys = client.list_keys(Default::default()).await.unwrap();
        let find = |id: &KeyId| keys.iter().find(|key| key.key_id == *id).unwrap();
        assert!(
            revoked.iter().all(|id| find(id).revoked_at.is_some()),
            "{name}: {keys:?}"
        );
        assert!(find(&made).revoked_at.is_none());
        client.get_template(name).await.unwrap();
        let said = world.motu(&["recover"]).stdout;
        let times = said.matches("lost changes of the store").count();
        assert_eq!(times, revoked.len(), "{name}: {said}");
        revoked.push(made);
    }
    // Without the store they are there as well.
    world.kill();
    for name in ["motu.db", "motu.db-wal", "motu.db-shm"] {
        let _ = std::fs::remove_file(file(&world, name));
    }
    world.start();
    let client = world.client();
    let keys = client.list_keys(Default::default()).await.unwrap();
    let good = keys.iter().filter(|key| key.revoked_at.is_none()).count();
    assert_eq!((keys.len(), good), (4, 1));
    assert_eq!(
        client
            .list_templates(Default::default())
            .await
            .unwrap()
            .len(),
        3
    );
    // A directory of keys that is gone is not begun anew.
    world.stop();
    std::fs::rename(file(&world, "keys"), world.path().join("keys")).unwrap();
    let error = world.motu(&["ps", "--json"]).error();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error:?}");
    assert!(error.message.contains("keys is gone"), "{error:?}");
    std::fs::rename(world.path().join("keys"), file(&world, "keys")).unwrap();
    world.start();
}

/// One byte that is no text in a row of every table: the daemon goes on with all the others.
#[tokio::test]
async fn bytes_that_are_no_text_cost_their_rows_alone() {
    let Some(mut world) = World::new() else {
        return;
    };
    let good = make(&world, "ws-good").await;
    let bad = make(&world, "ws-bad").await;
    let client = world.client();
    let lines = async |id: &WorkspaceId| client.logs_workspace(id).await.unwrap().entries.len();
    let (before, of_bad) = (lines(&good).await, lines(&bad).await);
    world.stop();
    let store = rusqlite::Connection::open(file(&world, "motu.db")).unwrap();
    let spoil = |table: &str, column: &str, which: &str| {
        let middle = format!("length({column}) / 2");
        let update = format!(
            "UPDATE {table} SET {column} = CAST(CAST(substr({column}, 1, {middle}) AS BLOB)
             || x'ff' || CAST(substr({column}, {middle} + 2) AS BLOB) AS TEXT) WHERE {which}"
        );
        let changed = store.execute(&update, []).unwrap();
        assert!(changed > 0, "{table}.{column}");
    };
    spoil("sandboxes", "sandbox", "sandbox_id = 'ws-bad'");
    spoil("workspaces", "workspace", "workspace_id = 'ws-bad'");
    spoil("commands", "command", "workspace_id = 'ws-bad'");
    spoil("baseline_refs", "baseline", "sandbox_id = 'ws-bad'");
    spoil(
        "events",
        "event",
        "sequence = (SELECT max(sequence) FROM events)",
    );
    spoil("meta", "value", "key = 'place'");
    drop(store);
    world.start();
    for id in [&good, &bad] {
        assert_there(&world, id).await;
    }
    let client = world.client();
    let now = async |id: &WorkspaceId| client.logs_workspace(id).await.unwrap().entries.len();
    // `assert_there` has run one more command in each.
    assert_eq!((now(&good).await, now(&bad).await), (before + 1, 1));
    assert!(of_bad > 0);
    let said = world.motu(&["recover"]).stdout;
    assert!(said.matches("row of the store").count() >= 4, "{said}");
    assert!(said.contains("a row of commands cannot be read"), "{said}");
    // Nothing is said of them again, and the baseline was not taken for nobody's.
    world.restart();
    assert_there(&world, &bad).await;
    let again = world.motu(&["recover"]).stdout;
    assert_eq!(
        again.matches("row of the store").count(),
        said.matches("row of the store").count()
    );
    assert!(!again.contains("baselines/"), "{again}");
}

/// A key that is gone is not replaced: what would be sealed with a second one could not be opened
/// when the first is brought back.
#[tokio::test]
async fn a_key_of_secrets_that_is_gone_is_said_and_not_made_again() {
    let Some(mut world) = World::new() else {
        return;
    };
    let set = async |world: &World, name: &str| {
        let ask = SetSecret {
            value: Some("a value of a call".to_string()),
            ..SetSecret::default()
        };
        world.client().set_secret(name, ask).await
    };
    set(&world, "first").await.unwrap();
    let key = file(&world, "secrets.key");
    let bytes = std::fs::read(&key).unwrap();
    for other in [None, Some([7u8; 32])] {
        world.stop();
        match other {
            None => remove(&key),
            Some(other) => std::fs::write(&key, other).unwrap(),
        }
        world.start();
        let error = refused(ErrorKind::Unavailable, set(&world, "second").await);
        assert!(error.message.contains("secrets.key"), "{error:?}");
        assert!(error.hint.is_some_and(|hint| hint.contains("backup")));
        assert_eq!(std::fs::read(&key).ok(), other.map(Vec::from));
        let said = world.motu(&["doctor", "--json"]).stdout;
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let checks = said["host"].as_array().unwrap();
        let kept = checks.iter().find(|one| one["name"] == "kept");
        assert_eq!(kept.unwrap()["health"], "failed", "{said}");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::write(&key, &bytes).unwrap();
        std::fs::set_permissions(&key, private).unwrap();
        set(&world, "second").await.unwrap();
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
    world
        .client()
        .create_key(CreateKey::default())
        .await
        .unwrap();
    let definition = TemplateDefinition {
        environment: ENVIRONMENT.to_string(),
        ..TemplateDefinition::default()
    };
    let (sink, _progress) = tokio::sync::mpsc::channel(8);
    let put = world.client().put_template("ready", definition, sink).await;
    put.unwrap();
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
        let told = world.motu(&["recover", "--rebuild"]);
        succeeded(&told);
        for part in [
            "1 keys in keys",
            "1 templates in templates",
            "names of environments in",
        ] {
            assert!(told.stdout.contains(part), "{part}: {told:?}");
        }
        let gone = "they were in the old store alone, and it cannot be read";
        assert!(told.stdout.contains(gone), "{told:?}");
        world.start();
        for id in &all {
            assert_there(&world, id).await;
        }
        world.client().get_template("ready").await.unwrap();
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
        let left = motu_testkit::traces::Traces::of(&copy).left();
        (left.is_empty(), left)
    })
    .await;
}
