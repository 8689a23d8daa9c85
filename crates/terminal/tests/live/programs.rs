//! Real programs in a real shell, and their classification.

use crate::local::{Local, PATIENCE, installed, shell, skip};
use motu_terminal::classify::{Prompt, Status};
use motu_terminal::expect::Pattern;
use motu_terminal::integration::{Shell, Startup};
use motu_terminal::record::{CastHeader, Recorder, TranscriptLimits};
use motu_terminal::session::{End, Expect, Outcome, Poll, SendPassword, Shape};
use motu_terminal::{Size, TerminalError};
use std::time::Duration;

fn bash() -> Local {
    shell(Shell::Bash, Startup::Bare, &[]).unwrap()
}

/// A bash, if the program is here.
fn with(program: &str) -> Option<Local> {
    if installed(program) {
        return Some(bash());
    }
    skip(&format!("terminal: {program} is not installed"));
    None
}

#[track_caller]
fn waits(outcome: &Outcome, status: Status, prompt: Prompt) {
    assert_eq!(
        (outcome.end, outcome.state.status, outcome.state.prompt),
        (End::WaitsForInput, status, prompt),
        "{}: {:?}",
        outcome.state.reason,
        outcome.output.text
    );
}

fn expect(local: &mut Local, pattern: &str, timeout: Duration) -> Outcome {
    let expect = Expect {
        patterns: vec![Pattern::Regex(pattern.into())],
        timeout,
        from: None,
        raw: false,
        echo: false,
        shape: Shape::default(),
    };
    let now = local.now();
    let ticket = local.session.expect(&expect, now).unwrap();
    local.wait(ticket)
}

#[test]
fn python_and_its_debugger() {
    let Some(mut local) = with("python3") else {
        return;
    };
    waits(
        &local.run("PYTHON_BASIC_REPL=1 python3 -q"),
        Status::Repl,
        Prompt::Python,
    );
    let sum = local.run("print(6 * 7)");
    waits(&sum, Status::Repl, Prompt::Python);
    assert_eq!(sum.output.text, "42\n");
    let asked = local.run("x = input('Your name: ')");
    assert_eq!(
        (asked.end, asked.state.status),
        (End::WaitsForInput, Status::Confirm),
        "{}",
        asked.state.reason
    );
    local.run("me");
    let left = local.run("exit(5)");
    assert_eq!((left.end, left.exit_code), (End::CommandEnded, Some(5)));

    std::fs::write(local.home.path().join("a.py"), "a = 1\nb = 2\n").unwrap();
    waits(&local.run("python3 -m pdb a.py"), Status::Repl, Prompt::Pdb);
    let step = local.run("n");
    waits(&step, Status::Repl, Prompt::Pdb);
    assert!(step.output.text.contains("b = 2"), "{:?}", step.output.text);
    assert_eq!(local.run("q").end, End::CommandEnded);
}

#[test]
fn node_and_sqlite() {
    if let Some(mut local) = with("node") {
        waits(&local.run("node"), Status::Repl, Prompt::Node);
        let sum = local.run("6 * 7");
        waits(&sum, Status::Repl, Prompt::Node);
        assert!(sum.output.text.contains("42"), "{:?}", sum.output.text);
        assert_eq!(local.run(".exit").end, End::CommandEnded);
    }
    if let Some(mut local) = with("sqlite3") {
        waits(&local.run("sqlite3"), Status::Repl, Prompt::Sqlite);
        let row = local.run("select 6 * 7;");
        assert_eq!(row.output.text, "42\n");
        assert_eq!(local.run(".quit").end, End::CommandEnded);
    }
}

#[test]
fn editors_and_pagers() {
    if let Some(mut local) = with("vim") {
        waits(
            &local.run("vim -u NONE -N note.txt"),
            Status::Editor,
            Prompt::None,
        );
        assert!(local.session.view().modes.alternate_screen);
        let insert = local.send("ihello from vim");
        assert_eq!(insert.state.status, Status::Editor);
        // On a busy machine it may draw after the quiet time.
        local.until(|local| local.session.view().text().starts_with("hello from vim"));
        local.keys(&["Esc"]);
        assert_eq!(local.send(":wq\r").end, End::CommandEnded);
        assert_eq!(local.run("cat note.txt").output.text, "hello from vim\n");
        let text = local.session.view().text();
        assert!(
            !text.contains(
                "
~
"
            ),
            "the editor is still there:
{text}"
        );
    }
    if let Some(mut local) = with("nano") {
        waits(&local.run("nano -I note.txt"), Status::Editor, Prompt::None);
        local.send("text");
        local.keys(&["Ctrl-X"]);
        local.send("n");
        assert_eq!(local.run("echo left").output.text, "left\n");
    }
    if let Some(mut local) = with("less") {
        waits(&local.run("seq 1 500 | less"), Status::Pager, Prompt::None);
        local.keys(&["PageDown"]);
        assert!(
            local.session.view().text().starts_with("24\n"),
            "{}",
            local.session.view().text()
        );
        assert_eq!(local.send("q").end, End::CommandEnded);
    }
    if let Some(mut local) = with("top") {
        waits(&local.run("top"), Status::Editor, Prompt::None);
        assert_eq!(local.send("q").end, End::CommandEnded);
    }
}

#[test]
fn programs_that_wait_say_for_what() {
    let mut local = bash();
    let cat = local.run("cat");
    assert_eq!(
        (cat.end, cat.state.status),
        (End::WaitsForInput, Status::Unknown),
        "{}",
        cat.state.reason
    );
    let echoed = local.send("hello\r");
    assert!(echoed.output.text.contains("hello"));
    assert_eq!(local.keys(&["Ctrl-D"]).end, End::CommandEnded);
    waits(
        &local.run("read -p 'Overwrite? (y/N) ' answer"),
        Status::Confirm,
        Prompt::None,
    );
    local.send("y\r");
    waits(&local.run("sh"), Status::Ready, Prompt::Shell);
    assert_eq!(local.run("echo nested").output.text, "nested\n");
    assert_eq!(local.run("exit 3").exit_code, Some(3));
    waits(&local.run("bash --norc"), Status::Ready, Prompt::Shell);
    assert_eq!(local.run("echo nested").output.text, "nested\n");
    local.run("exit");
}

#[test]
fn a_password_goes_in_and_never_comes_out() {
    const SECRET: &str = "correct-horse-battery";
    let mut local = bash();
    let place = tempfile::tempdir().unwrap();
    let header = CastHeader::new(Size::default(), 1);
    let mut recorder =
        Recorder::create(place.path(), &header, TranscriptLimits::default()).unwrap();
    let send = |force| SendPassword {
        password: SECRET.into(),
        timeout: PATIENCE,
        force,
    };

    // At a prompt it would be run and displayed.
    let now = local.now();
    let refused = local.session.send_password(&send(false), now).unwrap_err();
    assert!(matches!(refused, TerminalError::EchoOn { .. }));

    waits(
        &local.run("read -s -p 'Password: ' pw"),
        Status::Password,
        Prompt::None,
    );
    let now = local.now();
    let ticket = local.session.send_password(&send(false), now).unwrap();
    let sent = local.wait(ticket);
    assert_eq!(sent.end, End::CommandEnded);
    // The program got it; output that contains it is redacted.
    assert_eq!(local.run("echo ${#pw}").output.text, "21\n");
    assert_eq!(
        local.run("echo \"got $pw\"").output.text,
        "got [redacted]\n"
    );

    // Even if it is typed as a command.
    assert_eq!(
        local.run(&format!("echo {SECRET}")).output.text,
        "[redacted]\n"
    );

    // With echo on it is refused; forced, it is redacted.
    local.run("cat");
    let now = local.now();
    assert!(local.session.send_password(&send(false), now).is_err());
    let ticket = local.session.send_password(&send(true), now).unwrap();
    local.wait(ticket);
    local.keys(&["Ctrl-C"]);

    recorder.write(&local.session.take_records()).unwrap();
    recorder.finish(Some(0), local.now()).unwrap();
    let screen = local.session.screen();
    let mut everything = screen.full_text();
    for entry in std::fs::read_dir(place.path()).unwrap() {
        let path = entry.unwrap().path();
        everything.push_str(&String::from_utf8_lossy(&std::fs::read(path).unwrap()));
    }
    assert!(everything.contains("[redacted]"));
    assert!(everything.contains("password"));
    assert!(!everything.contains(SECRET) && !everything.contains("correct-horse"));
}

#[test]
fn expect_sees_output_and_not_the_echo() {
    let mut local = bash();
    let early = local
        .try_run(
            "until [ -e go ]; do sleep 0.02; done; echo BUILD_DONE",
            Duration::from_millis(300),
        )
        .unwrap();
    assert_eq!(early.end, End::TimedOut);
    let found = expect(&mut local, "BUILD_DONE", Duration::from_millis(200));
    assert_eq!(found.end, End::TimedOut, "it matched its own echo");
    std::fs::write(local.home.path().join("go"), "").unwrap();
    let found = expect(&mut local, "BUILD_DONE", PATIENCE);
    assert_eq!(found.end, End::Matched);
    // It is still on the screen.
    assert_eq!(expect(&mut local, "BUILD_DONE", PATIENCE).end, End::Matched);
    // Nor is the echo of a program's terminal output.
    local.run("cat >/dev/null");
    local.send("needle\r");
    assert_eq!(
        expect(&mut local, "needle", Duration::from_millis(200)).end,
        End::TimedOut
    );
    local.keys(&["Ctrl-C"]);
    local.run("cat");
    local.send("needle\r");
    assert_eq!(expect(&mut local, "needle", PATIENCE).end, End::Matched);
    local.keys(&["Ctrl-C"]);
}

#[test]
fn expect_sees_what_the_background_prints_at_the_prompt() {
    let mut local = bash();
    let started = local.run("(sleep 0.4; echo BG_READY) &");
    assert_eq!(started.end, End::CommandEnded);
    let found = expect(&mut local, "BG_READY", PATIENCE);
    assert_eq!(found.end, End::Matched);
    assert_eq!(
        found.state.status,
        Status::Ready,
        "an idle shell stays ready"
    );
    assert_eq!(local.run("echo next").output.text, "next\n");
}

#[test]
fn looking_and_polling_during_a_run() {
    let mut local = bash();
    let now = local.now();
    let run = motu_terminal::session::Run::new("echo first; sleep 1; echo second", PATIENCE);
    let ticket = local.session.run(run, now).unwrap();
    let poll = Poll {
        timeout: PATIENCE,
        shape: Shape::default(),
    };
    let polled = local.session.poll(poll, now).unwrap();
    let first = local.wait(polled);
    assert!(
        first.output.text.contains("first"),
        "{:?}",
        first.output.text
    );
    assert!(local.session.view().text().contains("first"));
    let again = motu_terminal::session::Run::new("echo no", PATIENCE);
    let now = local.now();
    assert_eq!(
        local.session.run(again, now).unwrap_err(),
        TerminalError::Busy
    );
    assert_eq!(local.wait(ticket).output.text, "first\nsecond\n");
}

#[test]
fn much_output_is_cut_in_the_middle_and_can_be_read_on() {
    let mut local = bash();
    let outcome = local.run("seq 1 20000");
    assert!(outcome.output.truncated);
    assert!(outcome.output.text.starts_with("1\n2\n"));
    assert!(outcome.output.text.ends_with("19999\n20000\n"));
    let from = outcome.output.rest_from.unwrap();
    let (text, next) = local
        .session
        .read(from, outcome.output.rest_to.unwrap(), Shape::default())
        .unwrap();
    let last = outcome
        .output
        .text
        .split("[...")
        .next()
        .unwrap()
        .lines()
        .last()
        .unwrap()
        .parse::<u32>()
        .unwrap();
    assert!(
        text.starts_with(&format!("{}\n", last + 1)),
        "{last}: {}",
        &text[..20]
    );
    assert!(next > from);
}

#[test]
fn a_progress_bar_is_its_last_state() {
    let mut local = bash();
    let bar = r"for i in 10 50 100; do printf '\r%3d%% [%-10s]' $i $(printf '#%.0s' $(seq $((i/10)))); sleep 0.05; done; echo";
    assert_eq!(local.run(bar).output.text, "100% [##########]\n");
}

#[test]
fn the_size_can_change() {
    let mut local = bash();
    local.resize(Size::new(40, 10));
    assert_eq!(local.run("stty size").output.text, "10 40\n");
    let long = "y".repeat(100);
    assert_eq!(
        local.run(&format!("echo {long}")).output.text,
        format!("{long}\n")
    );
    local.resize(Size::new(120, 30));
    assert!(
        local.session.view().text().contains(&long),
        "the line is one row again"
    );
}
