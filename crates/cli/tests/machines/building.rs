//! Builds of Dockerfiles of small projects, and runs of the results.

mod caches;
mod commits;
mod origins;
mod projects;
mod pruned;
mod reach;

use motu_testkit::builds::{able, build, built, counts, project, says, world_of_its_own};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};

#[test]
fn commands_in_an_environment_make_another_one() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let args = [
        "env",
        "build",
        "--from",
        "busybox",
        "--run",
        "echo one > /etc/one",
        "--run",
        "cat /etc/one; rm -r /root; chown 7:8 /etc/one",
        "-t",
        "mine:1",
        "--json",
    ];
    let first = built(&story.motu(&args));
    assert_eq!(counts(&first), (2, 0));
    says(
        &story,
        &["run", "mine:1", "--", "stat", "-c", "%u:%g", "/etc/one"],
        "7:8",
    );
    let gone = story.motu(&["run", "mine:1", "--", "test", "-e", "/root"]);
    assert_eq!(gone.code, 1, "{gone}");
    says(
        &story,
        &["run", "busybox", "--", "ls", "-d", "/root"],
        "/root",
    );
    let again = built(&story.motu(&args));
    assert_eq!(counts(&again), (2, 2));
    assert_eq!(first["digest"], again["digest"]);
    let mut anew = args.to_vec();
    anew.push("--no-cache");
    assert_eq!(counts(&built(&story.motu(&anew))), (2, 0));
    // The result can be exported, imported and removed like any environment.
    let archive = story.path().join("mine.tar");
    let archive = archive.to_str().unwrap();
    assert_eq!(
        story.motu(&["env", "export", "mine:1", "-o", archive]).code,
        0
    );
    let back = story.motu(&["env", "import", archive, "back:1", "--json"]);
    let back: Value = serde_json::from_str(&back.stdout).unwrap();
    assert_eq!(back["digest"], again["digest"]);
    assert_eq!(story.motu(&["env", "rm", "mine:1"]).code, 0);
    says(&story, &["run", "back:1", "--", "cat", "/etc/one"], "one");
}

#[test]
fn a_project_of_shell_and_make_is_built_in_stages() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let dir = project(
        &story,
        "shell",
        &[
            (
                "Makefile",
                "hello: hello.in\n\tsed s/@WHO@/$(WHO)/ hello.in > hello\n\tchmod +x hello\n",
            ),
            ("hello.in", "#!/bin/sh\necho hello @WHO@ $1\n"),
            ("notes.log", "not for the image"),
            (".dockerignore", "*.log\nDockerfile\n"),
            (
                "Dockerfile",
                "# syntax=docker/dockerfile:1\nARG BASE=debian:12\nFROM ${BASE} AS make\nARG WHO=nobody\nWORKDIR /src\nCOPY . .\n\
          RUN make WHO=\"$WHO\" && \\\n    # a comment\n    ls > listed\n\nFROM scratch AS files\nCOPY --from=make /src/hello /src/listed /\n\n\
          FROM busybox\nLABEL of=\"a test\"\nEXPOSE 80\nCOPY --from=files --chown=7:8 hello /usr/bin/\nCOPY --from=files listed /listed\n\
          ENTRYPOINT [\"/usr/bin/hello\"]\nCMD [\"x\"]\n",
            ),
        ],
    );
    let first = built(&build(
        &story,
        &dir,
        &["-t", "hello:1", "--build-arg", "WHO=world"],
    ));
    assert_eq!(counts(&first), (6, 0));
    says(&story, &["run", "hello:1"], "hello world x");
    says(
        &story,
        &[
            "run",
            "hello:1",
            "--",
            "stat",
            "-c",
            "%u:%g:%a",
            "/usr/bin/hello",
        ],
        "7:8:755",
    );
    says(
        &story,
        &["run", "hello:1", "--", "cat", "/listed"],
        "Makefile\nhello\nhello.in\nlisted",
    );
    let warm = built(&build(
        &story,
        &dir,
        &["-t", "hello:1", "--build-arg", "WHO=world"],
    ));
    assert_eq!(counts(&warm), (6, 6));
    assert_eq!(warm["digest"], first["digest"]);
    // With another argument and another file, only the steps that depend on them are built again.
    let other = built(&build(&story, &dir, &["-t", "hello:2"]));
    assert_eq!(counts(&other).0, 6);
    assert!(counts(&other).1 < 6, "{other}");
    says(&story, &["run", "hello:2"], "hello nobody x");
    fs::write(dir.join("notes.log"), "changed").unwrap();
    assert_eq!(
        counts(&built(&build(
            &story,
            &dir,
            &["-t", "hello:1", "--build-arg", "WHO=world"]
        ))),
        (6, 6)
    );
    fs::write(dir.join("hello.in"), "#!/bin/sh\necho bye @WHO@ $1\n").unwrap();
    let changed = built(&build(
        &story,
        &dir,
        &["-t", "hello:1", "--build-arg", "WHO=world"],
    ));
    assert!((1..6).contains(&counts(&changed).1), "{changed}");
    says(&story, &["run", "hello:1"], "bye world x");
    let stage = built(&build(&story, &dir, &["--target", "make", "-t", "stage:1"]));
    assert_eq!(counts(&stage).0, 3);
}

#[test]
fn secrets_are_in_no_layer_and_nothing_that_is_kept() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let value = "correct-horse-battery-staple-4711";
    let digest = "RUN --mount=type=secret,id=token,required --mount=type=secret,id=other,env=OTHER \
        cp /run/secrets/token /dev/shm/x && test \"$OTHER\" = \"$(cat /dev/shm/x)\" && \
        cat /run/secrets/token && wc -c < /run/secrets/token > /size\n";
    let dir = project(
        &story,
        "secret",
        &[(
            "Dockerfile",
            &format!("FROM busybox\n{digest}RUN test ! -e /run/secrets/token\n"),
        )],
    );
    let file = story.path().join("token");
    fs::write(&file, value).unwrap();
    let token = format!("id=token,src={}", file.display());
    let other = format!("id=other,src={}", file.display());
    let told = build(
        &story,
        &dir,
        &["-t", "secret:1", "--secret", &token, "--secret", &other],
    );
    assert_eq!(counts(&built(&told)), (2, 0));
    assert!(
        !told.stdout.contains(value) && told.stdout.contains("[redacted"),
        "{told}"
    );
    says(&story, &["run", "secret:1", "--", "cat", "/size"], "33");
    // The same value is the same step, and another value is another one.
    let again = |cached| {
        let secrets = ["-t", "secret:1", "--secret", &token, "--secret", &other];
        assert_eq!(counts(&built(&build(&story, &dir, &secrets))), (2, cached));
    };
    again(2);
    fs::write(&file, "another-value-that-is-longer").unwrap();
    again(0);
    let missing = build(&story, &dir, &["-t", "secret:1", "--no-cache"]);
    assert!(
        missing.code != 0 && missing.stdout.contains("the secret token is not given"),
        "{missing}"
    );
    let found = crate::traces::of(&story.home(), value.as_bytes());
    assert_eq!(found, Vec::<std::path::PathBuf>::new());
}

#[test]
fn output_of_a_step_is_what_a_terminal_would_show_of_it() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let text = "FROM busybox\nRUN printf 'one\\r\\n 10%%\\r100%%\\n\\033[1mbold\\033[0m\\n'\n";
    let dir = project(&story, "shown", &[("Dockerfile", text)]);
    let told = story.motu(&["env", "build", "-t", "shown:1", dir.to_str().unwrap()]);
    assert_eq!(told.code, 0, "{told}");
    assert!(told.stderr.contains("one\n100%\nbold\n"), "{told}");
    assert!(!told.stderr.contains('\u{fffd}'), "{told}");
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_leaves_nothing() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let outside = story.path().join("outside");
    fs::write(&outside, "not yours").unwrap();
    for (text, code, part) in [
        (
            "FROM busybox\nRUN true\nFETCH x\n",
            102,
            "Dockerfile, line 3: FETCH is not an instruction",
        ),
        (
            "FROM busybox\n\nRUN echo why >&2; exit 3\n",
            102,
            "line 3: RUN echo why >&2; exit 3: the command ended with exit code 3",
        ),
        (
            "FROM busybox\nCOPY ../outside /x\n",
            103,
            "line 2: COPY ../outside /x: ../outside leads out of the context",
        ),
        (
            "FROM busybox\nCOPY link /x\n",
            103,
            "leads out of the context",
        ),
        (
            "FROM busybox\nCOPY absolute /x\n",
            103,
            "leads out of the context",
        ),
        (
            "FROM busybox\nCOPY none /x\n",
            104,
            "none is not in the context",
        ),
        (
            "FROM busybox\nADD https://example.com/x /x\n",
            102,
            "ADD does not fetch",
        ),
        (
            "FROM busybox\nRUN --mount=type=bind,source=. ls\n",
            102,
            "type=bind is not supported",
        ),
        (
            "FROM dir:/not/pulled\n",
            0,
            "line 1: FROM dir:/not/pulled: environment",
        ),
    ] {
        let dir = project(&story, "wrong", &[("Dockerfile", text)]);
        let _ = symlink("../outside", dir.join("link"));
        let _ = symlink("/etc/passwd", dir.join("absolute"));
        let told = build(&story, &dir, &["-t", "wrong:1"]);
        assert!(
            told.code == code || (code == 0 && told.code != 0),
            "{text}: {told}"
        );
        assert!(told.stdout.contains(part), "{text}: {told}");
    }
    let listed = story.motu(&["env", "list", "--json"]);
    assert!(!listed.stdout.contains("wrong:1"), "{listed}");
    for dir in [
        "environments/staging",
        "cache/contexts/host",
        "machines/container",
    ] {
        let left: Vec<_> = fs::read_dir(story.home().join(dir))
            .into_iter()
            .flatten()
            .collect();
        assert!(left.is_empty(), "{dir}: {left:?}");
    }
    // Links are copied as links where they are not followed.
    let dir = project(
        &story,
        "links",
        &[("Dockerfile", "FROM busybox\nCOPY . /links/\n")],
    );
    symlink("/etc/passwd", dir.join("absolute")).unwrap();
    built(&build(&story, &dir, &["-t", "links:1"]));
    says(
        &story,
        &["run", "links:1", "--", "readlink", "/links/absolute"],
        "/etc/passwd",
    );
}

#[test]
fn add_unpacks_archives_and_heredocs_are_files() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let dir = project(
        &story,
        "add",
        &[
            ("tree/a/tool", "#!/bin/sh\necho tool\n"),
            (
                "Dockerfile",
                "FROM busybox\nADD tree.tar.gz /opt/\nCOPY <<one.txt <<'two.txt' /etc/docs/\nhas $PATH\none.txt\nhas $PATH\ntwo.txt\n\
          RUN <<EOF\nset -e\n/opt/a/tool > /said\nEOF\nRUN cat - <<END > /more\nmore\nEND\n",
            ),
        ],
    );
    fs::set_permissions(dir.join("tree/a/tool"), fs::Permissions::from_mode(0o755)).unwrap();
    let packed = motu_needs::command("tar")
        .args(["--create", "--gzip", "--file"])
        .arg(dir.join("tree.tar.gz"))
        .arg("--directory")
        .arg(dir.join("tree"))
        .arg("a")
        .status();
    assert!(packed.unwrap().success());
    assert_eq!(
        counts(&built(&build(&story, &dir, &["-t", "add:1"]))),
        (4, 0)
    );
    says(
        &story,
        &["run", "add:1", "--", "cat", "/said", "/more"],
        "tool\nmore",
    );
    says(
        &story,
        &["run", "add:1", "--", "cat", "/etc/docs/two.txt"],
        "has $PATH",
    );
    says(
        &story,
        &[
            "run",
            "add:1",
            "--",
            "grep",
            "-c",
            "usr/bin",
            "/etc/docs/one.txt",
        ],
        "1",
    );
}

#[test]
fn every_runtime_that_keeps_its_changes_can_build() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let mut digests = Vec::new();
    for name in able() {
        let tag = format!("{name}:1");
        let told = story.motu(&[
            "env", "build", "--from", "busybox", "--runtime", &name, "--no-cache", "-t", &tag, "--json",
            "--run", "echo kept > /etc/kept; rm /bin/false; mkdir -p /d/e; ln -s e /d/l; echo w > /workspace/w",
        ]);
        let made = built(&told);
        says(
            &story,
            &["run", &tag, "--", "cat", "/etc/kept", "/workspace/w"],
            "kept\nw",
        );
        digests.push((name, made["digest"].clone()));
    }
    assert!(!digests.is_empty());
    assert!(
        digests.iter().all(|(_, digest)| *digest == digests[0].1),
        "{digests:?}"
    );
}

#[test]
fn a_daemon_that_is_killed_in_a_build_leaves_layers_and_nothing_else() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let slow = |more: &str| {
        let text = format!("FROM busybox\nRUN echo first > /first\nRUN echo begun{more}\n");
        project(&story, "slow", &[("Dockerfile", &text)])
    };
    let dir = slow("; sleep 600");
    let mut building = story
        .command(&["env", "build", "-t", "slow:1", dir.to_str().unwrap()])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(building.stderr.take().unwrap());
    let begun = said
        .lines()
        .map(|line| line.unwrap())
        .any(|line| line == "begun");
    assert!(begun);
    let version = story.motu(&["version", "--json"]);
    let version: Value = serde_json::from_str(&version.stdout).unwrap();
    let pid = version["daemon"]["pid"]
        .as_i64()
        .or(version["pid"].as_i64())
        .unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert!(!building.wait().unwrap().success());
    // The next daemon removes leftovers when it starts.
    assert_eq!(story.motu(&["ps"]).code, 0);
    for dir in ["environments/staging", "machines/container", "kept", "lost"] {
        let left: Vec<_> = fs::read_dir(story.home().join(dir))
            .into_iter()
            .flatten()
            .collect();
        assert!(left.is_empty(), "{dir}: {left:?}");
    }
    let listed = story.motu(&["env", "list", "--json"]);
    assert!(!listed.stdout.contains("slow:1"), "{listed}");
    let again = built(&build(&story, &slow(""), &["-t", "slow:1"]));
    assert_eq!(counts(&again), (2, 1));
    says(&story, &["run", "slow:1", "--", "cat", "/first"], "first");
}
