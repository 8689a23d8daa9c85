//! Backups of a state directory with running machines.

use crate::support::{ENVIRONMENT, World, refused};
use motu_core::report::BackUp;
use motu_core::sandbox::State;
use motu_core::secret::SetSecret;
use motu_core::workspace::*;
use motu_core::{ErrorKind, Program, SandboxId, Service, Size, Workspaces};
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
