//! What is given to commands: values that begin with a dash, files and directories that are not
//! there, and answers too long for one page.

use motu_testkit::story::Story;
use std::fs;

const PATCH: &str = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n";

#[test]
fn values_may_begin_with_a_dash() {
    let story = Story::new();
    // None of these is there, which is found out only when the arguments were understood.
    let commands: &[&[&str]] = &[
        &["workspace", "file", "write", "none", "a", "--text", "-x"],
        &[
            "workspace",
            "edit",
            "none",
            "a",
            "--old",
            "-x",
            "--new",
            "--y",
        ],
        &["workspace", "patch", "apply", "none", "--patch", PATCH],
        &[
            "workspace",
            "service",
            "start",
            "none",
            "web",
            "--ready-log",
            "-ready",
            "--",
            "true",
        ],
        &[
            "workspace",
            "service",
            "start",
            "none",
            "web",
            "--ready-command",
            "-x",
            "--",
            "true",
        ],
        &[
            "workspace",
            "shell",
            "write",
            "none",
            "sh-00000000",
            "--input",
            "-x",
        ],
        &["terminal", "configure", "none", "--description", "- a list"],
        &["terminal", "configure", "none", "--prompt-regex", "--> $"],
        &[
            "terminal",
            "open",
            "t",
            "--sandbox",
            "none",
            "--description",
            "--x",
        ],
        &[
            "terminal",
            "open",
            "t",
            "--sandbox",
            "none",
            "--prompt-regex",
            "-> $",
        ],
        &["terminal", "send", "none", "-x"],
        &["terminal", "expect", "none", "--", "-x"],
        &["terminal", "run", "none", "-x", "--y"],
    ];
    for command in commands {
        let told = story.motu(command);
        assert_eq!(told.code, 104, "{command:?}: {told}");
    }
    // That there is no such archive is found out later, too.
    let create = ["template", "create", "t", "--from", "tar:none.tar"];
    let made = story.motu(&[&create[..], &["--setup", "-x"]].concat());
    let misused = story.motu(&[&create[..], &["--setup"]].concat());
    assert!(![0, misused.code].contains(&made.code), "{made}{misused}");
    let key = story.motu(&["key", "create", "--name", "-ci", "--json"]);
    assert_eq!(key.code, 0, "{key}");
}

#[test]
fn files_and_directories_that_are_missing_are_no_internal_errors() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let made = story.motu(&["workspace", "create", "busybox", "--id", "ws", "--id-only"]);
    assert_eq!(made.code, 0, "{made}");
    let wrote = story.motu(&["workspace", "file", "write", "ws", "d/a.txt", "--text", "x"]);
    assert_eq!(wrote.code, 0, "{wrote}");
    fs::create_dir(story.path().join("dir")).unwrap();
    let commands: &[(&[&str], &str)] = &[
        (
            &[
                "workspace",
                "create",
                "busybox",
                "--secret-file",
                "KEY=none/key",
            ],
            "none/key",
        ),
        (
            &["workspace", "create", "busybox", "--secret-file", "KEY=dir"],
            "dir",
        ),
        (
            &["cp", "ws:/workspace/d/a.txt", "none/here/a.txt"],
            "none/here",
        ),
        (&["cp", "ws:/workspace/d", "none/here/d"], "none/here"),
        (&["cp", "none/a", "ws:/workspace/"], "none/a"),
        (
            &["workspace", "patch", "apply", "ws", "--patch-file", "dir"],
            "dir",
        ),
        (
            &[
                "workspace",
                "patch",
                "apply",
                "ws",
                "--patch-file",
                "none/p",
            ],
            "none/p",
        ),
        (
            &[
                "workspace",
                "file",
                "write",
                "ws",
                "b",
                "--text-file",
                "none/b",
            ],
            "none/b",
        ),
        (
            &["env", "export", "busybox", "-o", "none/here/b.tar"],
            "none/here",
        ),
        (&["secret", "set", "key", "--file", "none/key"], "none/key"),
        (&["terminal", "replay", "none/a.cast"], "none/a.cast"),
    ];
    for (command, named) in commands {
        let told = story.motu(command);
        assert!([102, 104].contains(&told.code), "{command:?}: {told}");
        assert!(told.stderr.contains(named), "{command:?}: {told}");
    }
}

#[test]
fn a_difference_is_whole_in_a_file_however_long() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let run = |args: &[&str]| {
        let told = story.motu(args);
        assert_eq!(told.code, 0, "{told}");
    };
    run(&["workspace", "create", "busybox", "--id", "ws", "--id-only"]);
    // 900 KB in ten files.
    let script =
        "for f in 0 1 2 3 4 5 6 7 8 9; do yes \"a line of file $f\" | head -n 5000 > f$f; done";
    run(&["workspace", "exec", "ws", "--", "sh", "-c", script]);
    let path = story.path().join("all.diff");
    let file = fs::File::create(&path).unwrap();
    let diff = story
        .command(&["workspace", "diff", "ws"])
        .stdout(file)
        .status();
    assert!(diff.unwrap().success());
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.len() > 3 * 256 * 1024, "{} bytes", text.len());
    for file in 0..10 {
        let all = text
            .lines()
            .filter(|line| *line == format!("+a line of file {file}"));
        assert_eq!(all.count(), 5000, "f{file}");
    }
}
