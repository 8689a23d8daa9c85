//! `motu terminal` and a recorder in the place of its daemon.

mod people;
mod recordings;

use crate::stubbed::World;
use insta::assert_snapshot;
use motu_core::lists::TerminalList;
use motu_core::terminal::*;
use motu_core::{Error, Result, verb};
use motu_testkit::answers::{answer, in_state, known, made, opened, ready, screen};
use motu_testkit::story::filters;
use serde_json::{Value, json};

macro_rules! told {
    ($told:expr, @$text:literal) => {{
        let told = $told.to_string();
        let mut filters = filters();
        filters.push((r"\d+d ago", "N days ago"));
        insta::with_settings!({filters => filters}, { assert_snapshot!(told, @$text); });
    }};
}
pub(crate) use told;

#[test]
fn opening_says_everything_that_was_asked_for() {
    let world = World::new("terminal");
    let it = &world.recorder;
    it.on(|call: verb::OpenTerminal| opened(&call.ask));
    let line = "open db --sandbox ws-a --cwd /srv --size 120x40 --user app -e A=b=c \
        --user-files --prompt-regex ^>$ --quiescence-ms 20";
    let mut args: Vec<&str> = line.split_whitespace().collect();
    args.extend(["--shell", "zsh -l", "--description", "the database"]);
    let (verb, request) = world.sends(&args);
    assert_eq!(verb, "open_terminal");
    assert_eq!(
        request,
        json!([{
            "session_id": "db", "sandbox_id": "ws-a", "host": false, "cwd": "/srv",
            "command": ["zsh", "-l"], "env": {"A": "b=c"}, "user": "app", "user_files": true,
            "size": {"cols": 120, "rows": 40}, "description": "the database",
            "prompt_regex": "^>$", "quiescence_ms": 20,
        }])
    );
    told!(world.motu(&["open", "db shell"]), @"db shell is open: ready: the shell has drawn its prompt");
    told!(world.motu(&["open", "old", "--host"]), @"old was open: ready: the shell has drawn its prompt");
    assert_eq!(world.called().1[0]["host"], true);
    told!(world.motu(&["open", "over"]), @r#"
    ------- stderr -------
    error: "over" was terminated
    hint: its transcript stays until `motu terminal open "over"` makes a new session of that name
    [exit code: 105]
    "#);
}

#[test]
fn sessions_are_listed_and_described() {
    let world = World::new("terminal");
    let it = &world.recorder;
    it.on(|_: verb::ListTerminals| {
        let all = ["db shell", "over"].map(|name| known(&TerminalId::parse(name)?));
        Ok(TerminalList::new(all.into_iter().collect::<Result<_>>()?))
    });
    it.on(|call: verb::GetTerminal| known(&call.terminal));
    it.on(|call: verb::Configure| known(&call.terminal));
    it.on(|call: verb::TerminateTerminal| {
        Ok(Terminal {
            state: TerminalState::terminated(),
            ..known(&call.terminal)?
        })
    });
    told!(world.motu(&["list"]), @r#"
    ID        STATUS      PROMPT  FOREGROUND  SANDBOX    RUNTIME      SIZE   ACTIVE     DESCRIPTION
    db shell  ready       shell   bash        terminals  stub (none)  80x24  N days ago  the build
    over      terminated  none    bash        terminals  stub (none)  80x24  N days ago  the build
    "#);
    let listed = world.motu(&["list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed["sessions"][1]["status"], "terminated");
    told!(world.motu(&["status", "db shell"]), @r#"
    session       db shell
    description   the build
    state         ready: the shell has drawn its prompt
    prompt        shell
    confidence    certain
    sandbox       terminals
    runtime       stub (none)
    command       bash
    directory     /workspace
    foreground    bash (process 42)
    size          80 x 24
    title         a �title
    printed       12 B
    started       2023-11-14T22:13:20Z
    active        2023-11-14T22:13:20Z
    "#);
    assert_eq!(world.called(), ("get_terminal", json!(["db shell", null])));
    told!(world.motu(&["status", "missing"]), @r#"
    ------- stderr -------
    error: there is no session "missing"
    hint: `motu terminal list` shows them
    [exit code: 104]
    "#);
    let changed = world.sends(&["configure", "db", "--description", ""]);
    let change = json!(["db", {"description": ""}]);
    assert_eq!(changed, ("configure_terminal", change));
    let size = json!(["db", {"size": {"cols": 100, "rows": 30}}]);
    let resized = world.sends(&["resize", "db", "100x30"]);
    assert_eq!(resized, ("configure_terminal", size));
    told!(world.motu(&["terminate", "db"]), @"db is terminated");
    let killed = world.sends(&["kill", "a/b"]);
    assert_eq!(killed, ("terminate_terminal", json!(["a/b", null])));
}

/// The ways in which a run can come back.
fn ran(line: &str) -> TerminalAnswer {
    let in_state = |status, prompt, answer| TerminalAnswer {
        state: State::new(status, prompt, Confidence::High, "the test says so").into(),
        ..answer
    };
    let ended = |output, code| TerminalAnswer {
        exit_code: Some(code),
        ..answer(End::CommandEnded, output)
    };
    match line {
        "sudo" => {
            let asked = answer(End::WaitsForInput, "[sudo] password: ");
            in_state(Status::Password, Prompt::None, asked)
        }
        "python" => {
            let asked = answer(End::WaitsForInput, ">>> ");
            in_state(Status::Repl, Prompt::Python, asked)
        }
        "slow" => {
            let so_far = answer(End::TimedOut, "so far\n");
            in_state(Status::Running, Prompt::None, so_far)
        }
        "long" => TerminalAnswer {
            output_truncated: true,
            dropped_bytes: 90,
            rest_from: Some(10),
            rest_to: Some(100),
            warnings: vec!["mind the gap".to_string()],
            ..ended("head\n[...]\ntail\n", 0)
        },
        "exit" => TerminalAnswer {
            exit_code: Some(4),
            ..in_state(Status::Eof, Prompt::None, answer(End::SessionEnded, ""))
        },
        line => ended(&format!("{line}\n"), i32::from(line.starts_with("false"))),
    }
}

#[test]
fn a_run_ends_as_its_command_does() {
    let world = World::new("terminal");
    let it = &world.recorder;
    it.on(|call: verb::RunInTerminal| match known(&call.terminal)? {
        Terminal {
            state,
            alive: false,
            ..
        } => Ok(TerminalAnswer {
            state,
            ..answer(End::SessionEnded, "")
        }),
        _ => Ok(ran(&call.ask.command)),
    });
    told!(world.motu(&["run", "build", "echo", "two  words", "--json"]), @"echo two  words --json");
    let line = json!({"command": "echo two  words --json", "force": false});
    assert_eq!(world.called(), ("run_in_terminal", json!(["build", line])));
    told!(world.motu(&["run", "build", "--timeout", "1.5", "--", "false"]), @r#"
    false
    [exit code: 1]
    "#);
    assert_eq!(world.called().1[1]["timeout"], 1.5);
    told!(world.motu(&["run", "build", "slow"]), @r#"
    so far
    ------- stderr -------
    motu: running: the test says so
    [exit code: 124]
    "#);
    told!(world.motu(&["run", "build", "sudo"]), @r#"
    [sudo] password: ------- stderr -------

    motu: password: the test says so
    [exit code: 123]
    "#);
    told!(world.motu(&["run", "build", "python"]), @">>> ------- stderr -------");
    told!(world.motu(&["run", "db shell", "long"]), @r#"
    head
    [...]
    tail
    ------- stderr -------
    motu: mind the gap
    motu: 90 B left out; `motu terminal transcript 'db shell' --from 10 --max-bytes 90` has them
    "#);
    told!(world.motu(&["run", "build", "exit"]), @r#"
    ------- stderr -------
    motu: the session has ended
    [exit code: 4]
    "#);
    told!(world.motu(&["run", "over", "true"]), @r#"
    ------- stderr -------
    error: "over" was terminated
    hint: its transcript stays until `motu terminal open "over"` makes a new session of that name
    [exit code: 105]
    "#);
    assert_eq!(world.motu(&["run", "--json", "over", "true"]).code, 105);
    told!(world.motu(&["run", "missing", "true"]), @r#"
    ------- stderr -------
    error: there is no session "missing"
    hint: `motu terminal list` shows them
    [exit code: 104]
    "#);
    told!(world.motu(&["run", "--json", "build", "false"]), @r#"
    {
      "status": "ready",
      "prompt": "shell",
      "state_reason": "the shell has drawn its prompt",
      "confidence": "certain",
      "end": "command_ended",
      "output": "false\n",
      "timed_out": false,
      "output_truncated": false,
      "dropped_bytes": 0,
      "exit_code": 1,
      "duration_ms": "N",
      "cwd": "/workspace",
      "cursor": 99
    }
    [exit code: 1]
    "#);
}

#[test]
fn typing_takes_many_forms() {
    let world = World::new("terminal");
    let it = &world.recorder;
    it.always::<verb::SendToTerminal>(answer(End::Quiet, "typed\n"));
    it.always::<verb::SignalTerminal>(answer(End::Quiet, "Terminated\n"));
    it.always::<verb::PollTerminal>(answer(End::TimedOut, ""));
    told!(world.motu(&["send", "db", "-- select 1;", "--enter"]), @"typed");
    let sent = json!(["db", {"text": "-- select 1;\r"}]);
    assert_eq!(world.called(), ("send_to_terminal", sent));
    let (_, keys) = world.sends(&["send", "db", "--keys", "Up", "Enter"]);
    assert_eq!(keys, json!(["db", {"keys": ["Up", "Enter"]}]));
    let (_, control) = world.sends(&["send", "db", "--control", "c", "--timeout", "500ms"]);
    assert_eq!(control, json!(["db", {"control": "c", "timeout": 0.5}]));
    let told = world.fed(&["send", "db", "--paste-file", "-"], "a\nb\n");
    assert_eq!(told.code, 0, "{told}");
    assert_eq!(world.called().1, json!(["db", {"paste": "a\nb\n"}]));
    let (verb, signal) = world.sends(&["signal", "db", "TERM"]);
    assert_eq!(
        (verb, &signal[1]["signal"]),
        ("signal_terminal", &json!("TERM"))
    );
    assert_eq!(
        world.sends(&["poll", "db"]),
        ("poll_terminal", json!(["db", {}]))
    );
}

fn tell_of_passwords(world: &World) {
    world.recorder.on(
        |call: verb::SendPassword| match call.ask.password.as_str() {
            "shown" => Err(Error::conflict("the terminal would show it")
                .hint("wait for the question, or force it")),
            _ => Ok(answer(End::WaitsForInput, "welcome\n")),
        },
    );
}

#[test]
fn a_password_is_read_and_never_shown() {
    let world = World::new("terminal");
    tell_of_passwords(&world);
    told!(world.fed(&["password", "db"], "hunter2\n"), @"welcome");
    let sent = json!(["db", {"password": "hunter2", "force": false}]);
    assert_eq!(world.called(), ("send_terminal_password", sent));
    told!(world.fed(&["password", "db"], "shown"), @r#"
    ------- stderr -------
    error: the terminal would show it
    hint: wait for the question, or force it
    [exit code: 105]
    "#);
}

#[test]
fn expecting() {
    let world = World::new("terminal");
    let it = &world.recorder;
    it.on(|call: verb::ExpectInTerminal| {
        let Some(index) = call.ask.patterns.iter().position(|one| one != "never") else {
            return Ok(answer(End::TimedOut, "starting\n"));
        };
        let found = json!({
            "index": index, "text": "listening on 80", "groups": ["80", null],
            "before": "starting\n", "next_cursor": "c-1-7",
        });
        Ok(TerminalAnswer {
            found: Some(made(found)),
            ..answer(End::Matched, "starting\nlistening on 80")
        })
    });
    it.always::<verb::ExpectPrompt>(answer(End::WaitsForInput, "Last login: today\n"));
    told!(world.motu(&["expect", "web", "never", r"listening on (\d+)", "--timeout", "2m"]), @r#"
    starting
    listening on 80------- stderr -------

    pattern 1; next cursor: c-1-7
    "#);
    let (_, expect) = world.called();
    assert_eq!(
        expect[1]["patterns"],
        json!(["never", r"listening on (\d+)"])
    );
    assert_eq!(expect[1]["timeout"], 120.0);
    told!(world.motu(&["expect", "web", "never"]), @r#"
    starting
    [exit code: 124]
    "#);
    told!(world.motu(&["expect", "web", "--prompt"]), @"Last login: today");
    assert_eq!(world.called().0, "expect_terminal_prompt");
}

#[test]
fn mistakes_are_told_before_anything_is_sent() {
    let world = World::new("terminal");
    told!(world.motu(&["open", "a\nb"]), @r#"
    ------- stderr -------
    error: invalid value 'a
    b' for '<ID>': that is not a session_id (1 to 128 printable characters, such as `build` or `db shell`)

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu(&["open", "a", "--size", "80"]), @r#"
    ------- stderr -------
    error: invalid value '80' for '--size <COLSxROWS>': columns and rows, such as 120x40

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu(&["open", "a", "--host", "--sandbox", "sb"]), @r#"
    ------- stderr -------
    error: the argument '--host' cannot be used with '--sandbox <ID>'

    Usage: motu terminal open --host --home <DIR> <ID>

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu(&["run", "a"]), @r#"
    ------- stderr -------
    error: the following required arguments were not provided:
      <COMMAND>...

    Usage: motu terminal run --home <DIR> <ID> <COMMAND>...

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu(&["run", "a", "--timeout", "soon", "ls"]), @r#"
    ------- stderr -------
    error: invalid value 'soon' for '--timeout <TIME>': seconds, such as 30 or 0.5, or with a unit: 500ms, 30s, 2m

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu(&["send", "a"]), @r#"
    ------- stderr -------
    error: the following required arguments were not provided:
      <TEXT>

    Usage: motu terminal send --home <DIR> <ID> <TEXT>

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu(&["send", "a", "x", "--control", "c"]), @r#"
    ------- stderr -------
    error: the argument '[TEXT]' cannot be used with '--control <LETTER>'

    Usage: motu terminal send --home <DIR> <ID> <TEXT>

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu(&["expect", "a"]), @r#"
    ------- stderr -------
    error: the following required arguments were not provided:
      <PATTERN>...

    Usage: motu terminal expect --home <DIR> <ID> <PATTERN>...

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu(&["configure", "a"]), @r#"
    ------- stderr -------
    error: nothing is to be changed
    hint: give --description, --prompt-regex or --quiescence-ms
    [exit code: 102]
    "#);
    told!(world.motu(&["screen", "a", "--format", "gif"]), @r#"
    ------- stderr -------
    error: invalid value 'gif' for '--format <FORMAT>': there is no format "gif" (one of: text, ansi, html, svg, png)

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(world.motu(&["attach", "a"]), @r#"
    ------- stderr -------
    error: attach needs a terminal
    hint: programs use `motu terminal run`, `send` and `screen`
    [exit code: 102]
    "#);
    told!(world.motu(&["attach", "a", "--json"]), @r#"
    {
      "error": {
        "kind": "unsupported",
        "message": "there is no JSON of a live terminal",
        "hint": "programs use `motu terminal run`, `send` and `screen`"
      }
    }
    [exit code: 108]
    "#);
    told!(world.motu(&["record", "a", "--json"]), @r#"
    {
      "error": {
        "kind": "unsupported",
        "message": "a recording is already JSON, a line per event",
        "hint": "leave --json out"
      }
    }
    [exit code: 108]
    "#);
    told!(world.motu(&["send", "a", "--paste-file", "missing"]), @r#"
    ------- stderr -------
    error: read missing: no such file
    [exit code: 104]
    "#);
    assert_eq!(world.recorder.written(), []);
}

/// Where the files of a session are: in the directory of the story.
fn tell_of_transcripts(world: &World) {
    let directory = world.story.path().display().to_string();
    world.recorder.on(move |call: verb::TerminalTranscript| {
        let rest = json!({
            "directory": directory, "transcript": format!("{directory}/0.raw"),
            "recording": format!("{directory}/session.cast"),
            "interactions": format!("{directory}/log"), "metadata": format!("{directory}/session.json"),
            "text": "$ make\ndone\n",
            "from": call.ask.from.unwrap_or(3), "next_cursor": 15, "oldest": 3, "end": 20,
        });
        Ok(in_state(&ready(), rest))
    });
}

#[test]
fn looking() {
    let world = World::new("terminal");
    let it = &world.recorder;
    it.on(|call: verb::TerminalScreen| {
        let text = match call.ask.format {
            ScreenFormat::Text => "$ make\ndone\n$",
            ScreenFormat::Ansi => "$ make\n\u{1b}[32mdone\u{1b}[0m\n$",
            ScreenFormat::Html => "<pre>$ make</pre>\n",
            ScreenFormat::Svg => "<svg/>\n",
            // The first bytes of every picture of this kind.
            ScreenFormat::Png => "iVBORw0KGgo=",
        };
        Ok(screen(call.ask.format, text))
    });
    let rows = json!({
        "scrollback": "older\nnewer\n", "lines": 2, "total_lines": 9, "cols": 80, "rows": 24,
    });
    it.always::<verb::TerminalScrollback>(in_state(&ready(), rows));
    it.on(|call: verb::ClearScrollback| known(&call.terminal));
    tell_of_transcripts(&world);
    told!(world.motu(&["screen", "build"]), @r#"
    $ make
    done
    $
    "#);
    let ansi = world.motu(&["screen", "build", "--format", "ansi"]);
    assert_eq!(ansi.stdout, "$ make\n\u{1b}[32mdone\u{1b}[0m\n$\n");
    told!(world.motu(&["screen", "build", "--format", "png", "-o", "a.png"]), @"");
    let picture = std::fs::read(world.story.path().join("a.png")).unwrap();
    assert_eq!(picture, b"\x89PNG\r\n\x1a\n");
    told!(world.motu(&["screen", "build", "--format", "svg", "-o", "no/a.svg"]), @r#"
    ------- stderr -------
    error: write no/a.svg: its directory is not there
    [exit code: 104]
    "#);
    told!(world.motu(&["scrollback", "build"]), @r#"
    older
    newer
    "#);
    assert_eq!(
        world.called().1,
        json!(["build", {"lines": 200, "strip_ansi": true}])
    );
    let (_, rows) = world.sends(&["scrollback", "build", "--lines", "0", "--ansi"]);
    assert_eq!(rows, json!(["build", {"lines": 0, "strip_ansi": false}]));
    let (verb, _) = world.sends(&["scrollback", "build", "--clear"]);
    assert_eq!(verb, "clear_terminal_scrollback");
    told!(world.motu(&["transcript", "build"]), @r#"
    $ make
    done
    ------- stderr -------
    bytes 3 to 15 of 3 to 20
    "#);
    told!(world.motu(&["transcript", "build", "--paths"]), @r#"
    directory     $HOME
    transcript    $HOME/0.raw
    recording     $HOME/session.cast
    interactions  $HOME/log
    metadata      $HOME/session.json
    "#);
    assert_eq!(world.called().1, json!(["build", {"max_bytes": 0}]));
}
