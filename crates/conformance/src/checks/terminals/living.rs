//! How sessions begin, continue and end.

use super::support::*;
use crate::bench::Bench;
use crate::life::{Life, SOON, collect, eventually, refused, soon};
use futures_util::StreamExt as _;
use motu_core::exec::{ExecEvent, ExecInput, TtySize};
use motu_core::terminal::*;
use motu_core::{ErrorKind, SandboxId, Service as _};
use std::time::{Duration, Instant};

pub async fn terminate_is_final(life: Life) {
    let (sandbox, session) = open(&life, "one").await;
    run_within(&life, &session, "(sleep 600 & sleep 600) &", 5.0).await;
    let waiting = run(&life, &session, "echo last words; sleep 600");
    let ending = async {
        eventually("it has begun", || async {
            screen(&life, &session)
                .await
                .screen
                .contains("\nlast words")
        })
        .await;
        let ended = life.engine.terminate_terminal(&session).await;
        let ended = ended.expect("it is terminated");
        assert_eq!(ended.state.status, Status::Terminated);
        assert!(!ended.alive && ended.terminated);
    };
    let (answer, ()) = tokio::join!(waiting, ending);
    assert_eq!(answer.end, End::SessionEnded);
    let processes = life.engine.list_processes(&sandbox.sandbox_id).await;
    let living = processes.expect("a list");
    assert!(
        living.iter().all(|process| process.alive == 0),
        "{living:?}"
    );
    let answer = run(&life, &session, "echo more").await;
    assert_eq!(answer.state.status, Status::Terminated);
    let transcript = life
        .engine
        .terminal_transcript(&session, ReadTranscript::default());
    let transcript = transcript.await.expect("the transcript stays");
    assert!(transcript.text.contains("last words"), "{transcript:?}");
    // The name can be used again.
    let again = life
        .engine
        .open_terminal(request("one", &sandbox.sandbox_id));
    let again = again.await.expect("it is opened");
    assert!(again.created && again.terminal.alive, "{again:?}");
    let seen = screen(&life, &session).await.screen;
    assert!(!seen.contains("last words"), "{seen}");
    refused(
        ErrorKind::NotFound,
        life.engine.get_terminal(&id("two")).await,
    );
}

pub async fn a_shell_that_has_ended_is_opened_again(life: Life) {
    let (sandbox, session) = open(&life, "one").await;
    let answer = run(&life, &session, "echo before; exit 3").await;
    assert_eq!(answer.end, End::SessionEnded, "{answer:?}");
    assert_eq!(answer.state.status, Status::Eof);
    let found = life.engine.get_terminal(&session).await.expect("found");
    assert_eq!(found.exit_code, Some(3), "{found:?}");
    assert!(!found.alive && !found.terminated);
    assert!(screen(&life, &session).await.screen.contains("before"));
    open_in(&life, "one", &sandbox.sandbox_id).await;
    assert_eq!(run(&life, &session, "echo after").await.output, "after\n");
    let all = ReadTranscript {
        from: Some(0),
        ..ReadTranscript::default()
    };
    let all = life.engine.terminal_transcript(&session, all).await;
    let all = all.expect("a transcript").text;
    assert!(all.contains("before") && all.contains("after"), "{all}");
    let cast = life.engine.terminal_recording(&session).await;
    let cast = collect(cast.expect("a recording"))
        .await
        .expect("it is read");
    let cast = String::from_utf8(cast).expect("text");
    assert!(cast.starts_with("{\"version\":3"), "{cast}");
    assert!(cast.contains("before") && cast.contains("after"), "{cast}");
}

pub async fn whoever_goes_away_leaves_the_command_alone(life: Life) {
    let (_, session) = open(&life, "one").await;
    let waiting = run(&life, &session, "sleep 1; echo it ended");
    let given_up = tokio::time::timeout(Duration::from_millis(300), waiting).await;
    assert!(given_up.is_err());
    let ready = life
        .engine
        .expect_terminal_prompt(&session, within(10.0))
        .await;
    assert_eq!(ready.expect("a prompt").state.status, Status::Ready);
    assert!(screen(&life, &session).await.screen.contains("\nit ended"));
    assert_eq!(run(&life, &session, "echo next").await.output, "next\n");
}

pub async fn somebody_watches_and_takes_over(life: Life) {
    let (_, session) = open(&life, "one").await;
    run(&life, &session, "echo seen before").await;
    let size = TtySize { cols: 90, rows: 30 };
    let watching = life.engine.attach_terminal(&session, None.into()).await;
    let mut watching = watching.expect("somebody watches");
    let seat = life
        .engine
        .attach_terminal(&session, (Some(size)).into())
        .await;
    let mut seat = seat.expect("somebody sits");
    let nobody = ExecInput::Stdin("echo no\n".into());
    assert!(
        watching.input.send(nobody).await.is_err(),
        "a watcher types"
    );
    seat.input
        .send(ExecInput::Stdin("stty size\r".into()))
        .await
        .expect("it is typed");
    for session in [&mut watching, &mut seat] {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("30 90") {
            match soon("output", session.events.next()).await {
                Some(Ok(ExecEvent::Stdout(bytes))) => seen.extend_from_slice(&bytes),
                Some(Ok(ExecEvent::Started(_))) => {}
                other => panic!("{other:?} came after {}", String::from_utf8_lossy(&seen)),
            }
        }
        let seen = String::from_utf8_lossy(&seen);
        assert!(seen.contains("seen before"), "{seen}");
        assert!(!seen.contains(";k="), "the nonce is shown: {seen}");
    }
    drop(seat);
    let ready = life
        .engine
        .expect_terminal_prompt(&session, within(10.0))
        .await;
    assert_eq!(ready.expect("a prompt").state.status, Status::Ready);
    assert_eq!(
        run(&life, &session, "echo still here").await.output,
        "still here\n"
    );
}

pub async fn much_output_goes_through_in_order(life: Life) {
    let (_, session) = open(&life, "one").await;
    let answer = run(&life, &session, "seq 1 300000").await;
    assert_eq!(answer.end, End::CommandEnded);
    assert!(answer.output_truncated);
    assert!(answer.output.starts_with("1\n2\n"), "{:.40}", answer.output);
    assert!(answer.output.ends_with("299999\n300000\n"));
    let rest = ReadTranscript {
        from: answer.rest_from,
        max_bytes: Some(300),
        ..ReadTranscript::default()
    };
    let rest = life.engine.terminal_transcript(&session, rest).await;
    let rest = rest.expect("the rest is there").text;
    let numbers: Vec<u64> = rest
        .lines()
        .skip(1)
        .filter_map(|line| line.parse().ok())
        .collect();
    assert!(numbers.len() > 10, "{rest}");
    assert!(
        numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{rest}"
    );
    let back = life
        .engine
        .terminal_scrollback(
            &session,
            ReadScrollback {
                lines: 5,
                strip_ansi: true,
            },
        )
        .await;
    let back = back.expect("scrollback");
    assert!(back.scrollback.contains("300000"), "{back:?}");
    assert!(back.total_lines >= 10_000, "{back:?}");
}

pub async fn what_is_wrong_is_told(life: Life) {
    let (sandbox, session) = open(&life, "one").await;
    refused(
        ErrorKind::NotFound,
        life.engine.get_terminal(&id("x")).await,
    );
    refused(
        ErrorKind::Invalid,
        life.engine.open_terminal(OpenTerminal::default()).await,
    );
    let missing = SandboxId::parse("nowhere").expect("an id");
    refused(
        ErrorKind::NotFound,
        life.engine.open_terminal(request("two", &missing)).await,
    );
    let on_host = OpenTerminal {
        session_id: "two".to_string(),
        host: true,
        ..OpenTerminal::default()
    };
    refused(ErrorKind::Denied, life.engine.open_terminal(on_host).await);
    let program = OpenTerminal {
        command: vec!["/no/such/program".to_string()],
        ..request("two", &sandbox.sandbox_id)
    };
    refused(ErrorKind::Invalid, life.engine.open_terminal(program).await);
    assert_eq!(
        life.engine
            .list_terminals(Default::default())
            .await
            .expect("a list")
            .len(),
        1
    );
    refused(
        ErrorKind::Invalid,
        life.engine
            .send_to_terminal(&session, SendToTerminal::default())
            .await,
    );
    let nothing = SignalTerminal {
        signal: "NOPE".to_string(),
        ..SignalTerminal::default()
    };
    refused(
        ErrorKind::Invalid,
        life.engine.signal_terminal(&session, nothing).await,
    );
    let found = life
        .engine
        .open_terminal(request("one", &sandbox.sandbox_id));
    assert!(!found.await.expect("it is found").created);
}

pub async fn a_session_ends_with_its_machine(life: Life) {
    let (sandbox, session) = open(&life, "one").await;
    let destroyed = life.engine.destroy_sandbox(&sandbox.sandbox_id).await;
    destroyed.expect("destroyed");
    eventually("the session has ended", || async {
        let found = life.engine.get_terminal(&session).await.expect("found");
        found.state.status == Status::Eof && found.state.state_reason.contains("destroyed")
    })
    .await;
    let run = RunInTerminal {
        command: "echo".to_string(),
        ..RunInTerminal::default()
    };
    refused(
        ErrorKind::Conflict,
        life.engine.run_in_terminal(&session, run).await,
    );
}

pub async fn a_shell_without_marks_is_driven_too(life: Life) {
    let sandbox = life.create().await;
    let sh = OpenTerminal {
        command: vec!["sh".to_string()],
        ..request("plain", &sandbox.sandbox_id)
    };
    let session = id("plain");
    life.engine.open_terminal(sh).await.expect("opened");
    let ready = life
        .engine
        .expect_terminal_prompt(&session, within(10.0))
        .await;
    assert_eq!(ready.expect("a prompt").state.status, Status::Ready);
    let answer = run(&life, &session, "sleep 0.5; echo hello").await;
    assert_eq!(answer.output, "hello\n", "{answer:?}");
}

pub fn a_new_daemon_goes_on_with_the_session(bench: &Bench) {
    let sandbox = bench.life(|life| async move {
        let (sandbox, session) = open(&life, "one").await;
        run(
            &life,
            &session,
            "cd /tmp; marker=kept; echo in the first life",
        )
        .await;
        let typed = SendToTerminal {
            wait: within(0.0),
            ..text("sleep 0.5; echo between lives\n")
        };
        send(&life, &session, typed).await;
        sandbox
    });
    std::thread::sleep(Duration::from_secs(1));
    bench.life(|life| async move {
        let session = id("one");
        let found = life
            .engine
            .list_terminals(Default::default())
            .await
            .expect("a list");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].sandbox_id, sandbox.sandbox_id);
        let ready = life
            .engine
            .expect_terminal_prompt(&session, within(10.0))
            .await;
        assert_eq!(ready.expect("a prompt").state.status, Status::Ready);
        let begun = Instant::now();
        let answer = run(&life, &session, "echo $marker").await;
        assert_eq!(
            (answer.output.as_str(), answer.exit_code),
            ("kept\n", Some(0))
        );
        assert_eq!(answer.cwd.as_deref(), Some("/tmp"));
        assert!(begun.elapsed() < SOON / 5, "{:?}", begun.elapsed());
        let seen = screen(&life, &session).await.screen;
        for line in ["in the first life", "\nbetween lives"] {
            assert_eq!(
                seen.matches(line).count(),
                if line.starts_with('\n') { 1 } else { 2 },
                "{seen}"
            );
        }
        let all = ReadTranscript {
            from: Some(0),
            ..ReadTranscript::default()
        };
        let all = life.engine.terminal_transcript(&session, all).await;
        let all = all.expect("a transcript").text;
        assert_eq!(all.matches("\nbetween lives").count(), 1, "{all}");
        let other = life.engine.terminate_terminal(&session).await;
        other.expect("it is terminated");
    });
    bench.life(|life| async move {
        let found = life.engine.get_terminal(&id("one")).await.expect("found");
        assert_eq!(found.state.status, Status::Terminated);
    });
}

pub fn a_session_whose_machine_was_lost_has_ended(bench: &Bench) {
    let sandbox = bench.life(|life| async move { open(&life, "one").await.0 });
    bench.end_machine(&sandbox.sandbox_id);
    bench.life(|life| async move {
        let session = id("one");
        eventually("the session has ended", || async {
            let found = life.engine.get_terminal(&session).await.expect("found");
            found.state.status == Status::Eof
        })
        .await;
        assert_eq!(screen(&life, &session).await.state.status, Status::Eof);
    });
}
