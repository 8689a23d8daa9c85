//! Output that cannot be written: a full device is an error, a reader that has gone away is none.

use motu_testkit::story::Story;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// What a command says, and its exit code, when standard output is a full device.
fn on_a_full_device(story: &Story, command: &[&str]) -> (Option<i32>, String) {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let ran = story.command(command).stdout(full.unwrap()).output();
    let ran = ran.unwrap();
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    (ran.status.code(), told)
}

fn is_told_as_lost(story: &Story, command: &[&str]) {
    let (code, told) = on_a_full_device(story, command);
    assert_eq!(code, Some(106), "{command:?}: {told}");
    assert!(told.contains("its device is full"), "{command:?}: {told}");
    // The full device is somebody's own; space in the state directory would not help.
    assert!(!told.contains("MOTU_HOME"), "{command:?}: {told}");
}

#[test]
fn answers_that_are_lost_are_errors() {
    let story = Story::new();
    let commands: &[&[&str]] = &[
        &["version"],
        &["version", "--json"],
        &["--version"],
        &["--help"],
        &["run", "--help"],
        &["workspace", "file", "read", "--help"],
        &["ps"],
        &["ps", "--json"],
        &["workspace", "list", "--json"],
        &["env", "list"],
        &["env", "inspect", "busybox"],
        &["template", "list"],
        &["terminal", "list", "--json"],
        &["policy", "list"],
        &["secret", "list", "--json"],
        &["key", "list"],
        &["audit", "list"],
        &["audit", "key"],
        &["audit", "export"],
        &["events"],
        &["events", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["recover"],
        &["stats", "--json"],
        &["man", "run"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["completions", "fish"],
    ];
    for command in commands {
        is_told_as_lost(&story, command);
    }
    for command in [&["version"][..], &["--help"], &["env", "list"]] {
        let gone = story.command(command).stdout(Stdio::piped()).spawn();
        let mut gone = gone.unwrap();
        drop(gone.stdout.take());
        assert_eq!(gone.wait().unwrap().code(), Some(0), "{command:?}");
    }
}

#[test]
fn streams_that_are_lost_are_errors() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    assert_eq!(story.motu(&["create", "busybox", "--id", "box"]).code, 0);
    let made = story.motu(&["workspace", "create", "busybox", "--name", "ws"]);
    assert_eq!(made.code, 0, "{made}");
    let wrote = story.motu(&[
        "workspace",
        "file",
        "write",
        "ws",
        "a.txt",
        "--text",
        "hi\n",
    ]);
    assert_eq!(wrote.code, 0, "{wrote}");
    let started = story.motu(&["exec", "box", "-d", "--tag", "it", "--", "echo", "hi"]);
    assert_eq!(started.code, 0, "{started}");
    assert_eq!(story.motu(&["wait", "box", "it"]).code, 0);
    let opened = story.motu(&["terminal", "open", "t", "--sandbox", "box", "--shell", "sh"]);
    assert_eq!(opened.code, 0, "{opened}");
    assert_eq!(story.motu(&["terminal", "run", "t", "echo hi"]).code, 0);
    let long = "i=0; while [ $i -lt 2000 ]; do echo some words that fill it; i=$((i+1)); done";
    let commands: &[&[&str]] = &[
        &["run", "busybox", "--", "echo", "hi"],
        &["run", "busybox", "--", "sh", "-c", long],
        &["run", "--json", "busybox", "--", "echo", "hi"],
        &["exec", "box", "--", "echo", "hi"],
        &["exec", "box", "--", "sh", "-c", long],
        &["exec", "--json", "box", "--", "echo", "hi"],
        &["logs", "box", "it"],
        &["top", "box"],
        &["workspace", "exec", "ws", "--", "echo", "hi"],
        &["workspace", "diff", "ws"],
        &["workspace", "diff", "ws", "--json"],
        &["workspace", "file", "read", "ws", "a.txt"],
        &["workspace", "file", "list", "ws"],
        &["workspace", "logs", "ws"],
        &["terminal", "transcript", "t"],
        &["terminal", "screen", "t"],
        &["terminal", "run", "t", "echo hi"],
        &["terminal", "record", "t"],
        &["terminal", "replay", "t", "--speed", "1000"],
        &["env", "export", "busybox"],
        &["audit", "export"],
        &["events", "--follow", "--tail", "1"],
    ];
    for command in commands {
        is_told_as_lost(&story, command);
    }
}

#[test]
fn a_stream_ends_when_its_reader_has_gone() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    // There is more of it than a pipe takes.
    let mut export = story.command(&["env", "export", "busybox"]);
    let mut export = export.stdout(Stdio::piped()).spawn().unwrap();
    drop(export.stdout.take());
    assert_eq!(export.wait().unwrap().code(), Some(0));
    let mut events = story.command(&["events", "--follow"]);
    let mut events = events.stdout(Stdio::piped()).spawn().unwrap();
    drop(events.stdout.take());
    let begun = Instant::now();
    loop {
        if let Some(ended) = events.try_wait().unwrap() {
            assert_eq!(ended.code(), Some(0));
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "it goes on");
        // Something happens, which nobody reads.
        assert_eq!(story.motu(&["run", "busybox", "--", "true"]).code, 0);
    }
}
