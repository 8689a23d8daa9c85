//! The life of a machine, from `create` to its complete removal.

use crate::support::{Home, World, eventually};
use motu_core::Runtime;
use std::path::Path;
use std::time::Duration;

#[tokio::test]
async fn a_machine_boots_answers_and_leaves_nothing() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    guest.ping().await;
    let said = guest
        .sh(
            "root",
            "id -u; hostname; echo $$ > /tmp/x; stat -c %u /tmp/x",
        )
        .await;
    assert_eq!(said.out, format!("0\n{}\n0\n", machine.id), "{said:?}");
    let said = guest
        .sh("user", "id -u; touch /workspace/a; stat -c %u /workspace/a")
        .await;
    assert_eq!(said.out, "1000\n1000\n", "{said:?}");

    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let home = world.home.path().to_str().unwrap();
    assert!(
        !mounts.contains(home),
        "the host sees a mount of the machine"
    );
    world.runtime.destroy(&machine).await.unwrap();
    assert!(!world.runtime.alive(&machine).await);
    nothing_left(&world, machine.id.as_str()).await;
    assert_eq!(std::fs::read_dir(&machine.dir).unwrap().count(), 0);
    world.runtime.destroy(&machine).await.unwrap();
}

/// Checks that no cgroup, id range or loop device of the machine is left.
async fn nothing_left(world: &World, id: &str) {
    let found = motu_needs::command("find")
        .args(["/sys/fs/cgroup", "-name", id])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    let ids = std::fs::read_dir(world.home.path().join("run/uids")).unwrap();
    // Files of ranges that were freed wait for others, which have numbers.
    let taken = ids.flatten().filter(|file| {
        let name = file.file_name();
        name.to_string_lossy().parse::<u32>().is_ok()
    });
    assert_eq!(taken.count(), 0);
    eventually(5, "only the disks kept ready have loop devices", || {
        loops(world.home.path()) <= READY_DISKS
    })
    .await;
}

/// Disks that may wait for machines, prepared or left by others.
const READY_DISKS: usize = 96;

/// Number of loop devices on files of this state directory, deleted ones included.
fn loops(home: &Path) -> usize {
    std::fs::read_dir("/sys/block")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("loop/backing_file")).ok())
        .filter(|file| file.starts_with(home.to_str().unwrap()))
        .count()
}

#[tokio::test]
async fn writes_of_one_machine_are_not_seen_by_another() {
    let world = World::new();
    let (a, in_a) = world.create().await;
    let (b, in_b) = world.create().await;
    in_a.sh("root", "echo a > /etc/mark; rm /etc/group").await;
    let said = in_b
        .sh("root", "cat /etc/mark; cat /etc/group | head -1")
        .await;
    assert_eq!(said.out, "root:x:0:\n", "{said:?}");
    assert!(world.home.path().join("root/etc/group").exists());
    assert_ne!(a.record["slot"], b.record["slot"]);
    for machine in [a, b] {
        world.runtime.destroy(&machine).await.unwrap();
    }
}

/// More machines than there are disks prepared, so that some have one that another has left.
#[tokio::test]
async fn a_disk_that_a_machine_has_left_shows_nothing_of_it() {
    let world = World::new();
    let marks = "/etc/mark /tmp/mark /workspace/mark /usr/mark/deep/mark";
    for round in 0..12 {
        let (machine, guest) = world.create().await;
        let said = guest
            .sh("root", &format!("ls -d {marks} /etc/group 2>/dev/null; df -k / | tail -n 1 | awk '{{print ($3 < 1024)}}'"))
            .await;
        assert_eq!(said.out, "/etc/group\n1\n", "round {round}: {said:?}");
        let script = format!(
            "mkdir -p /usr/mark/deep; for mark in {marks}; do echo secret > $mark; done; rm /etc/group; \
             mkfifo /tmp/fifo; ln -s / /tmp/root; chmod 000 /usr/mark; head -c 3000000 /dev/zero > /var/zeros; sync"
        );
        let said = guest.sh("root", &script).await;
        assert_eq!(said.code, 0, "{said:?}");
        world.runtime.destroy(&machine).await.unwrap();
        assert!(world.home.path().join("root/etc/group").exists());
    }
    // Twelve new ones were not needed.
    let disks = loops(world.home.path());
    assert!((4..10).contains(&disks), "{disks} disks");
}

#[tokio::test]
async fn stubborn_and_daemonised_processes_end_with_the_machine() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    let script = "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; echo $$ > /tmp/pid; while :; do sleep 1; done' &) ; sleep 100";
    guest.start("user", script).await;
    guest
        .sh("root", "until test -s /tmp/pid; do sleep 0.05; done")
        .await;
    let pid = machine.record["process"]["pid"].as_i64().unwrap();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(children).unwrap();
    assert!(!children.trim().is_empty());
    world.runtime.destroy(&machine).await.unwrap();
    for child in children.split_whitespace() {
        let stat = std::fs::read_to_string(format!("/proc/{child}/cgroup"));
        assert!(!stat.is_ok_and(|text| text.contains(machine.id.as_str())));
    }
}

#[tokio::test]
async fn the_end_of_a_machine_is_seen_and_explained() {
    let world = World::new();
    let (machine, _guest) = world.create().await;
    let pid = machine.record["process"]["pid"].as_i64().unwrap();
    let watched = world.runtime.ended(&machine);
    let kill = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    };
    let (ended, ()) = tokio::join!(watched, kill);
    assert!(ended.reason.contains("guest"), "{}", ended.reason);
    assert!(!world.runtime.alive(&machine).await);
    world.runtime.destroy(&machine).await.unwrap();
    nothing_left(&world, machine.id.as_str()).await;
}

#[tokio::test]
async fn a_paused_machine_does_nothing_and_can_be_destroyed() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    guest
        .start("root", "while :; do date +%N > /tmp/now; done")
        .await;
    world.runtime.pause(&machine).await.unwrap();
    let ping = tokio::time::timeout(Duration::from_millis(200), guest.ping());
    assert!(ping.await.is_err());
    world.runtime.resume(&machine).await.unwrap();
    guest.ping().await;
    world.runtime.pause(&machine).await.unwrap();
    world.runtime.destroy(&machine).await.unwrap();
    nothing_left(&world, machine.id.as_str()).await;
}

#[tokio::test]
async fn a_new_daemon_finds_the_machine_again() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    guest.sh("root", "echo kept > /workspace/file").await;
    drop(guest);
    let World { home, runtime, .. } = world;
    drop(runtime);
    let root = home.path().join("root");
    let world = World::at(home, Some(root));
    assert!(world.runtime.alive(&machine).await);
    let guest = world.connect(&machine).await;
    assert_eq!(guest.sh("root", "cat /workspace/file").await.out, "kept\n");
    world
        .runtime
        .sweep(&machine.id, &machine.dir)
        .await
        .unwrap();
    assert!(!world.runtime.alive(&machine).await);
    nothing_left(&world, machine.id.as_str()).await;
}

#[tokio::test]
async fn a_machine_whose_record_is_lost_is_swept() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    guest.start("user", "sleep 1000").await;
    std::fs::remove_file(machine.dir.join("machine.json")).unwrap();
    world
        .runtime
        .sweep(&machine.id, &machine.dir)
        .await
        .unwrap();
    assert!(!world.runtime.alive(&machine).await);
    nothing_left(&world, machine.id.as_str()).await;
    world
        .runtime
        .sweep(&machine.id, &machine.dir)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_failed_creation_leaves_nothing() {
    let world = World::new();
    let mut spec = world.spec();
    spec.root = world.home.path().join("no-such-root");
    let error = world.runtime.create(&spec).await.unwrap_err();
    assert!(error.message.contains("no-such-root"), "{error}");
    nothing_left(&world, spec.id.as_str()).await;
    assert_eq!(std::fs::read_dir(&spec.dir).unwrap().count(), 0);
}

#[tokio::test]
async fn long_paths_are_no_problem() {
    let top = tempfile::tempdir_in("/var/tmp").unwrap();
    let deep = top.path().join("d".repeat(120)).join("e".repeat(120));
    std::fs::create_dir_all(&deep).unwrap();
    let world = World::at(Home::below(&deep), None);
    let (machine, guest) = world.create().await;
    guest.ping().await;
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn the_host_is_checked() {
    let world = World::new();
    let report = world.runtime.report().await;
    assert!(report.works, "{report:?}");
    assert!(report.checks.len() >= 6, "{report:?}");
}

/// `MOTU_TEST_CROWD` sets the number; the promise is 500.
#[tokio::test(flavor = "multi_thread")]
async fn many_machines_live_at_once() {
    let count = std::env::var("MOTU_TEST_CROWD").map_or(24, |text| text.parse().unwrap());
    let world = std::sync::Arc::new(World::new());
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let start = std::time::Instant::now();
    let creations = (0..count).map(|_| {
        let world = world.clone();
        tokio::spawn(async move { world.runtime.create(&world.spec()).await.unwrap() })
    });
    let mut machines = Vec::new();
    for creation in creations.collect::<Vec<_>>() {
        machines.push(creation.await.unwrap());
    }
    let made = start.elapsed();
    let mut slots: Vec<u64> = machines
        .iter()
        .map(|m| m.record["slot"].as_u64().unwrap())
        .collect();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), count, "two machines share ids");
    for machine in &machines {
        world.connect(machine).await.ping().await;
    }
    // No descriptors per machine: only those of prepared disks and launchers.
    eventually(5, "few descriptors are open", || descriptors() < 100).await;
    let start = std::time::Instant::now();
    let ends = machines.into_iter().map(|machine| {
        let world = world.clone();
        tokio::spawn(async move { world.runtime.destroy(&machine).await.unwrap() })
    });
    for end in ends.collect::<Vec<_>>() {
        end.await.unwrap();
    }
    println!(
        "{count} machines: made in {made:?}, gone in {:?}",
        start.elapsed()
    );
}
