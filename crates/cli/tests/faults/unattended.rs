//! What others do to a machine behind the daemon's back, and what becomes of machines without one.

use crate::workspaces::{asked, create, sh};
use motu_core::sandbox::{CreateSandbox, Sandbox, State};
use motu_core::workspace::ResetTo;
use motu_core::{SandboxId, Service, Workspaces};
use motu_testkit::world::{World, connect, eventually, small};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Long enough for a machine to be made.
const SHORT_SECONDS: u64 = 4;

fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rfind(')').and_then(|at| stat.get(at + 2..));
    after.is_some_and(|rest| !rest.starts_with(['Z', 'X']))
}

async fn look(world: &World, id: &SandboxId) -> Sandbox {
    world.client().get_sandbox(id).await.unwrap()
}

/// What is written after a reset that failed must be there tomorrow, and what was written before it.
#[tokio::test]
async fn a_reset_that_cannot_be_stored_has_not_happened() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = create(&world, asked("unstored")).await;
    sh(&world, &id, "echo old > kept && sync").await;
    let record = world
        .home()
        .join("kept")
        .join(id.as_str())
        .join("sandbox.json");
    // A directory with something in it is replaced by no file.
    let aside = record.with_extension("aside");
    std::fs::rename(&record, &aside).unwrap();
    std::fs::create_dir_all(record.join("in the way")).unwrap();

    let reset = world
        .client()
        .reset_workspace(&id, ResetTo::default())
        .await;
    let error = reset.unwrap_err();
    assert!(error.message.contains("sandbox.json"), "{error:?}");
    let sandbox = look(&world, &id).await;
    assert_eq!(sandbox.state, State::Stopped, "{sandbox:?}");
    assert!(world.client().start_workspace(&id).await.is_err());
    assert_eq!(look(&world, &id).await.state, State::Stopped);

    std::fs::remove_dir_all(&record).unwrap();
    std::fs::rename(&aside, &record).unwrap();
    world.client().start_workspace(&id).await.unwrap();
    sh(&world, &id, "echo new > later && sync").await;
    world.restart();
    let files = sh(&world, &id, "cat kept later").await;
    assert_eq!(files.stdout, "old\nnew\n");
}

/// One runs, one stands still; a third has more time.
#[tokio::test]
async fn machines_end_at_their_time_without_a_daemon() {
    let Some(mut world) = World::new() else {
        return;
    };
    let with = |seconds| CreateSandbox {
        ttl_seconds: Some(seconds),
        ..small()
    };
    let long = world.create_with(with(600)).await.sandbox_id;
    let runs = world.create_with(with(SHORT_SECONDS)).await.sandbox_id;
    let stands = world.create_with(with(SHORT_SECONDS)).await.sandbox_id;
    world.client().pause_sandbox(&stands).await.unwrap();
    let pids = [&runs, &stands, &long].map(|id| world.traces.first_process(id.as_str()));
    world.kill();
    assert!(
        pids.iter().all(|pid| lives(*pid)),
        "they outlive the daemon"
    );
    eventually("their time is over", async || {
        let alive = pids.map(lives);
        (alive == [false, false, true], alive)
    })
    .await;
    world.start();
    for id in [&runs, &stands] {
        eventually("the next daemon has ended the rest", async || {
            let found = look(&world, id).await;
            let over = found.reason.as_deref() == Some("its time to live was over");
            (found.state == State::Destroyed && over, found)
        })
        .await;
    }
    world.assert_works(&long).await;
}

/// What a keepalive has given holds without a daemon too.
#[tokio::test]
async fn a_time_that_was_prolonged_is_kept_without_a_daemon() {
    let Some(mut world) = World::new() else {
        return;
    };
    let asked = CreateSandbox {
        ttl_seconds: Some(SHORT_SECONDS),
        ..small()
    };
    let id = world.create_with(asked).await.sandbox_id;
    let more = motu_core::sandbox::Keepalive {
        ttl_seconds: Some(600),
        ..Default::default()
    };
    let lease = world.home().join("run/leases").join(id.as_str());
    let before = std::fs::read(&lease).unwrap();
    world.client().keepalive(&id, more).await.unwrap();
    assert_ne!(std::fs::read(&lease).unwrap(), before);
    let pid = world.traces.first_process(id.as_str());
    world.stop();
    // Only time shows that something does not happen.
    tokio::time::sleep(Duration::from_secs(SHORT_SECONDS + 1)).await;
    assert!(lives(pid));
    world.start();
    world.assert_works(&id).await;
}

#[tokio::test]
async fn whoever_stops_a_daemon_hears_what_goes_on() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = world.create().await;
    let told = world.motu(&["serve", "--stop"]);
    let said = &told.stdout;
    assert!(
        said.starts_with("stopped\n1 machine goes on without it:\n"),
        "{told:?}"
    );
    assert!(
        said.contains(id.as_str()) && said.contains("ends in"),
        "{told:?}"
    );
    world.stop();
    world.start();
    world.assert_works(&id).await;
    world.client().destroy_sandbox(&id).await.unwrap();
    let told = world.motu(&["serve", "--stop"]);
    assert_eq!(told.stdout, "stopped\n");
    world.stop();
}

#[tokio::test]
async fn a_socket_that_was_removed_is_made_again() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let daemon = world.client().version().await.unwrap().pid;
    for _ in 0..2 {
        std::fs::remove_file(world.socket()).unwrap();
        eventually("it is there again", async || {
            (connect(&world.socket()).is_some(), ())
        })
        .await;
        assert_eq!(world.client().version().await.unwrap().pid, daemon);
    }
    // Nor does a lock file that is gone make room for a second daemon.
    std::fs::remove_file(world.home().join("daemon.lock")).unwrap();
    let told = world.motu(&["serve"]);
    assert!(told.stderr.contains("already serves"), "{told:?}");
    world.assert_works(&id).await;
}

/// The memory group of a process, and the group that is above all.
fn memory_group(pid: i32) -> (PathBuf, PathBuf) {
    let own = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let line = |mark: &str| own.lines().find_map(|line| Some(line.split_once(mark)?.1));
    let (top, path) = match line(":memory:") {
        Some(path) => ("/sys/fs/cgroup/memory", path),
        None => ("/sys/fs/cgroup", line("0::").unwrap()),
    };
    let top = Path::new(top);
    (top.join(path.trim_start_matches('/')), top.to_path_buf())
}

#[tokio::test]
async fn a_limit_that_was_taken_away_is_not_called_enforced() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let enforced = async || {
        let sandbox = look(&world, &id).await;
        let mut limits = sandbox.limits.into_iter();
        limits.find(|limit| limit.name == "mem_mib").unwrap()
    };
    assert!(enforced().await.enforced);
    let (group, top) = memory_group(world.traces.first_process(id.as_str()));
    assert!(group.ends_with(id.as_str()), "{}", group.display());
    eventually("the group is removed", async || {
        let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines() {
            // One that has just ended cannot be moved.
            let _ = std::fs::write(top.join("cgroup.procs"), pid);
        }
        (std::fs::remove_dir(&group).is_ok(), ())
    })
    .await;
    eventually("that is said", async || {
        let limit = enforced().await;
        (!limit.enforced && limit.by.contains("taken away"), limit)
    })
    .await;
    // Nor is the host's processor time the machine's.
    let used = world.client().metrics(&id).await.unwrap().cpu_us;
    assert!(used < 30_000_000, "{used}");
    world.assert_works(&id).await;
}

fn gateway(world: &World, id: &SandboxId) -> Option<i32> {
    let record = world.home().join("run/egress").join(id.as_str());
    let text = std::fs::read(record.join("gateway.json")).ok()?;
    let record: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Some(record["process"]["pid"].as_i64()? as i32)
}

#[tokio::test]
async fn a_gateway_that_ended_is_started_again() {
    let Some(world) = World::new() else { return };
    let asked = CreateSandbox {
        network: true,
        ..small()
    };
    let id = world.create_with(asked).await.sandbox_id;
    let devices = async || world.sh(&id, "ls /sys/class/net").await.stdout;
    let before = devices().await;
    assert!(before.lines().count() > 1, "{before}");
    let first = gateway(&world, &id).unwrap();
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    eventually("another one has taken its place", async || {
        let now = gateway(&world, &id);
        (now.is_some_and(|pid| pid != first && lives(pid)), now)
    })
    .await;
    eventually("the device is there again", async || {
        let now = devices().await;
        (now == before, now)
    })
    .await;
    assert_eq!(look(&world, &id).await.network, "egress");
}
