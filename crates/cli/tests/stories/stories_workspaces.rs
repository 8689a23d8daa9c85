//! Typical use of workspaces, on real machines.

mod given;

use insta::assert_snapshot;
use motu_testkit::story::{Story, Told, filters};

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

/// Runs a script in the workspace `ws`.
fn script(story: &Story, text: &str) -> Told {
    story.motu(&["workspace", "exec", "ws", "--", "sh", "-c", text])
}

#[test]
fn files_change_are_compared_saved_and_taken_back() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let ws = |line: &str| workspace(&story, line);
    told!(ws("create busybox --id ws --name try --label team=red --id-only"), @"ws");
    told!(script(&story, "pwd; ls -A; echo one > a; mkdir d; echo two > d/b; exit 3"), @r#"
    /workspace
    [exit code: 3]
    "#);
    told!(ws("file read ws /workspace/a"), @"one");
    told!(ws("file write ws /workspace/e/f --text three"), @"/workspace/e/f: 5 B written");
    told!(ws("snapshot create ws before"), @"before");
    std::fs::write(
        story.path().join("fix.patch"),
        "--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n one\n+more\n",
    )
    .unwrap();
    told!(ws("patch apply ws --patch-file fix.patch"), @"modified  a");
    told!(ws("edit ws /workspace/d/b --old two --new 2"), @"modified  d/b");
    told!(ws("edit ws /workspace/d/b --old two --new 3"), @r#"
    ------- stderr -------
    error: d/b: edit 1: `old` does not occur
    hint: nothing was changed; `old` must be what the file has, byte for byte
    [exit code: 105]
    "#);
    told!(ws("diff ws"), @r#"
    diff --git a/a b/a
    new file mode 100644
    --- /dev/null
    +++ b/a
    @@ -0,0 +1,2 @@
    +one
    +more
    diff --git a/d/b b/d/b
    new file mode 100644
    --- /dev/null
    +++ b/d/b
    @@ -0,0 +1 @@
    +2
    diff --git a/e/f b/e/f
    new file mode 100644
    --- /dev/null
    +++ b/e/f
    @@ -0,0 +1 @@
    +three
    \ No newline at end of file
    ------- stderr -------
    5 added
    "#);
    told!(ws("snapshot create ws after"), @"after");
    told!(ws("snapshot diff ws before after"), @r#"
    diff --git a/a b/a
    --- a/a
    +++ b/a
    @@ -1 +1,2 @@
     one
    +more
    diff --git a/d/b b/d/b
    --- a/d/b
    +++ b/d/b
    @@ -1 +1 @@
    -two
    +2
    ------- stderr -------
    2 modified
    "#);
    told!(ws("reset ws --snapshot before"), @"ws is running, reset to before");
    told!(script(&story, "cat a d/b e/f"), @r#"
    one
    two
    three
    "#);
    told!(ws("reset ws"), @"ws is running, reset to baseline");
    told!(ws("diff ws"), @r#"
    ------- stderr -------
    no changes between baseline and current
    "#);
    told!(ws("update ws --clear-name --label a=b --clear-label team"), @r#"
    workspace     ws
    labels        a=b
    state         running
    environment   busybox
    runtime       container (container)
    network       off
    size          1 CPU, 1024 MiB
    seed          empty
    created       TIME
    active        TIME
    resets        2
    commands      0
    services      0, 0 running
    shells        0
    snapshots     2
    "#);
    told!(story.motu(&["rm", "ws"]), @r#"
    ------- stderr -------
    error: ws is a workspace
    hint: `motu workspace delete ws` deletes it with all that it has
    [exit code: 105]
    "#);
    told!(ws("delete ws"), @"ws");
    told!(ws("status ws"), @r#"
    ------- stderr -------
    error: there is no workspace ws
    hint: `motu workspace list` shows them
    [exit code: 104]
    "#);
    told!(ws("list --json"), @r#"
    {
      "count": 0,
      "workspaces": []
    }
    "#);
}

#[test]
fn what_is_here_goes_in_and_comes_out() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let ws = |line: &str| workspace(&story, line);
    std::fs::create_dir_all(story.path().join("project/src")).unwrap();
    std::fs::write(story.path().join("project/src/main.c"), "int main;\n").unwrap();
    std::fs::write(story.path().join("project/tool"), "#!/bin/sh\n").unwrap();
    let created = ws("create busybox --id ws --seed-path project");
    assert!(
        created.stdout.contains("directory $HOME/project"),
        "{created}"
    );
    told!(ws("exec ws -- cat src/main.c"), @"int main;");
    told!(ws("diff ws"), @r#"
    ------- stderr -------
    no changes between baseline and current
    "#);
    told!(script(&story, "echo 'int more;' >> src/main.c; rm tool; ln -s /etc/passwd out"), @"");
    told!(ws("export ws /workspace/src --output back"), @"/workspace/src is now $HOME/back: 1 entry, 20 B");
    let back = std::fs::read_to_string(story.path().join("back/main.c")).unwrap();
    assert_eq!(back, "int main;\nint more;\n");
    told!(ws("export ws /workspace/missing --output no"), @r#"
    ------- stderr -------
    error: "/workspace/missing": no such file or directory
    [exit code: 104]
    "#);
    told!(ws("create busybox --seed-path missing"), @r#"
    ------- stderr -------
    error: seed $HOME/missing does not exist
    [exit code: 104]
    "#);
}

#[test]
fn a_workspace_outlives_its_machine_and_its_daemon() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let ws = |line: &str| workspace(&story, line);
    told!(ws("create busybox --id ws --id-only"), @"ws");
    told!(script(&story, "echo kept > a; echo kept > /root/b"), @"");
    told!(ws("stop ws"), @"ws is stopped");
    told!(script(&story, "true"), @r#"
    ------- stderr -------
    error: ws is stopped
    hint: `motu start ws` (for a workspace: `motu workspace start ws`) makes it run again
    [exit code: 105]
    "#);
    told!(ws("start ws"), @"ws is running");
    let stopped = story.motu(&["serve", "--stop"]).stdout;
    assert!(
        stopped.starts_with("stopped\n1 machine goes on without it:\n  ws "),
        "{stopped}"
    );
    told!(script(&story, "cat a /root/b"), @r#"
    kept
    kept
    "#);
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
    told!(ws("create busybox --id ws --id-only"), @"ws");
    let start = "service start ws web --ready-http 8000 --ready-timeout-seconds 2 -- httpd -f -p 8000 -h /workspace";
    // Without the page the server answers with an error.
    told!(ws(start), @r#"
    ------- stderr -------
    error: service "web" did not start: it was not ready after 2 s; it said nothing
    hint: `motu workspace service logs ws web` shows its output; --ready-timeout-seconds gives it longer
    [exit code: 124]
    "#);
    told!(ws("file write ws /workspace/index.html --text page"), @"/workspace/index.html: 4 B written");
    let started = ws(start);
    assert_eq!(started.code, 0, "{started}");
    told!(ws("exec ws -- wget -q -O - http://127.0.0.1:8000/"), @"page");
    told!(ws("service stop ws web"), @"web is stopped");

    let counting = "service start ws count --ready-log two -- sh /workspace/count";
    told!(story.motu(&["workspace", "file", "write", "ws", "/workspace/count", "--text", "echo one; echo two; exec sleep 1000"]), @"/workspace/count: 35 B written");
    let started = ws(counting);
    assert_eq!(started.code, 0, "{started}");
    told!(ws("service logs ws count --tail-lines 1"), @r#"
    two
    ------- stderr -------
    (older output is not shown; --all shows all that is kept)
    "#);

    let shell = ws("shell open ws --id-only").stdout;
    let shell = shell.trim();
    told!(ws(&format!("shell write ws {shell} --input cd${{IFS}}/;x=4")), @"");
    told!(ws(&format!("shell write ws {shell} --input echo${{IFS}}$x$PWD")), @"");
    let read = ws(&format!(
        "shell read ws {shell} --plain --wait-for-idle-ms 300"
    ));
    assert!(read.stdout.contains("4/"), "{read}");
    told!(ws(&format!("shell close ws {shell}")), @"sh-ID is closed");
    told!(ws("shell list ws --json"), @r#"
    {
      "workspace_id": "ws",
      "count": 0,
      "shells": []
    }
    "#);
}

#[test]
fn whatever_starts_a_command_starts_it_as_the_user_who_is_named() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let ws = |line: &str| workspace(&story, line);
    told!(ws("create busybox --id ws --id-only"), @"ws");
    told!(ws("exec ws --user 65534 --workdir /tmp -- sh -c id${IFS}-u;pwd"), @r#"
    65534
    /tmp
    "#);
    told!(ws("exec ws --user nobody-is-called-so -- id -u"), @r#"
    ------- stderr -------
    error: no user "nobody-is-called-so" in this machine
    [exit code: 104]
    "#);
    told!(story.motu(&["workspace", "file", "write", "ws", "/workspace/who", "--text", "id -u; exec sleep 1000"]), @"/workspace/who: 22 B written");
    let start =
        "service start ws who --user 65534 --ready-log 6 --restart always -- sh /workspace/who";
    let started = ws(start);
    assert_eq!(started.code, 0, "{started}");
    told!(ws("service logs ws who"), @"65534");
    let shell = ws("shell open ws --user 65534 --env COLOUR=green --id-only").stdout;
    let shell = shell.trim();
    told!(ws(&format!("shell write ws {shell} --input id${{IFS}}-u;echo${{IFS}}$COLOUR$COLOUR")), @"");
    let read = ws(&format!(
        "shell read ws {shell} --plain --wait-for-idle-ms 300"
    ));
    assert!(read.stdout.contains("65534\ngreengreen"), "{read}");
}
