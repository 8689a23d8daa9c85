//! A host's disk that fills up while machines write.
//!
//! The state directory is on a small ext4 of the test, which a machine or another file fills.
//! Everything acknowledged must be there afterwards.

use crate::full::Small;
use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_core::{ErrorKind, Program, SandboxId, Service, Size, Workspaces};
use motu_testkit::world::{ENVIRONMENT, eventually, refused, small};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// For a file system of 400 MiB.
const CONFIG: &str = "runtime = \"container\"\nmin_free_disk_mib = 160";
const SIZE_MIB: u64 = 400;

fn asked(id: &str) -> CreateWorkspace {
    CreateWorkspace {
        environment: ENVIRONMENT.to_string(),
        workspace_id: Some(SandboxId::parse(id).unwrap()),
        runtime: Some("container".to_string()),
        size: Size::of(512, 1024),
        ..CreateWorkspace::default()
    }
}

fn text(number: usize) -> String {
    format!("{number}\n").repeat(2000)
}

#[tokio::test]
async fn machines_are_paused_before_the_disk_is_full_and_nothing_is_lost() {
    let Some(disk) = Small::ext4(SIZE_MIB, CONFIG) else {
        return;
    };
    let client = disk.client();
    let (writer, other) = (asked("writer"), asked("other"));
    let writer = client.create_workspace(writer).await.unwrap().workspace_id;
    let other = client.create_workspace(other).await.unwrap().workspace_id;
    for (number, id) in [(0, &writer), (1, &other)] {
        let write = WriteText {
            path: "kept".to_string(),
            text: text(number),
        };
        client.write_workspace_file(id, write).await.unwrap();
    }
    // A program fills its own disk, which is larger than the host's free space.
    let fill = WorkspaceExec::from(Program {
        timeout_seconds: Some(120),
        ..Program::shell(
            "n=0; while dd if=/dev/zero of=big-$n bs=1M count=4 conv=fsync 2>/dev/null; do n=$((n+1)); done",
        )
    });
    let program = {
        let (client, id) = (disk.client(), writer.clone());
        tokio::spawn(async move { client.exec_workspace(&id, fill).await })
    };
    for id in [&writer, &other] {
        eventually("every machine is paused", async || {
            let found = client.status_workspace(id).await.unwrap();
            (found.state == State::Paused, found)
        })
        .await;
    }
    let status = client.status_workspace(&other).await.unwrap();
    let reason = status.reason.unwrap_or_default();
    assert!(reason.contains("disk is nearly full"), "{reason}");
    assert!(disk.motu(&["ps"]).stdout.contains("disk is nearly full"));
    let write = WriteText {
        path: "late".to_string(),
        text: String::new(),
    };
    let error = refused(
        ErrorKind::Limit,
        client.write_workspace_file(&other, write).await,
    );
    assert!(error.hint.is_some(), "{error:?}");
    refused(ErrorKind::Limit, client.resume_sandbox(&other).await);
    refused(ErrorKind::Limit, client.create_sandbox(small()).await);
    // After the deletion of the workspace that fills the disk, the others continue automatically.
    client.delete_workspace(&writer).await.unwrap();
    let _ = program.await.unwrap();
    eventually("the machine goes on", async || {
        let found = client.status_workspace(&other).await.unwrap();
        (
            found.state == State::Running && found.reason.is_none(),
            found,
        )
    })
    .await;
    let read = client
        .read_workspace_file(&other, ReadText::new("kept", Some(1 << 20)))
        .await;
    assert_eq!(read.unwrap().content, text(1));
    client.delete_workspace(&other).await.unwrap();
}

/// Sooner than anybody looks, so that not even the pause can be stored.
#[tokio::test]
async fn machines_are_paused_on_a_disk_that_is_full_at_once() {
    let Some(disk) = Small::ext4(SIZE_MIB, CONFIG) else {
        return;
    };
    let client = disk.client();
    let id = client.create_workspace(asked("one")).await.unwrap();
    let id = id.workspace_id;
    disk.fill_at_once();
    eventually("the machine is paused", async || {
        let found = client.status_workspace(&id).await.unwrap();
        (found.state == State::Paused, found)
    })
    .await;
    let reason = client.status_workspace(&id).await.unwrap().reason;
    assert!(reason.unwrap().contains("disk is nearly full"));
    disk.free();
    eventually("the machine goes on", async || {
        let found = client.status_workspace(&id).await.unwrap();
        (found.state == State::Running, found)
    })
    .await;
    let works = WorkspaceExec::from(Program::shell("echo works"));
    let said = client.exec_workspace(&id, works).await.unwrap();
    assert_eq!(said.stdout, "works\n");
    client.delete_workspace(&id).await.unwrap();
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_others_filled_the_disk() {
    let Some(disk) = Small::ext4(SIZE_MIB, CONFIG) else {
        return;
    };
    let client = disk.client();
    let id = client
        .create_workspace(asked("writer"))
        .await
        .unwrap()
        .workspace_id;
    // Files are written in sequence while another file fills the host's disk.
    let over = Arc::new(AtomicBool::new(false));
    let writer = {
        let (client, id, over) = (disk.client(), id.clone(), over.clone());
        tokio::spawn(async move {
            let (mut acknowledged, mut refused) = (0, None);
            while !over.load(Ordering::SeqCst) && refused.is_none() {
                let write = WriteText {
                    path: format!("file-{acknowledged}"),
                    text: text(acknowledged),
                };
                match client.write_workspace_file(&id, write).await {
                    Ok(_) => acknowledged += 1,
                    Err(error) => refused = Some(error),
                }
            }
            (acknowledged, refused)
        })
    };
    let mut filler = disk.filling();
    eventually("the machine is paused", async || {
        filler.grow(1 << 20);
        let found = client.status_workspace(&id).await.unwrap();
        (found.state == State::Paused, found)
    })
    .await;
    let saved = refused(
        ErrorKind::Limit,
        client.create_snapshot(&id, SaveAs::named("late")).await,
    );
    assert!(saved.hint.is_some(), "{saved:?}");
    over.store(true, Ordering::SeqCst);
    filler.end();
    eventually("the machine goes on", async || {
        let found = client.status_workspace(&id).await.unwrap();
        (found.state == State::Running, found)
    })
    .await;
    // A write in progress continued; a later one was refused, not lost.
    let (acknowledged, error) = writer.await.unwrap();
    assert!(acknowledged > 0);
    assert!(error.is_none_or(|error| error.kind == ErrorKind::Limit));
    client.stop_workspace(&id).await.unwrap();
    client.start_workspace(&id).await.unwrap();
    for number in 0..acknowledged {
        let name = format!("file-{number}");
        let read = client
            .read_workspace_file(&id, ReadText::new(&name, Some(1 << 20)))
            .await;
        assert_eq!(read.unwrap().content, text(number), "{name}");
    }
    client.delete_workspace(&id).await.unwrap();
}
