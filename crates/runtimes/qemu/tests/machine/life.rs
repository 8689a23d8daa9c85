//! One machine, from `create` to nothing left.

use crate::support::{World, accel, pid_in};
use motu_core::report::Health;
use motu_core::runtime::MachineSpec;
use motu_core::{Accel, ErrorKind, Runtime};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_machine_answers_runs_commands_and_leaves_nothing() {
    let world = World::new();
    let begun = Instant::now();
    let (machine, guest) = world.create().await;
    println!("create and connect: {:?}", begun.elapsed());
    assert_eq!(machine.accelerator.as_deref(), Some(accel().as_str()));
    guest.ping().await;
    let begun = Instant::now();
    assert_eq!(guest.sh("id -u; cat /proc/1/comm").await, "0\nmotu-guest");
    println!("first exec: {:?}", begun.elapsed());
    let begun = Instant::now();
    assert_eq!(guest.sh("true").await, "");
    println!("exec: {:?}", begun.elapsed());
    let owner = guest.sh_as("user", "id -u; touch /workspace/a; stat -c %u /workspace/a");
    assert_eq!(owner.await, "1000\n1000");
    let disks = guest.sh("df -m / /workspace | awk 'NR > 1 { print ($4 > 220), ($4 < 290) }'");
    assert_eq!(disks.await, "1 1\n1 1");
    assert_eq!(
        guest.sh("ls /workspace; ls / | grep lost || true").await,
        "a"
    );

    let pid = pid_in(&machine.dir).unwrap();
    let process = format!("/proc/{}", pid.as_raw_nonzero());
    let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
    let user = std::fs::metadata(&process).unwrap().uid();
    if rustix::process::geteuid().is_root() {
        assert!(user >= 0x9000_0000, "QEMU runs as {user}");
        let directory = std::fs::metadata(&machine.dir).unwrap();
        assert_eq!((directory.uid(), directory.mode() & 0o777), (0, 0o711));
    }
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"));
    let groups = std::fs::read_to_string(format!("{process}/cgroup")).unwrap();
    if rustix::process::geteuid().is_root() {
        // With KVM it has a node of its own; of other devices it sees none.
        let devices: &[&str] = match machine.accelerator.as_deref() {
            Some("kvm") => &["kvm"],
            _ => &[],
        };
        assert_eq!(names_in(&process, "dev"), devices);
        assert_confined(&process, &status, &groups);
    }

    world.runtime.destroy(&machine).await.unwrap();
    let group = groups.lines().find_map(|line| line.split_once("/vm-"));
    if let Some((_, name)) = group {
        let left = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
        let left: Vec<_> = left
            .map(|one| one.path().join("motu-qemu").join(format!("vm-{name}")))
            .filter(|path| path.exists())
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(!world.runtime.alive(&machine).await);
    assert!(pid_in(&machine.dir).is_none());
    assert_eq!(std::fs::read_dir(&machine.dir).unwrap().count(), 0);
    world.runtime.destroy(&machine).await.unwrap();
}

/// What is in a directory of the root that a process sees.
fn names_in(process: &str, directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(format!("{process}/root/{directory}"));
    let names = entries.unwrap().flatten().map(|entry| entry.file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

/// QEMU is nobody's user, sees a root with nothing of the host's but programs, has no network and
/// stays below a ceiling.
fn assert_confined(process: &str, status: &str, groups: &str) {
    for ids in ["Uid:", "Gid:", "Groups:"] {
        let line = status.lines().find(|line| line.starts_with(ids)).unwrap();
        let root = line.split_whitespace().any(|id| id == "0");
        assert!(!root, "QEMU has an id of root's: {line}");
    }
    for space in ["net", "mnt", "ipc", "uts"] {
        let of = |process: &str| std::fs::read_link(format!("{process}/ns/{space}")).unwrap();
        assert_ne!(of(process), of("/proc/self"), "QEMU has the host's {space}");
    }
    let root = format!("{process}/root");
    // A QEMU from elsewhere brings the directory it is in.
    let elsewhere = std::env::var("MOTU_TEST_QEMU").unwrap_or_default();
    let elsewhere = elsewhere.split('/').nth(1).unwrap_or_default();
    let entries = std::fs::read_dir(&root).unwrap().flatten();
    for name in entries.map(|entry| entry.file_name().into_string().unwrap()) {
        let known = [
            "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "machine", "proc", "sbin",
            "usr",
        ];
        let shown = known.contains(&&*name) || name == elsewhere;
        assert!(shown, "QEMU sees /{name}");
    }
    let of_etc = names_in(process, "etc");
    assert!(of_etc.iter().all(|name| name == "ld.so.cache"));
    let links = std::fs::read_to_string(format!("{process}/net/dev")).unwrap();
    assert_eq!(links.lines().skip(2).count(), 1, "only a loopback: {links}");
    for controller in ["memory", "pids"] {
        let line = groups.lines().find(|line| line.contains(controller));
        let line = line.or_else(|| groups.lines().find(|line| line.starts_with("0::")));
        assert!(
            line.is_some_and(|line| line.contains("/motu-qemu/vm-")),
            "{groups}"
        );
    }
}

/// Every page counts twice: in the machine's own memory, and in the saved memory that it was a hole of.
#[tokio::test]
async fn a_machine_may_use_all_of_its_memory() {
    let world = World::with(1536, accel());
    let (machine, guest) = world.create().await;
    let fill = "mkdir /all && mount -t tmpfs -o size=1300m all /all && dd if=/dev/zero of=/all/x bs=1M count=1200 2>/dev/null";
    let left = guest.sh(&format!("{fill}; ls -s /all/x")).await;
    assert!(left.starts_with("1228800 "), "{left}");
    drop(guest);
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn a_new_daemon_finds_the_machine_and_talks_to_it() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    guest
        .start("while true; do date +%s%N; sleep 0.05; done > /tmp/n")
        .await;
    drop(guest);
    // A daemon that dies hangs up in the middle of whatever it said.
    let mut torn = world.runtime.connect(&machine).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut torn.write, b"MOTULINKH half a greeting")
        .await
        .unwrap();
    drop(torn);
    let next = World::new();
    assert!(next.runtime.alive(&machine).await);
    let again = next.connect(&machine).await;
    let first = again
        .sh("until [ -s /tmp/n ]; do sleep 0.05; done; wc -l < /tmp/n")
        .await;
    let more = format!("until [ $(wc -l < /tmp/n) -gt {first} ]; do sleep 0.05; done");
    again.sh(&more).await;
    world
        .runtime
        .sweep(&machine.id, &machine.dir)
        .await
        .unwrap();
    assert!(!next.runtime.alive(&machine).await);
}

#[tokio::test]
async fn what_a_dead_daemon_left_in_the_port_is_skipped() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    drop(guest);
    for _ in 0..5 {
        let mut torn = world.runtime.connect(&machine).await.unwrap();
        // No greeting: the guest hangs up at once and leaves the rest unread.
        let nonsense = vec![b'x'; 30_000];
        tokio::io::AsyncWriteExt::write_all(&mut torn.write, &nonsense)
            .await
            .unwrap();
        drop(torn);
        world.connect(&machine).await.ping().await;
    }
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn a_paused_machine_stands_still() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    let begun = Instant::now();
    world.runtime.pause(&machine).await.unwrap();
    let paused = begun.elapsed();
    let ping = guest.ping();
    tokio::pin!(ping);
    let waited = tokio::time::timeout(Duration::from_millis(200), &mut ping).await;
    assert!(waited.is_err(), "a paused machine answered");
    let begun = Instant::now();
    world.runtime.resume(&machine).await.unwrap();
    let resumed = begun.elapsed();
    ping.await;
    println!(
        "pause {paused:?}, resume {resumed:?}, to ping {:?}",
        begun.elapsed()
    );
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn the_end_of_a_machine_is_noticed_at_once() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    let pid = pid_in(&machine.dir).unwrap();
    let begun = Instant::now();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let ended = world.runtime.ended(&machine).await;
    println!("noticed after {:?}", begun.elapsed());
    assert!(ended.reason.contains("signal 9"), "{}", ended.reason);
    assert!(!world.runtime.alive(&machine).await);
    drop(guest);
    world.runtime.destroy(&machine).await.unwrap();

    let (machine, guest) = world.create().await;
    guest.start("sleep 0.1; echo c > /proc/sysrq-trigger").await;
    let ended = tokio::time::timeout(Duration::from_secs(20), world.runtime.ended(&machine));
    let reason = ended
        .await
        .expect("a machine whose kernel died ends")
        .reason;
    assert!(
        reason.contains("kernel of the machine panicked"),
        "{reason}"
    );
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn asking_for_kvm_is_answered_truthfully_and_fast() {
    let world = World::with(256, Accel::Kvm);
    // Nothing is known yet, as on the first day of a host.
    let _ = std::fs::remove_file(world.home.join("cache/probe.json"));
    let begun = Instant::now();
    let checks = world.runtime.check().await;
    assert!(begun.elapsed() < Duration::from_secs(3));
    let accelerator = checks.iter().find(|c| c.name == "accelerator").unwrap();
    if accelerator.health == Health::Ok {
        println!("KVM works here");
        return;
    }
    println!("{}", accelerator.detail);
    // One call may demand it as well, whatever is configured.
    let open = World::new();
    let demanding = MachineSpec {
        accel: Accel::Kvm,
        ..open.spec()
    };
    for (world, spec) in [(&world, world.spec()), (&open, demanding)] {
        let begun = Instant::now();
        let error = world.runtime.create(&spec).await.unwrap_err();
        println!("refused in {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_millis(500));
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.hint.is_some(), "{error}");
        assert!(error.message.starts_with("KVM does not work"), "{error}");
    }
}

#[tokio::test]
async fn what_cannot_be_enforced_is_refused_or_said() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.pids_max.explicit = true;
    let error = world.runtime.create(&spec).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    let mut spec = world.spec();
    spec.limits.mem_mib.value = 32;
    let error = world.runtime.create(&spec).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
}
