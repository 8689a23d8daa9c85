//! Checkpoints and `undo` under faults: daemons killed midway, concurrent commands, killed clients
//! of `run --volume`.

use crate::workspaces::{asked, create, script, sh};
use motu_core::workspace::*;
use motu_core::{ErrorKind, Workspaces};
use motu_testkit::world::{Blows, ENVIRONMENT, World, eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;

const ROUNDS: u64 = 4;
/// Enough files that restoring them takes a while.
const FILES: usize = 200;

fn checkpointed(text: &str) -> WorkspaceExec {
    WorkspaceExec {
        checkpoint: Some(true),
        ..script(text)
    }
}

/// Every file of the workspace, with its content.
async fn content(world: &World, id: &WorkspaceId) -> String {
    let said = sh(world, id, "find . -type f | sort | xargs sha256sum").await;
    said.stdout
}

#[tokio::test]
async fn an_undo_that_was_cut_off_is_done_again() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = create(&world, asked("undone")).await;
    let fill = format!(
        "for n in $(seq {FILES}); do head -c 20000 /dev/urandom > f-$n; done; mkdir deep; echo 1 > deep/x"
    );
    sh(&world, &id, &fill).await;
    let before = content(&world, &id).await;
    let mut blows = Blows::new(0x756e_646f, ROUNDS);
    while blows.another().is_some() {
        let change =
            "for f in f-*; do echo changed >> $f; done; rm -r deep; mkdir new; echo 2 > new/y";
        let client = world.client();
        let changed = client.exec_workspace(&id, checkpointed(change)).await;
        assert_eq!(changed.unwrap().exit_code, 0);
        let undoing = {
            let (client, id) = (world.client(), id.clone());
            tokio::spawn(async move { client.undo_workspace(&id, Undo::default()).await })
        };
        tokio::time::sleep(blows.moment(250)).await;
        world.kill();
        let answer = undoing.await.unwrap();
        blows.hit(usize::from(answer.is_err()));
        world.start();
        // An answered undo leaves nothing to undo; an interrupted one may.
        match (
            answer,
            world.client().undo_workspace(&id, Undo::default()).await,
        ) {
            (Ok(_), Err(error)) => assert_eq!(error.kind, ErrorKind::NotFound, "{error:?}"),
            (Ok(_), Ok(undone)) => panic!("it was taken back already: {undone:?}"),
            (Err(_), Ok(undone)) => assert_eq!(undone.checkpoint_count, 0),
            (Err(_), Err(error)) => assert_eq!(error.kind, ErrorKind::NotFound, "{error:?}"),
        }
        assert_eq!(content(&world, &id).await, before);
        assert_eq!(
            sh(&world, &id, "ls -A | grep -c motu || true").await.stdout,
            "0\n"
        );
    }
}

#[tokio::test]
async fn commands_that_begin_together_have_a_checkpoint_each() {
    let Some(world) = World::new() else {
        return;
    };
    let id = create(&world, asked("together")).await;
    sh(&world, &id, "echo 0 > count").await;
    let before = content(&world, &id).await;
    let commands: Vec<_> = (1..=4)
        .map(|number| {
            let (client, id) = (world.client(), id.clone());
            let command = checkpointed(&format!(
                "echo {number} > count; echo {number} > own-{number}"
            ));
            tokio::spawn(async move { client.exec_workspace(&id, command).await })
        })
        .collect();
    for command in commands {
        assert_eq!(command.await.unwrap().unwrap().exit_code, 0);
    }
    assert_eq!(sh(&world, &id, "ls own-* | wc -l").await.stdout.trim(), "4");
    let undone = world
        .client()
        .undo_workspace(&id, Undo { steps: 4 })
        .await
        .unwrap();
    assert_eq!((undone.commands.len(), undone.checkpoint_count), (4, 0));
    assert_eq!(content(&world, &id).await, before);
}

#[tokio::test]
async fn the_client_of_a_volume_is_killed_and_the_directory_stays() {
    let Some(world) = World::new() else {
        return;
    };
    let here = world.path().join("project");
    std::fs::create_dir(&here).unwrap();
    std::fs::write(here.join("a"), "one\n").unwrap();
    let said = world.path().join("said");
    let mut client = world
        .command(&[
            "run",
            "-v",
            "./project:/data",
            ENVIRONMENT,
            "--",
            "sh",
            "-c",
            "echo two > /data/a; echo new > /data/b; echo changed; sleep 1000",
        ])
        .stdout(std::fs::File::create(&said).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the command has changed its copy", async || {
        let text = std::fs::read_to_string(&said).unwrap();
        (text == "changed\n", text)
    })
    .await;
    kill_process(Pid::from_child(&client), Signal::KILL).unwrap();
    client.wait().unwrap();
    assert_eq!(std::fs::read_to_string(here.join("a")).unwrap(), "one\n");
    assert_eq!(std::fs::read_dir(&here).unwrap().count(), 1);
    // The result of the command outlives its client: it can be fetched until the sandbox expires.
    let listed = world.motu(&["ps", "--json"]).stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let left = listed["sandboxes"].as_array().unwrap();
    assert_eq!(left.len(), 1, "{listed}");
    assert!(left[0]["expires_at"].is_string(), "{listed}");
    let there = format!("{}:/data/a", left[0]["sandbox_id"].as_str().unwrap());
    let told = world.motu(&["cp", &there, "rescued"]);
    assert_eq!(told.code, 0, "{told:?}");
    let rescued = std::fs::read_to_string(world.path().join("rescued"));
    assert_eq!(rescued.unwrap(), "two\n");
}
