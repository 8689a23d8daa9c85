//! The wrapper of OCI runtimes follows the specification, not one program: the same calls run our
//! guest under `runsc`, `crun` and `runc`.

use crate::support::{Guest, Home, busybox_root, guest_program};
use motu_core::runtime::Connection;
use motu_gvisor::oci::{Access, Capabilities, Config, Container, Mount, OciError, Program, Start};
use std::path::Path;
use std::time::Duration;

/// `crun` refuses hosts with both cgroup v1 and v2: hide v2 from it.
const CRUN: &str = r#"#!/bin/sh
exec unshare --mount sh -c 'umount /sys/fs/cgroup/unified 2>/dev/null; exec crun "$@"' crun "$@"
"#;

/// A program as this host needs it to be called.
fn program(name: &str, dir: &Path) -> Program {
    let mut program = Program::find(name).unwrap();
    if name == "crun" {
        program.path = dir.join("crun");
        std::fs::write(&program.path, CRUN).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&program.path, executable).unwrap();
    }
    match name {
        "runsc" => program.with([
            "--network=none",
            "--overlay2=none",
            "--host-uds=create",
            "--ignore-cgroups",
        ]),
        "crun" => program.with(["--cgroup-manager=disabled"]),
        _ => program,
    }
}

fn bundle(dir: &Path, id: &str) {
    let root = busybox_root(dir);
    for place in ["link", "state"] {
        std::fs::create_dir(dir.join(place)).unwrap();
    }
    let args = ["/guest", "serve", "--pid1", "--listen", "/link/s"].map(str::to_string);
    let caps = Capabilities::all_of(&["CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_KILL"]);
    let mut config = Config::new(&root, "box", args.to_vec(), caps);
    config.mounts = vec![
        Mount::of("proc", "/proc", &[]),
        Mount::of("tmpfs", "/dev", &["mode=755"]),
        Mount::bind(&dir.join("link"), "/link", Access::ReadWrite),
        Mount::bind(&guest_program(), "/guest", Access::ReadOnly),
    ];
    config.linux.cgroups_path = Some(format!("/motu-test-{id}"));
    config.write(dir).unwrap();
}

async fn connect(dir: &Path) -> Guest {
    let socket = dir.join("link/s");
    let connecting = async {
        loop {
            match tokio::net::UnixStream::connect(&socket).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let stream = tokio::time::timeout(Duration::from_secs(20), connecting).await;
    let (read, write) = stream.unwrap().into_split();
    Guest::new(Connection::new(read, write)).await
}

/// Removes the container even after a failed step.
struct Deleted<'a>(&'a Program, Container<'a>);

impl Drop for Deleted<'_> {
    fn drop(&mut self) {
        let _ = self.0.delete(self.1);
    }
}

async fn lives(name: &str) {
    let home = Home::new();
    let dir = home.path();
    let id = format!("motu-test-{name}-{}", std::process::id());
    bundle(dir, &id);
    let program = program(name, dir);
    assert!(program.version().unwrap().contains(name));
    let container = Container {
        dir,
        state: Path::new("state"),
        id: &id,
    };
    let _deleted = Deleted(&program, container);
    let pid = program.run(container, Start::default()).unwrap();
    let state = program.state(container).unwrap();
    assert_eq!((&*state.status, state.pid), ("running", pid));
    let guest = connect(dir).await;
    assert_eq!(guest.sh("user", "id -u; hostname").await.out, "1000\nbox\n");

    program.kill(container, "KILL").unwrap();
    let gone = async {
        while std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone)
        .await
        .unwrap();
    program.delete(container).unwrap();
    let error = program.state(container).unwrap_err();
    assert!(
        matches!(error, OciError::Failed { verb: "state", .. }),
        "{error}"
    );
}

#[tokio::test]
async fn runsc_runs_the_guest() {
    lives("runsc").await;
}

#[tokio::test]
async fn crun_runs_the_guest() {
    lives("crun").await;
}

#[tokio::test]
async fn runc_runs_the_guest() {
    lives("runc").await;
}

#[tokio::test]
async fn runsc_makes_starts_pauses_and_cannot_save_a_listening_guest() {
    let home = Home::new();
    let dir = home.path();
    let id = format!("motu-test-steps-{}", std::process::id());
    bundle(dir, &id);
    let program = program("runsc", dir);
    let container = Container {
        dir,
        state: Path::new("state"),
        id: &id,
    };
    let _deleted = Deleted(&program, container);
    program.create(container, Start::default()).unwrap();
    assert_eq!(program.state(container).unwrap().status, "created");
    program.start(container).unwrap();
    let guest = connect(dir).await;
    program.pause(container).unwrap();
    assert_eq!(program.state(container).unwrap().status, "paused");
    let ping = tokio::time::timeout(Duration::from_millis(200), guest.ping());
    assert!(ping.await.is_err());
    program.resume(container).unwrap();
    guest.ping().await;

    // Why this runtime has no memory snapshots. When this test fails, it can have them.
    let image = dir.join("image");
    std::fs::create_dir(&image).unwrap();
    let error = program.checkpoint(container, &image).unwrap_err();
    assert!(error.to_string().contains("encoding error"), "{error}");
    guest.ping().await;
}

#[test]
fn failures_are_told_apart() {
    let error = Program::find("no-such-runtime").unwrap_err();
    assert!(matches!(error, OciError::Missing { .. }));
    let dir = tempfile::tempdir().unwrap();
    let container = Container {
        dir: dir.path(),
        state: Path::new("state"),
        id: "nothing",
    };
    for name in ["runsc", "crun", "runc"] {
        let error = program(name, dir.path())
            .run(container, Start::default())
            .unwrap_err();
        let OciError::Failed { said, .. } = error else {
            panic!("{error}");
        };
        assert!(said.contains("config.json"), "{name}: {said}");
    }
}
