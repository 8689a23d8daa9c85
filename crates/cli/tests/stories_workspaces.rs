//! Workspaces as people use them, on real machines.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[expect(dead_code, reason = "the other stories use all of it")]
mod story;

use insta::assert_snapshot;
use story::{Story, Told, filters};

macro_rules! told {
    ($told:expr, @$text:literal) => {{
        let told = $told.to_string();
        let mut filters = filters();
        filters.push((r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+Z)?)?", "TIME"));
        filters.push((r"pid +\d+", "pid N"));
        insta::with_settings!({filters => filters}, { assert_snapshot!(told, @$text); });
    }};
}

/// `motu workspace`, with the words of a line as arguments.
fn workspace(story: &Story, line: &str) -> Told {
    let mut command = story.command(&["workspace"]);
    command.args(line.split_whitespace());
    story.told(command)
}

/// A script in the workspace `ws`.
fn script(story: &Story, text: &str) -> Told {
    story.motu(&["workspace", "exec", "ws", "--", "sh", "-c", text])
}

#[test]
fn files_change_are_compared_saved_and_taken_back() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let ws = |line: &str| workspace(&story, line);
    told!(ws("create busybox --id ws --name try --label team=red --id-only"), @"");
    told!(script(&story, "pwd; ls -A; echo one > a; mkdir d; echo two > d/b; exit 3"), @"");
    told!(ws("file read ws /workspace/a"), @"");
    told!(ws("file write ws /workspace/e/f --text three"), @"");
    told!(ws("snapshot create ws before"), @"");
    std::fs::write(
        story.path().join("fix.patch"),
        "--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n one\n+more\n",
    )
    .unwrap();
    told!(ws("patch apply ws --patch-file fix.patch"), @"");
    told!(ws("edit ws /workspace/d/b --old two --new 2"), @"");
    told!(ws("edit ws /workspace/d/b --old two --new 3"), @"");
    told!(ws("diff ws"), @"");
    told!(ws("snapshot create ws after"), @"");
    told!(ws("snapshot diff ws before after"), @"");
    told!(ws("reset ws --snapshot before"), @"");
    told!(script(&story, "cat a d/b e/f"), @"");
    told!(ws("reset ws"), @"");
    told!(ws("diff ws"), @"");
    told!(ws("update ws --clear-name --label a=b --clear-label team"), @"");
    told!(story.motu(&["rm", "ws"]), @"");
    told!(ws("delete ws"), @"");
    told!(ws("status ws"), @"");
    told!(ws("list --json"), @"");
}

#[test]
fn a_workspace_outlives_its_machine_and_its_daemon() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let ws = |line: &str| workspace(&story, line);
    told!(ws("create busybox --id ws --id-only"), @"");
    told!(script(&story, "echo kept > a; echo kept > /root/b"), @"");
    told!(ws("stop ws"), @"");
    told!(script(&story, "true"), @"");
    told!(ws("start ws"), @"");
    told!(story.motu(&["serve", "--stop"]), @"");
    told!(script(&story, "cat a /root/b"), @"");
    let logs = ws("logs ws");
    assert!(logs.stdout.contains("cat a /root/b"), "{logs}");
    let copies = ws("fork ws -n 2");
    assert_eq!(copies.stdout.lines().count(), 2, "{copies}");
    for id in copies.stdout.lines() {
        let read = ws(&format!("file read {id} /workspace/a"));
        assert_eq!(read.stdout, "kept\n", "{read}");
    }
}

#[test]
fn services_and_shells_live_on_between_commands() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let ws = |line: &str| workspace(&story, line);
    told!(ws("create busybox --id ws --id-only"), @"");
    let start = "service start ws web --ready-http 8000 --ready-timeout-seconds 2 -- httpd -f -p 8000 -h /workspace";
    let started = ws(start);
    assert_eq!(started.code, 1, "without a page it is not ready: {started}");
    told!(ws("file write ws /workspace/index.html --text page"), @"");
    let started = ws(start);
    assert_eq!(started.code, 0, "{started}");
    told!(ws("exec ws -- wget -q -O - http://127.0.0.1:8000/"), @"");
    told!(ws("service stop ws web"), @"");

    let counting = "service start ws count --ready-log two -- sh /workspace/count";
    told!(story.motu(&["workspace", "file", "write", "ws", "/workspace/count", "--text", "echo one; echo two; exec sleep 1000"]), @"");
    let started = ws(counting);
    assert_eq!(started.code, 0, "{started}");
    told!(ws("service logs ws count --tail-lines 1"), @"");

    let shell = ws("shell open ws --id-only").stdout;
    let shell = shell.trim();
    told!(ws(&format!("shell write ws {shell} --input cd${{IFS}}/;x=4")), @"");
    told!(ws(&format!("shell write ws {shell} --input echo${{IFS}}$x$PWD")), @"");
    let read = ws(&format!(
        "shell read ws {shell} --plain --wait-for-idle-ms 300"
    ));
    assert!(read.stdout.contains("4/"), "{read}");
    told!(ws(&format!("shell close ws {shell}")), @"");
    told!(ws("shell list ws --json"), @"");
}
