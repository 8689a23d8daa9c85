//! `kill -9` of the daemon while machines are copied, and while the pool holds machines.

use motu_core::sandbox::{CreateSandbox, State};
use motu_core::{SandboxId, Service, Size};
use motu_testkit::world::{Blows, Dice, ENVIRONMENT, World, eventually};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

/// Kills during a copy; each costs at most the boot of a copy.
const BLOWS: u64 = 5;
/// Machines in the pool.
const READY: usize = 2;

/// Whether virtual machines work here; otherwise the skip says why not.
pub fn emulates(world: &World) -> bool {
    let doctor = world.motu(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&doctor.stdout).unwrap();
    let runtimes = report["runtimes"].as_array().unwrap();
    let qemu = runtimes.iter().find(|found| found["name"] == "qemu");
    let works = qemu.is_some_and(|found| found["works"] == true);
    if !works {
        motu_needs::skip(&format!("faults: no virtual machines: {qemu:?}"));
    }
    works
}

/// Emulators whose working directory is in this state directory, its trash included.
fn emulators(world: &World) -> Vec<String> {
    // In a root of its own the working directory has another path, but the same inode.
    let mut places = BTreeMap::new();
    let mut rest = vec![world.home().to_path_buf()];
    while let Some(dir) = rest.pop() {
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        rest.extend(inner.map(|entry| entry.path()));
        if let Ok(found) = dir.metadata() {
            places.insert((found.dev(), found.ino()), dir.display().to_string());
        }
    }
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let found = processes.filter_map(|process| {
        let name = std::fs::read_to_string(process.path().join("comm")).ok()?;
        let place = std::fs::metadata(process.path().join("cwd")).ok()?;
        let place = places.get(&(place.dev(), place.ino()))?;
        name.starts_with("qemu-system").then(|| place.clone())
    });
    found.collect()
}

#[tokio::test]
async fn a_daemon_killed_while_it_copies_a_machine() {
    let Some(mut world) = World::new() else {
        return;
    };
    if !emulates(&world) {
        return;
    }
    let source = SandboxId::parse("source").unwrap();
    let request = CreateSandbox {
        environment: ENVIRONMENT.to_string(),
        sandbox_id: Some(source.clone()),
        runtime: Some("qemu".to_string()),
        accel: motu_needs::accelerator().parse().unwrap(),
        size: Size::of(256, 64),
        ..CreateSandbox::default()
    };
    world.create_with(request).await;
    world.sh(&source, "echo alive > /tmp/mark").await;
    let mut blows = Blows::new(0x666f_726b, BLOWS);
    let mut finished = 0;
    while blows.another().is_some() {
        let mut fork = world.command(&["fork", "source"]);
        let fork = fork.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        tokio::time::sleep(blows.moment(900)).await;
        world.kill();
        let output = world.outcome(fork.unwrap());
        blows.hit(usize::from(!output.status.success()));
        let answered = String::from_utf8_lossy(&output.stdout);
        let answered: BTreeSet<String> = answered.lines().map(str::to_string).collect();
        world.start();
        let listed = world
            .client()
            .list_sandboxes(Default::default())
            .await
            .unwrap();
        let mut there = BTreeSet::new();
        for sandbox in &listed {
            assert_eq!(sandbox.state, State::Running, "{sandbox:?}");
            let said = world.sh(&sandbox.sandbox_id, "cat /tmp/mark").await;
            assert_eq!(said.stdout, "alive\n", "{}", sandbox.sandbox_id);
            there.insert(sandbox.sandbox_id.to_string());
        }
        assert!(there.contains("source"), "{there:?}");
        assert!(there.is_superset(&answered), "{there:?} {answered:?}");
        finished += there.difference(&answered).count() - 1;
        eventually("the host has what is listed and no more", async || {
            let machines = world.traces.machines("qemu");
            let running = emulators(&world);
            let same = machines == there && running.len() == there.len();
            (same, (machines, running, there.clone()))
        })
        .await;
        for id in there.iter().filter(|id| *id != "source") {
            let id = SandboxId::parse(id).unwrap();
            world.client().destroy_sandbox(&id).await.unwrap();
        }
    }
    println!("{finished} of those that were cut off are there");
    // It can still be copied.
    let told = world.motu(&["fork", "source"]);
    assert_eq!(told.code, 0, "{told:?}");
    for id in [told.stdout.trim(), "source"] {
        let told = world.motu(&["rm", id]);
        assert_eq!(told.code, 0, "{told:?}");
    }
    eventually("nothing runs any more", async || {
        let running = emulators(&world);
        let machines = world.traces.machines("qemu");
        (
            running.is_empty() && machines.is_empty(),
            (running, machines),
        )
    })
    .await;
}

#[tokio::test]
async fn a_daemon_killed_while_machines_wait_ready() {
    let Some(mut world) = World::bare() else {
        return;
    };
    let config = format!(
        "[[pool]]\nenvironment = \"{ENVIRONMENT}\"\nruntime = \"container\"\nready = {READY}\n"
    );
    std::fs::write(world.home().join("config.toml"), config).unwrap();
    let mut dice = Dice::new(0x706f_6f6c);
    let mut used = BTreeSet::new();
    let mut before = BTreeSet::new();
    for round in 0..4 {
        world.start();
        eventually("other machines wait, and no more of them", async || {
            let found = world.traces.found();
            let full = found.directories.len() == READY && found.busy == found.directories;
            let fresh = found.directories.is_disjoint(&before);
            (full && fresh && found.cgroups == found.directories, found)
        })
        .await;
        let waiting = world.traces.found().directories;
        let run = || {
            let words = [
                "run",
                ENVIRONMENT,
                "--runtime",
                "container",
                "--",
                "hostname",
            ];
            let mut command = world.command(&words);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        // More than the pool holds: some are claimed, some are created.
        let runs: Vec<_> = (0..READY + 2).map(|_| run()).collect();
        let mut claimed = 0;
        for run in runs {
            let output = run.wait_with_output().unwrap();
            let name = String::from_utf8_lossy(&output.stdout).trim().to_string();
            assert!(output.status.success(), "{output:?}");
            claimed += usize::from(waiting.contains(&name));
            assert!(used.insert(name), "handed out twice: {output:?}");
        }
        assert!(claimed > 0, "nothing was claimed: {waiting:?} {used:?}");
        // The next kill comes while the pool is being refilled, or is full.
        let cut_off = (round > 0).then(run);
        tokio::time::sleep(dice.moment(150)).await;
        before = world.traces.found().directories;
        world.kill();
        if let Some(run) = cut_off {
            let output = world.outcome(run);
            let name = String::from_utf8_lossy(&output.stdout).trim().to_string();
            let new = name.is_empty() || used.insert(name);
            assert!(new, "handed out twice: {output:?}");
        }
        let listed = world.traces.found().directories;
        before.extend(listed);
    }
    world.start();
}

/// A daemon that exits while it creates a machine for the pool removes that machine.
#[tokio::test]
async fn a_daemon_that_leaves_takes_the_machine_it_is_making_along() {
    let Some(mut world) = World::bare() else {
        return;
    };
    let config = format!(
        "[[pool]]\nenvironment = \"{ENVIRONMENT}\"\nruntime = \"container\"\nready = {READY}\n"
    );
    std::fs::write(world.home().join("config.toml"), config).unwrap();
    let mut dice = Dice::new(0x6c65_6176);
    for _ in 0..20 {
        world.start();
        tokio::time::sleep(dice.moment(80)).await;
        world.stop();
        eventually("nothing is left", async || {
            let left = world.traces.left();
            (left.is_empty(), left)
        })
        .await;
    }
}
