//! One daemon per state directory, and who can reach it.

use motu_core::{ErrorKind, Service};
use motu_testkit::world::{World, connect, eventually, refused, small};
use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;

#[tokio::test]
async fn a_second_daemon_refuses_and_harms_nothing() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let told = world.motu(&["serve"]);
    assert_eq!(told.code, 105, "{told:?}");
    assert!(told.stderr.contains("already serves"), "{told:?}");
    assert!(told.stderr.contains("hint:"), "{told:?}");
    assert!(connect(&world.socket()).is_some());
    world.assert_works(&id).await;
}

/// The processes that serve this state directory now.
fn daemons(home: &Path) -> BTreeSet<String> {
    let home = home.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|process| {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.contains(&home.as_bytes()) && words.contains(&&b"--on-demand"[..])
        })
        .map(|process| process.file_name().to_string_lossy().into_owned())
        .collect()
}

#[tokio::test]
async fn clients_that_race_get_one_daemon_even_after_a_crash() {
    let Some(world) = World::bare() else { return };
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        let version = |_| {
            let mut command = world.command(&["ps", "--json"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let clients: Vec<_> = (0..6).map(version).collect();
        for client in clients {
            let output = client.wait_with_output().unwrap();
            let listed = String::from_utf8_lossy(&output.stdout);
            assert!(listed.contains("\"count\": 0"), "{output:?}");
        }
        let daemon = world.client().version().await.unwrap().pid;
        assert!(seen.insert(daemon), "a new one each time");
        eventually("one daemon is there", async || {
            let found = daemons(world.home());
            (found == BTreeSet::from([daemon.to_string()]), found)
        })
        .await;
        // Its socket remains, and nobody listens on it.
        let pid = rustix::process::Pid::from_raw(daemon as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        eventually("it is dead", async || {
            let found = daemons(world.home());
            (found.is_empty(), found)
        })
        .await;
        assert!(world.socket().exists());
        eventually("nobody listens", async || {
            (connect(&world.socket()).is_none(), ())
        })
        .await;
    }
}

#[tokio::test]
async fn a_state_directory_with_a_long_name_works() {
    let deep = Path::new(&"d".repeat(90)).join("e".repeat(90));
    let Some(mut world) = World::below(deep) else {
        return;
    };
    assert!(world.home().as_os_str().len() > 108);
    world.start();
    let id = world.create().await;
    world.write(&id, "/work/a", b"long").await.unwrap();
    world.restart();
    assert_eq!(world.read(&id, "/work/a").await.unwrap(), b"long");
    let told = world.motu(&["run", "busybox", "--", "echo", "hello"]);
    assert_eq!(
        (told.code, told.stdout.as_str()),
        (0, "hello\n"),
        "{told:?}"
    );
}

#[tokio::test]
async fn only_the_owner_reaches_the_state_directory() {
    let Some(world) = World::new() else { return };
    // Whatever the directory's mode was before, it is private now.
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(world.home()), 0o700);
    assert_eq!(mode(&world.socket()), 0o600);
    let id = world.create().await;
    assert_eq!(mode(&world.home().join("machines")), 0o700);
    let machine = world.home().join("machines/container").join(id.as_str());
    assert_eq!(mode(&machine), 0o700);
    let link = machine.join("link.sock");
    assert!(std::fs::metadata(&link).unwrap().file_type().is_socket());

    // An ordinary user has no access.
    for path in [world.socket(), link, world.home().join("motu.db")] {
        let mut command = motu_needs::command("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "stat"])
            .arg(&path);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("Permission denied"), "{said}");
    }
}

#[tokio::test]
async fn no_socket_of_ours_is_reachable_from_inside() {
    let Some(world) = World::new() else { return };
    let (id, other) = (world.create().await, world.create().await);
    let machine = world.home().join("machines/container");
    for path in [
        world.home().to_path_buf(),
        world.socket(),
        machine.join(id.as_str()).join("link.sock"),
        machine.join(other.as_str()).join("link.sock"),
    ] {
        let path = path.to_str().unwrap().to_string();
        assert!(Path::new(&path).exists(), "{path}");
        let said = world
            .sh(&id, &format!("ls -la {path}; ls -la /proc/1/root{path}"))
            .await;
        assert_ne!(said.exit_code, 0, "{said:?}");
        assert_eq!(said.stdout, "", "{said:?}");
        let dialled = world
            .client()
            .dial_unix(&id, (motu_testkit::world::at(&path)).into())
            .await;
        refused(ErrorKind::NotFound, dialled.map(drop));
    }
    // No socket in any directory, in the abstract namespace, or inherited.
    let said = world
        .sh(&id, "find / -xdev -type s; find /dev /run /tmp -type s")
        .await;
    assert_eq!(said.stdout, "", "{said:?}");
    let said = world.sh(&id, "cat /proc/net/unix").await;
    for line in said.stdout.lines().skip(1) {
        assert!(!line.contains('/') && !line.contains('@'), "{line}");
    }
    let said = world.sh(&id, "ls -l /proc/self/fd").await;
    assert!(!said.stdout.contains("socket:"), "{said:?}");
    let said = world.sh(&id, "ls -l /proc/1/fd /proc/1/root").await;
    assert_ne!(said.exit_code, 0, "{said:?}");
    world.client().create_sandbox(small()).await.unwrap();
}
