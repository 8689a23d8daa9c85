//! Machines that are stopped and started again.

use crate::support::{DISK_MIB, Guest, World, ask};
use motu_core::runtime::{Kept, Machine, MachineSpec};
use motu_core::{ErrorKind, Runtime};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// A baseline with a few files of the machine's user.
pub fn baseline(home: &Path) -> Kept {
    let kept = Kept {
        dir: home.join("kept"),
        baseline: home.join("baseline"),
    };
    std::fs::create_dir(&kept.dir).unwrap();
    let script = "mkdir -p src/deep gone; echo one > a; echo two > src/b; echo deep > src/deep/c; \
        echo x > gone/x; echo m > mode; chmod 640 mode; touch -d @1000000000.123456789 mode a; \
        ln -s a link; chmod 1775 .";
    std::fs::create_dir(&kept.baseline).unwrap();
    run(&kept.baseline, script);
    if rustix::process::geteuid().is_root() {
        run(&kept.baseline, "chown -hR 1000:1000 .");
    }
    kept
}

fn run(at: &Path, script: &str) -> String {
    let done = motu_needs::command("bash")
        .args(["-ec", script])
        .current_dir(at)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{script}: {said}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Everything of a tree that must not change.
fn portrait(at: &Path) -> String {
    run(
        at,
        "find . -printf '%p %y %m %U %G %s %T@ %n %l\n' | sort; find . -type f -print0 | sort -z | xargs -0 sha256sum",
    )
}

pub fn spec(world: &World, kept: &Kept) -> MachineSpec {
    MachineSpec {
        kept: Some(kept.clone()),
        ..world.spec()
    }
}

async fn stop(world: &World, machine: &Machine, guest: Guest) {
    guest.shutdown().await;
    drop(guest);
    world.runtime.destroy(machine).await.unwrap();
    assert_eq!(std::fs::read_dir(&machine.dir).unwrap().count(), 0);
}

#[tokio::test]
async fn a_kept_machine_finds_everything_again() {
    let world = World::new();
    let kept = baseline(world.home.path());
    let before = portrait(&kept.baseline);
    let (machine, guest) = world.create_from(&spec(&world, &kept)).await;
    let said = guest
        .sh(
            "user",
            "cd /workspace && stat -c '%a %u %g' . a && cat a src/b && echo changed > a && rm -r gone && mkdir gone && echo new > src/new && chmod 600 mode",
        )
        .await;
    assert_eq!(
        said.out, "1775 1000 1000\n644 1000 1000\none\ntwo\n",
        "{said:?}"
    );
    guest
        .sh(
            "root",
            "echo root > /etc/mark; rm /etc/group; mkdir -m 700 /var; chown 1000:1000 /var",
        )
        .await;
    let expected = ["~a", "-gone/x", "~mode", "+src/new"];
    assert_eq!(guest.changes().await, expected);
    let slot = machine.record["slot"].clone();
    stop(&world, &machine, guest).await;

    // Another machine takes the id range in between, and the disks are moved.
    let (other, _guest) = world.create().await;
    let moved = Kept {
        dir: world.home.path().join("moved"),
        ..kept.clone()
    };
    std::fs::rename(&kept.dir, &moved.dir).unwrap();
    let (machine, guest) = world.create_from(&spec(&world, &moved)).await;
    assert_ne!(machine.record["slot"], slot);
    let said = guest
        .sh(
            "user",
            "cd /workspace && cat a src/new && ls -A gone && stat -c '%a %u' mode src/new; cat /etc/mark; test -e /etc/group || echo no group; stat -c '%a %u' /var",
        )
        .await;
    assert_eq!(
        said.out, "changed\nnew\n600 1000\n644 1000\nroot\nno group\n700 1000\n",
        "{said:?}"
    );
    assert_eq!(guest.changes().await, expected);
    assert_eq!(portrait(&kept.baseline), before);
    stop(&world, &machine, guest).await;
    world.runtime.destroy(&other).await.unwrap();
    assert_eq!(portrait(&kept.baseline), before);
}

#[tokio::test]
async fn every_kind_of_change_is_seen_through_the_walls() {
    let world = World::new();
    let kept = baseline(world.home.path());
    let (machine, guest) = world.create_from(&spec(&world, &kept)).await;
    assert_eq!(guest.changes().await, [""; 0]);
    let said = guest
        .sh(
            "user",
            "cd /workspace && chmod 600 a && chmod 644 a && rm -r src && mkdir src && echo z > src/z && ln -sf b link && ln mode mode2 && mv gone went",
        )
        .await;
    assert_eq!(said.code, 0, "{said:?}");
    let expected = [
        "-gone",
        "-gone/x",
        "~link",
        "~mode",
        "+mode2",
        "-src/b",
        "-src/deep",
        "-src/deep/c",
        "+src/z",
        "+went",
        "+went/x",
    ];
    assert_eq!(guest.changes().await, expected);
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn what_a_killed_guest_had_written_is_there() {
    let world = World::new();
    let kept = baseline(world.home.path());
    let (machine, guest) = world.create_from(&spec(&world, &kept)).await;
    guest
        .sh("root", "echo survives > /workspace/s; echo too > /etc/t; dd if=/dev/zero of=/workspace/big bs=1M count=8")
        .await;
    let pid = machine.record["process"]["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    drop(guest);
    // It is not destroyed; only its directory is swept, as after a crash of the daemon.
    world.runtime.ended(&machine).await;
    world
        .runtime
        .sweep(&machine.id, &machine.dir)
        .await
        .unwrap();
    let (machine, guest) = world.create_from(&spec(&world, &kept)).await;
    let said = guest
        .sh("root", "cat /workspace/s /etc/t; stat -c %s /workspace/big")
        .await;
    assert_eq!(said.out, "survives\ntoo\n8388608\n", "{said:?}");
    world.runtime.destroy(&machine).await.unwrap();
}

/// A copy of the image as after a power cut, repaired by its journal.
fn after_power_loss(world: &World, kept: &Kept) -> std::path::PathBuf {
    let copy = world.home.path().join("lost.img");
    let script = format!(
        "cp --sparse=always {} {}; e2fsck -fy {1} > /dev/null || test $? = 1",
        kept.dir.join("disk.img").display(),
        copy.display()
    );
    run(world.home.path(), &script);
    copy
}

#[tokio::test]
async fn what_a_machine_wrote_before_its_shutdown_is_on_the_image() {
    let world = World::new();
    let kept = baseline(world.home.path());
    let (machine, guest) = world.create_from(&spec(&world, &kept)).await;
    guest
        .sh(
            "root",
            "echo safe > /workspace/late; echo sound > /etc/late",
        )
        .await;
    guest.shutdown().await;
    // Whether it has been unmounted yet does not matter.
    let image = after_power_loss(&world, &kept);
    for (path, content) in [
        ("/workspace/upper/late", "safe\n"),
        ("/upper/etc/late", "sound\n"),
    ] {
        let cat = format!("debugfs -R 'cat {path}' {} 2>/dev/null", image.display());
        assert_eq!(run(world.home.path(), &cat), content);
    }
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn what_is_deleted_goes_back_to_the_host() {
    let world = World::new();
    let kept = baseline(world.home.path());
    let blocks = || {
        std::fs::metadata(kept.dir.join("disk.img"))
            .unwrap()
            .blocks()
            * 512
    };
    let mut large = spec(&world, &kept);
    large.limits.disk_mib.value = 512;
    let (machine, guest) = world.create_from(&large).await;
    // More than the free space that is left allocated in an image.
    let fill = "dd if=/dev/urandom of=/workspace/fill bs=1M count=150; sync /workspace/fill";
    guest.sh("root", fill).await;
    assert!(blocks() > 150 << 20, "{}", blocks());
    guest.sh("root", "rm /workspace/fill").await;
    stop(&world, &machine, guest).await;
    world.runtime.tend(&kept, true).await.unwrap();
    assert!(blocks() < 64 << 20, "{}", blocks());
}

#[tokio::test]
async fn the_disks_of_one_machine_are_not_anothers() {
    let world = World::new();
    let kept = baseline(world.home.path());
    let (machine, guest) = world.create_from(&spec(&world, &kept)).await;
    let start = Instant::now();
    let second = spec(&world, &kept);
    let error = world.runtime.create(&second).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    assert!(start.elapsed() < Duration::from_secs(5), "it waited");
    assert_eq!(std::fs::read_dir(&second.dir).unwrap().count(), 0);
    guest.sh("root", "echo still > /workspace/here").await;
    world.runtime.destroy(&machine).await.unwrap();
    let (machine, guest) = world.create_from(&second).await;
    let said = guest.sh("root", "cat /workspace/here").await;
    assert_eq!(said.out, "still\n", "{said:?}");
    world.runtime.destroy(&machine).await.unwrap();
}

fn disk_mib(machine: &Machine) -> u64 {
    let limit = machine.limits.iter().find(|l| l.name == "disk_mib");
    limit.unwrap().value
}

#[tokio::test]
async fn a_full_disk_is_the_machines_own_trouble() {
    let world = World::new();
    let kept = baseline(world.home.path());
    let (machine, guest) = world.create_from(&spec(&world, &kept)).await;
    let said = guest
        .sh(
            "root",
            "dd if=/dev/zero of=/workspace/fill bs=1M; echo x > /etc/y; ls /workspace",
        )
        .await;
    assert!(said.err.contains("No space left"), "{said:?}");
    guest.ping().await;
    stop(&world, &machine, guest).await;

    // A larger size grows the disk at the next start; a smaller one has no effect.
    let mut larger = spec(&world, &kept);
    larger.limits.disk_mib = ask(2 * DISK_MIB);
    let (machine, guest) = world.create_from(&larger).await;
    let said = guest
        .sh(
            "root",
            "dd if=/dev/zero of=/workspace/more bs=1M count=40 && echo done",
        )
        .await;
    let size = disk_mib(&machine);
    match size {
        DISK_MIB => eprintln!("this host lets no disk grow; it keeps its size and says so"),
        size => assert_eq!((size, &*said.out), (2 * DISK_MIB, "done\n"), "{said:?}"),
    }
    stop(&world, &machine, guest).await;
    let (machine, guest) = world.create_from(&spec(&world, &kept)).await;
    assert_eq!(disk_mib(&machine), size);
    let said = guest
        .sh("root", "rm -r /workspace/* && echo room > /workspace/again")
        .await;
    assert_eq!(said.code, 0, "{said:?}");
    stop(&world, &machine, guest).await;
}

#[tokio::test]
async fn few_changes_of_a_large_workspace_are_found_quickly() {
    let world = World::new();
    let kept = baseline(world.home.path());
    run(
        &kept.baseline,
        "mkdir -p d{0..99}; for d in d*; do for f in {0..99}; do : > $d/f$f; done; done; chown -R 1000:1000 .",
    );
    let (machine, guest) = world.create_from(&spec(&world, &kept)).await;
    guest
        .sh(
            "user",
            "cd /workspace; echo x > d7/f7; rm d8/f8; echo y > d9/new",
        )
        .await;
    let start = Instant::now();
    assert_eq!(guest.changes().await, ["~d7/f7", "-d8/f8", "+d9/new"]);
    let took = start.elapsed();
    println!("3 changes among 10 000 files: {took:?}");
    assert!(took < Duration::from_millis(100), "{took:?}");
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn the_machine_cannot_reach_behind_its_workspace() {
    let world = World::new();
    let kept = baseline(world.home.path());
    let (machine, guest) = world.create_from(&spec(&world, &kept)).await;
    for refused in [
        "umount /workspace",
        "ls /proc/1/fd/",
        "rm -r /workspace",
        "mv /workspace /w",
    ] {
        let said = guest.sh("root", refused).await;
        assert_ne!(said.code, 0, "{refused}: {said:?}");
    }
    world.runtime.destroy(&machine).await.unwrap();
    // Other users of the host must not be able to read its image.
    let image = kept.dir.join("disk.img");
    let mode = std::fs::metadata(&image).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    let meta = std::fs::metadata(&image).unwrap();
    assert!(meta.blocks() * 512 < meta.len(), "the image is not sparse");
}
