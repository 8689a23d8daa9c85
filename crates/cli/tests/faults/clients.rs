//! Clients that disconnect early, and clients that do not read.

use futures_util::StreamExt;
use motu_core::Service;
use motu_core::exec::{ExecEvent, ExecSession};
use motu_testkit::host::{Ask, Host};
use motu_testkit::traces::resident;
use motu_testkit::world::{World, eventually, shell, small, soon};
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How much the daemon's memory may grow because of a client that does not read.
const GROWTH: u64 = 32 << 20;

fn spawn(world: &World, args: &[&str]) -> Child {
    let mut child = world.command(args).stdout(Stdio::piped()).spawn().unwrap();
    let mut on = [0; 3];
    child.stdout.as_mut().unwrap().read_exact(&mut on).unwrap();
    assert_eq!(&on, b"on\n");
    child
}

#[tokio::test]
async fn a_client_that_is_killed_takes_its_command_along() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let before = world.traces.processes(id.as_str());
    let script = "echo on; trap '' TERM HUP INT; sleep 1000 & sleep 1000";
    let mut client = spawn(&world, &["exec", id.as_str(), "--", "sh", "-c", script]);
    client.kill().unwrap();
    client.wait().unwrap();
    eventually("the command is gone", async || {
        let now = world.traces.processes(id.as_str());
        (now == before, now)
    })
    .await;
    world.assert_works(&id).await;

    let mut client = spawn(&world, &["run", "busybox", "--", "sh", "-c", script]);
    assert_eq!(world.traces.found().directories.len(), 2);
    client.kill().unwrap();
    client.wait().unwrap();
    eventually("the sandbox is gone", async || {
        let found = world.traces.found();
        (
            found.directories.len() == 1 && found.cgroups.len() == 1,
            found,
        )
    })
    .await;
}

#[tokio::test]
async fn a_client_that_gives_up_creating_leaves_no_sandbox() {
    let Some(world) = World::new() else { return };
    let mut dice = motu_testkit::world::Dice::new(0x6769_7665);
    for _ in 0..10 {
        let client = world.client();
        let creating = tokio::spawn(async move { client.create_sandbox(small()).await });
        tokio::time::sleep(dice.moment(15)).await;
        creating.abort();
        if let Ok(Ok(sandbox)) = creating.await {
            world
                .client()
                .destroy_sandbox(&sandbox.sandbox_id)
                .await
                .unwrap();
        }
    }
    // Either it was removed because nobody was told, or it is complete and listed.
    eventually("what is there is what is listed", async || {
        let listed = world
            .client()
            .list_sandboxes(Default::default())
            .await
            .unwrap();
        let found = world.traces.found();
        let whole = listed
            .iter()
            .all(|sandbox| found.busy.contains(sandbox.sandbox_id.as_str()));
        let same = listed.len() == found.directories.len() && listed.len() == found.cgroups.len();
        (whole && same, (listed.len(), found))
    })
    .await;
}

/// Waits until the command blocks because nobody reads its output.
async fn stands_still(world: &World, id: &motu_core::SandboxId) -> u64 {
    let produced = async || {
        let processes = world.client().list_processes(id).await.unwrap();
        processes
            .iter()
            .map(|process| process.stdout_bytes)
            .sum::<u64>()
    };
    let (mut before, mut same) = (0, 0);
    eventually("the command stands still", async || {
        let now = produced().await;
        same = if now == before && now > 0 {
            same + 1
        } else {
            0
        };
        before = now;
        (same > 30, now)
    })
    .await;
    before
}

async fn started(session: &mut ExecSession) {
    loop {
        let event = soon("output", session.events.next())
            .await
            .unwrap()
            .unwrap();
        if matches!(event, ExecEvent::Stdout(_)) {
            return;
        }
    }
}

#[tokio::test]
async fn a_reader_that_stops_does_not_grow_the_daemon() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    world.assert_works(&id).await;
    let before = resident(world.daemon_pid());
    let mut session = world
        .client()
        .exec_stream(&id, shell("exec cat /dev/zero"))
        .await
        .unwrap();
    started(&mut session).await;
    let produced = stands_still(&world, &id).await;
    let after = resident(world.daemon_pid());
    assert!(
        after < before + GROWTH,
        "from {before} to {after} after {produced} bytes"
    );
    assert!(produced < GROWTH, "{produced} bytes are somewhere");
    // Other clients are served as usual, and the reader may continue.
    world.assert_works(&id).await;
    let mut got = 0;
    while got < 4 << 20 {
        match soon("more", session.events.next()).await.unwrap().unwrap() {
            ExecEvent::Stdout(bytes) => got += bytes.len(),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_command_that_does_not_read_holds_up_its_sender_only() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let before = resident(world.daemon_pid());
    let mut child = world
        .command(&[
            "exec",
            id.as_str(),
            "-i",
            "--timeout-seconds",
            "5",
            "--",
            "sleep",
            "1000",
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let sending = {
        let sent = sent.clone();
        std::thread::spawn(move || {
            let piece = vec![0; 1 << 20];
            while std::io::Write::write_all(&mut stdin, &piece).is_ok() {
                sent.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    world.assert_works(&id).await;
    let held = sent.load(Ordering::Relaxed);
    // After the end of the command, further input is discarded.
    let early = child.try_wait().unwrap().is_none();
    assert!(early && held < 64, "{held} MiB went somewhere");
    assert_eq!(child.wait().unwrap().code(), Some(124));
    sending.join().unwrap();
    let after = resident(world.daemon_pid());
    assert!(after < before + GROWTH, "from {before} to {after}");
}

#[tokio::test]
async fn input_that_nobody_reads_does_not_cost_the_answer() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    for round in 0..12 {
        let script = format!("sleep 0.0{round}; echo answer; exit 3");
        let mut child = world
            .command(&["exec", id.as_str(), "-i", "--", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let sending = std::thread::spawn(move || {
            let piece = vec![0; 1 << 20];
            while std::io::Write::write_all(&mut stdin, &piece).is_ok() {}
        });
        let ended = child.wait_with_output().unwrap();
        sending.join().unwrap();
        assert_eq!(ended.status.code(), Some(3), "round {round}: {ended:?}");
        assert_eq!(ended.stdout, b"answer\n", "round {round}");
    }
}

/// Starts a daemon that may have so many files open, with an address.
fn daemon_with_few_files(host: &Host, files: u64) {
    host.listen("", "");
    let plain = host.story.command(&["ps"]);
    let mut few = Command::new("sh");
    few.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")])
        .arg(plain.get_program())
        .args(plain.get_args())
        .current_dir(host.story.path())
        .env_clear()
        .stdin(Stdio::null());
    for (name, value) in plain.get_envs() {
        few.env(name, value.unwrap());
    }
    let told = host.story.told(few);
    assert_eq!(told.code, 0, "{told}");
}

#[test]
fn idle_connections_leave_descriptors_for_those_who_ask() {
    let host = Host::unstarted();
    daemon_with_few_files(&host, 128);
    let key = host.key(&[]);
    let socket = host.story.home().join("daemon.sock");
    let idle: Vec<UnixStream> = (0..130)
        .map(|_| UnixStream::connect(&socket).unwrap())
        .collect();
    let strangers: Vec<TcpStream> = (0..130)
        .map(|_| TcpStream::connect(host.address).unwrap())
        .collect();
    let begin = Instant::now();
    for _ in 0..3 {
        assert_eq!(host.story.motu(&["ps"]).code, 0);
        let answer = host.call(&key, Ask::get("/v1/version"));
        assert_eq!(answer.status, 200, "{answer}");
    }
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(12), "{took:?}");
    drop((idle, strangers));
}
