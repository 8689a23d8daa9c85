//! Escape attempts that must fail, as the machine's root and as a user.

use crate::support::{Guest, World};
use motu_core::Runtime;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Copies a program of the host with its libraries into a root.
fn install(root: &Path, program: &Path, name: &str) {
    std::fs::copy(program, root.join("bin").join(name)).unwrap();
    let ldd = motu_needs::command("ldd").arg(program).output().unwrap();
    for word in String::from_utf8_lossy(&ldd.stdout).split_whitespace() {
        if let Some(below) = word.strip_prefix('/') {
            let target = root.join(below);
            std::fs::create_dir_all(target.parent().unwrap()).unwrap();
            std::fs::copy(word, target).unwrap();
        }
    }
}

fn attack_program() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/attack");
    assert!(path.exists(), "{} is built by `cargo test`", path.display());
    path
}

pub async fn world_with_attack() -> World {
    let world = World::new();
    install(&world.home.path().join("root"), &attack_program(), "attack");
    world
}

#[tokio::test]
async fn no_system_call_opens_a_way_out() {
    let world = world_with_attack().await;
    for sudo in [false, true] {
        let mut spec = world.spec();
        spec.wants_sudo = sudo;
        let (machine, guest) = world.create_from(&spec).await;
        for user in ["root", "user"] {
            let marker = world.home.path().join("root/etc/passwd");
            let said = guest
                .sh(user, &format!("attack {}", marker.display()))
                .await;
            assert_eq!(said.code, 0, "{said:?}");
            let lines: Vec<&str> = said.out.lines().collect();
            assert!(lines.len() > 60, "{lines:?}");
            let through: Vec<&&str> = lines.iter().filter(|l| l.ends_with(" ok")).collect();
            assert!(through.is_empty(), "as {user}, sudo {sudo}: {through:?}");
        }
        guest.ping().await;
        world.runtime.destroy(&machine).await.unwrap();
    }
}

/// Runs a script that must fail, as both users.
pub async fn fails(guest: &Guest, script: &str) {
    for user in ["root", "user"] {
        let said = guest.sh(user, script).await;
        assert_ne!(said.code, 0, "as {user}: {script}: {said:?}");
    }
}

#[tokio::test]
async fn the_hosts_files_processes_and_network_are_not_there() {
    let world = World::new();
    let secret = world.home.path().join("secret");
    std::fs::write(&secret, "the host's own").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (machine, guest) = world.create().await;

    fails(&guest, &format!("cat {}", secret.display())).await;
    fails(&guest, "ls /proc/1/root/var").await;
    fails(&guest, &format!("nc -w 1 127.0.0.1 {port} </dev/null")).await;
    fails(&guest, "ip link show | grep -v lo: | grep mtu").await;
    let said = guest
        .sh("root", "ls -d /proc/[0-9]* | wc -l; ip addr show lo")
        .await;
    let count: u32 = said.out.lines().next().unwrap().trim().parse().unwrap();
    assert!(count < 6, "{count} processes are visible");
    assert!(said.out.contains("127.0.0.1"), "{said:?}");
    fails(&guest, "find / -xdev -name link.sock | grep link").await;
    fails(&guest, "grep -E 'home|machines|var/tmp' /proc/mounts").await;
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn the_kernels_switches_are_out_of_reach() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    for file in [
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sysrq-trigger",
        "/proc/irq/default_smp_affinity",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/power/state",
        "/sys/fs/cgroup/x",
        "/proc/1/oom_score_adj",
        "/proc/1/uid_map",
    ] {
        fails(&guest, &format!("echo 1 > {file}")).await;
    }
    for file in [
        "/dev/mem",
        "/dev/kmsg",
        "/dev/vda",
        "/dev/sda",
        "/dev/loop0",
    ] {
        fails(&guest, &format!("head -c 1 {file}")).await;
    }
    fails(&guest, "test -n \"$(head -c 1 /proc/kcore)\"").await;
    fails(&guest, "test -n \"$(cat /proc/keys)\"").await;
    fails(
        &guest,
        "test -n \"$(find /sys/firmware /sys/kernel/debug -mindepth 1)\"",
    )
    .await;
    fails(&guest, "mount -t cgroup -o memory none /tmp").await;
    fails(&guest, "kill -9 1; sleep 0.1; test ! -d /proc/1").await;
    guest.ping().await;
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn commands_have_few_capabilities_and_a_filter() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    let status = |user| guest.sh(user, "grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status");
    let root = status("root").await.out;
    assert!(root.contains("CapEff:\t00000000a00405fb"), "{root}");
    assert!(root.contains("CapBnd:\t00000000a00405fb"), "{root}");
    assert!(root.contains("NoNewPrivs:\t1"), "{root}");
    assert!(root.contains("Seccomp:\t2"), "{root}");
    let user = status("user").await.out;
    assert!(user.contains("CapEff:\t0000000000000000"), "{user}");
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn what_one_machine_uses_up_another_still_has() {
    let world = world_with_attack().await;
    let (hungry, guest) = world.create().await;
    let (other, neighbour) = world.create().await;
    // It keeps its instances while the neighbour tries.
    let take =
        "attack inotify > /tmp/said & while ! test -s /tmp/said; do sleep 0.1; done; cat /tmp/said";
    let counts = [
        guest.sh("root", take).await,
        neighbour.sh("root", take).await,
    ];
    for said in &counts {
        let count: u32 = said.out.split_whitespace().next().unwrap().parse().unwrap();
        assert!(count > 50, "{counts:?}");
    }
    let said = guest.sh("root", "grep devpts /proc/mounts").await;
    assert!(said.out.contains("max=320"), "{said:?}");
    world.runtime.destroy(&hungry).await.unwrap();
    world.runtime.destroy(&other).await.unwrap();
}

/// libaio works, and half of what the host has for everybody stays the host's.
#[tokio::test]
async fn machines_leave_the_host_half_of_its_asynchronous_files() {
    let number = |file: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/fs/{file}")).unwrap();
        text.trim().parse::<u64>().unwrap()
    };
    let pool = number("aio-max-nr");
    let world = world_with_attack().await;
    let (hungry, guest) = world.create().await;
    let take =
        "attack aio > /tmp/said & while ! test -s /tmp/said; do sleep 0.1; done; cat /tmp/said";
    let said = guest.sh("user", take).await;
    let words: Vec<&str> = said.out.split_whitespace().collect();
    let [read, count, errno] = words[..] else {
        panic!("{said:?}");
    };
    assert_eq!(read, "read", "{said:?}");
    assert!(count.parse::<u64>().unwrap() > 0, "{said:?}");
    assert_eq!(errno, libc::EAGAIN.to_string(), "{said:?}");
    // It still has all of it.
    assert!(number("aio-nr") <= pool / 2 + 1024, "{}", number("aio-nr"));
    world.runtime.destroy(&hungry).await.unwrap();
    let (machine, guest) = world.create().await;
    let said = guest.sh("user", take).await;
    assert!(said.out.starts_with("read"), "{said:?}");
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn the_host_shows_through_nowhere() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    fails(&guest, "test -n \"$(cat /proc/cmdline)\"").await;
    let loops = "find /sys/ -name backing_file 2>/dev/null | grep . || \
                 ls -d /sys/block/loop0/size";
    fails(&guest, loops).await;
    // Masked, or left out: nothing of what every host tells about itself.
    for file in [
        "/proc/partitions",
        "/proc/diskstats",
        "/proc/swaps",
        "/proc/interrupts",
        "/proc/iomem",
        "/proc/kallsyms",
        "/proc/modules",
        "/proc/zoneinfo",
        "/proc/buddyinfo",
        "/sys/kernel/vmcoreinfo",
        "/sys/kernel/notes",
    ] {
        fails(&guest, &format!("test -n \"$(cat {file})\"")).await;
    }
    for place in ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/pressure"] {
        fails(&guest, &format!("ls -A {place} | grep .")).await;
    }
    let said = guest.sh("user", "ls /sys /sys/kernel /sys/devices").await;
    let shown: std::collections::BTreeSet<&str> = said.out.split_whitespace().collect();
    let known = "/sys: /sys/devices: /sys/kernel: class devices fs kernel mm system virtual";
    assert!(shown.is_subset(&known.split(' ').collect()), "{shown:?}");
    let said = guest
        .sh(
            "user",
            "cat /sys/devices/system/cpu/online; ls /sys/class/net",
        )
        .await;
    assert!(said.out.contains("lo"), "{said:?}");
    assert!(
        said.out.starts_with(|first: char| first.is_ascii_digit()),
        "{said:?}"
    );
    fails(&guest, "touch /sys/x || mkdir /sys/kernel/x").await;
    // Its device nodes are its own: an inotify watch on them does not see the host's accesses.
    let said = guest.sh("user", "stat -c '%d %i' /dev/null").await;
    let host = std::fs::metadata("/dev/null").unwrap();
    let host = format!("{} {}\n", host.dev(), host.ino());
    assert_eq!(said.code, 0, "{said:?}");
    assert_ne!(said.out, host);
    let said = guest
        .sh(
            "user",
            "echo x > /dev/null && head -c 4 /dev/zero | wc -c && test -c /dev/tty",
        )
        .await;
    assert_eq!(said.out.trim(), "4", "{said:?}");
    world.runtime.destroy(&machine).await.unwrap();
}
