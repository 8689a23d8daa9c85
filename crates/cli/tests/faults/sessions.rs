//! Commands that continue while daemons are replaced.

use futures_util::StreamExt;
use motu_core::exec::{AttachFrom, ExecEvent, ExecSession, Exited, Selector, SignalProcess};
use motu_core::{ErrorKind, SandboxId, Service};
use motu_testkit::world::{Dice, World, eventually, hear, shell, soon};

/// Numbers the command prints: seven megabytes, many times the size of the buffer inside.
const NUMBERS: u64 = 1_000_000;
/// Kills while it prints.
const BLOWS: usize = 4;
/// Bytes between two kills, at most.
const APART: u64 = 800_000;

/// Attaches to a process at the offset where `heard` ends.
async fn attach(world: &World, id: &SandboxId, tag: &str, heard: &[u8]) -> ExecSession {
    let from = AttachFrom::Offsets {
        stdout: heard.len() as u64,
        stderr: 0,
    };
    let selector = Selector::Tag(tag.to_string());
    world
        .client()
        .attach(id, &selector, from.into())
        .await
        .unwrap()
}

/// Appends output until there are `enough` bytes, or the process or its daemon ends.
async fn listen(session: &mut ExecSession, heard: &mut Vec<u8>, enough: usize) -> Option<Exited> {
    while heard.len() < enough {
        match soon("output", session.events.next()).await.unwrap() {
            Ok(ExecEvent::Started(started)) => assert_eq!(started.stdout_from, heard.len() as u64),
            Ok(ExecEvent::Stdout(bytes)) => heard.extend_from_slice(&bytes),
            Ok(ExecEvent::Exited(exited)) => return Some(exited),
            Err(error) if error.kind == ErrorKind::Transport => return None,
            other => panic!("{other:?}"),
        }
    }
    None
}

/// Waits until the command blocks because nobody reads its output.
async fn stands_still(world: &World, id: &SandboxId) {
    let (mut before, mut same) = (0, 0);
    eventually("the command stands still", async || {
        let processes = world.client().list_processes(id).await.unwrap();
        let now: u64 = processes.iter().map(|process| process.stdout_bytes).sum();
        same = if now == before { same + 1 } else { 0 };
        before = now;
        (same > 10, now)
    })
    .await;
}

#[tokio::test]
async fn output_is_complete_across_killed_daemons() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = world.create().await;
    let script = format!("until [ -e /tmp/go ]; do sleep 0.02; done; seq {NUMBERS}; exit 7");
    let mut request = shell(&script);
    request.tag = Some("counter".to_string());
    world.client().exec_background(&id, request).await.unwrap();
    let expected: Vec<u8> = (1..=NUMBERS)
        .flat_map(|number| format!("{number}\n").into_bytes())
        .collect();

    let mut dice = Dice::new(0x6f75_7470);
    let mut heard = Vec::new();
    for blow in 0..BLOWS {
        let mut session = attach(&world, &id, "counter", &heard).await;
        if blow == 0 {
            world.write(&id, "/tmp/go", b"").await.unwrap();
        }
        let enough = heard.len() + 1 + dice.below(APART) as usize;
        let ended = listen(&mut session, &mut heard, enough).await;
        assert_eq!(ended, None, "it waits for its reader");
        if blow % 2 == 1 {
            // Now all buffers between the command and its reader are full.
            stands_still(&world, &id).await;
        }
        world.kill();
        // Output that was already sent to the reader still arrives.
        let ended = listen(&mut session, &mut heard, usize::MAX).await;
        assert_eq!(ended, None, "it waits for its reader");
        world.start();
    }
    let mut session = attach(&world, &id, "counter", &heard).await;
    let ended = listen(&mut session, &mut heard, usize::MAX).await.unwrap();
    assert!(
        heard == expected,
        "{} of {} bytes",
        heard.len(),
        expected.len()
    );
    assert_eq!(
        (ended.exit_code, ended.stdout_bytes, ended.timed_out),
        (7, expected.len() as u64, false)
    );
    // Later callers are told of the exit as well.
    world.restart();
    let selector = Selector::Tag("counter".to_string());
    let again = world
        .client()
        .attach(&id, &selector, AttachFrom::Newest.into())
        .await;
    assert_eq!(hear(again.unwrap()).await.2.exit_code, 7);
}

#[tokio::test]
async fn a_command_ends_while_no_daemon_is_there() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = world.create().await;
    let script =
        "until [ -e /tmp/go ]; do sleep 0.02; done; sleep 0.2; echo alone; echo really >&2; exit 3";
    let mut request = shell(script);
    request.tag = Some("alone".to_string());
    world.client().exec_background(&id, request).await.unwrap();
    let before = world.traces.processes(id.as_str()).len();
    world.write(&id, "/tmp/go", b"").await.unwrap();
    world.kill();
    eventually("the command has ended", async || {
        let now = world.traces.processes(id.as_str()).len();
        (now < before, now)
    })
    .await;
    world.start();
    let selector = Selector::Tag("alone".to_string());
    let session = world
        .client()
        .attach(&id, &selector, AttachFrom::Oldest.into())
        .await;
    let (out, err, exited) = hear(session.unwrap()).await;
    assert_eq!(
        (&out[..], &err[..], exited.exit_code),
        (&b"alone\n"[..], &b"really\n"[..], 3)
    );
}

#[tokio::test]
async fn a_foreground_command_of_a_killed_daemon_is_told_and_leaves() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = world.create().await;
    let idle = world.traces.processes(id.as_str());
    let mut session = world
        .client()
        .exec_stream(&id, shell("echo ready; sleep 1000"))
        .await
        .unwrap();
    loop {
        match soon("ready", session.events.next()).await.unwrap().unwrap() {
            ExecEvent::Stdout(bytes) if &bytes[..] == b"ready\n" => break,
            ExecEvent::Started(_) => {}
            other => panic!("{other:?}"),
        }
    }
    world.kill();
    let end = soon("the end", session.events.next()).await.unwrap();
    assert_eq!(end.unwrap_err().kind, ErrorKind::Transport);
    world.start();
    world.assert_works(&id).await;
    // Nobody can attach to it before its own timeout of thirty seconds: it may run until then, but
    // it is listed, and a signal ends it.
    let processes = world.client().list_processes(&id).await.unwrap();
    for process in processes.iter().filter(|process| process.exited.is_none()) {
        let selector = Selector::Pid(process.pid);
        world
            .client()
            .signal_process(
                &id,
                &selector,
                SignalProcess {
                    signal: 9.try_into().unwrap(),
                    tree: true,
                },
            )
            .await
            .unwrap();
    }
    eventually("it is gone", async || {
        let now = world.traces.processes(id.as_str());
        (now == idle, now)
    })
    .await;
}
