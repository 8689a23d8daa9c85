//! `kill -9` of the daemon while workspaces are created, saved, reset, filled and deleted.
//!
//! As in `crash`: kills at moments that are the same in every run, and after each a new daemon
//! that must find everything acknowledged and nothing partial.

use motu_core::exec::{ExecMode, ExecResult};
use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_core::{ErrorKind, Program, Result, SandboxId, Size, Workspaces};
use motu_testkit::world::{Blows, ENVIRONMENT, World, eventually, refused};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tokio::task::JoinSet;

const ROUNDS: u64 = 5;
/// Files of a seed or a push.
const FILES: usize = 60;
const FILE_BYTES: usize = 100_000;

pub fn asked(id: &str) -> CreateWorkspace {
    CreateWorkspace {
        environment: ENVIRONMENT.to_string(),
        workspace_id: Some(SandboxId::parse(id).unwrap()),
        runtime: Some("container".to_string()),
        size: Size::of(256, 64),
        ..CreateWorkspace::default()
    }
}

pub fn script(text: &str) -> WorkspaceExec {
    WorkspaceExec::from(Program::shell(text))
}

pub async fn create(world: &World, request: CreateWorkspace) -> WorkspaceId {
    let made = world.client().create_workspace(request).await;
    made.unwrap().workspace_id
}

pub async fn sh(world: &World, id: &WorkspaceId, text: &str) -> ExecResult {
    let result = world.client().exec_workspace(id, script(text)).await;
    let result = result.unwrap();
    assert_eq!(result.exit_code, 0, "{text}: {result:?}");
    result
}

/// Writes the files of one version below a directory of the host.
fn fill(source: &Path, version: u8) {
    std::fs::create_dir_all(source.join("deep")).unwrap();
    for number in 0..FILES {
        std::fs::write(source.join(name(number)), content(version)).unwrap();
    }
}

fn name(number: usize) -> String {
    match number % 2 {
        0 => format!("file-{number}"),
        _ => format!("deep/file-{number}"),
    }
}

fn content(version: u8) -> Vec<u8> {
    vec![version; FILE_BYTES]
}

fn digest(version: u8) -> String {
    let hash = Sha256::digest(content(version));
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Digests of all files in `/workspace`, by name.
async fn digests(world: &World, id: &WorkspaceId) -> BTreeMap<String, String> {
    let found = sh(world, id, "find . -type f -exec sha256sum {} +").await;
    let lines = found.stdout.lines();
    lines
        .map(|line| {
            let (digest, name) = line.split_once("  ./").unwrap();
            (name.to_string(), digest.to_string())
        })
        .collect()
}

/// Checks that everything listed answers, can be started and works, and that the host has no more
/// than that.
async fn assert_whole(world: &World) -> BTreeSet<String> {
    let client = world.client();
    let mut ids = BTreeSet::new();
    for row in client.list_workspaces(Default::default()).await.unwrap() {
        let id = &row.workspace_id;
        let status = client.status_workspace(id).await.unwrap();
        match status.state {
            State::Running => {}
            State::Stopped => {
                let started = client.start_workspace(id).await.unwrap();
                assert_eq!(started.state, State::Running);
            }
            other => panic!("{other}: {status:?}"),
        }
        let said = sh(world, id, "echo works").await;
        assert_eq!(said.stdout, "works\n");
        ids.insert(id.to_string());
    }
    eventually("the host has what is listed and no more", async || {
        let found = world.traces.found();
        let same = found.directories == ids && found.cgroups == ids && found.busy == ids;
        (same, (found, ids.clone()))
    })
    .await;
    ids
}

/// Checks that exactly these workspaces have disks.
async fn assert_disks(world: &World, ids: &BTreeSet<String>) {
    eventually("only what is listed has disks", async || {
        let kept = world.traces.kept();
        (kept == *ids, (kept, ids.clone()))
    })
    .await;
}

/// Deletes everything listed, and checks that nothing is left.
async fn assert_deletable(world: &World) {
    for id in assert_whole(world).await {
        let id = SandboxId::parse(&id).unwrap();
        world.client().delete_workspace(&id).await.unwrap();
    }
    assert!(assert_whole(world).await.is_empty());
    assert_disks(world, &BTreeSet::new()).await;
}

/// Whether a call succeeded; a failure must be reported as an interrupted call.
#[track_caller]
fn answered<T>(outcome: &Result<T>) -> bool {
    if let Err(error) = outcome {
        let cut = matches!(error.kind, ErrorKind::Transport | ErrorKind::Unavailable);
        assert!(cut, "{error:?}");
    }
    outcome.is_ok()
}

/// Checks that an answered command is in the history, with its exit.
async fn assert_remembered(world: &World, id: &WorkspaceId, text: &str) {
    let log = world.client().logs_workspace(id).await.unwrap();
    let entry = log.entries.iter().find(|entry| entry.command == [text]);
    let entry = entry.unwrap_or_else(|| panic!("{text} is not in {log:?}"));
    assert_eq!(
        (entry.status.as_str(), entry.exit_code),
        ("exited", Some(0))
    );
}

#[tokio::test]
async fn a_daemon_killed_while_it_seeds() {
    let Some(mut world) = World::new() else {
        return;
    };
    let source = world.path().join("project");
    fill(&source, 0);
    let expected: BTreeMap<String, String> =
        (0..FILES).map(|number| (name(number), digest(0))).collect();
    let mut blows = Blows::new(0x7365_6564, ROUNDS);
    let mut acknowledged = BTreeSet::new();
    while let Some(round) = blows.another() {
        let mut calls = JoinSet::new();
        for number in 0..3 {
            let client = world.client();
            let id = format!("seeded-{round}-{number}");
            let request = CreateWorkspace {
                seed_path: Some(source.display().to_string()),
                ..asked(&id)
            };
            calls.spawn(async move { (id, client.create_workspace(request).await) });
        }
        tokio::time::sleep(blows.moment(250)).await;
        world.kill();
        while let Some(done) = calls.join_next().await {
            let (id, outcome) = done.unwrap();
            match answered(&outcome) {
                true => drop(acknowledged.insert(id)),
                false => blows.hit(1),
            }
        }
        world.start();
        let there = assert_whole(&world).await;
        assert!(there.is_superset(&acknowledged), "{there:?}");
        assert_disks(&world, &there).await;
        for id in &there {
            let id = SandboxId::parse(id).unwrap();
            assert_eq!(digests(&world, &id).await, expected);
            let client = world.client();
            let diff = client.diff_workspace(&id, DiffOptions::default()).await;
            assert!(!diff.unwrap().changed);
        }
        acknowledged.clear();
        assert_deletable(&world).await;
        eventually("their baselines are gone", async || {
            let seeded = world.traces.seeded();
            (seeded.is_empty(), seeded)
        })
        .await;
    }
}

/// A script that writes the files of a state which snapshots save.
fn state(number: u64) -> String {
    let letter = char::from(b'a' + (number % 26) as u8);
    format!("echo {number} > state; head -c 3000000 /dev/zero | tr '\\0' {letter} > bulk")
}

/// The number of the state in `/workspace`, which must be exactly one state.
async fn state_of(world: &World, id: &WorkspaceId) -> u64 {
    let said = sh(world, id, "cat state; wc -c < bulk; head -c1 bulk").await;
    let words: Vec<&str> = said.stdout.split_whitespace().collect();
    let number: u64 = words[0].parse().unwrap();
    let letter = char::from(b'a' + (number % 26) as u8).to_string();
    assert_eq!(words[1..], ["3000000", letter.as_str()], "a mixture");
    let others = sh(world, id, &format!("tr -d {letter} < bulk | wc -c")).await;
    assert_eq!(others.stdout.trim(), "0", "a mixture");
    number
}

#[tokio::test]
async fn a_daemon_killed_while_it_saves() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = create(&world, asked("saved")).await;
    let mut blows = Blows::new(0x736e_6170, ROUNDS);
    let mut next = 0;
    let mut acknowledged = BTreeSet::from(["baseline".to_string()]);
    while blows.another().is_some() {
        let marker = format!("echo before {next}");
        sh(&world, &id, &marker).await;
        let saving = {
            let (client, id) = (world.client(), id.clone());
            tokio::spawn(async move {
                for number in next.. {
                    let written = client.exec_workspace(&id, script(&state(number))).await;
                    if !answered(&written) {
                        return (number, None);
                    }
                    let saved = client
                        .create_snapshot(&id, SaveAs::named(format!("s-{number}")))
                        .await;
                    if !answered(&saved) {
                        return (number, Some(number));
                    }
                }
                unreachable!("it is cut off long before")
            })
        };
        tokio::time::sleep(blows.moment(300)).await;
        world.kill();
        let (end, in_flight) = saving.await.unwrap();
        acknowledged.extend((next..end).map(|number| format!("s-{number}")));
        blows.hit(usize::from(in_flight.is_some()));
        world.start();
        assert_whole(&world).await;
        assert_remembered(&world, &id, &marker).await;
        let list = world
            .client()
            .list_snapshots(&id, Default::default())
            .await
            .unwrap()
            .snapshots;
        let names: BTreeSet<String> = list.into_iter().map(|one| one.snapshot_name).collect();
        let mut possible = acknowledged.clone();
        possible.extend(in_flight.map(|number| format!("s-{number}")));
        assert!(
            names.is_superset(&acknowledged),
            "{names:?} {acknowledged:?}"
        );
        assert!(names.is_subset(&possible), "{names:?} {possible:?}");
        // The newest snapshot is complete, whether it was acknowledged or not.
        acknowledged = names;
        let newest = (0..=end)
            .rev()
            .find(|n| acknowledged.contains(&format!("s-{n}")));
        if let Some(newest) = newest {
            let name = format!("s-{newest}");
            world
                .client()
                .reset_workspace(&id, ResetTo::snapshot(&name))
                .await
                .unwrap();
            assert_eq!(state_of(&world, &id).await, newest);
        }
        next = end + 1;
    }
    for name in acknowledged.iter().filter(|name| *name != "baseline") {
        world.client().delete_snapshot(&id, name).await.unwrap();
    }
    assert_deletable(&world).await;
}

#[tokio::test]
async fn a_daemon_killed_while_it_resets() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = create(&world, asked("reset")).await;
    sh(&world, &id, &state(1)).await;
    world
        .client()
        .create_snapshot(&id, SaveAs::named("one"))
        .await
        .unwrap();
    let mut blows = Blows::new(0x7265_7365, ROUNDS + 3);
    let mut resets = 0;
    while let Some(round) = blows.another() {
        let dirty = 100 + round;
        sh(&world, &id, &state(dirty)).await;
        let marker = format!("echo before {round}");
        sh(&world, &id, &marker).await;
        let resetting = {
            let (client, id) = (world.client(), id.clone());
            tokio::spawn(async move { client.reset_workspace(&id, ResetTo::snapshot("one")).await })
        };
        tokio::time::sleep(blows.moment(250)).await;
        world.kill();
        let done = answered(&resetting.await.unwrap());
        world.start();
        assert_whole(&world).await;
        let found = state_of(&world, &id).await;
        let status = world.client().status_workspace(&id).await.unwrap();
        match done {
            true => {
                resets += 1;
                assert_eq!(found, 1);
            }
            false => blows.hit(1),
        }
        assert!(status.reset_count >= resets, "{status:?}");
        resets = status.reset_count;
        match found {
            1 => {}
            // No reset happened, so the history must still be there.
            kept if kept == dirty => assert_remembered(&world, &id, &marker).await,
            other => panic!("state {other}, neither the old nor the saved one"),
        }
        let list = world
            .client()
            .list_snapshots(&id, Default::default())
            .await
            .unwrap()
            .snapshots;
        assert_eq!(list.len(), 2, "{list:?}");
        let disks = std::fs::read_dir(world.home().join("kept/reset")).unwrap();
        let disks = disks.flatten().map(|entry| entry.file_name());
        let disks: Vec<_> = disks
            .filter(|name| name.to_string_lossy().starts_with("disks-"))
            .collect();
        assert_eq!(disks.len(), 1, "{disks:?}");
    }
    assert_deletable(&world).await;
}

#[tokio::test]
async fn a_daemon_killed_during_a_push() {
    let Some(mut world) = World::new() else {
        return;
    };
    let source = world.path().join("project");
    fill(&source, 0);
    let request = CreateWorkspace {
        seed_path: Some(source.display().to_string()),
        ..asked("pushed")
    };
    let id = create(&world, request).await;
    sh(&world, &id, "echo own > own").await;
    let push = SyncPush {
        source_path: source.display().to_string(),
        ..SyncPush::default()
    };
    let mut blows = Blows::new(0x7075_7368, ROUNDS);
    while let Some(round) = blows.another() {
        let round = u8::try_from(round).unwrap();
        let (old, new) = (digest(round), digest(round + 1));
        fill(&source, round + 1);
        let pushing = {
            let (client, id, push) = (world.client(), id.clone(), push.clone());
            tokio::spawn(async move { client.push_workspace_sync(&id, push).await })
        };
        tokio::time::sleep(blows.moment(120)).await;
        world.kill();
        let done = answered(&pushing.await.unwrap());
        blows.hit(usize::from(!done));
        world.start();
        assert_whole(&world).await;
        let own = sh(&world, &id, "cat own").await;
        assert_eq!(own.stdout, "own\n");
        let found = digests(&world, &id).await;
        assert_eq!(found.len(), FILES + 1, "{found:?}");
        let known = |digest: &String| *digest == new || (!done && *digest == old);
        let mut others: Vec<_> = found.iter().filter(|(_, found)| !known(found)).collect();
        others.retain(|(name, _)| *name != "own");
        // Each file is the old one or the new one.
        assert!(others.is_empty(), "{others:?}");
        // The kind of file that a push leaves when its machine is killed.
        let left = "deep/.motu-restoring-0123456789abcdef.tmp";
        sh(&world, &id, &format!("echo half > {left}")).await;
        // A second push is enough.
        let again = world.client().push_workspace_sync(&id, push.clone()).await;
        again.unwrap();
        let found = digests(&world, &id).await;
        let count = found.values().filter(|found| **found == new).count();
        assert_eq!((count, found.len()), (FILES, FILES + 1), "{found:?}");
    }
    assert_deletable(&world).await;
}

#[tokio::test]
async fn a_daemon_killed_while_it_starts_services() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = create(&world, asked("served")).await;
    let mut blows = Blows::new(0x7365_7276, ROUNDS * 2);
    let mut seen = 0;
    let service = |round: u64| StartService {
        service_name: format!("web-{round}"),
        command: vec![format!("touch ready-{round}; exec sleep 7{round:04}")],
        mode: ExecMode::Shell,
        readiness: Some(Readiness::File {
            path: format!("ready-{round}"),
        }),
        ..StartService::default()
    };
    while let Some(round) = blows.another() {
        let starting = {
            let (client, id, request) = (world.client(), id.clone(), service(round));
            tokio::spawn(async move { client.start_service(&id, request).await })
        };
        // The first kill comes before anything can be answered.
        let moment = blows.moment(40);
        if round > 0 {
            tokio::time::sleep(moment).await;
        }
        world.kill();
        let done = answered(&starting.await.unwrap());
        world.start();
        assert_whole(&world).await;
        let name = format!("web-{round}");
        let listed = world.client().list_services(&id).await.unwrap();
        let found = listed.iter().find(|one| one.service_name == name);
        match (done, found) {
            (true, found) => {
                assert_eq!(found.unwrap().state, ServiceState::Running, "{found:?}");
            }
            (false, found) => {
                blows.hit(1);
                seen += usize::from(found.is_some());
            }
        }
        eventually("a service that is said to run does", async || {
            let found = world.client().status_service(&id, &name).await;
            let known = found.is_ok_and(|one| one.state == ServiceState::Running);
            let said = world.client().exec_workspace(&id, script("ps")).await;
            let runs = said.unwrap().stdout.contains(&format!("sleep 7{round:04}"));
            (runs == known, (known, runs))
        })
        .await;
        if found.is_some() {
            let stopped = world.client().stop_service(&id, &name).await.unwrap();
            assert!(!stopped.state.is_alive(), "{stopped:?}");
        }
        // The name can be used again.
        let again = world.client().start_service(&id, service(round)).await;
        assert_eq!(again.unwrap().state, ServiceState::Running);
        world.client().stop_service(&id, &name).await.unwrap();
    }
    println!("{seen} of those are known");
    assert_deletable(&world).await;
}

#[tokio::test]
async fn a_daemon_killed_while_it_deletes() {
    let Some(mut world) = World::new() else {
        return;
    };
    let mut blows = Blows::new(0x6465_6c65, ROUNDS);
    let mut survived = 0;
    while let Some(round) = blows.another() {
        let mut calls = JoinSet::new();
        for number in 0..3 {
            let id = create(&world, asked(&format!("gone-{round}-{number}"))).await;
            sh(&world, &id, &state(7)).await;
            world
                .client()
                .create_snapshot(&id, SaveAs::named("seven"))
                .await
                .unwrap();
            let client = world.client();
            calls.spawn(async move {
                let outcome = client.delete_workspace(&id).await;
                (id, outcome)
            });
        }
        // The first kill comes before anything can be answered.
        let moment = blows.moment(80);
        if round > 0 {
            tokio::time::sleep(moment).await;
        }
        world.kill();
        let mut outcomes = Vec::new();
        while let Some(done) = calls.join_next().await {
            let (id, outcome) = done.unwrap();
            outcomes.push((id, answered(&outcome)));
        }
        world.start();
        let there = assert_whole(&world).await;
        assert_disks(&world, &there).await;
        for (id, done) in outcomes {
            blows.hit(usize::from(!done));
            if !there.contains(id.as_str()) {
                let status = world.client().status_workspace(&id).await;
                refused(ErrorKind::NotFound, status);
                continue;
            }
            assert!(!done, "{id} was deleted and is there");
            survived += 1;
            assert_eq!(state_of(&world, &id).await, 7);
            world
                .client()
                .reset_workspace(&id, ResetTo::snapshot("seven"))
                .await
                .unwrap();
            assert_eq!(state_of(&world, &id).await, 7);
        }
        assert_deletable(&world).await;
    }
    println!("{survived} of those never began");
}

/// Copies only the environment of these tests, not the larger ones beside it.
fn only_one_environment(to: &std::path::Path) {
    let all = motu_testkit::environments();
    let name = format!("names/{ENVIRONMENT}.json");
    let text = std::fs::read(all.join(&name)).unwrap();
    let known: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let blob = format!(
        "blobs/{}",
        known["digest"].as_str().unwrap().replace(':', "-")
    );
    for dir in ["names", "blobs"] {
        std::fs::create_dir_all(to.join(dir)).unwrap();
    }
    for part in [name, blob] {
        let copied = motu_needs::command("cp")
            .arg("-a")
            .arg(all.join(&part))
            .arg(to.join(&part))
            .status();
        assert!(copied.unwrap().success());
    }
}

#[tokio::test]
async fn a_workspace_whose_environment_is_gone() {
    let Some(mut world) = World::bare() else {
        return;
    };
    // Environments of this test, which may be removed.
    let own = world.home().join("environments");
    std::fs::remove_file(&own).unwrap();
    only_one_environment(&own);
    world.start();
    let id = create(&world, asked("bereft")).await;
    sh(&world, &id, "echo kept > file").await;
    world.client().stop_workspace(&id).await.unwrap();
    let aside = world.path().join("aside");
    std::fs::rename(&own, &aside).unwrap();
    let error = refused(
        ErrorKind::NotFound,
        world.client().start_workspace(&id).await,
    );
    assert!(error.message.contains(ENVIRONMENT), "{error:?}");
    let hint = error.hint.clone().unwrap_or_default();
    assert!(hint.contains("/v1/environments/busybox/pull"), "{error:?}");
    let told = world.motu(&["workspace", "start", "bereft"]);
    assert_eq!(told.code, 104, "{told:?}");
    assert!(told.stderr.contains("`motu env pull busybox`"), "{told:?}");
    // The workspace is unchanged, and starts when the environment is back.
    let status = world.client().status_workspace(&id).await.unwrap();
    assert_eq!(status.state, State::Stopped);
    let _ = std::fs::remove_dir_all(&own);
    std::fs::rename(&aside, &own).unwrap();
    world.client().start_workspace(&id).await.unwrap();
    assert_eq!(sh(&world, &id, "cat file").await.stdout, "kept\n");
    assert_eq!(assert_whole(&world).await.len(), 1);
}
