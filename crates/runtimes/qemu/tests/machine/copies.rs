//! Copies of a machine that runs.

use crate::support::{World, accel, pid_in, pss_kib};
use motu_core::runtime::MachineSpec;
use motu_core::{ErrorKind, Runtime};
use std::time::Instant;

#[tokio::test]
async fn what_runs_goes_on_in_the_source_and_in_the_copy() {
    let world = World::new();
    let (source, guest) = world.create().await;
    guest
        .start(
            "i=0; while true; do i=$((i+1)); echo $i > /tmp/m; mv /tmp/m /tmp/n; sleep 0.02; done",
        )
        .await;
    guest
        .sh("echo before > /workspace/f; until [ -s /tmp/n ]; do sleep 0.02; done")
        .await;
    let spec = world.spec();
    let begun = Instant::now();
    let copies = world
        .runtime
        .fork(&source, std::slice::from_ref(&spec))
        .await
        .unwrap();
    println!("fork: {:?}", begun.elapsed());
    let copy = world.connect(&copies[0]).await;
    assert_eq!(copy.sh("cat /workspace/f").await, "before");
    println!("fork to first exec in the copy: {:?}", begun.elapsed());
    for machine in [&guest, &copy] {
        let first: u64 = machine.sh("cat /tmp/n").await.parse().unwrap();
        let script = format!("until [ $(cat /tmp/n) -gt {first} ]; do sleep 0.02; done");
        machine.sh(&script).await;
    }
    // What either writes from here on is its own.
    guest.sh("echo source > /workspace/f; sync").await;
    copy.sh("echo copy > /workspace/f; sync").await;
    assert_eq!(guest.sh("cat /workspace/f").await, "source");
    assert_eq!(copy.sh("cat /workspace/f").await, "copy");
    let random = "head -c 16 /dev/urandom | od -An -tx1; cat /etc/machine-id";
    assert_ne!(guest.sh(random).await, copy.sh(random).await);

    // A copy can be copied, and outlives its source.
    world.runtime.destroy(&source).await.unwrap();
    let third = world
        .runtime
        .fork(&copies[0], &[world.spec()])
        .await
        .unwrap();
    let guest = world.connect(&third[0]).await;
    assert_eq!(guest.sh("cat /workspace/f").await, "copy");
    for machine in copies.iter().chain(&third) {
        world.runtime.destroy(machine).await.unwrap();
    }
}

#[tokio::test]
async fn a_copy_of_another_size_is_refused_and_the_source_goes_on() {
    let world = World::new();
    let (source, guest) = world.create().await;
    let mut spec = world.spec();
    spec.limits.mem_mib.value *= 2;
    let error = world.runtime.fork(&source, &[spec]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    // A copy that cannot be made takes its siblings along.
    let (good, mut bad) = (world.spec(), world.spec());
    bad.dir = bad.dir.join("missing");
    world
        .runtime
        .fork(&source, &[good.clone(), bad])
        .await
        .unwrap_err();
    assert!(pid_in(&good.dir).is_none());
    assert_eq!(std::fs::read_dir(&good.dir).unwrap().count(), 0);
    guest.ping().await;
    world.runtime.destroy(&source).await.unwrap();
}

/// Prints the figures of the specification; run by hand on a quiet machine.
#[tokio::test]
#[ignore = "measures for half a minute"]
async fn figures() {
    let world = World::with(512, accel());
    let (first, _) = world.create().await;
    world.runtime.destroy(&first).await.unwrap();
    for _ in 0..5 {
        let begun = Instant::now();
        let machine = world.runtime.create(&world.spec()).await.unwrap();
        let created = begun.elapsed();
        let guest = world.connect(&machine).await;
        guest.ping().await;
        let pinged = begun.elapsed();
        guest.sh("true").await;
        println!(
            "create {created:?}, to ping {pinged:?}, to exec {:?}",
            begun.elapsed()
        );
        world.runtime.destroy(&machine).await.unwrap();
    }
    let (source, guest) = world.create().await;
    guest
        .sh("dd if=/dev/urandom of=/dev/shm/x bs=1M count=16")
        .await;
    for count in [1, 10] {
        let specs: Vec<MachineSpec> = (0..count).map(|_| world.spec()).collect();
        let begun = Instant::now();
        let copies = world.runtime.fork(&source, &specs).await.unwrap();
        let forked = begun.elapsed();
        let copy = world.connect(&copies[count - 1]).await;
        copy.sh("true").await;
        println!(
            "{count} copies: {forked:?}, to exec in one: {:?}",
            begun.elapsed()
        );
        let pss = copies
            .iter()
            .map(|copy| pss_kib(pid_in(&copy.dir).unwrap()) / 1024);
        println!("PSS in MiB: {:?}", pss.collect::<Vec<_>>());
        if let Some(out) = std::env::var_os("SMAPS") {
            let pid = pid_in(&copies[0].dir).unwrap();
            let path = format!("/proc/{}/smaps", pid.as_raw_nonzero());
            std::fs::copy(path, out).unwrap();
        }
        for copy in &copies {
            world.runtime.destroy(copy).await.unwrap();
        }
    }
    world.runtime.destroy(&source).await.unwrap();
}
