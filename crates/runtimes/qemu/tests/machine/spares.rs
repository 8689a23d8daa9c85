//! Machines made ahead are as new as any other, and never outlive their daemon.

use crate::support::{World, accel};
use motu_core::Runtime;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const IDENTITY: &str = "head -c 16 /dev/urandom | od -An -tx1; cat /etc/machine-id; \
                        cat /proc/sys/kernel/random/uuid";

/// A size of their own: these tests count the spares of one kind.
fn world() -> World {
    World::with_spares(208, accel(), 1)
}

async fn until_spare(world: &World) {
    let ready = async {
        while world.runtime.spares() == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), ready).await;
    waited.expect("a machine is made ahead");
}

/// The directories of spares that this process has.
fn own_spares(world: &World) -> Vec<(PathBuf, i32)> {
    let entries = std::fs::read_dir(world.home.join("cache/spares")).unwrap();
    let of_ours = entries.flatten().filter_map(|entry| {
        let text = std::fs::read(entry.path().join("machine.json")).ok()?;
        let record: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let pid = record["process"]["pid"].as_i64()? as i32;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let parent = format!("PPid:\t{}\n", std::process::id());
        status.contains(&parent).then_some((entry.path(), pid))
    });
    of_ours.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spare_becomes_a_machine_like_any_other() {
    let world = world();
    let (first, one) = world.create().await;
    until_spare(&world).await;
    let spares = own_spares(&world);
    assert_eq!(spares.len(), 1);
    let begun = Instant::now();
    let (second, two) = world.create().await;
    let created = begun.elapsed();
    let said = two.sh(IDENTITY).await;
    println!(
        "create and connect {created:?}, to the first exec {:?}",
        begun.elapsed()
    );
    assert!(
        second.record["process"]["pid"] == spares[0].1,
        "it was the spare"
    );
    assert!(!spares[0].0.exists(), "its directory moved");
    for (a, b) in said.lines().zip(one.sh(IDENTITY).await.lines()) {
        assert_ne!(a, b);
    }
    let clock: u64 = two.sh("date +%s").await.parse().unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_secs();
    assert!(now.abs_diff(clock) <= 1, "the clock is {clock}, not {now}");
    assert_eq!(two.sh("echo x > /workspace/f; cat /workspace/f").await, "x");

    // It outlives the daemon now, and a spare does not.
    until_spare(&world).await;
    let spares = own_spares(&world);
    let next = World::with_spares(208, accel(), 0);
    drop(two);
    world.keep_machines();
    drop(world);
    assert!(next.runtime.alive(&second).await);
    next.connect(&second).await.ping().await;
    for (dir, pid) in spares {
        assert!(!dir.exists());
        assert!(!PathBuf::from(format!("/proc/{pid}")).exists());
    }
    for machine in [&first, &second] {
        next.runtime.destroy(machine).await.unwrap();
        std::fs::remove_dir_all(&machine.dir).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spare_that_died_is_not_used() {
    let world = world();
    let (first, _one) = world.create().await;
    until_spare(&world).await;
    for (_, pid) in own_spares(&world) {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    let (second, two) = world.create().await;
    two.ping().await;
    world.runtime.destroy(&first).await.unwrap();
    world.runtime.destroy(&second).await.unwrap();
}
