//! Limits: each is checked before it is exceeded.

use crate::support::{DISK_MIB, MEM_MIB, World, ask, eventually};
use motu_core::Runtime;
use motu_core::runtime::Machine;
use std::path::Path;
use std::time::Duration;

fn enforced(machine: &Machine, name: &str) {
    let limit = machine.limits.iter().find(|l| l.name == name).unwrap();
    assert!(limit.enforced, "{limit:?}");
}

/// The value in the machine's cgroup, found through one of its processes.
fn cgroup_value(machine: &Machine, process: &str, controller: &str, file: &str) -> String {
    let pid = machine.record[process]["pid"].as_i64().unwrap();
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
    let limits = ["process", "gofer"]
        .map(|process| cgroup_value(&machine, process, "memory", "memory.limit_in_bytes"));
    assert_eq!(limits[0], limits[1]);
    let limit: u64 = limits[0].parse().unwrap();
    let allowed = MEM_MIB << 20..=(MEM_MIB + 128) << 20;
    assert!(allowed.contains(&limit), "{limit}");
    let said = guest.sh("user", "grep MemTotal /proc/meminfo").await;
    let total = format!("{} kB\n", MEM_MIB * 1024);
    assert!(said.out.ends_with(&total), "{said:?}");

    let hog = "x=$(head -c 1000000 /dev/zero | tr '\\0' x); while :; do x=$x$x; done";
    let said = guest.sh("user", hog).await;
    // gVisor reports a process killed for memory as exit code 1.
    assert_ne!(said.code, 0, "{said:?}");
    assert!(world.runtime.memory_kills(&machine) > 0);
    assert_eq!(guest.sh("user", "echo alive").await.out, "alive\n");
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn a_fork_bomb_is_bounded_and_the_machine_lives() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    enforced(&machine, "pids_max");
    let backstop: u64 = cgroup_value(&machine, "process", "pids", "pids.max")
        .parse()
        .unwrap();
    // Twice what each user may have, and the guest's own.
    assert_eq!(backstop, 8 * (2 * 64 + 64) + 1024);

    let bomb = "i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i+1)); done; wait";
    let said = guest.sh("user", bomb).await;
    assert_ne!(said.code, 0, "{said:?}");
    assert!(said.err.contains("fork"), "{said:?}");
    let now: u64 = cgroup_value(&machine, "process", "pids", "pids.current")
        .parse()
        .unwrap();
    assert!(now < backstop, "{now}");
    guest.ping().await;
    world.runtime.destroy(&machine).await.unwrap();
    assert!(!world.runtime.alive(&machine).await);
}

#[tokio::test]
async fn the_disk_ends_where_it_was_said_to() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    enforced(&machine, "disk_mib");
    let said = guest.sh("root", "df -m / /tmp | tail -1").await;
    let size: u64 = said.out.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(size <= DISK_MIB, "{said:?}");

    for place in ["/workspace", "/tmp", "/root"] {
        let fill = format!("dd if=/dev/zero of={place}/fill bs=1M count=200");
        let said = guest.sh("root", &fill).await;
        assert_ne!(said.code, 0);
        assert!(said.err.contains("No space"), "{said:?}");
        let clean = format!("du -m {place}/fill; rm {place}/fill; echo x > /x");
        let said = guest.sh("root", &clean).await;
        assert_eq!(said.code, 0, "{said:?}");
        let written: u64 = said.out.split_whitespace().next().unwrap().parse().unwrap();
        assert!(written <= DISK_MIB, "{written} MiB were written");
    }
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn cpu_and_open_files_are_limited() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    enforced(&machine, "vcpu_count");
    let quota = cgroup_value(&machine, "process", "cpu", "cpu.cfs_quota_us");
    // Version 2 has the period beside it.
    assert_eq!(quota.split(' ').next(), Some("100000"));
    let said = guest.sh("user", "ulimit -Hn; ulimit -Hc").await;
    assert_eq!(said.out, "256\n0\n");
    let many =
        "i=10; while [ $i -lt 400 ]; do eval \"exec $i</dev/null\" || exit 3; i=$((i+1)); done";
    let said = guest.sh("user", many).await;
    assert_ne!(said.code, 0, "{said:?}");
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn every_process_is_inside_the_walls() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    guest.start("user", "sleep 100").await;
    // The processes of the machine are those in the sandbox's network namespace.
    let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let sandbox = network(&machine.record["process"]["pid"].to_string()).unwrap();
    let members = || -> Vec<String> {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|pid| network(pid).as_ref() == Some(&sandbox))
            .collect()
    };
    eventually(5, "gVisor runs the program", || members().len() > 2).await;
    for pid in members() {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
            continue;
        };
        let limited = |line: &&str| line.contains(":memory:") || line.contains(":pids:");
        let lines: Vec<&str> = match text.lines().filter(limited).collect() {
            // Version 2 has one line.
            none if Vec::is_empty(&none) => text.lines().collect(),
            some => some,
        };
        for line in lines {
            assert!(line.ends_with(machine.id.as_str()), "{line}");
        }
    }
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn what_disks_do_in_a_second_is_limited() {
    const MBPS: u64 = 6;
    const MB: u64 = 18;
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.io_mbps = ask(MBPS);
    let (machine, guest) = world.create_from(&spec).await;
    enforced(&machine, "io_mbps");
    let begun = std::time::Instant::now();
    let count = MB * 1_000_000 / 4096;
    let script = format!("dd if=/dev/zero of=/workspace/big bs=4096 count={count} conv=fsync 2>&1");
    let said = guest.sh("root", &script).await;
    assert_eq!(said.code, 0, "{said:?}");
    let took = begun.elapsed();
    println!("{MB} MB with {MBPS} MB/s: {took:?}");
    assert!(took.as_secs_f64() > 0.7 * (MB / MBPS) as f64, "{took:?}");
    world.runtime.destroy(&machine).await.unwrap();
    let file = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
    let rules = std::fs::read_to_string(file).unwrap_or_default();
    assert!(!rules.contains(" 6000000"), "{rules}");
}

/// Programs that exhaust the machine's memory: the programs are killed, the machine survives.
#[tokio::test]
async fn when_memory_ends_the_machine_goes_on() {
    const SLOW: Duration = Duration::from_secs(60);
    let swarm = "i=0; while [ $i -lt 50 ]; do \
         (x=$(head -c 1500000 /dev/zero | tr '\\0' x); sleep 0.3; : $x) & i=$((i+1)); done; wait";
    let hog = "x=$(head -c 1000000 /dev/zero | tr '\\0' x); while :; do x=$x$x; done";
    let world = World::new();
    let (machine, guest) = world.create().await;
    let begun = std::time::Instant::now();
    for round in 0..5 {
        let said = guest.sh("user", hog).await;
        assert_ne!(said.code, 0, "round {round}");
        let said = guest.sh("user", "echo alive").await;
        assert_eq!(said.out, "alive\n", "round {round}");
        // Not in every round: gVisor sometimes ends a program itself that can have no more.
        let killed = world.runtime.memory_kills(&machine) > 0;
        println!("round {round}: {killed} after {:?}", begun.elapsed());
        // A host that is emulated takes minutes for a round.
        if killed && begun.elapsed() > SLOW {
            break;
        }
    }
    assert!(world.runtime.memory_kills(&machine) > 0);
    world.runtime.destroy(&machine).await.unwrap();
    let (machine, guest) = world.create().await;
    let said = guest.sh("user", swarm).await;
    println!("swarm: {}", said.code);
    guest.ping().await;
    assert!(world.runtime.alive(&machine).await);
    world.runtime.destroy(&machine).await.unwrap();
}

/// A fork bomb that multiplies, for longer than gVisor once took to run out of everything: it keeps
/// what each fork that its control group refuses was given.
#[tokio::test]
async fn a_bomb_that_multiplies_is_outlived() {
    const LONG: Duration = Duration::from_secs(12);
    for user in ["user", "root"] {
        let world = World::new();
        let (machine, guest) = world.create().await;
        let ended = world.runtime.ended(&machine);
        tokio::pin!(ended);
        guest.start(user, "f() { f | f & }; f; wait").await;
        let tasks = || cgroup_value(&machine, "process", "pids", "pids.current");
        let end = tokio::time::timeout(LONG, &mut ended).await;
        assert!(end.is_err(), "as {user}: {end:?}");
        let most: u64 = tasks().parse().unwrap();
        println!("{most} tasks of the host after the bomb of {user}");
        // Two for each of the machine's, and gVisor's own threads.
        assert!(most < 1024, "as {user}: {most}");
        guest.ping().await;
        world.runtime.destroy(&machine).await.unwrap();
        assert!(!world.runtime.alive(&machine).await);
    }
}

#[tokio::test]
async fn programs_are_told_of_as_many_processors_as_the_machine_has() {
    let world = World::new();
    let host = std::thread::available_parallelism().unwrap().get() as u64;
    for vcpus in 1..=host.min(2) {
        let mut spec = world.spec();
        spec.limits.vcpu_count = ask(vcpus);
        let (machine, guest) = world.create_from(&spec).await;
        for user in ["root", "user"] {
            let said = guest.sh(user, "nproc").await;
            assert_eq!(said.out.trim(), vcpus.to_string(), "as {user}: {said:?}");
        }
        world.runtime.destroy(&machine).await.unwrap();
    }
}
