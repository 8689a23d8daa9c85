//! `kill -9` of the daemon while sandboxes and files are created and removed.
//!
//! Each test kills repeatedly, at moments that are the same in every run. After each kill a new
//! daemon starts, and must find exactly what was acknowledged: nothing less, nothing partial.

use motu_core::exec::RunRequest;
use motu_core::files::{ListFiles, ListOptions, WriteFile};
use motu_core::sandbox::State;
use motu_core::{ErrorKind, Result, SandboxId, Service};
use motu_testkit::world::{Blows, World, at, eventually, small, stream, to_the_end};
use std::collections::BTreeSet;
use tokio::task::JoinSet;

const ROUNDS: u64 = 6;
/// Concurrent calls when the daemon is killed.
const FLIGHT: usize = 6;
/// Large enough that a kill falls into the middle of a write.
const FILE_BYTES: usize = 4 << 20;

/// Checks that the daemon's list matches the host, and that every sandbox works.
async fn assert_whole(world: &World) -> BTreeSet<String> {
    let listed = world
        .client()
        .list_sandboxes(Default::default())
        .await
        .unwrap();
    let ids: BTreeSet<String> = listed.iter().map(|s| s.sandbox_id.to_string()).collect();
    for sandbox in &listed {
        assert_eq!(sandbox.state, State::Running, "{sandbox:?}");
        world.assert_works(&sandbox.sandbox_id).await;
    }
    eventually("the host has what is listed and no more", async || {
        let found = world.traces.found();
        let same = found.directories == ids && found.cgroups == ids && found.busy == ids;
        (same, (found, ids.clone()))
    })
    .await;
    ids
}

/// Waits for the calls of a round; those that the kill interrupted are errors.
async fn outcomes<T: 'static>(
    mut calls: JoinSet<(SandboxId, Result<T>)>,
) -> Vec<(SandboxId, bool)> {
    let mut all = Vec::new();
    while let Some(done) = calls.join_next().await {
        let (id, outcome) = done.unwrap();
        if let Err(error) = &outcome {
            let cut = matches!(error.kind, ErrorKind::Transport | ErrorKind::Unavailable);
            assert!(cut, "{error:?}");
        }
        all.push((id, outcome.is_ok()));
    }
    all
}

#[tokio::test]
async fn a_daemon_killed_while_it_creates() {
    let Some(mut world) = World::new() else {
        return;
    };
    let mut blows = Blows::new(0x6d6f_7475, ROUNDS);
    let mut acknowledged = BTreeSet::new();
    while let Some(round) = blows.another() {
        let mut calls = JoinSet::new();
        for number in 0..FLIGHT {
            let client = world.client();
            let id = SandboxId::parse(&format!("made-{round}-{number}")).unwrap();
            calls.spawn(async move {
                let mut request = small();
                request.sandbox_id = Some(id.clone());
                (id, client.create_sandbox(request).await)
            });
        }
        tokio::time::sleep(blows.moment(120)).await;
        world.kill();
        for (id, done) in outcomes(calls).await {
            match done {
                true => assert!(acknowledged.insert(id.to_string())),
                false => blows.hit(1),
            }
        }
        world.start();
        let there = assert_whole(&world).await;
        assert!(
            there.is_superset(&acknowledged),
            "{there:?} {acknowledged:?}"
        );
        // Created, but the answer was lost: it is complete, and its name is taken.
        acknowledged = there;
    }
    for id in acknowledged {
        let id = SandboxId::parse(&id).unwrap();
        world.client().destroy_sandbox(&id).await.unwrap();
    }
    assert!(assert_whole(&world).await.is_empty());
}

#[tokio::test]
async fn a_daemon_killed_during_one_shots_leaves_none() {
    let Some(mut world) = World::new() else {
        return;
    };
    let mut blows = Blows::new(0x0170_5407, ROUNDS);
    while blows.another().is_some() {
        let mut calls = JoinSet::new();
        for number in 0..FLIGHT {
            let client = world.client();
            let id = SandboxId::parse(&format!("shot-{number}")).unwrap();
            let mut request = RunRequest {
                sandbox: small(),
                ..RunRequest::default()
            };
            request.exec.program.command = vec!["sleep".into(), "25".into()];
            calls.spawn(async move {
                let ended = match client.run(request).await {
                    Ok(session) => to_the_end(session).await,
                    Err(error) => Err(error),
                };
                (id, ended)
            });
        }
        tokio::time::sleep(blows.moment(150)).await;
        world.kill();
        let finished = outcomes(calls).await;
        assert!(finished.iter().all(|(_, done)| !done), "{finished:?}");
        blows.hit(finished.len());
        world.start();
        assert!(assert_whole(&world).await.is_empty());
    }
}

#[tokio::test]
async fn a_daemon_killed_while_it_destroys() {
    let Some(mut world) = World::new() else {
        return;
    };
    let mut blows = Blows::new(0x6b69_6c6c, ROUNDS);
    let mut survived = 0;
    while let Some(round) = blows.another() {
        let mut ids = Vec::new();
        for _ in 0..FLIGHT {
            ids.push(world.create().await);
        }
        let mut calls = JoinSet::new();
        for id in ids {
            let client = world.client();
            calls.spawn(async move {
                let outcome = client.destroy_sandbox(&id).await;
                (id, outcome)
            });
        }
        // The first kill comes before anything can be answered.
        let moment = blows.moment(60);
        if round > 0 {
            tokio::time::sleep(moment).await;
        }
        world.kill();
        let done = outcomes(calls).await;
        world.start();
        let there = assert_whole(&world).await;
        for (id, answered) in done {
            let found = world.client().get_sandbox(&id).await.unwrap();
            blows.hit(usize::from(!answered));
            survived += usize::from(found.state == State::Running);
            match answered {
                true => assert_eq!(found.state, State::Destroyed, "{found:?}"),
                false => assert_eq!(found.state == State::Running, there.contains(id.as_str())),
            }
            world.client().destroy_sandbox(&id).await.unwrap();
        }
    }
    println!("{survived} never began");
}

/// The content of one version of the file: a partial or mixed version is detected.
fn version(number: u8) -> Vec<u8> {
    let mut content = vec![number; FILE_BYTES];
    content[..4].copy_from_slice(b"motu");
    content
}

#[tokio::test]
async fn a_daemon_killed_while_it_writes() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = world.create().await;
    let mut blows = Blows::new(0x7772_6974, ROUNDS * 2);
    let mut last = 0_u8;
    world
        .write(&id, "/work/file", &version(last))
        .await
        .unwrap();
    while blows.another().is_some() {
        let writing = {
            let (client, id, mut number) = (world.client(), id.clone(), last);
            tokio::spawn(async move {
                // Writes until it is interrupted; returns the last acknowledged version.
                loop {
                    let content = stream(&version(number.wrapping_add(1)));
                    let path = at("/work/file");
                    if client
                        .write_file(&id, WriteFile::new(path, Default::default()), content)
                        .await
                        .is_err()
                    {
                        return number;
                    }
                    number = number.wrapping_add(1);
                }
            })
        };
        tokio::time::sleep(blows.moment(100)).await;
        world.kill();
        let acknowledged = writing.await.unwrap();
        world.start();
        let content = world.read(&id, "/work/file").await.unwrap();
        let found = content[FILE_BYTES - 1];
        assert!(content == version(found), "a mixture, ending in {found}");
        assert!(
            found == acknowledged || found == acknowledged.wrapping_add(1),
            "version {found} is there, {acknowledged} was acknowledged"
        );
        blows.hit(usize::from(found == acknowledged));
        last = found;
    }
    eventually("what was half written is gone", async || {
        let client = world.client();
        let listed = client
            .list_files(&id, ListFiles::new(at("/work"), ListOptions::default()))
            .await;
        let entries = listed.unwrap().entries;
        let names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
        (names == ["file"], names)
    })
    .await;
}
