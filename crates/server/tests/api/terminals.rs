//! Every verb of terminals: what the client sends is what the service gets, and its answer comes back.

use super::*;
use futures_util::SinkExt;
use motu_core::limits;
use motu_core::lists::TerminalList;
use motu_core::terminal::*;
use motu_testkit::answers as made;
use serde_json::json;
use std::collections::BTreeMap;

/// Names that must be encoded wherever they stand in an address.
const NAMES: [&str; 6] = [
    "build",
    "db shell",
    "a/b %2f?#",
    "..",
    "\u{6f22}\u{1f30a}",
    "run",
];

fn named(name: &str) -> TerminalId {
    TerminalId::parse(name).unwrap()
}

#[tokio::test]
async fn the_life_of_a_session() {
    let world = world();
    let request = OpenTerminal {
        session_id: "db shell".to_string(),
        sandbox_id: Some(id()),
        host: true,
        cwd: Some("/srv".to_string()),
        command: vec!["zsh".to_string(), "-l".to_string()],
        env: BTreeMap::from([("K".to_string(), "v=w".to_string())]),
        user_files: true,
        size: Some(TtySize {
            cols: 120,
            rows: 40,
        }),
        prompt_regex: Some("^> $".to_string()),
        quiescence_ms: Some(20),
        ..OpenTerminal::default()
    };
    let opened = TerminalOpened {
        created: true,
        terminal: made::terminal(&named("db shell")),
    };
    verb!(world.open_terminal(request.clone()) of OpenTerminal gets [request], answers opened);
    let all = TerminalList::new(vec![
        made::terminal(&named("db shell")),
        made::terminal(&named("over")),
    ]);
    verb!(world.list_terminals(Default::default()) of ListTerminals gets [{}], answers all);
    let change = ConfigureTerminal {
        description: Some(String::new()),
        size: Some(TtySize { cols: 2, rows: 1 }),
        ..ConfigureTerminal::default()
    };
    for name in NAMES {
        let id = named(name);
        let one = made::terminal(&id);
        verb!(world.get_terminal(&id) of GetTerminal gets [name, null], answers one);
        verb!(world.configure_terminal(&id, change.clone()) of Configure gets [name, change], answers one);
        verb!(world.clear_terminal_scrollback(&id) of ClearScrollback gets [name, null], answers one);
    }
    let over = made::terminal(&named("over"));
    assert_eq!(over.state, TerminalState::terminated());
    verb!(world.terminate_terminal(&named("a/b")) of TerminateTerminal gets ["a/b", null],
        answers over);
    let it = &world.recorder;
    it.on(|call: verb::GetTerminal| made::known(&call.terminal));
    let error = world.client.get_terminal(&named("missing")).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.hint.is_some());
}

#[tokio::test]
async fn typing_and_waiting() {
    let world = world();
    let wait = Wait {
        timeout: Some(0.25),
        strip_ansi: Some(false),
        max_output_bytes: Some(512),
    };
    let build = named("build");
    let run = RunInTerminal {
        command: "false \u{1}'\"".to_string(),
        force: true,
        wait,
    };
    let ended = TerminalAnswer {
        exit_code: Some(1),
        ..made::answer(End::CommandEnded, "false\n")
    };
    verb!(world.run_in_terminal(&build, run.clone()) of RunInTerminal
        gets ["build", {"command": "false \u{1}'\"", "force": true,
            "timeout": 0.25, "strip_ansi": false, "max_output_bytes": 512}], answers ended);
    let send = SendToTerminal {
        keys: Some(vec!["Up".to_string(), "Enter".to_string()]),
        wait,
        ..SendToTerminal::default()
    };
    verb!(world.send_to_terminal(&build, send.clone()) of SendToTerminal gets ["build", send],
        answers made::answer(End::Quiet, "typed\n"));
    let password = TerminalPassword {
        password: "hunter2".to_string(),
        force: false,
        wait,
    };
    verb!(world.send_terminal_password(&build, password.clone()) of SendPassword gets ["build", password],
        answers made::answer(End::WaitsForInput, "welcome\n"));
    let signal = SignalTerminal {
        signal: "TERM".to_string(),
        wait,
    };
    verb!(world.signal_terminal(&build, signal.clone()) of SignalTerminal gets ["build", signal],
        answers made::answer(End::Quiet, "Terminated\n"));
    let poll = PollTerminal { wait };
    verb!(world.poll_terminal(&build, poll) of PollTerminal gets ["build", poll],
        answers made::answer(End::TimedOut, ""));
    let expect = ExpectInTerminal {
        patterns: vec!["never".to_string(), r"listening on (\d+)".to_string()],
        from: Some("c-1-2".to_string()),
        echo: true,
        wait,
        ..ExpectInTerminal::default()
    };
    let found = TerminalMatch {
        index: 1,
        text: "listening on 80".to_string(),
        groups: vec![Some("80".to_string()), None],
        before: "starting\n".to_string(),
        next_cursor: "c-1-7".to_string(),
    };
    let matched = TerminalAnswer {
        found: Some(found),
        ..made::answer(End::Matched, "starting\nlistening on 80")
    };
    verb!(world.expect_in_terminal(&build, expect.clone()) of ExpectInTerminal
        gets ["build", expect], answers matched);
    verb!(world.expect_terminal_prompt(&build, wait) of ExpectPrompt gets ["build", wait],
        answers made::answer(End::WaitsForInput, "Last login: today\n"));
}

#[tokio::test]
async fn a_paste_at_its_limit_fits_however_it_is_escaped() {
    let world = world();
    let send = SendToTerminal {
        // JSON writes each of these as six bytes.
        paste: Some("\u{1}".repeat(2 << 20)),
        ..SendToTerminal::default()
    };
    let build = named("build");
    world
        .recorder
        .always::<verb::SendToTerminal>(made::answer(End::Quiet, "typed\n"));
    within(world.client.send_to_terminal(&build, send))
        .await
        .unwrap();
}

#[tokio::test]
async fn looking() {
    let world = world();
    let build = named("build");
    for (name, format) in [("text", ScreenFormat::Text), ("png", ScreenFormat::Png)] {
        verb!(world.terminal_screen(&build, format.into()) of TerminalScreen
            gets ["build", {"format": name}], answers made::screen(format, "$ make\ndone\n$"));
    }
    let rows: TerminalScrollback = made::in_state(
        &made::ready(),
        json!({"scrollback": "older\n", "lines": 1, "total_lines": 9, "cols": 80, "rows": 24}),
    );
    let all = ReadScrollback {
        lines: 0,
        strip_ansi: false,
    };
    verb!(world.terminal_scrollback(&build, all) of TerminalScrollback
        gets ["build", {"lines": 0, "strip_ansi": false}], answers rows);
    let read = ReadTranscript {
        from: Some(5),
        max_bytes: Some(0),
        strip_ansi: Some(false),
    };
    let transcript: TerminalTranscript = made::in_state(
        &made::ready(),
        json!({
            "directory": "/t", "transcript": "/t/0.raw", "recording": "/t/session.cast",
            "interactions": "/t/log", "text": "$ make\ndone\n", "from": 5, "next_cursor": 15,
            "oldest": 3, "end": 20,
        }),
    );
    verb!(world.terminal_transcript(&build, read) of TerminalTranscript
        gets ["build", read], answers transcript);

    world.recorder.on(|call: verb::TerminalRecording| {
        made::known(&call.terminal)?;
        let pieces = ["{\"version\":3}\n", "[0.1, \"o\", \"a\"]\n"];
        Ok(stream::iter(pieces.map(|piece| Ok(piece.into()))).boxed())
    });
    let recording = world.client.terminal_recording(&build).await.unwrap();
    let pieces: Vec<_> = within(recording.map(Result::unwrap).collect()).await;
    assert_eq!(pieces.concat(), b"{\"version\":3}\n[0.1, \"o\", \"a\"]\n");
    let error = world.client.terminal_recording(&named("missing")).await;
    assert_eq!(error.err().unwrap().kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn a_seat_types_and_a_watcher_has_no_size() {
    let world = world();
    let size = TtySize { cols: 99, rows: 9 };
    let id = named("a b");
    let mut session = world
        .client
        .attach_terminal(&id, (Some(size)).into())
        .await
        .unwrap();
    assert_eq!(world.called(), ("attach_terminal", json!(["a b", size])));
    session.events.next().await.unwrap().unwrap();
    let screen = session.events.next().await.unwrap().unwrap();
    assert_eq!(screen, ExecEvent::Stdout("the screen\r\n".into()));
    session.input.send(ExecInput::Resize(size)).await.unwrap();
    let echoed = within(session.events.next()).await.unwrap().unwrap();
    assert_eq!(echoed, ExecEvent::Stdout("99x9\n".into()));

    let session = world
        .client
        .attach_terminal(&named("a b"), None.into())
        .await;
    drop(session.unwrap());
    assert_eq!(world.called(), ("attach_terminal", json!(["a b", {}])));
    let half = "POST /v1/terminals/x/stream?cols=70 HTTP/1.1";
    let answer = world.raw(half, "").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("half of a size"), "{answer}");
}

#[tokio::test]
async fn a_session_over_a_websocket() {
    use tokio_tungstenite::tungstenite::Message;
    let world = world();
    let stream = UnixStream::connect(&world.socket).await.unwrap();
    let address = "ws://motu/v1/terminals/db%20shell/stream/ws?cols=70&rows=20";
    let (mut socket, _) = tokio_tungstenite::client_async(address, stream)
        .await
        .unwrap();
    let attached = json!(["db shell", {"cols": 70, "rows": 20}]);
    assert_eq!(world.called(), ("attach_terminal", attached));
    socket.next().await.unwrap().unwrap();
    socket.next().await.unwrap().unwrap();
    let typed = Message::binary(&b"\x01\x00\x00\x00\x02hi"[..]);
    socket.send(typed).await.unwrap();
    let echoed = within(socket.next()).await.unwrap().unwrap().into_data();
    assert_eq!(echoed, &b"\x01\x00\x00\x00\x02hi"[..]);
}

#[tokio::test]
async fn a_wait_ends_with_whoever_waits() {
    let world = world();
    let run = RunInTerminal {
        command: "wait".to_string(),
        ..RunInTerminal::default()
    };
    let build = named("build");
    let (it, sessions) = (&world.recorder, world.sessions.clone());
    it.on_with(move |_: verb::RunInTerminal, ()| sessions.forever());
    let call = world.client.run_in_terminal(&build, run);
    let gave_up = tokio::time::timeout(Duration::from_millis(100), call).await;
    assert!(gave_up.is_err());
    within(world.sessions.killed.notified()).await;
    within(world.activity.idle_for(Duration::ZERO)).await;
}

#[tokio::test]
async fn what_nobody_knows_is_refused_by_name() {
    let world = world();
    for (path, body) in [
        ("POST /v1/terminals", r#"{"session_id":"a","colour":1}"#),
        ("PATCH /v1/terminals/a", r#"{"colour":1}"#),
        (
            "POST /v1/terminals/a/run",
            r#"{"command":"ls","timeout":1,"colour":1}"#,
        ),
        ("POST /v1/terminals/a/input", r#"{"text":"a","colour":1}"#),
        (
            "POST /v1/terminals/a/password",
            r#"{"password":"a","colour":1}"#,
        ),
        (
            "POST /v1/terminals/a/signal",
            r#"{"signal":"INT","colour":1}"#,
        ),
        ("POST /v1/terminals/a/poll", r#"{"colour":1}"#),
        (
            "POST /v1/terminals/a/expect",
            r#"{"patterns":["a"],"colour":1}"#,
        ),
        ("POST /v1/terminals/a/expect-prompt", r#"{"colour":1}"#),
        ("GET /v1/terminals/a/screen?colour=1", ""),
        ("GET /v1/terminals/a/scrollback?colour=1", ""),
        ("GET /v1/terminals/a/transcript?colour=1", ""),
    ] {
        let answer = world.raw(&format!("{path} HTTP/1.1"), body).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
        assert!(answer.contains(r#""kind":"invalid""#), "{path}: {answer}");
        assert!(
            answer.contains("unknown field `colour`"),
            "{path}: {answer}"
        );
    }
    assert_eq!(world.recorder.written(), []);
    for path in [
        "GET /v1/terminals/a%0ab",
        "GET /v1/terminals/%ff",
        "GET /v1/terminals/a/screen?format=gif",
    ] {
        let answer = world.raw(&format!("{path} HTTP/1.1"), "").await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn what_is_left_out_has_its_default() {
    let world = world();
    let it = &world.recorder;
    it.on(|call: verb::OpenTerminal| made::opened(&call.ask));
    let answer = world
        .raw("POST /v1/terminals HTTP/1.1", r#"{"session_id":"new"}"#)
        .await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let answer = world
        .raw("POST /v1/terminals HTTP/1.1", r#"{"session_id":"old"}"#)
        .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    world.called();
    world.raw("GET /v1/terminals/a/screen HTTP/1.1", "").await;
    assert_eq!(
        world.called(),
        ("terminal_screen", json!(["a", {"format": "text"}]))
    );
    world
        .raw("GET /v1/terminals/a/scrollback HTTP/1.1", "")
        .await;
    let usual = limits::TERMINAL_SCROLLBACK_LINES.default;
    let got = json!(["a", {"lines": usual, "strip_ansi": true}]);
    assert_eq!(world.called(), ("terminal_scrollback", got));
    world.raw("POST /v1/terminals/a/poll HTTP/1.1", "{}").await;
    assert_eq!(world.called(), ("poll_terminal", json!(["a", {}])));
}

/// What one verb costs besides its work. Run with `--no-capture` to see it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verb_is_one_short_request() {
    let world = world();
    let ended = made::answer(End::CommandEnded, "true\n");
    world.recorder.always::<verb::RunInTerminal>(ended);
    let build = named("build");
    let mut times = Vec::new();
    for _ in 0..400 {
        let run = RunInTerminal {
            command: "true".to_string(),
            ..RunInTerminal::default()
        };
        let begun = std::time::Instant::now();
        world.client.run_in_terminal(&build, run).await.unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    let at = |part: usize| times[times.len() * part / 100];
    eprintln!("one verb: p50 {:?}, p99 {:?}", at(50), at(99));
    // A tenth of the budget of a run would be generous on a quiet machine; this one is shared.
    assert!(at(50) < Duration::from_millis(4), "p50 {:?}", at(50));
}
