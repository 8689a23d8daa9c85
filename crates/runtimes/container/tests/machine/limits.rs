//! Limits: each is checked before it is exceeded.

use crate::support::{DISK_MIB, World, ask};
use motu_core::runtime::Machine;
use motu_core::{ErrorKind, Runtime};
use std::path::Path;

fn enforced(machine: &Machine, name: &str) {
    let limit = machine.limits.iter().find(|l| l.name == name).unwrap();
    assert!(limit.enforced, "{limit:?}");
}

/// The value in the machine's cgroup, found through one of its processes.
fn cgroup_value(machine: &Machine, controller: &str, file: &str) -> String {
    let pid = machine.record["process"]["pid"].as_i64().unwrap();
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let line = |mark: &str| text.lines().find_map(|line| line.split_once(mark));
    let dir = match (line(&format!(":{controller}:")), line("0::")) {
        (Some((_, path)), _) => Path::new("/sys/fs/cgroup")
            .join(controller)
            .join(&path[1..]),
        // Version 2 has one tree.
        (None, Some((_, path))) => Path::new("/sys/fs/cgroup").join(&path[1..]),
        (None, None) => panic!("no {controller} in {text}"),
    };
    // Names of version 1, and what is called so in version 2.
    let file = match (dir.join(file).exists(), file) {
        (false, "memory.limit_in_bytes") => "memory.max",
        (false, "cpu.cfs_quota_us") => "cpu.max",
        _ => file,
    };
    assert!(dir.ends_with(machine.id.as_str()), "{}", dir.display());
    std::fs::read_to_string(dir.join(file))
        .unwrap()
        .trim()
        .to_string()
}

#[tokio::test]
async fn a_memory_hog_dies_alone() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    enforced(&machine, "mem_mib");
    let limit = cgroup_value(&machine, "memory", "memory.limit_in_bytes");
    assert_eq!(limit, (64u64 << 20).to_string());

    let hog = "x=$(head -c 1000000 /dev/zero | tr '\\0' x); while :; do x=$x$x; done";
    let said = guest.sh("user", hog).await;
    assert_eq!(said.code, 137, "{said:?}");
    assert_eq!(guest.sh("user", "echo alive").await.out, "alive\n");
    world.runtime.destroy(&machine).await.unwrap();
}

/// Each process is smaller than the guest, all together are not: an OOM killer that goes by size
/// alone would start with the guest.
#[tokio::test]
async fn when_memory_ends_the_guest_is_not_the_one_to_go() {
    let swarm = "i=0; while [ $i -lt 50 ]; do \
         (x=$(head -c 1500000 /dev/zero | tr '\\0' x); sleep 0.3; : $x) & i=$((i+1)); done; wait";
    let shared = "dd if=/dev/zero of=/dev/shm/a bs=1M count=60; \
         x=$(head -c 9000000 /dev/zero | tr '\\0' x); x=$x$x$x; rm /dev/shm/a; : $x";
    let hog = "exec dd if=/dev/zero of=/dev/null bs=512M count=1";
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.pids_max = ask(512);
    let (machine, guest) = world.create_from(&spec).await;
    let limit = cgroup_value(&machine, "memory", "memory.limit_in_bytes");
    assert_eq!(limit, (64u64 << 20).to_string());
    for round in 0..10 {
        let all = [("hog", hog), ("swarm", swarm), ("shared", shared)];
        // Run the slow ones only in some rounds.
        let tried = if round % 4 == 0 { 3 } else { 1 };
        for (name, script) in all.into_iter().take(tried) {
            let kills = world.runtime.memory_kills(&machine);
            let _ = guest.sh("user", script).await;
            let kills = world.runtime.memory_kills(&machine) - kills;
            println!("round {round}, {name}: {kills} killed");
            assert!(name == "shared" || kills > 0, "{name}: nobody was killed");
            let said = guest.sh("user", "rm -f /dev/shm/a; echo alive").await;
            assert_eq!(said.out, "alive\n", "round {round}, {name}");
        }
    }
    // Programs inside cannot lower their score below the guest's.
    let scores = "cat /proc/self/oom_score_adj; echo -900 > /proc/self/oom_score_adj || echo no";
    let said = guest.sh("root", scores).await;
    assert_eq!(said.out, "500\nno\n", "{said:?}");
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn a_fork_bomb_is_bounded() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    enforced(&machine, "pids_max");
    assert_eq!(cgroup_value(&machine, "pids", "pids.max"), "64");

    let bomb = "for i in $(seq 200); do sleep 60 & done; wait";
    guest.start("user", bomb).await;
    // The kernel counts what it refuses.
    let refused = || cgroup_value(&machine, "pids", "pids.events") != "max 0";
    for _ in 0..6000 {
        if refused() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(refused(), "200 processes were let in");
    let now: u32 = cgroup_value(&machine, "pids", "pids.current")
        .parse()
        .unwrap();
    assert!((32..=64).contains(&now), "{now}");
    guest.ping().await;
    world.runtime.destroy(&machine).await.unwrap();
    assert!(!world.runtime.alive(&machine).await);
}

#[tokio::test]
async fn the_disk_ends_where_it_was_said_to() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    enforced(&machine, "disk_mib");
    let said = guest.sh("root", "df -m / | tail -1").await;
    let size: u64 = said.out.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(size <= DISK_MIB, "{said:?}");

    let said = guest
        .sh("root", "dd if=/dev/zero of=/workspace/fill bs=1M count=200")
        .await;
    assert_ne!(said.code, 0);
    assert!(said.err.contains("No space"), "{said:?}");
    let said = guest
        .sh(
            "root",
            "du -m /workspace/fill; rm /workspace/fill; echo x > /x",
        )
        .await;
    assert_eq!(said.code, 0, "{said:?}");
    let written: u64 = said.out.split_whitespace().next().unwrap().parse().unwrap();
    assert!(written <= DISK_MIB, "{written} MiB were written");
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn cpu_and_open_files_are_limited() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    enforced(&machine, "vcpu_count");
    let quota = cgroup_value(&machine, "cpu", "cpu.cfs_quota_us");
    // Version 2 says the period beside it.
    assert_eq!(quota.split(' ').next(), Some("100000"), "{quota}");
    let said = guest.sh("user", "ulimit -Hn; ulimit -Hc").await;
    assert_eq!(said.out, "256\n0\n");
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_enforced_is_refused_or_said() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.nofile = ask(1_000_000);
    let error = world.runtime.create(&spec).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
    assert_eq!(std::fs::read_dir(&spec.dir).unwrap().count(), 0);

    spec.limits.nofile.explicit = false;
    let machine = world.runtime.create(&spec).await.unwrap();
    let limit = machine.limits.iter().find(|l| l.name == "nofile").unwrap();
    assert!(
        limit.value < 1_000_000 && limit.by.contains("lowered"),
        "{limit:?}"
    );
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn sockets_do_not_hold_memory_beside_the_limit() {
    let world = World::new();
    let (machine, _guest) = world.create().await;
    if !Path::new("/sys/fs/cgroup/memory").exists() {
        // Version 2 counts them with the rest.
        let limit = cgroup_value(&machine, "memory", "memory.max");
        assert_eq!(limit, (64u64 << 20).to_string());
        return world.runtime.destroy(&machine).await.unwrap();
    }
    let file = "memory.kmem.tcp.limit_in_bytes";
    let limit: u64 = cgroup_value(&machine, "memory", file).parse().unwrap();
    assert!(limit <= (64 << 20) / 8, "{limit}");
    world.runtime.destroy(&machine).await.unwrap();
}

/// Throttling rules of the root group about loop devices, which cgroup v1 needs.
fn root_rules() -> Vec<String> {
    let file = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_string).collect()
}

#[tokio::test]
async fn what_disks_do_in_a_second_is_limited() {
    const MBPS: u64 = 5;
    const MB: u64 = 15;
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.io_mbps = ask(MBPS);
    spec.limits.iops = ask(400);
    let (machine, guest) = world.create_from(&spec).await;
    enforced(&machine, "io_mbps");
    enforced(&machine, "iops");
    // First synchronous writes, then those that the kernel writes back later.
    let count = MB * 1_000_000 / 4096;
    for rest in ["conv=fsync 2>&1", "2>&1; sync -f /workspace/big"] {
        let begun = std::time::Instant::now();
        let script = format!("dd if=/dev/zero of=/workspace/big bs=4096 count={count} {rest}");
        let said = guest.sh("root", &script).await;
        assert_eq!(said.code, 0, "{said:?}");
        let took = begun.elapsed();
        println!("{MB} MB with {MBPS} MB/s, {rest}: {took:?}");
        // A small part may be written at once.
        assert!(took.as_secs_f64() > 0.7 * (MB / MBPS) as f64, "{took:?}");
    }
    let device = |rules: Vec<String>| rules.iter().any(|rule| rule.ends_with(" 5000000"));
    let old = std::path::Path::new("/sys/fs/cgroup/blkio").exists();
    assert_eq!(device(root_rules()), old);
    world.runtime.destroy(&machine).await.unwrap();
    assert!(!device(root_rules()), "a rule of the root group is left");
}

#[tokio::test]
async fn operations_in_a_second_are_limited() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.iops = ask(60);
    let (machine, guest) = world.create_from(&spec).await;
    let begun = std::time::Instant::now();
    let script = "dd if=/dev/zero of=/workspace/many bs=4096 count=180 oflag=direct 2>&1";
    let said = guest.sh("root", script).await;
    let took = begun.elapsed();
    println!("180 direct writes with 60 in a second: {took:?}");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(took.as_secs_f64() > 0.7 * 3.0, "{took:?}");
    world.runtime.destroy(&machine).await.unwrap();
}

/// The numbers in a list such as `0-2,5`.
fn count(list: &str) -> u64 {
    let parts = list.trim().split(',').map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u64>().unwrap();
        number(last) - number(first) + 1
    });
    parts.sum()
}

#[tokio::test]
async fn programs_are_told_of_as_many_processors_as_the_machine_has() {
    let world = World::new();
    let host = std::thread::available_parallelism().unwrap().get() as u64;
    let own = "grep Cpus_allowed_list /proc/self/status | cut -f2";
    for vcpus in 1..=host.min(3) {
        let mut spec = world.spec();
        spec.limits.vcpu_count = ask(vcpus);
        let (machine, guest) = world.create_from(&spec).await;
        for user in ["root", "user"] {
            let said = guest.sh(user, "nproc").await;
            assert_eq!(said.out.trim(), vcpus.to_string(), "as {user}: {said:?}");
        }
        let online = guest.sh("user", "cat /sys/devices/system/cpu/online").await;
        assert_eq!(count(&online.out), vcpus, "{online:?}");
        // They run on all of them, as far as the limit goes.
        let allowed = guest.sh("user", own).await;
        assert_eq!(count(&allowed.out), host, "{allowed:?}");
        // What a program has chosen itself is its own.
        for number in 0..host {
            let chosen = format!("taskset -c {number} sh -c 'nproc; {own}'");
            let said = guest.sh("user", &chosen).await;
            assert_eq!(said.out, format!("1\n{number}\n"), "{said:?}");
        }
        world.runtime.destroy(&machine).await.unwrap();
    }
}
