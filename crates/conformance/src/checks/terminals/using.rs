//! Typing, waiting and looking.

use super::support::*;
use crate::life::{Life, eventually, refused};
use motu_core::ErrorKind;
use motu_core::exec::TtySize;
use motu_core::terminal::*;

pub async fn a_run_gives_output_code_directory_and_time(life: Life) {
    let (_, session) = open(&life, "one").await;
    let answer = run(&life, &session, "cd /tmp && echo hello && sleep 1").await;
    assert_eq!(answer.end, End::CommandEnded);
    assert_eq!(answer.output, "hello\n");
    assert_eq!(answer.exit_code, Some(0));
    assert_eq!(answer.cwd.as_deref(), Some("/tmp"));
    // A busy machine may notice the start or the end late.
    assert!((90..30_000).contains(&answer.duration_ms), "{answer:?}");
    assert_eq!(answer.state.status, Status::Ready);
    assert_eq!(answer.state.confidence, Confidence::Certain);
    let answer = run(&life, &session, "printf no; (exit 7)").await;
    assert_eq!((answer.output.as_str(), answer.exit_code), ("no", Some(7)));
    let found = life.engine.get_terminal(&session).await.expect("found");
    assert_eq!(found.cwd.as_deref(), Some("/tmp"));
    assert!(found.alive && !found.terminated, "{found:?}");
    assert_eq!(
        life.engine
            .list_terminals(Default::default())
            .await
            .expect("a list")
            .len(),
        1
    );
}

pub async fn silence_does_not_end_a_run(life: Life) {
    let (_, session) = open(&life, "one").await;
    let answer = run(&life, &session, "echo first; sleep 1; echo done").await;
    assert_eq!(answer.end, End::CommandEnded);
    assert_eq!(answer.output, "first\ndone\n");
    assert!((950..10_000).contains(&answer.duration_ms), "{answer:?}");
    let answer = run_within(&life, &session, "echo now; sleep 30", 2.0).await;
    assert!(answer.timed_out);
    assert_eq!(answer.end, End::TimedOut);
    assert_eq!(answer.state.status, Status::Running);
    assert_eq!(answer.output, "now\n");
}

pub async fn two_sessions_work_at_once(life: Life) {
    let (sandbox, one) = open(&life, "one").await;
    open_in(&life, "two", &sandbox.sandbox_id).await;
    let two = id("two");
    // Each waits for the other: run one after the other they would never end.
    let meet = |mine: &str, theirs: &str| {
        format!(
            "touch /tmp/{mine}; until [ -e /tmp/{theirs} ]; do sleep 0.05; done; echo of {mine}"
        )
    };
    let (there, back) = (meet("one", "two"), meet("two", "one"));
    let (first, second) = tokio::join!(run(&life, &one, &there), run(&life, &two, &back));
    assert_eq!(first.output, "of one\n");
    assert_eq!(second.output, "of two\n");
}

pub async fn a_run_can_be_watched_and_interrupted(life: Life) {
    let (_, session) = open(&life, "one").await;
    let running = run(&life, &session, "echo begun; sleep 60");
    let meanwhile = async {
        eventually("it has begun", || async {
            screen(&life, &session).await.screen.contains("\nbegun")
        })
        .await;
        let seen = screen(&life, &session).await;
        assert_eq!(seen.state.status, Status::Running, "{seen:?}");
        // The shell itself is in the foreground until it has started the command.
        eventually("it sleeps", || async {
            let found = life.engine.get_terminal(&session).await.expect("found");
            !tells(&life) || found.foreground.as_deref() == Some("sleep")
        })
        .await;
        let ctrl_c = SendToTerminal {
            control: Some("c".to_string()),
            ..SendToTerminal::default()
        };
        let answer = send(&life, &session, ctrl_c).await;
        assert_eq!(answer.state.status, Status::Ready, "{answer:?}");
    };
    let (answer, ()) = tokio::join!(running, meanwhile);
    assert_eq!(answer.end, End::CommandEnded);
    assert_eq!(answer.exit_code, Some(130));
    assert!(answer.output.starts_with("begun"), "{answer:?}");
}

pub async fn a_password_is_typed_and_never_kept(life: Life) {
    let (_, session) = open(&life, "one").await;
    let answer = run(
        &life,
        &session,
        "read -rsp 'Password: ' pw; echo; echo got ${#pw}",
    )
    .await;
    assert_eq!(answer.end, End::WaitsForInput, "{answer:?}");
    assert_eq!(answer.state.status, Status::Password, "{answer:?}");
    let password = |force| TerminalPassword {
        password: PASSWORD.to_string(),
        force,
        wait: within(10.0),
    };
    let answer = life
        .engine
        .send_terminal_password(&session, password(false));
    let answer = answer.await.expect("the password is typed");
    assert_eq!(answer.end, End::CommandEnded);
    assert!(answer.output.contains("got 15"), "{answer:?}");
    // Refused where it would be displayed; if forced, it is redacted everywhere.
    refused(
        ErrorKind::Denied,
        life.engine
            .send_terminal_password(&session, password(false))
            .await,
    );
    let cat = run_within(&life, &session, "cat", 3.0).await;
    if tells(&life) {
        assert_eq!(cat.end, End::WaitsForInput, "{cat:?}");
    }
    refused(
        ErrorKind::Denied,
        life.engine
            .send_terminal_password(&session, password(false))
            .await,
    );
    let answer = life.engine.send_terminal_password(&session, password(true));
    let answer = answer.await.expect("the password is forced");
    assert!(answer.output.contains("[redacted]"), "{answer:?}");
    let seen = screen(&life, &session).await.screen;
    assert!(!seen.contains(PASSWORD), "{seen}");
    let transcript = life
        .engine
        .terminal_transcript(&session, ReadTranscript::default());
    assert!(
        !transcript
            .await
            .expect("a transcript")
            .text
            .contains(PASSWORD)
    );
    assert_eq!(is_below(life.home(), PASSWORD), None);
}

pub async fn expect_never_finds_the_echo(life: Life) {
    let (_, session) = open(&life, "one").await;
    let typed = SendToTerminal {
        wait: within(0.0),
        ..text("sleep 0.5; echo mar''ker\n")
    };
    send(&life, &session, typed).await;
    let expect = |pattern: &str, seconds| ExpectInTerminal {
        patterns: vec!["nothing".to_string(), pattern.to_string()],
        wait: within(seconds),
        ..ExpectInTerminal::default()
    };
    let found = life
        .engine
        .expect_in_terminal(&session, expect("mar.*ker", 10.0));
    let found = found.await.expect("it is waited for");
    assert_eq!(found.end, End::Matched, "{found:?}");
    let found = found.found.expect("a match");
    assert_eq!((found.index, found.text.as_str()), (1, "marker"));
    let missing = life
        .engine
        .expect_in_terminal(&session, expect("mar..ker", 0.2));
    assert!(missing.await.expect("it is waited for").timed_out);
    // It is still on the screen; there is no match after it.
    let behind = ExpectInTerminal {
        from: Some(found.next_cursor),
        ..expect("marker", 0.2)
    };
    for (expect, matched) in [(expect("marker", 5.0), true), (behind, false)] {
        let answer = life.engine.expect_in_terminal(&session, expect).await;
        let answer = answer.expect("it is waited for");
        assert_eq!(answer.end == End::Matched, matched, "{answer:?}");
    }
    let mut bad = expect("(", 1.0);
    refused(
        ErrorKind::Invalid,
        life.engine.expect_in_terminal(&session, bad.clone()).await,
    );
    bad.patterns.clear();
    refused(
        ErrorKind::Invalid,
        life.engine.expect_in_terminal(&session, bad).await,
    );
}

pub async fn a_program_that_reads_lines_is_talked_to(life: Life) {
    let (_, session) = open(&life, "one").await;
    let answer = run_within(&life, &session, "cat", 3.0).await;
    if tells(&life) {
        assert_eq!(answer.end, End::WaitsForInput, "{answer:?}");
    }
    let run = RunInTerminal {
        command: "to the cat".to_string(),
        // The kernel does not tell that it reads.
        force: !tells(&life),
        wait: within(10.0),
    };
    let answer = life.engine.run_in_terminal(&session, run).await;
    let answer = answer.expect("the cat is told");
    assert_eq!(answer.output, "to the cat\n", "{answer:?}");
    let keys = SendToTerminal {
        keys: Some(vec!["Ctrl-D".to_string()]),
        wait: within(10.0),
        ..SendToTerminal::default()
    };
    let answer = send(&life, &session, keys).await;
    assert_eq!(answer.state.status, Status::Ready, "{answer:?}");
    assert_eq!(answer.exit_code, Some(0));
}

pub async fn a_signal_reaches_whoever_is_in_front(life: Life) {
    let (_, session) = open(&life, "one").await;
    if life.subject.name == "gvisor" {
        let signal = SignalTerminal {
            signal: "TERM".to_string(),
            ..SignalTerminal::default()
        };
        refused(
            ErrorKind::Unsupported,
            life.engine.signal_terminal(&session, signal).await,
        );
        return;
    }
    let running = run(
        &life,
        &session,
        "trap 'echo the shell has it' USR1; sh -c 'echo be\"\"gun; exec sleep 60'",
    );
    let meanwhile = async {
        eventually("it has begun", || async {
            if !tells(&life) {
                return screen(&life, &session).await.screen.contains("\nbegun");
            }
            let found = life.engine.get_terminal(&session).await.expect("found");
            found.foreground.as_deref() == Some("sleep")
        })
        .await;
        let signal = SignalTerminal {
            signal: "SIGUSR1".to_string(),
            wait: within(5.0),
        };
        let answer = life.engine.signal_terminal(&session, signal).await;
        let answer = answer.expect("a signal is sent");
        assert_eq!(answer.state.status, Status::Ready, "{answer:?}");
    };
    let (answer, ()) = tokio::join!(running, meanwhile);
    assert_eq!(answer.exit_code, Some(128 + 10));
    assert!(!answer.output.contains("the shell has it"), "{answer:?}");
}

pub async fn a_new_size_is_everybodys(life: Life) {
    let (_, session) = open(&life, "one").await;
    let size = TtySize {
        cols: 101,
        rows: 33,
    };
    let change = ConfigureTerminal {
        size: Some(size),
        description: Some("of many columns".to_string()),
        ..ConfigureTerminal::default()
    };
    let changed = life.engine.configure_terminal(&session, change).await;
    let changed = changed.expect("it is configured");
    assert_eq!((changed.cols, changed.rows), (101, 33));
    assert_eq!(changed.description.as_deref(), Some("of many columns"));
    let answer = run(&life, &session, "stty size").await;
    assert_eq!(answer.output, "33 101\n");
    let bad = ConfigureTerminal {
        size: Some(TtySize { cols: 1, rows: 1 }),
        ..ConfigureTerminal::default()
    };
    refused(
        ErrorKind::Invalid,
        life.engine.configure_terminal(&session, bad).await,
    );
}
