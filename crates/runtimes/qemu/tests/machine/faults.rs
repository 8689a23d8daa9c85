//! What a hostile or unlucky guest does, and what it costs.

use crate::support::{World, ask, pid_in};
use motu_core::Runtime;
use std::collections::HashSet;
use std::time::{Duration, Instant};

fn now() -> u64 {
    std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_secs()
}

#[tokio::test]
async fn the_clock_is_right_after_a_pause() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    world.runtime.pause(&machine).await.unwrap();
    let pause = Duration::from_secs(3);
    tokio::time::sleep(pause).await;
    let begun = Instant::now();
    world.runtime.resume(&machine).await.unwrap();
    println!("resume, clock included: {:?}", begun.elapsed());
    let clock: u64 = guest.sh("date +%s").await.parse().unwrap();
    assert!(clock.abs_diff(now()) <= 1, "{clock} is not {}", now());
    // The conversation that was open goes on.
    guest.ping().await;
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn memory_zeroed_between_two_pauses_stays_zero() {
    let world = World::new();
    let (source, guest) = world.create().await;
    let fill = "head -c 8388608 /dev/zero | tr '\\0' 'x' > /dev/shm/f";
    guest.sh(fill).await;
    world.runtime.pause(&source).await.unwrap();
    let one = world.runtime.fork(&source, &[world.spec()]).await.unwrap();
    world.runtime.resume(&source).await.unwrap();
    // In place: the same pages, now without content.
    guest
        .sh("dd if=/dev/zero of=/dev/shm/f bs=1M count=8 conv=notrunc 2>/dev/null")
        .await;
    world.runtime.pause(&source).await.unwrap();
    let two = world.runtime.fork(&source, &[world.spec()]).await.unwrap();
    world.runtime.resume(&source).await.unwrap();
    // A machine is in one conversation at a time.
    drop(guest);
    let count = "tr -d '\\0' < /dev/shm/f | wc -c";
    for (machine, wanted) in [(&one[0], "8388608"), (&two[0], "0"), (&source, "0")] {
        let guest = world.connect(machine).await;
        assert_eq!(guest.sh(count).await, wanted);
    }
    for machine in one.iter().chain(&two).chain([&source]) {
        world.runtime.destroy(machine).await.unwrap();
    }
}

#[tokio::test]
async fn copies_never_repeat_random_numbers() {
    let world = World::new();
    let (source, guest) = world.create().await;
    let specs = [world.spec(), world.spec(), world.spec()];
    let mut copies = world.runtime.fork(&source, &specs).await.unwrap();
    drop(guest);
    copies.push(source);
    let mut seen = HashSet::new();
    for machine in &copies {
        let guest = world.connect(machine).await;
        let script = "for i in 1 2 3 4 5 6 7 8; do head -c 8 /dev/urandom | od -An -tx1; done";
        for number in guest.sh(script).await.lines() {
            assert!(seen.insert(number.to_string()), "{number} came twice");
        }
    }
    assert_eq!(seen.len(), 32);
    for machine in &copies {
        world.runtime.destroy(machine).await.unwrap();
    }
}

#[tokio::test]
async fn a_guest_that_floods_its_ports_stays_alone() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    // The ports are in use by the guest program; with it gone they are anybody's.
    guest
        .start(
            "sleep 0.2; kill -STOP 1 2>/dev/null; \
             for p in /dev/vport*; do (while true; do head -c 65536 /dev/urandom > $p; done) & done",
        )
        .await;
    // And the console, which nobody reads.
    guest
        .start("while true; do head -c 65536 /dev/zero > /dev/ttyS0; done")
        .await;
    drop(guest);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let talk = async {
        match world.runtime.connect(&machine).await {
            Ok(connection) => {
                let mut both = tokio::io::join(connection.read, connection.write);
                // Either it greets or it is refused; it may not hang or grow.
                let _ = motu_link::hello::host(&mut both, [7; 16]).await;
            }
            Err(error) => println!("{error}"),
        }
    };
    let talked = tokio::time::timeout(Duration::from_secs(40), talk).await;
    assert!(talked.is_ok(), "a flooded connection ends");
    let pid = pid_in(&machine.dir).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    let status = status.unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 450 * 1024, "QEMU grew to {kib} KiB");
    world.runtime.pause(&machine).await.unwrap();
    let begun = Instant::now();
    world.runtime.destroy(&machine).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn what_disks_do_in_a_second_is_limited_in_copies_too() {
    const MBPS: u64 = 2;
    const MB: u64 = 6;
    let world = World::new();
    let limited = || {
        let mut spec = world.spec();
        spec.limits.io_mbps = ask(MBPS);
        spec
    };
    let (source, guest) = world.start(&limited()).await;
    let limit = source.limits.iter().find(|limit| limit.name == "io_mbps");
    assert!(limit.is_some_and(|limit| limit.enforced && limit.value == MBPS));
    world.runtime.pause(&source).await.unwrap();
    let copies = world.runtime.fork(&source, &[limited()]).await.unwrap();
    world.runtime.resume(&source).await.unwrap();
    drop(guest);
    for machine in copies.iter().chain([&source]) {
        let guest = world.connect(machine).await;
        let begun = Instant::now();
        let count = MB * 1_000_000 / 4096;
        guest
            .sh(&format!(
                "dd if=/dev/zero of=/workspace/big bs=4096 count={count} conv=fsync 2>/dev/null"
            ))
            .await;
        let took = begun.elapsed();
        println!("{MB} MB with {MBPS} MB/s: {took:?}");
        assert!(took.as_secs_f64() > 0.7 * (MB / MBPS) as f64, "{took:?}");
        drop(guest);
        world.runtime.destroy(machine).await.unwrap();
    }
}
