//! Terminal sessions: what an agent types, sees and is told.

use crate::bench::Bench;
use crate::life::{Life, SOON, collect, eventually, refused, soon};
use futures_util::StreamExt as _;
use motu_core::exec::{ExecEvent, ExecInput, TtySize};
use motu_core::sandbox::Sandbox;
use motu_core::terminal::*;
use motu_core::{ErrorKind, SandboxId, Service as _};
use std::path::Path;
use std::time::{Duration, Instant};

const PASSWORD: &str = "Tr0ub4dor-and-3";

fn id(name: &str) -> TerminalId {
    TerminalId::parse(name).expect("a session's name")
}

fn within(seconds: f64) -> Wait {
    Wait {
        timeout: Some(seconds),
        ..Wait::default()
    }
}

fn request(name: &str, place: &SandboxId) -> OpenTerminal {
    OpenTerminal {
        session_id: name.to_string(),
        sandbox_id: Some(place.clone()),
        ..OpenTerminal::default()
    }
}

/// A session with a shell that has drawn its prompt.
async fn open(life: &Life, name: &str) -> (Sandbox, TerminalId) {
    let sandbox = life.create().await;
    open_in(life, name, &sandbox.sandbox_id).await;
    (sandbox, id(name))
}

async fn open_in(life: &Life, name: &str, place: &SandboxId) {
    let opened = life.engine.open_terminal(request(name, place)).await;
    let opened = opened.expect("a session is opened");
    assert!(opened.created);
    let session = id(name);
    let ready = life.engine.expect_terminal_prompt(&session, within(20.0));
    let ready = ready.await.expect("a prompt is waited for");
    assert_eq!(ready.state.status, Status::Ready, "{ready:?}");
}

async fn run(life: &Life, session: &TerminalId, command: &str) -> TerminalAnswer {
    run_within(life, session, command, 20.0).await
}

async fn run_within(
    life: &Life,
    session: &TerminalId,
    command: &str,
    seconds: f64,
) -> TerminalAnswer {
    let run = RunInTerminal {
        command: command.to_string(),
        wait: within(seconds),
        ..RunInTerminal::default()
    };
    let answer = life.engine.run_in_terminal(session, run).await;
    answer.unwrap_or_else(|error| panic!("{command}: {error:?}"))
}

fn text(text: &str) -> SendToTerminal {
    SendToTerminal {
        text: Some(text.to_string()),
        wait: within(10.0),
        ..SendToTerminal::default()
    }
}

async fn send(life: &Life, session: &TerminalId, send: SendToTerminal) -> TerminalAnswer {
    let answer = life.engine.send_to_terminal(session, send).await;
    answer.expect("something is typed")
}

async fn screen(life: &Life, session: &TerminalId) -> TerminalScreen {
    let screen = life.engine.terminal_screen(session, ScreenFormat::Text);
    screen.await.expect("a screen")
}

/// Whether the kernel of its machines tells who is in front of a terminal; gVisor's does not.
fn tells(life: &Life) -> bool {
    life.subject.name != "gvisor"
}

/// Whether a text is in any file below a directory, the disks of machines left out.
fn is_below(dir: &Path, text: &str) -> Option<String> {
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        let kind = entry.file_type().ok()?;
        let disk = entry.metadata().is_ok_and(|found| found.len() > 64 << 20);
        if disk || entry.file_name() == "machines" || entry.file_name() == "environments" {
            continue;
        }
        if kind.is_dir() {
            if let Some(found) = is_below(&path, text) {
                return Some(found);
            }
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            let text = text.as_bytes();
            if bytes.windows(text.len()).any(|window| window == text) {
                return Some(path.display().to_string());
            }
        }
    }
    None
}

pub async fn a_run_gives_output_code_directory_and_time(life: Life) {
    let (_, session) = open(&life, "one").await;
    let answer = run(&life, &session, "cd /tmp && echo hello && sleep 0.1").await;
    assert_eq!(answer.end, End::CommandEnded);
    assert_eq!(answer.output, "hello\n");
    assert_eq!(answer.exit_code, Some(0));
    assert_eq!(answer.cwd.as_deref(), Some("/tmp"));
    assert!((90..5000).contains(&answer.duration_ms), "{answer:?}");
    assert_eq!(answer.state.status, Status::Ready);
    assert_eq!(answer.state.confidence, Confidence::Certain);
    let answer = run(&life, &session, "printf no; (exit 7)").await;
    assert_eq!((answer.output.as_str(), answer.exit_code), ("no", Some(7)));
    let found = life.engine.get_terminal(&session).await.expect("found");
    assert_eq!(found.cwd.as_deref(), Some("/tmp"));
    assert!(found.alive && !found.terminated, "{found:?}");
    assert_eq!(life.engine.list_terminals().await.expect("a list").len(), 1);
}

pub async fn silence_does_not_end_a_run(life: Life) {
    let (_, session) = open(&life, "one").await;
    let answer = run(&life, &session, "echo first; sleep 1; echo done").await;
    assert_eq!(answer.end, End::CommandEnded);
    assert_eq!(answer.output, "first\ndone\n");
    assert!((1000..10_000).contains(&answer.duration_ms), "{answer:?}");
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
    let begun = Instant::now();
    let (first, second) = tokio::join!(
        run(&life, &one, "sleep 1; echo of one"),
        run(&life, &two, "sleep 1; echo of two"),
    );
    assert_eq!(first.output, "of one\n");
    assert_eq!(second.output, "of two\n");
    assert!(begun.elapsed() < Duration::from_millis(1900), "{begun:?}");
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
        let found = life.engine.get_terminal(&session).await.expect("found");
        if let Some(front) = found.foreground {
            assert_eq!(front, "sleep");
        }
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
    // Where it would be shown it is refused, unless forced; then it is taken out of everything.
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
        .expect_in_terminal(&session, expect("marker", 0.2));
    assert!(missing.await.expect("it is waited for").timed_out);
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
        // It is not known to read.
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
    if !tells(&life) {
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
        "trap 'echo the shell has it' USR1; sleep 60",
    );
    let meanwhile = async {
        eventually("it has begun", || async {
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
    let again = life
        .engine
        .open_terminal(request("one", &sandbox.sandbox_id));
    let again = again.await.expect("it is found");
    assert!(!again.created && again.terminal.terminated);
    let transcript = life
        .engine
        .terminal_transcript(&session, ReadTranscript::default());
    let transcript = transcript.await.expect("the transcript stays");
    assert!(transcript.text.contains("last words"), "{transcript:?}");
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
    let watching = life.engine.attach_terminal(&session, None).await;
    let mut watching = watching.expect("somebody watches");
    let seat = life.engine.attach_terminal(&session, Some(size)).await;
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
    let back = life.engine.terminal_scrollback(&session, 5, true).await;
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
    assert_eq!(life.engine.list_terminals().await.expect("a list").len(), 1);
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
        let found = life.engine.list_terminals().await.expect("a list");
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
