//! Typical use of terminals, on real machines.

use insta::assert_snapshot;
use motu_testkit::story::{Story, Told, filters};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

macro_rules! told {
    ($told:expr, @$text:literal) => {{
        let told = $told.to_string();
        insta::with_settings!({filters => filters()}, { assert_snapshot!(told, @$text); });
    }};
}

/// A story with `debian:12`, which all tests share and which is built once.
fn story() -> Option<Story> {
    Story::with_debian("container")
}

/// `motu terminal` with these arguments.
fn terminal(story: &Story, args: &[&str]) -> Told {
    let mut command = story.command(&["terminal"]);
    command.args(args);
    story.told(command)
}

fn json(story: &Story, args: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend(args);
    let told = terminal(story, &all);
    serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{args:?}: {told}"))
}

/// Sends a secret on standard input.
fn password(story: &Story, id: &str, secret: &str) -> Told {
    let mut command = story.command(&["terminal", "password", id]);
    command.stdin(Stdio::piped());
    let mut child = spawn(&mut command);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(secret.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    Told {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn a_session_runs_asks_shows_and_is_replayed() {
    let Some(story) = story() else { return };
    let motu = |args: &[&str]| terminal(&story, args);
    let opened = json(&story, &["open", "build", "--description", "the build"]);
    assert_eq!(opened["created"], true, "{opened}");
    assert_eq!(opened["sandbox_id"], "terminals");
    assert_eq!(opened["isolation"], "container");
    assert_eq!(json(&story, &["open", "build"])["created"], false);

    // A command's own output, and its exit code.
    told!(motu(&["run", "build", "echo hi; cd /tmp; sh -c 'exit 3'"]), @r#"
    hi
    [exit code: 3]
    "#);
    told!(motu(&["run", "build", "pwd"]), @"/tmp");
    let answer = json(&story, &["run", "build", "echo $?"]);
    assert_eq!(answer["confidence"], "certain", "{answer}");
    assert_eq!(
        (&answer["status"], &answer["end"]),
        (&"ready".into(), &"command_ended".into())
    );

    // A prompt, refused answers and an accepted one; the secret appears nowhere.
    let ask = "read -rsp 'Password: ' p; echo; echo got ${#p}";
    let asked = motu(&["run", "build", ask]);
    assert_eq!(
        (asked.code, asked.stdout.trim()),
        (123, "Password:"),
        "{asked}"
    );
    assert_eq!(json(&story, &["status", "build"])["status"], "password");
    let given = password(&story, "build", "hunter22\n");
    assert!(given.stdout.contains("got 8"), "{given}");
    let refused = password(&story, "build", "hunter22\n");
    assert_ne!(refused.code, 0, "{refused}");

    // The screen, as text and as an image.
    let screen = motu(&["screen", "build"]);
    assert!(screen.stdout.contains("got 8"), "{screen}");
    let picture = motu(&["screen", "build", "--format", "png", "-o", "screen.png"]);
    assert_eq!(picture.code, 0, "{picture}");
    let picture = std::fs::read(story.path().join("screen.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 500);

    // The recording, as a file and when replayed; the secret is in neither, nor in the session's
    // files.
    let recorded = motu(&["record", "build", "-o", "build.cast"]);
    assert_eq!(recorded.code, 0, "{recorded}");
    let played = motu(&["replay", "build.cast", "--speed", "1000"]);
    assert!(played.stdout.contains("got 8"), "{played}");
    let directory = story.home().join("terminals").join("build");
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("hunter22"), "{}", path.display());
    }

    told!(motu(&["terminate", "build"]), @"build is terminated");
    told!(motu(&["run", "build", "true"]), @r#"
    ------- stderr -------
    error: "build" was terminated
    hint: its transcript stays until `motu terminal open "build"` makes a new session of that name
    [exit code: 105]
    "#);
    // It is as the hint says.
    assert_eq!(motu(&["transcript", "build"]).code, 0);
    assert_eq!(json(&story, &["open", "build"])["created"], true);
    let afresh = motu(&["transcript", "build"]);
    assert!(!afresh.stdout.contains("got 8"), "{afresh}");
    told!(motu(&["run", "other", "true"]), @r#"
    ------- stderr -------
    error: there is no terminal session other
    hint: `motu terminal list` shows them
    [exit code: 104]
    "#);
}

#[test]
fn somebody_watches_while_a_command_runs() {
    let Some(story) = story() else { return };
    assert_eq!(terminal(&story, &["open", "w", "--size", "60x10"]).code, 0);
    let mut watch = spawn(&mut story.command(&["terminal", "attach", "w", "--watch"]));
    let mut seen = watch.stdout.take().unwrap();
    let mut text = String::new();
    let mut sees = |what: &str| {
        let mut buffer = [0; 512];
        while !text.contains(what) {
            let length = seen.read(&mut buffer).unwrap();
            assert!(length > 0, "{what:?} is not in {text:?}");
            text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    };
    // Wait until it is attached: the screen comes first.
    sees("$");
    let run = spawn(&mut story.command(&[
        "terminal",
        "run",
        "w",
        "for i in 1 2 3; do echo step-$i; sleep 0.2; done",
    ]));
    sees("step-1");
    sees("step-3");
    let run = run.wait_with_output().unwrap();
    let output = String::from_utf8(run.stdout).unwrap();
    assert!(
        output.contains("step-1") && output.contains("step-3"),
        "{output}"
    );
    // Another command while one runs, and an interrupt.
    let slow = spawn(&mut story.command(&["terminal", "run", "w", "sleep 60"]));
    wait_for(|| json(&story, &["status", "w"])["status"] == "running");
    let busy = terminal(&story, &["run", "w", "echo no", "--timeout", "1"]);
    assert_ne!(busy.code, 0, "{busy}");
    assert_eq!(terminal(&story, &["send", "w", "--control", "c"]).code, 0);
    assert_eq!(slow.wait_with_output().unwrap().status.code(), Some(130));
    assert_eq!(terminal(&story, &["terminate", "w"]).code, 0);
    sees("sleep 60");
    assert_eq!(watch.wait().unwrap().code(), Some(0));
}

#[test]
fn a_session_outlives_its_daemon() {
    let Some(story) = story() else { return };
    assert_eq!(terminal(&story, &["open", "db shell"]).code, 0);
    let before = json(&story, &["run", "db shell", "x=kept; echo $$"]);
    assert_eq!(before["exit_code"], 0, "{before}");
    kill_daemon(&story);
    let after = json(&story, &["run", "db shell", "echo $$; test $x = kept"]);
    assert_eq!(after["exit_code"], 0, "{after}");
    assert_eq!(after["output"], before["output"]);
    let listed = json(&story, &["list"]);
    assert_eq!(listed["sessions"][0]["session_id"], "db shell");
    let played = terminal(&story, &["replay", "db shell", "--speed", "1000"]);
    assert_eq!(played.stdout.matches("echo $$").count(), 2, "{played}");
}

fn kill_daemon(story: &Story) {
    let version: Value = serde_json::from_str(&story.motu(&["version", "--json"]).stdout).unwrap();
    let pid = version["daemon"]["pid"]
        .as_i64()
        .unwrap_or_else(|| panic!("{version}"));
    let pid = Pid::from_raw(pid as i32).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    wait_for(|| test_kill_process(pid).is_err());
}

fn wait_for(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "it does not come"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
