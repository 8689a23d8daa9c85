//! Machines that are saved with their memory, and others made of them.

use crate::support::{World, pid_in};
use motu_core::{ErrorKind, Runtime};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Counts in memory, so that only a machine that went on knows the number.
const COUNTS: &str = "i=100; while true; do i=$((i+1)); echo $i > /dev/shm/m; \
                      mv /dev/shm/m /dev/shm/n; sleep 0.02; done";
const NUMBER: &str = "until [ -s /dev/shm/n ]; do sleep 0.02; done; cat /dev/shm/n";

fn empty(dir: &Path) {
    std::fs::create_dir(dir).unwrap();
}

#[tokio::test]
async fn what_ran_goes_on_in_every_machine_made_of_it() {
    let world = World::new();
    let scratch = tempfile::tempdir_in(&world.home).unwrap();
    let saved = scratch.path().join("saved");
    empty(&saved);
    let (source, guest) = world.create().await;
    guest.start(COUNTS).await;
    guest.sh("echo before > /workspace/f").await;
    let at: u64 = guest.sh(NUMBER).await.parse().unwrap();
    let begun = Instant::now();
    world.runtime.save(&source, &saved).await.unwrap();
    println!("saved in {:?}", begun.elapsed());
    // The source goes on, and is then gone together with what it wrote since.
    guest.sh("echo after > /workspace/f; sync").await;
    world.runtime.destroy(&source).await.unwrap();

    // A new daemon, which has nothing at hand.
    let world = World::new();
    for round in 0..2 {
        let begun = Instant::now();
        let spec = world.spec();
        let machine = world.runtime.restore(&saved, &spec).await.unwrap();
        let guest = world.connect(&machine).await;
        assert_eq!(guest.sh("cat /workspace/f").await, "before");
        println!("round {round}: restored in {:?}", begun.elapsed());
        let first: u64 = guest.sh(NUMBER).await.parse().unwrap();
        assert!(first >= at, "{first} after {at}");
        let more = format!("until [ $(cat /dev/shm/n) -gt {first} ]; do sleep 0.02; done");
        guest.sh(&more).await;
        // What it writes is its own, and the clock is the host's.
        guest.sh("echo mine > /workspace/f; sync").await;
        let clock: u64 = guest.sh("date +%s").await.parse().unwrap();
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        assert!(now.abs_diff(clock) <= 5, "{clock} at {now}");
        world.runtime.destroy(&machine).await.unwrap();
        assert_eq!(std::fs::read_dir(&spec.dir).unwrap().count(), 0);
    }

    // It may go while a machine runs that was made of it.
    let machine = world.runtime.restore(&saved, &world.spec()).await.unwrap();
    std::fs::remove_dir_all(&saved).unwrap();
    let guest = world.connect(&machine).await;
    assert_eq!(guest.sh("cat /workspace/f").await, "before");
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn kept_disks_are_saved_too_and_are_kept_again() {
    let world = World::new();
    let scratch = tempfile::tempdir_in(&world.home).unwrap();
    let tree = scratch.path().join("baseline");
    empty(&tree);
    std::fs::write(tree.join("a"), "first\n").unwrap();
    let (kept, saved) = (scratch.path().join("kept"), scratch.path().join("saved"));
    empty(&saved);
    let (source, guest) = world.start(&world.kept_spec(&kept, &tree)).await;
    guest.start(COUNTS).await;
    guest.sh("echo here > /root/x").await;
    let at: u64 = guest.sh(NUMBER).await.parse().unwrap();
    world.runtime.save(&source, &saved).await.unwrap();
    world.runtime.destroy(&source).await.unwrap();

    let own = scratch.path().join("own");
    let spec = world.kept_spec(&own, &tree);
    let machine = world.runtime.restore(&saved, &spec).await.unwrap();
    let guest = world.connect(&machine).await;
    let first: u64 = guest.sh(NUMBER).await.parse().unwrap();
    assert!(first >= at, "{first} after {at}");
    let said = guest.sh("cat /root/x /workspace/a; echo more > /workspace/b; sync");
    assert_eq!(said.await, "here\nfirst");
    world.runtime.destroy(&machine).await.unwrap();
    // Its disks start like any others, without what was in memory.
    let (machine, guest) = world.start(&world.kept_spec(&own, &tree)).await;
    let said = guest.sh("cat /root/x /workspace/b; ls /dev/shm | wc -l");
    assert_eq!(said.await, "here\nmore\n0");
    world.runtime.destroy(&machine).await.unwrap();

    // One without kept disks is another kind of machine.
    let error = world.runtime.restore(&saved, &world.spec()).await;
    assert_eq!(error.unwrap_err().kind, ErrorKind::Invalid);
}

#[tokio::test]
async fn what_is_damaged_or_does_not_fit_is_refused_and_leaves_nothing() {
    let world = World::new();
    let scratch = tempfile::tempdir_in(&world.home).unwrap();
    let saved = scratch.path().join("saved");
    empty(&saved);
    let (source, guest) = world.create().await;
    world.runtime.save(&source, &saved).await.unwrap();
    guest.ping().await;
    world.runtime.destroy(&source).await.unwrap();
    let refused = async |spec: motu_core::runtime::MachineSpec| {
        // Nothing is at hand of what another daemon has read.
        let error = World::new().runtime.restore(&saved, &spec).await;
        let error = error.unwrap_err();
        assert!(pid_in(&spec.dir).is_none());
        assert_eq!(std::fs::read_dir(&spec.dir).unwrap().count(), 0);
        error
    };
    let mut larger = world.spec();
    larger.limits.mem_mib.value *= 2;
    assert_eq!(refused(larger).await.kind, ErrorKind::Invalid);

    let memory = saved.join("ram");
    let pages = std::fs::read(&memory).unwrap();
    let at = pages.iter().position(|byte| *byte != 0).unwrap() as u64;
    let file = std::fs::OpenOptions::new().write(true).open(&memory);
    let file = file.unwrap();
    file.write_all_at(&[!pages[at as usize]], at).unwrap();
    let error = refused(world.spec()).await;
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("memory"), "{error}");
    assert!(error.hint.is_some());
    file.write_all_at(&[pages[at as usize]], at).unwrap();
    let machine = world.runtime.restore(&saved, &world.spec()).await.unwrap();
    world.runtime.destroy(&machine).await.unwrap();

    for part in ["state", "saved.json"] {
        std::fs::remove_file(saved.join(part)).unwrap();
        let error = refused(world.spec()).await;
        assert!(error.message.contains("missing"), "{error}");
    }
}
