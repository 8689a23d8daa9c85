//! The life of a machine, from `create` to its complete removal.

use crate::support::{Home, World, eventually};
use motu_core::Runtime;
use motu_core::runtime::Machine;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::time::Duration;

#[tokio::test]
async fn a_machine_boots_answers_and_leaves_nothing() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    guest.ping().await;
    let script = "id -u; hostname; echo $$ > /tmp/x; stat -c %u /tmp/x; uname -v";
    let said = guest.sh("root", script).await;
    assert!(
        said.out.starts_with(&format!("0\n{}\n0\n", machine.id)),
        "{said:?}"
    );
    let said = guest.sh("root", "dmesg | head -1").await;
    assert!(said.out.contains("Starting gVisor"), "{said:?}");
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
    nothing_left(&world, &machine).await;
    world.runtime.destroy(&machine).await.unwrap();
}

/// Checks that no process, cgroup, file or loop device of the machine is left.
async fn nothing_left(world: &World, machine: &Machine) {
    let id = machine.id.as_str();
    let found = motu_needs::command("find")
        .args([
            "/sys/fs/cgroup",
            "/run",
            "/tmp",
            "-name",
            &format!("*{id}*"),
        ])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    assert_eq!(std::fs::read_dir(&machine.dir).unwrap().count(), 0);
    let left: Vec<String> = processes(id);
    assert!(left.is_empty(), "{left:?}");
    eventually(5, "only the disks kept ready have loop devices", || {
        loops(world.home.path()) <= READY_DISKS
    })
    .await;
}

/// Command lines of processes that name the machine.
fn processes(id: &str) -> Vec<String> {
    let lines = std::fs::read_dir("/proc").unwrap().flatten();
    lines
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .filter(|line| line.contains("runsc") && line.contains(id))
        .collect()
}

/// Disks the runtime prepares ahead.
const READY_DISKS: usize = 4;

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
    let before = listing(&world.home.path().join("root"));
    let (a, in_a) = world.create().await;
    let (b, in_b) = world.create().await;
    in_a.sh("root", "echo a > /etc/mark; rm /etc/group").await;
    let said = in_b
        .sh("root", "cat /etc/mark; cat /etc/group | head -1")
        .await;
    assert_eq!(said.out, "root:x:0:\n", "{said:?}");
    for machine in [a, b] {
        world.runtime.destroy(&machine).await.unwrap();
    }
    let after = listing(&world.home.path().join("root"));
    assert_eq!(before, after, "the environment itself was changed");
}

fn listing(dir: &Path) -> String {
    let found = motu_needs::command("find")
        .arg(dir)
        .args(["-printf", "%p %m %u %s %T@\n"])
        .output()
        .unwrap();
    String::from_utf8_lossy(&found.stdout).into_owned()
}

#[tokio::test]
async fn the_end_of_either_process_is_the_machines_end() {
    let world = World::new();
    for process in ["process", "gofer"] {
        let (machine, _guest) = world.create().await;
        let pid = machine.record[process]["pid"].as_i64().unwrap();
        let watched = world.runtime.ended(&machine);
        let kill = async {
            tokio::task::yield_now().await;
            kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
        };
        let (ended, ()) = tokio::join!(watched, kill);
        assert!(ended.reason.contains("guest"), "{}", ended.reason);
        assert!(!world.runtime.alive(&machine).await);
        world.runtime.destroy(&machine).await.unwrap();
        nothing_left(&world, &machine).await;
    }
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
    nothing_left(&world, &machine).await;
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
    nothing_left(&world, &machine).await;
}

#[tokio::test]
async fn a_machine_whose_record_is_lost_is_swept() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    guest.start("user", "sleep 1000").await;
    std::fs::remove_file(machine.dir.join("machine.json")).unwrap();
    for _ in 0..2 {
        let swept = world.runtime.sweep(&machine.id, &machine.dir);
        swept.await.unwrap();
    }
    assert!(!world.runtime.alive(&machine).await);
    nothing_left(&world, &machine).await;
}

#[tokio::test]
async fn a_failed_creation_leaves_nothing() {
    let world = World::new();
    let mut spec = world.spec();
    spec.root = world.home.path().join("no-such-root");
    let error = world.runtime.create(&spec).await.unwrap_err();
    assert!(error.message.contains("no-such-root"), "{error}");
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
    nothing_left(&world, &machine).await;
}

#[tokio::test]
async fn the_host_is_checked_with_a_real_machine_once() {
    let world = World::new();
    let report = world.runtime.report().await;
    assert!(report.works, "{report:?}");
    let marker = world.home.path().join("cache/gvisor/probed");
    let written = std::fs::metadata(&marker).unwrap().modified().unwrap();
    assert!(world.runtime.report().await.works);
    assert_eq!(
        std::fs::metadata(&marker).unwrap().modified().unwrap(),
        written
    );
    assert!(!world.home.path().join("cache/gvisor/probe").exists());
}

#[tokio::test]
async fn a_plan_says_what_would_be_mounted_and_run() {
    let world = World::new();
    let spec = world.spec();
    let plan = world.runtime.plan(&spec).unwrap();
    assert!(
        plan.starts_with("take a private view of the mounts\n"),
        "{plan}"
    );
    assert!(plan.contains("--network=none"), "{plan}");
    assert_eq!(std::fs::read_dir(&spec.dir).unwrap().count(), 0);
}
