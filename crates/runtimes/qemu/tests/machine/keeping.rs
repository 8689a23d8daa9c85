//! Disks that outlive their machine.

use crate::support::{World, pid_in};
use motu_core::{ErrorKind, Runtime};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A tree with what a workspace may begin with.
fn baseline(dir: &Path) -> PathBuf {
    let tree = dir.join("baseline");
    std::fs::create_dir_all(tree.join("src")).unwrap();
    std::fs::write(tree.join("a"), "first\n").unwrap();
    std::fs::write(tree.join("src/b"), "second\n").unwrap();
    for path in [&tree, &tree.join("a"), &tree.join("src")] {
        std::os::unix::fs::chown(path, Some(1000), Some(1000)).unwrap();
    }
    tree
}

#[tokio::test]
async fn everything_written_is_found_again() {
    let world = World::new();
    let scratch = tempfile::tempdir_in(&world.home).unwrap();
    let tree = baseline(scratch.path());
    let kept = scratch.path().join("kept");
    let (machine, guest) = world.start(&world.kept_spec(&kept, &tree)).await;
    let said = guest.sh("cat /workspace/a /workspace/src/b; stat -c '%u %a' /workspace");
    assert_eq!(said.await, "first\nsecond\n1000 755");
    guest
        .sh_as(
            "user",
            "echo mine > /workspace/new; rm -r /workspace/src; echo more >> /workspace/a",
        )
        .await;
    guest
        .sh("echo here > /root/x; mkdir /opt; echo there > /opt/y")
        .await;
    // A second machine on the same disks is refused, and does no harm.
    let error = world
        .runtime
        .create(&world.kept_spec(&kept, &tree))
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    guest.sh("sync").await;
    world.runtime.destroy(&machine).await.unwrap();

    // Moved, and with a new daemon.
    let moved = scratch.path().join("moved");
    std::fs::rename(&kept, &moved).unwrap();
    let world = World::new();
    let begun = Instant::now();
    let (machine, guest) = world.start(&world.kept_spec(&moved, &tree)).await;
    let said = guest.sh("cat /workspace/new /workspace/a /root/x /opt/y; ls /workspace");
    assert_eq!(said.await, "mine\nfirst\nmore\nhere\nthere\na\nnew");
    println!(
        "start of a kept machine to its first exec: {:?}",
        begun.elapsed()
    );
    let clock: u64 = guest.sh("date +%s").await.parse().unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_secs();
    assert!(now.abs_diff(clock) <= 2, "the clock is {clock}, not {now}");
    world.runtime.destroy(&machine).await.unwrap();
    assert!(moved.join("kept.json").exists(), "destroy leaves the disks");
    assert_eq!(std::fs::read(tree.join("a")).unwrap(), b"first\n");
    assert_eq!(std::fs::metadata(&tree).unwrap().uid(), 1000);
}

#[tokio::test]
async fn what_was_synced_survives_any_end() {
    let world = World::new();
    let scratch = tempfile::tempdir_in(&world.home).unwrap();
    let (tree, kept) = (baseline(scratch.path()), scratch.path().join("kept"));
    for round in 0..3 {
        let (machine, guest) = world.start(&world.kept_spec(&kept, &tree)).await;
        for before in 0..round {
            let script = format!("cat /workspace/r{before} /etc/r{before}");
            assert_eq!(guest.sh(&script).await, format!("{before}\n{before}"));
        }
        guest
            .sh(&format!(
                "echo {round} | tee /etc/r{round} > /workspace/r{round}; sync"
            ))
            .await;
        // Still writing when it ends.
        guest
            .start("i=0; while true; do i=$((i+1)); echo $i > /workspace/busy$((i % 50)); mkdir -p /var/d$i; done")
            .await;
        guest
            .sh("until [ -e /workspace/busy20 ]; do sleep 0.02; done")
            .await;
        let pid = pid_in(&machine.dir).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        world.runtime.destroy(&machine).await.unwrap();
    }
    let flat = scratch.path().join("root.raw");
    motu_qemu::flatten(&kept, &flat).await.unwrap();
    let written = scratch.path().join("work.raw");
    motu_qemu::flatten_workspace(&kept, &written).await.unwrap();
    for (image, path, wanted) in [(&flat, "/etc/r2", "2\n"), (&written, "/upper/r1", "1\n")] {
        // A journal is replayed as it would be at the next start.
        let _ = motu_needs::command("e2fsck")
            .args(["-fy"])
            .arg(image)
            .output()
            .unwrap();
        let read = motu_needs::command("debugfs")
            .args(["-R", &format!("cat {path}")])
            .arg(image)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&read.stdout), wanted);
    }
}

#[tokio::test]
async fn copies_of_a_kept_machine_have_disks_of_their_own() {
    let world = World::new();
    let scratch = tempfile::tempdir_in(&world.home).unwrap();
    let tree = baseline(scratch.path());
    let place = |name: &str| scratch.path().join(name);
    let (source, guest) = world.start(&world.kept_spec(&place("one"), &tree)).await;
    guest
        .sh("echo both > /workspace/f; echo both > /root/f")
        .await;
    let error = world
        .runtime
        .fork(&source, &[world.spec()])
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    let spec = world.kept_spec(&place("two"), &tree);
    let begun = Instant::now();
    let copies = world
        .runtime
        .fork(&source, std::slice::from_ref(&spec))
        .await
        .unwrap();
    let copy = world.connect(&copies[0]).await;
    assert_eq!(copy.sh("cat /workspace/f /root/f").await, "both\nboth");
    println!(
        "fork of a kept machine to the first exec: {:?}",
        begun.elapsed()
    );
    guest.sh("echo source > /workspace/f; sync").await;
    copy.sh("echo copy > /workspace/f; sync").await;
    // A copy of a copy, while the copy stands still.
    world.runtime.pause(&copies[0]).await.unwrap();
    let third = world.kept_spec(&place("three"), &tree);
    let thirds = world.runtime.fork(&copies[0], &[third]).await.unwrap();
    let third = world.connect(&thirds[0]).await;
    assert_eq!(third.sh("cat /workspace/f").await, "copy");
    third.sh("echo third > /workspace/f; sync").await;
    for machine in [&source, &copies[0], &thirds[0]] {
        world.runtime.destroy(machine).await.unwrap();
    }
    for (name, wanted) in [("one", "source"), ("two", "copy"), ("three", "third")] {
        let (machine, guest) = world.start(&world.kept_spec(&place(name), &tree)).await;
        let said = guest.sh("cat /workspace/f /root/f /workspace/a").await;
        assert_eq!(said, format!("{wanted}\nboth\nfirst"));
        world.runtime.destroy(&machine).await.unwrap();
    }
}

#[tokio::test]
async fn damaged_disks_are_refused_with_the_reason() {
    let world = World::new();
    let scratch = tempfile::tempdir_in(&world.home).unwrap();
    let (tree, kept) = (baseline(scratch.path()), scratch.path().join("kept"));
    let (machine, guest) = world.start(&world.kept_spec(&kept, &tree)).await;
    guest
        .sh("dd if=/dev/urandom of=/workspace/x bs=64k count=20; sync")
        .await;
    world.runtime.destroy(&machine).await.unwrap();
    let work = kept.join("work-0.qcow2");
    let whole = std::fs::read(&work).unwrap();
    let refused = |what: &'static str| {
        let spec = world.kept_spec(&kept, &tree);
        let runtime = &world.runtime;
        async move {
            let error = runtime.create(&spec).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unavailable, "{what}: {error}");
            assert!(error.message.contains("work-0.qcow2"), "{what}: {error}");
            println!("{what}: {error}");
        }
    };
    let file = std::fs::File::options().write(true).open(&work).unwrap();
    file.set_len(whole.len() as u64 / 2).unwrap();
    refused("cut short").await;
    file.write_all_at(&whole, 0).unwrap();
    // A bit of the header, and one of the first-level table.
    for at in [25, 3 * 65536 + 4] {
        file.write_all_at(&[whole[at] ^ 8], at as u64).unwrap();
        refused("a flipped bit").await;
        file.write_all_at(&[whole[at]], at as u64).unwrap();
    }
    let (machine, guest) = world.start(&world.kept_spec(&kept, &tree)).await;
    guest.ping().await;
    world.runtime.destroy(&machine).await.unwrap();
    let other = std::fs::read_to_string(kept.join("kept.json")).unwrap();
    let other = other.replace("\"version\":1", "\"version\":7");
    std::fs::write(kept.join("kept.json"), other).unwrap();
    let error = world
        .runtime
        .create(&world.kept_spec(&kept, &tree))
        .await
        .unwrap_err();
    assert!(error.message.contains("version 7"), "{error}");
}
