//! `kill -9` of a guest, which is process 1 of its machine.

use futures_util::StreamExt;
use motu_core::sandbox::State;
use motu_core::{ErrorKind, SandboxId, Service};
use motu_testkit::traces::started;
use motu_testkit::world::{World, eventually, refused, shell, soon};
use rustix::process::{Pid, Signal, kill_process};

/// Kills the machine of a sandbox from outside.
fn kill_guest(world: &World, id: &SandboxId) {
    let pid = world.traces.first_process(id.as_str());
    assert!(started(pid).is_some(), "process {pid} of {id} is not there");
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// The sandbox is reported as failed, and nothing of its machine is left.
async fn assert_failed(world: &World, id: &SandboxId) {
    eventually("the sandbox has failed", async || {
        let found = world.client().get_sandbox(id).await.unwrap();
        (found.state == State::Failed, found)
    })
    .await;
    let found = world.client().get_sandbox(id).await.unwrap();
    assert!(found.reason.is_some_and(|reason| !reason.is_empty()));
    let error = refused(
        ErrorKind::Unavailable,
        world.client().exec(id, shell("true")).await,
    );
    assert!(error.hint.is_some(), "{error:?}");
    assert!(error.message.contains(id.as_str()), "{error:?}");
    refused(ErrorKind::Unavailable, world.read(id, "/etc/passwd").await);
    eventually("its resources are gone", async || {
        let found = world.traces.found();
        let gone = !found.directories.contains(id.as_str())
            && !found.cgroups.contains(id.as_str())
            && !found.busy.contains(id.as_str());
        (gone, found)
    })
    .await;
    let told = world.motu(&["exec", id.as_str(), "--", "true"]);
    assert_eq!(told.code, 107, "{told:?}");
}

#[tokio::test]
async fn a_killed_guest_is_a_failed_sandbox() {
    let Some(world) = World::new() else { return };
    let (id, other) = (world.create().await, world.create().await);
    let mut session = world
        .client()
        .exec_stream(&id, shell("echo on; sleep 1000"))
        .await
        .unwrap();
    soon("its start", session.events.next())
        .await
        .unwrap()
        .unwrap();
    kill_guest(&world, &id);
    let error = loop {
        match soon("the end", session.events.next()).await.unwrap() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error:?}");
    assert_failed(&world, &id).await;
    world.assert_works(&other).await;

    // It can be removed like any other.
    let told = world.motu(&["rm", id.as_str()]);
    assert_eq!(told.code, 0, "{told:?}");
    refused(
        ErrorKind::NotFound,
        world.client().exec(&id, shell("true")).await,
    );
}

#[tokio::test]
async fn a_guest_that_dies_with_its_daemon_is_failed_by_the_next() {
    let Some(mut world) = World::new() else {
        return;
    };
    let (id, other) = (world.create().await, world.create().await);
    world.kill();
    kill_guest(&world, &id);
    world.start();
    assert_failed(&world, &id).await;
    world.assert_works(&other).await;
    // The next daemon reports it as well.
    world.restart();
    assert_failed(&world, &id).await;
}

#[tokio::test]
async fn a_guest_killed_during_a_one_shot_is_told_to_its_caller() {
    let Some(world) = World::new() else { return };
    let mut command = world.command(&["run", "busybox", "--", "sh", "-c", "echo on; sleep 1000"]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut on = [0; 3];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut on).unwrap();
    let found = world.traces.found().directories;
    let id = SandboxId::parse(found.first().unwrap()).unwrap();
    kill_guest(&world, &id);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(107), "{said}");
    assert!(said.contains("failed"), "{said}");
    eventually("it is gone", async || {
        let found = world.traces.found();
        (
            found.directories.is_empty() && found.cgroups.is_empty(),
            found,
        )
    })
    .await;
}
