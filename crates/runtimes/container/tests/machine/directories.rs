//! Directories of the host in a machine: read there, and nothing else.

use crate::support::{Guest, World};
use crate::walls::{fails, world_with_attack};
use motu_core::runtime::Machine;
use motu_core::{Error, ErrorKind, Runtime};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A directory of somebody who is not root, with everything that could be of use to an attacker.
fn furnished(world: &World) -> PathBuf {
    let dir = world.home.path().join("lent");
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    let mode = |name: &str, mode| {
        std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    for (name, text) in [
        ("plain", "one\n"),
        ("private", "own\n"),
        ("foreign", "other\n"),
        ("secret", "none\n"),
        ("sub/deep", "deep\n"),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
        chown(dir.join(name), Some(4242), Some(4242)).unwrap();
    }
    std::fs::copy(motu_needs::find("busybox"), dir.join("busybox")).unwrap();
    symlink("../../../../../../etc", dir.join("up")).unwrap();
    nodes(&dir);
    chown(&dir, Some(4242), Some(4242)).unwrap();
    chown(dir.join("sub"), Some(4242), Some(4242)).unwrap();
    chown(dir.join("foreign"), Some(0), Some(0)).unwrap();
    chown(dir.join("secret"), Some(0), Some(0)).unwrap();
    mode("plain", 0o666);
    mode("private", 0o600);
    mode("secret", 0o600);
    // Of the directory's owner, whom the machine's root stands for.
    chown(dir.join("busybox"), Some(4242), Some(4242)).unwrap();
    mode("busybox", 0o6755);
    dir
}

/// A device and a pipe that everybody may use.
fn nodes(dir: &Path) {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let (all, zero) = (Mode::from_raw_mode(0o666), makedev(1, 5));
    for (name, kind, device) in [
        ("zero", FileType::CharacterDevice, zero),
        ("fifo", FileType::Fifo, 0),
    ] {
        mknodat(CWD, dir.join(name), kind, all, device).unwrap();
        std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(0o666)).unwrap();
    }
}

fn open(dir: &Path) -> OwnedFd {
    std::fs::File::open(dir).unwrap().into()
}

async fn attach(world: &World, machine: &Machine, dir: &Path, at: &str) -> Result<(), Error> {
    let directory = open(dir);
    world
        .runtime
        .attach_directory(machine, directory, at.into())
        .await
}

async fn refused(world: &World, machine: &Machine, dir: &Path, at: &str, kind: ErrorKind) {
    let error = attach(world, machine, dir, at).await.unwrap_err();
    assert_eq!(error.kind, kind, "{at}: {error:?}");
}

/// The mounts of this process, which are those of the daemon.
fn mounts() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours = text.lines().filter(|line| line.contains("/lent"));
    ours.map(str::to_string).collect()
}

async fn out(guest: &Guest, user: &str, script: &str) -> String {
    let said = guest.sh(user, script).await;
    assert_eq!(said.code, 0, "as {user}: {script}: {said:?}");
    said.out
}

#[tokio::test]
async fn a_directory_is_read_as_it_is_and_as_it_becomes() {
    let world = World::new();
    let dir = furnished(&world);
    let (machine, guest) = world.create().await;
    out(&guest, "root", "mkdir /src").await;
    let used = out(&guest, "root", "df -k / | tail -1").await;
    let big = std::fs::File::create(dir.join("big")).unwrap();
    big.set_len(2 << 30).unwrap();
    attach(&world, &machine, &dir, "/src").await.unwrap();

    for user in ["root", "user"] {
        let said = out(&guest, user, "cd /src; cat plain foreign sub/deep").await;
        assert_eq!(said, "one\nother\ndeep\n", "as {user}");
    }
    assert_eq!(out(&guest, "root", "cat /src/private").await, "own\n");
    let owners = out(&guest, "root", "cd /src; stat -c '%u %g' plain foreign").await;
    assert_eq!(owners, "0 65534\n65534 65534\n");
    // What the mode keeps from others, nobody inside reads who is not the owner.
    assert_ne!(guest.sh("user", "cat /src/private").await.code, 0);
    fails(&guest, "cat /src/secret").await;
    // None of its bytes is in the machine.
    assert_eq!(
        out(&guest, "root", "stat -c %s /src/big").await,
        "2147483648\n"
    );
    assert_eq!(out(&guest, "root", "df -k / | tail -1").await, used);

    // What is appended, replaced, new and gone.
    let plain = std::fs::File::options()
        .append(true)
        .open(dir.join("plain"));
    plain.unwrap().write_all(b"two\n").unwrap();
    std::fs::write(dir.join("staged"), "new\n").unwrap();
    std::fs::rename(dir.join("staged"), dir.join("foreign")).unwrap();
    std::fs::remove_file(dir.join("sub/deep")).unwrap();
    let said = out(&guest, "root", "cd /src; cat plain foreign; ls sub").await;
    assert_eq!(said, "one\ntwo\nnew\n");

    assert!(mounts().is_empty(), "{:?}", mounts());
    world.runtime.destroy(&machine).await.unwrap();
    assert!(mounts().is_empty(), "{:?}", mounts());
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn nothing_in_a_directory_can_be_written_or_used() {
    let world = world_with_attack().await;
    let dir = furnished(&world);
    let socket = UnixListener::bind(dir.join("socket")).unwrap();
    let open_to_all = PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.join("socket"), open_to_all).unwrap();
    chown(dir.join("socket"), Some(4242), Some(4242)).unwrap();
    chown(dir.join("fifo"), Some(4242), Some(4242)).unwrap();
    for sudo in [false, true] {
        let mut spec = world.spec();
        spec.wants_sudo = sudo;
        let (machine, guest) = world.create_from(&spec).await;
        out(&guest, "root", "mkdir -m 777 /src").await;
        attach(&world, &machine, &dir, "/src").await.unwrap();
        for user in ["root", "user"] {
            let said = out(&guest, user, "attack directory /src").await;
            // EACCES: not that they were not there, nor that nobody listened.
            assert!(
                said.starts_with("connect 13\nsend_to 13\nopen_fifo 13\n"),
                "{said}"
            );
            assert!(said.lines().count() > 20, "{said}");
            // Refused by the filter, not because of who asks.
            assert!(said.ends_with("lease 1\ndeleg 1\n"), "{said}");
            let through: Vec<&str> = said.lines().filter(|l| l.ends_with(" ok")).collect();
            assert!(through.is_empty(), "as {user}, sudo {sudo}: {through:?}");
            // The program runs, but as whoever started it.
            let id = out(&guest, user, "/src/busybox id -u").await;
            let expected = if user == "root" { "0\n" } else { "1000\n" };
            assert_eq!(id, expected, "sudo {sudo}");
        }
        fails(&guest, "head -c 1 /src/zero").await;
        fails(&guest, "timeout 5 sh -c 'echo x > /src/fifo'").await;
        fails(&guest, "mount -o remount,rw,bind /src").await;
        fails(&guest, "umount /src || umount -l /src").await;
        // `..` and links end at the machine's own root.
        let passwd = out(&guest, "root", "cat /src/../etc/passwd").await;
        assert_eq!(out(&guest, "root", "cat /src/up/passwd").await, passwd);
        assert!(passwd.ends_with("/workspace:/bin/sh\n"), "{passwd}");
        guest.ping().await;
        world.runtime.destroy(&machine).await.unwrap();
    }
    socket.set_nonblocking(true).unwrap();
    assert!(socket.accept().is_err(), "somebody has connected");
    assert_eq!(std::fs::read(dir.join("plain")).unwrap(), b"one\n");
}

#[tokio::test]
async fn its_place_is_found_inside_whatever_the_path_says() {
    let world = World::new();
    let dir = furnished(&world);
    let (machine, guest) = world.create().await;
    let make = "mkdir /target /far; ln -s ../../../../../../far /up; ln -s /target /link; \
                ln -s / /self; ln -s /proc/1/root/target /magic; ln -s /loop /loop; echo x > /file";
    out(&guest, "root", make).await;
    for (at, inside) in [
        ("/link", "/target"),
        ("/up", "/far"),
        ("/../../../tmp", "/tmp"),
        ("/self/etc", "/etc"),
    ] {
        attach(&world, &machine, &dir, at).await.unwrap();
        let said = out(&guest, "root", &format!("cat {inside}/plain")).await;
        assert_eq!(said, "one\n", "{at}");
    }
    assert!(mounts().is_empty(), "{:?}", mounts());
    for (at, kind) in [
        ("/file", ErrorKind::Invalid),
        ("/missing", ErrorKind::Invalid),
        ("/loop", ErrorKind::Invalid),
        ("/self", ErrorKind::Invalid),
        ("/", ErrorKind::Invalid),
        // The kernel's own, and what is attached already.
        ("/proc", ErrorKind::Unsupported),
        ("/dev/shm", ErrorKind::Unsupported),
        ("/sys/fs", ErrorKind::Unsupported),
        ("/magic", ErrorKind::Unsupported),
        ("/target/sub", ErrorKind::Unsupported),
    ] {
        refused(&world, &machine, &dir, at, kind).await;
    }
    world.runtime.destroy(&machine).await.unwrap();
    refused(&world, &machine, &dir, "/target", ErrorKind::NotFound).await;
}

#[tokio::test]
async fn a_place_that_is_renamed_meanwhile_is_still_inside() {
    let world = World::new();
    let dir = furnished(&world);
    let (machine, guest) = world.create().await;
    let swap = "mkdir -p /a/d /b; while :; do mv /a/d /b/d; ln -s ../../../../etc /a/d; \
                rm /a/d; mv /b/d /a/d; done";
    guest.start("root", swap).await;
    for _ in 0..40 {
        // It is found, or is not there at the moment.
        match attach(&world, &machine, &dir, "/a/d/../d").await {
            Ok(()) => {}
            Err(error) => assert!(
                matches!(error.kind, ErrorKind::Invalid | ErrorKind::Unsupported),
                "{error:?}"
            ),
        }
        assert!(mounts().is_empty(), "{:?}", mounts());
    }
    assert!(!Path::new("/etc/plain").exists());
    world.runtime.destroy(&machine).await.unwrap();
}

#[tokio::test]
async fn only_what_can_be_shown_with_other_owners_is_attached() {
    let world = World::new();
    let dir = furnished(&world);
    let (machine, guest) = world.create().await;
    out(&guest, "root", "mkdir /src").await;
    // /proc cannot.
    let proc = Path::new("/proc/sys");
    refused(&world, &machine, proc, "/src", ErrorKind::Unsupported).await;
    refused(
        &world,
        &machine,
        &dir.join("plain"),
        "/src",
        ErrorKind::Invalid,
    )
    .await;
    let path = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let path = rustix::fs::open(&dir, path, rustix::fs::Mode::empty()).unwrap();
    let attached = world
        .runtime
        .attach_directory(&machine, path, "/src".into());
    assert_eq!(attached.await.unwrap_err().kind, ErrorKind::Invalid);
    fails(&guest, "ls /src | grep .").await;
    world.runtime.destroy(&machine).await.unwrap();
}
