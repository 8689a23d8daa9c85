//! Backups of a state directory with running machines.

use motu_core::report::BackUp;
use motu_core::sandbox::{CreateSandbox, State};
use motu_core::secret::SetSecret;
use motu_core::terminal::OpenTerminal;
use motu_core::workspace::*;
use motu_core::{ErrorKind, Program, SandboxId, Service, Size, Terminals, Workspaces};
use motu_testkit::world::{ENVIRONMENT, World, refused};
use std::os::unix::fs::MetadataExt;

fn script(text: &str) -> WorkspaceExec {
    WorkspaceExec::from(Program::shell(text))
}

async fn sh(world: &World, id: &WorkspaceId, text: &str) -> String {
    let result = world
        .client()
        .exec_workspace(id, script(text))
        .await
        .unwrap();
    assert_eq!(result.exit_code, 0, "{text}: {result:?}");
    result.stdout
}

async fn create(world: &World, id: &str) -> WorkspaceId {
    let seed = world.path().join("seed");
    std::fs::create_dir_all(&seed).unwrap();
    std::fs::write(seed.join("seeded"), "seeded\n").unwrap();
    let request = CreateWorkspace {
        environment: ENVIRONMENT.to_string(),
        workspace_id: Some(SandboxId::parse(id).unwrap()),
        runtime: Some("container".to_string()),
        seed_path: Some(seed.display().to_string()),
        size: Size::of(64, 1024),
        secrets: vec![SecretSource {
            name: "KEY".to_string(),
            value: Some("value-of-the-key".to_string()),
            path: None,
        }],
        ..CreateWorkspace::default()
    };
    let made = world.client().create_workspace(request).await.unwrap();
    sh(world, &made.workspace_id, &format!("echo {id} > own")).await;
    made.workspace_id
}

/// The names of files next to a backup.
fn beside(world: &World) -> Vec<String> {
    let found = std::fs::read_dir(world.path()).unwrap().flatten();
    let names = found.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("backup")).collect()
}

#[tokio::test]
async fn a_backup_of_what_runs_is_restored_whole() {
    let Some(mut world) = World::new() else {
        return;
    };
    let (first, second) = (
        create(&world, "ws-one").await,
        create(&world, "ws-two").await,
    );
    let client = world.client();
    client
        .create_snapshot(&first, SaveAs::named("before"))
        .await
        .unwrap();
    // Nothing is flushed here: the backup must do that.
    sh(
        &world,
        &first,
        "dd if=/dev/urandom of=large bs=1M count=4 2>/dev/null; sha256sum large > sum",
    )
    .await;
    client.stop_workspace(&second).await.unwrap();
    let policies = world.home().join("policies");
    std::fs::create_dir_all(&policies).unwrap();
    std::fs::write(policies.join("own.toml"), "version = 1\n").unwrap();
    let key = SetSecret {
        value: Some("a value of a call".to_string()),
        ..SetSecret::default()
    };
    client.set_secret("api-key", key).await.unwrap();

    let output = world.path().join("backup");
    let text = output.display().to_string();
    let made = client
        .backup(BackUp {
            output_path: text.to_string(),
        })
        .await
        .unwrap();
    assert_eq!(made.sandbox_ids.len(), 2);
    assert_eq!(beside(&world), ["backup"]);
    let image = std::fs::metadata(output.join("kept/ws-one/disks-1/disk.img")).unwrap();
    assert!(image.blocks() * 512 < image.len() / 4, "holes are holes");
    refused(
        ErrorKind::Conflict,
        client
            .backup(BackUp {
                output_path: text.to_string(),
            })
            .await,
    );
    // The machine continues, and later changes are not in the backup.
    let status = client.status_workspace(&first).await.unwrap();
    assert_eq!(status.state, State::Running);
    sh(&world, &first, "rm large; echo later > own").await;
    for id in [&first, &second] {
        client.delete_workspace(id).await.unwrap();
    }
    world.stop();

    let home = world.path().join("restored");
    std::fs::create_dir(&home).unwrap();
    world.live_at(&home);
    let told = world.motu(&["restore", &text]);
    assert_eq!(told.code, 0, "{told:?}");
    world.start();
    for id in [&first, &second] {
        let client = world.client();
        let status = client.status_workspace(id).await.unwrap();
        assert_eq!(status.state, State::Stopped, "{status:?}");
        client.start_workspace(id).await.unwrap();
        assert_eq!(
            sh(&world, id, "cat seeded own").await,
            format!("seeded\n{id}\n")
        );
        assert!(!client.logs_workspace(id).await.unwrap().entries.is_empty());
        let request = WorkspaceExec {
            secret_env: vec![SecretEnv {
                secret: "KEY".to_string(),
                variable: None,
            }],
            ..script("echo ${#KEY}")
        };
        let said = client.exec_workspace(id, request).await.unwrap();
        assert_eq!(said.stdout, "16\n");
    }
    sh(&world, &first, "sha256sum -c sum").await;
    let policy = world.client().get_policy("own").await.unwrap();
    assert_eq!(policy.source, "file");
    let secrets = world
        .client()
        .list_secrets(Default::default())
        .await
        .unwrap();
    assert_eq!(secrets.secrets[0].name, "api-key");
    let snapshots = world
        .client()
        .list_snapshots(&first, Default::default())
        .await
        .unwrap();
    assert_eq!(snapshots.snapshots.len(), 2);
    // A restore does not overwrite existing state.
    world.stop();
    let error = world.motu(&["restore", &text, "--json"]).error();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error:?}");
}

/// Environments of the world's own: what is made here is in no other test's backup.
fn own_environments(world: &World) {
    let place = world.home().join("environments");
    std::fs::remove_file(&place).unwrap();
    let shared = motu_testkit::environments();
    let record = shared.join("names/busybox.json");
    let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    let blob = read["digest"].as_str().unwrap().replace(':', "-");
    for part in ["names", "blobs"] {
        std::fs::create_dir_all(place.join(part)).unwrap();
    }
    let copy = |from: std::path::PathBuf, to: std::path::PathBuf| {
        let copied = motu_needs::command("cp")
            .arg("-a")
            .args([from, to])
            .status();
        assert!(copied.unwrap().success());
    };
    copy(record, place.join("names/busybox.json"));
    copy(
        shared.join("blobs").join(&blob),
        place.join("blobs").join(&blob),
    );
}

/// Runs a command that must succeed.
fn done(world: &World, args: &[&str]) -> String {
    let told = world.motu(args);
    assert_eq!(told.code, 0, "{args:?}: {told:?}");
    told.stdout
}

fn json(world: &World, args: &[&str]) -> serde_json::Value {
    let text = done(world, &[args, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
}

/// Everything that may be kept, made once: an environment of each kind, a template of each kind
/// without memory, keys, and what the small ones are.
async fn fill(world: &World) -> (WorkspaceId, motu_core::audit::AuditId) {
    let workspace = create(world, "ws-all").await;
    let client = world.client();
    let saved = SaveAs::named("before");
    client.create_snapshot(&workspace, saved).await.unwrap();
    let kept = CreateSandbox {
        keep: true,
        ..motu_testkit::world::small()
    };
    let sandbox = world.create_with(kept).await.sandbox_id;
    let said = world.sh(&sandbox, "echo made > /made").await;
    assert_eq!(said.exit_code, 0, "{said:?}");
    let id = sandbox.as_str();
    done(world, &["commit", id, "committed:1"]);
    done(world, &["env", "tag", "committed:1", "tagged:1"]);
    done(world, &["template", "save", id, "files", "--no-memory"]);
    let setup = ["--from", "busybox", "--setup", "echo built > /built"];
    done(
        world,
        &[&["template", "create", "built"], &setup[..]].concat(),
    );
    let tree = world.path().join("tree");
    std::fs::create_dir_all(tree.join("bin")).unwrap();
    std::fs::write(tree.join("imported"), "imported\n").unwrap();
    let busybox = motu_testkit::environments();
    let record = std::fs::read(busybox.join("names/busybox.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let blob = record["digest"].as_str().unwrap().replace(':', "-");
    let shell = busybox.join("blobs").join(blob).join("root/bin/busybox");
    std::fs::copy(shell, tree.join("bin/sh")).unwrap();
    done(world, &["env", "pull", &format!("dir:{}", tree.display())]);
    for name in ["good", "bad"] {
        let made = json(
            world,
            &["key", "create", "--project", "acme", "--name", name],
        );
        if name == "bad" {
            done(world, &["key", "revoke", made["key_id"].as_str().unwrap()]);
        }
    }
    let policies = world.home().join("policies");
    std::fs::create_dir_all(&policies).unwrap();
    std::fs::write(policies.join("own.toml"), "version = 1\n").unwrap();
    let secret = SetSecret {
        value: Some("a value of a call".to_string()),
        ..SetSecret::default()
    };
    client.set_secret("api-key", secret).await.unwrap();
    let terminal = OpenTerminal {
        session_id: "talk".to_string(),
        sandbox_id: Some(sandbox.clone()),
        command: vec!["sh".to_string()],
        ..OpenTerminal::default()
    };
    client.open_terminal(terminal).await.unwrap();
    let said = world
        .client()
        .exec(&sandbox, motu_testkit::world::shell("true"))
        .await;
    client.destroy_sandbox(&sandbox).await.unwrap();
    (workspace, said.unwrap().audit_id.unwrap())
}

/// Uses each thing of [`fill`].
async fn use_all(world: &World, workspace: &WorkspaceId, audit: &motu_core::audit::AuditId) {
    let client = world.client();
    client.start_workspace(workspace).await.unwrap();
    assert_eq!(sh(world, workspace, "cat own").await, "ws-all\n");
    for (from, file, text) in [
        (&["committed:1"][..], "/made", "made\n"),
        (&["tagged:1"], "/made", "made\n"),
        (&["--template", "files"], "/made", "made\n"),
        (&["--template", "built"], "/built", "built\n"),
    ] {
        let run = [&["run"], from, &["--", "cat", file]].concat();
        assert_eq!(done(world, &run), text, "{run:?}");
    }
    let tree = format!("dir:{}", world.path().join("tree").display());
    let run = [
        "run",
        &tree,
        "--",
        "/bin/sh",
        "-c",
        "read a < /imported; echo $a",
    ];
    assert_eq!(done(world, &run), "imported\n");
    let keys = client.list_keys(Default::default()).await.unwrap().keys;
    let revoked = |name: &str| {
        let mut found = keys.iter().filter(|key| key.name.as_deref() == Some(name));
        found
            .next()
            .unwrap_or_else(|| panic!("{keys:?}"))
            .revoked_at
            .is_some()
    };
    assert!(!revoked("good") && revoked("bad"));
    assert_eq!(client.get_policy("own").await.unwrap().source, "file");
    let secrets = client.list_secrets(Default::default()).await.unwrap();
    assert_eq!(secrets.secrets[0].name, "api-key");
    let sessions = json(world, &["terminal", "list"]).to_string();
    assert!(sessions.contains("talk"), "{sessions}");
    assert!(world.home().join("terminals/talk").is_dir());
    assert_eq!(client.get_audit(audit).await.unwrap().entries.len(), 1);
    let events = done(world, &["events", "-n", "1000", "--json"]);
    assert!(events.contains("key.revoked"), "{events}");
    let snapshots = client.list_snapshots(workspace, Default::default()).await;
    assert_eq!(snapshots.unwrap().snapshots.len(), 2);
}

#[tokio::test]
async fn everything_that_is_kept_is_in_a_backup_and_is_used_after_it() {
    let Some(mut world) = World::bare() else {
        return;
    };
    own_environments(&world);
    world.start();
    let (workspace, audit) = fill(&world).await;
    let backup = world.path().join("backup");
    let text = backup.display().to_string();
    done(&world, &["backup", &text]);
    let list = json(&world, &["backup", "--list", &text]);
    let items = list["items"].as_array().unwrap();
    for kind in [
        "store",
        "workspace",
        "baseline",
        "environment",
        "environment_name",
        "template",
        "key",
        "policy",
        "secret",
        "recording",
        "audit",
        "host_key",
        "configuration",
    ] {
        assert!(
            items.iter().any(|one| one["kind"] == kind),
            "no {kind}: {list}"
        );
    }
    assert_eq!(list["left_out"], serde_json::json!([]));
    let told = done(&world, &["backup", "--list", &text]);
    assert!(told.contains("template  files"), "{told}");
    assert!(done(&world, &["backup", "--verify", &text]).contains("whole"));
    done(&world, &["workspace", "delete", workspace.as_str()]);
    world.stop();

    // One byte of a disk, and nothing is placed.
    let image = backup.join("kept/ws-all/disks-1/disk.img");
    let flip = || {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&image)
            .unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 1024 + 56).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 1024 + 56).unwrap();
    };
    flip();
    let told = world.motu(&["backup", "--verify", &text]);
    assert_eq!(told.code, 105, "{told:?}");
    assert!(told.stdout.contains("kept/ws-all"), "{told:?}");
    let home = world.path().join("restored");
    std::fs::create_dir(&home).unwrap();
    world.live_at(&home);
    let error = world.motu(&["restore", &text, "--json"]).error();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error:?}");
    assert!(error.message.contains("damaged"), "{error:?}");
    flip();
    // Secrets of the backup cannot be opened with another home's key.
    std::fs::write(home.join("secrets.key"), [7; 32]).unwrap();
    let error = world.motu(&["restore", &text, "--json"]).error();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error:?}");
    assert!(error.message.contains("secrets.key"), "{error:?}");
    std::fs::remove_file(home.join("secrets.key")).unwrap();

    done(&world, &["restore", &text]);
    motu_needs::probes::warm(&home);
    world.start();
    use_all(&world, &workspace, &audit).await;
    assert!(!home.join("restoring").exists());
}

/// A restore is killed at many moments; the same command again, or the next daemon, finishes it.
#[tokio::test]
async fn a_killed_restore_is_repeated_or_undone() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = create(&world, "ws-twice").await;
    let backup = world.path().join("backup");
    let text = backup.display().to_string();
    done(&world, &["backup", &text]);
    world.client().delete_workspace(&id).await.unwrap();
    world.stop();
    for round in 0..4 {
        let home = world.path().join(format!("restored-{round}"));
        std::fs::create_dir(&home).unwrap();
        world.live_at(&home);
        let mut child = world.command(&["restore", &text]).spawn().unwrap();
        // From the first moment of copying to the last of placing.
        let begun = || match round {
            0 => home.join("restoring").exists(),
            1 => home.join("restoring/content/kept").exists(),
            2 => home.join("restoring/plan.json").exists(),
            _ => home.join("kept/ws-twice").exists(),
        };
        while !begun() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if round % 2 == 1 {
            let again = world.motu(&["restore", &text, "--json"]);
            let conflict = || again.error().kind == ErrorKind::Conflict;
            assert!(again.code == 0 || conflict(), "{again:?}");
        }
        motu_needs::probes::warm(&home);
        world.start();
        let there = world.client().status_workspace(&id).await.is_ok();
        // Undone by the daemon before it was whole: then it is done now.
        assert!(there || (round < 2 && !home.join("kept/ws-twice").exists()));
        assert!(!home.join("restoring").exists());
        if there {
            world.client().start_workspace(&id).await.unwrap();
            assert_eq!(sh(&world, &id, "cat own").await, "ws-twice\n");
            world.client().delete_workspace(&id).await.unwrap();
        }
        world.stop();
    }
}

#[tokio::test]
async fn a_backup_that_was_cut_off_has_no_name() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = create(&world, "ws-cut").await;
    sh(
        &world,
        &id,
        "dd if=/dev/urandom of=large bs=1M count=32 2>/dev/null",
    )
    .await;
    let output = world.path().join("backup");
    let client = world.client();
    let text = output.display().to_string();
    let making = tokio::spawn(async move {
        client
            .backup(BackUp {
                output_path: text.to_string(),
            })
            .await
    });
    while beside(&world).is_empty() {
        tokio::task::yield_now().await;
    }
    world.kill();
    let made = making.await.unwrap();
    // A backup under its final name is complete, whether or not the answer arrived.
    assert_eq!(output.exists(), output.join("backup.json").exists());
    assert!(made.is_err() || output.exists());
    world.start();
    // The machine is not left paused.
    let status = world.client().status_workspace(&id).await.unwrap();
    assert_eq!(status.state, State::Running);
    assert_eq!(sh(&world, &id, "cat own").await, "ws-cut\n");
}
