//! Attempts to get out, which must fail.

use crate::support::{Guest, World};
use motu_core::Runtime;
use std::os::unix::net::UnixListener;

/// Runs a script that must fail, as both users.
async fn fails(guest: &Guest, script: &str) {
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
    fails(
        &guest,
        &format!("cat ../../../../../../{}", secret.display()),
    )
    .await;
    fails(&guest, &format!("nc -w 1 127.0.0.1 {port} </dev/null")).await;
    fails(&guest, "ip link show | grep -v lo: | grep mtu").await;
    fails(&guest, "wget -q -T 1 -O - http://169.254.169.254/").await;
    let said = guest
        .sh(
            "root",
            "ls -d /proc/[0-9]* | wc -l; ip addr show lo; uname -r",
        )
        .await;
    let count: u32 = said.out.lines().next().unwrap().trim().parse().unwrap();
    assert!(count < 6, "{count} processes are visible");
    assert!(said.out.contains("127.0.0.1"), "{said:?}");
    let kernel = rustix::system::uname();
    let kernel = kernel.release().to_str().unwrap();
    assert!(!said.out.contains(kernel), "the host's kernel is seen");
    fails(&guest, "find / -xdev -name guest.sock | grep guest").await;
    fails(&guest, "grep -E 'machines|var/tmp|disk' /proc/mounts").await;
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn what_the_gofer_serves_besides_the_root_is_out_of_reach() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    // The link's directory, the guest's program and gVisor's cgroups were mounted here and must be
    // gone.
    fails(&guest, "ls -A /dev/motu/link | grep .").await;
    // Where it was is an empty file in newer releases.
    fails(&guest, "test -f /dev/motu/guest && test -s /dev/motu/guest").await;
    fails(&guest, "ls -A /sys/fs/cgroup | grep .").await;
    // pid 1 holds the link's directory open; nothing can be written through it.
    let through = "for fd in /proc/1/fd/*; do [ \"$(readlink $fd)\" = / ] && \
                   ls $fd/ | grep -q guest.sock && touch $fd/x && exit 0; done; exit 1";
    fails(&guest, through).await;
    fails(
        &guest,
        "for fd in /proc/1/fd/*; do rm $fd/guest.sock && exit 0; done; exit 1",
    )
    .await;
    let link: Vec<_> = std::fs::read_dir(machine.dir.join("link"))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(link, ["guest.sock"]);
    guest.ping().await;
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn sockets_of_the_host_cannot_be_reached() {
    let world = World::new();
    let mut spec = world.spec();
    // Not even a socket inside the environment itself.
    let socket = world.home.path().join("root/host.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    spec.wants_sudo = true;
    let (machine, guest) = world.create_from(&spec).await;
    fails(
        &guest,
        "test -S /host.sock && nc -w 1 local:/host.sock </dev/null",
    )
    .await;
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn a_link_that_is_not_a_socket_is_refused() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    drop(guest);
    let elsewhere = world.home.path().join("elsewhere.sock");
    let _listener = UnixListener::bind(&elsewhere).unwrap();
    let link = machine.dir.join("link/guest.sock");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    let error = world.runtime.connect(&machine).await.unwrap_err();
    assert!(error.message.contains("link"), "{error}");
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn the_kernels_switches_are_out_of_reach() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    for file in [
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        "/sys/power/state",
        "/sys/fs/cgroup/x",
    ] {
        let script = format!("test -e {file} && echo 1 > {file} && test \"$(cat {file})\" = 1");
        fails(&guest, &script).await;
    }
    for file in [
        "/dev/mem",
        "/dev/kmsg",
        "/dev/vda",
        "/dev/loop0",
        "/proc/kcore",
    ] {
        fails(&guest, &format!("head -c 1 {file}")).await;
    }
    fails(&guest, "mknod /tmp/vda b 254 0 && head -c 1 /tmp/vda").await;
    fails(&guest, "mount -t tmpfs none /mnt").await;
    fails(&guest, "mount -t cgroup -o pids none /tmp").await;
    // In gVisor root can kill pid 1, which is not immune; other users cannot.
    let said = guest.sh("user", "kill -9 1").await;
    assert_ne!(said.code, 0, "{said:?}");
    guest.ping().await;
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn commands_have_few_capabilities() {
    let world = World::new();
    let mut spec = world.spec();
    for sudo in [false, true] {
        spec.wants_sudo = sudo;
        let (machine, guest) = world.create_from(&spec).await;
        let status = |user| guest.sh(user, "grep Cap /proc/self/status");
        let root = status("root").await.out;
        assert!(root.contains("CapEff:\t00000000a00405fb"), "{root}");
        assert!(root.contains("CapBnd:\t00000000a00405fb"), "{root}");
        let user = status("user").await.out;
        assert!(user.contains("CapEff:\t0000000000000000"), "{user}");
        // A setuid program of root.
        let setuid = "mkdir /s && cp /bin/busybox /s/su && chmod 4755 /s/su && \
                      sed -i 's/^root:x:/root::/' /etc/passwd";
        assert_eq!(guest.sh("root", setuid).await.code, 0);
        let said = guest.sh("user", "/s/su -c 'id -u' root").await;
        let may = sudo && setuid_works(&world).await;
        assert_eq!(said.out.trim() == "0", may, "{said:?}");
        world.runtime.destroy(&machine).await.unwrap();
        spec = world.spec();
    }
}

/// Whether the runtime reports that this `runsc` supports setuid programs.
async fn setuid_works(world: &World) -> bool {
    let checks = world.runtime.check().await;
    let sudo = checks.iter().find(|check| check.name == "sudo").unwrap();
    sudo.health == motu_core::report::Health::Ok
}

#[tokio::test]
async fn the_guests_socket_is_not_among_its_descriptors() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    let look = "for fd in /proc/1/fd/* /proc/1/task/*/fd/*; do ls $fd/ 2>/dev/null; done";
    let said = guest.sh("root", look).await;
    // Newer releases show nobody what pid 1 holds.
    let shown = guest.sh("root", "readlink /proc/1/fd/0").await.code == 0;
    assert_eq!(
        said.out.contains("proc"),
        shown,
        "the guest holds its root: {said:?}"
    );
    assert!(!said.out.contains("guest.sock"), "{said:?}");
    // A second link still reaches the guest.
    let other = world.connect(&machine).await;
    assert_eq!(other.sh("user", "echo here").await.out, "here\n");
    world.runtime.destroy(&machine).await.unwrap();
}

/// What a container refuses, because there these would be of the host's kernel.
#[tokio::test]
async fn programs_make_namespaces_of_their_own() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for user in ["root", "user"] {
        for flags in ["-U", "-U -p -f", "-U -n", "-U -m -i -u"] {
            let said = guest.sh(user, &format!("unshare {flags} uname -r")).await;
            assert_eq!(said.code, 0, "as {user}: {flags}: {said:?}");
            assert_ne!(said.out.trim(), kernel.trim());
        }
    }
    // They have no rights outside of their namespace.
    let said = guest
        .sh("user", "unshare -U sh -c 'echo x > /etc/passwd'")
        .await;
    assert_ne!(said.code, 0, "{said:?}");
    world.runtime.destroy(&machine).await.unwrap();
}
