//! Large and binary output, and output of commands that fail.

use motu_core::Service;
use motu_testkit::world::{World, shell};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Bytes without a newline, through a debug build of the daemon.
const FLOOD_BYTES: u64 = 256 << 20;

#[tokio::test]
async fn a_flood_without_newlines_arrives_whole() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let script = format!("head -c {FLOOD_BYTES} /dev/zero");
    let mut flood = world
        .command(&[
            "exec",
            id.as_str(),
            "--timeout-seconds",
            "60",
            "--",
            "sh",
            "-c",
            &script,
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let counted = motu_needs::command("wc")
        .arg("-c")
        .stdin(flood.stdout.take().unwrap())
        .output()
        .unwrap();
    let counted = String::from_utf8(counted.stdout).unwrap();
    assert_eq!(counted.trim(), FLOOD_BYTES.to_string());
    assert_eq!(flood.wait().unwrap().code(), Some(0));
    let resident = motu_testkit::traces::resident(world.daemon_pid());
    assert!(
        resident < 128 << 20,
        "the daemon has grown to {resident} bytes"
    );
}

#[tokio::test]
async fn binary_output_is_exact_on_both_channels() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    // Every byte value, and random data that is compared with a copy inside.
    let every: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    world.write(&id, "/every", &every).await.unwrap();
    let script = "cat /every; cat /every >&2; head -c 3000000 /dev/urandom | tee /random";
    let mut child = world
        .command(&["exec", id.as_str(), "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let err = std::thread::spawn(move || {
        let mut all = Vec::new();
        stderr.read_to_end(&mut all).map(|_| all)
    });
    let mut out = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(err.join().unwrap().unwrap() == every);
    assert!(out[..every.len()] == every);
    let random = &out[every.len()..];
    assert_eq!(random.len(), 3_000_000);
    let hash = world
        .client()
        .hash(&id, (motu_testkit::world::at("/random")).into())
        .await
        .unwrap();
    let ours: String = Sha256::digest(random)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(hash.sha256, ours);
}

#[tokio::test]
async fn a_command_that_closes_its_output_runs_on() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let begin = Instant::now();
    let said = world
        .sh(
            &id,
            "echo first; exec >&- 2>&-; sleep 1; touch /ran-on; exit 5",
        )
        .await;
    assert_eq!(
        (said.exit_code, said.stdout.as_str()),
        (5, "first\n"),
        "{said:?}"
    );
    assert!(
        begin.elapsed() >= Duration::from_secs(1),
        "its end was waited for"
    );
    assert_eq!(world.read(&id, "/ran-on").await.unwrap(), b"");
}

#[tokio::test]
async fn a_grandchild_that_keeps_the_output_does_not_keep_the_caller() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let begin = Instant::now();
    let said = world.sh(&id, "sleep 25 & echo parent; exit 6").await;
    assert_eq!(
        (said.exit_code, said.stdout.as_str()),
        (6, "parent\n"),
        "{said:?}"
    );
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test]
async fn a_timeout_returns_what_was_said_with_code_124() {
    let Some(world) = World::new() else { return };
    let script = "echo before; echo trouble >&2; sleep 1000; echo after";
    let told = world.motu(&[
        "run",
        "busybox",
        "--timeout-seconds",
        "1",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(
        (told.code, told.stdout.as_str()),
        (124, "before\n"),
        "{told:?}"
    );
    assert!(told.stderr.contains("trouble\n"), "{told:?}");
    assert!(told.stderr.contains("timed out"), "{told:?}");

    let json = world.motu(&[
        "run",
        "--json",
        "busybox",
        "--timeout-seconds",
        "1",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let answer: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json.code, 124, "{json:?}");
    assert_eq!(answer["timed_out"], true, "{answer}");
    assert_eq!(answer["stdout"], "before\n", "{answer}");
}

#[tokio::test]
async fn a_collected_exec_is_cut_at_its_budget_and_says_so() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let mut request = shell("head -c 5000000 /dev/zero | tr '\\0' x");
    request.program.max_output_bytes = Some(1000);
    let said = world.client().exec(&id, request).await.unwrap();
    assert_eq!(said.stdout, "x".repeat(1000));
    assert_eq!((said.truncated, said.stdout_bytes), (true, 5_000_000));
}
