//! The output of commands as users see it.

mod lost;

use insta::assert_snapshot;
use motu_testkit::story::{Story, filters};
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

macro_rules! told {
    ($told:expr, @$text:literal) => {{
        let told = $told.to_string();
        insta::with_settings!({filters => filters()}, { assert_snapshot!(told, @$text); });
    }};
}

#[test]
fn mistakes_in_arguments_are_invalid() {
    let story = Story::new();
    told!(story.motu(&["run", "--bogus"]), @r#"
    ------- stderr -------
    error: unexpected argument '--bogus' found

      tip: to pass '--bogus' as a value, use '-- --bogus'

    Usage: motu run [OPTIONS] [ENVIRONMENT] [-- <COMMAND>...]

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(story.motu(&["run", "--json", "--bogus"]), @r#"
    {
      "error": {
        "kind": "invalid",
        "message": "unexpected argument '--bogus' found",
        "hint": "to pass '--bogus' as a value, use '-- --bogus'"
      }
    }
    [exit code: 102]
    "#);
    told!(story.motu(&["exec", "NOT-AN-ID", "--", "true"]), @r#"
    ------- stderr -------
    error: invalid value 'NOT-AN-ID' for '<ID>': "NOT-AN-ID" is not a sandbox id

    For more information, try '--help'.
    [exit code: 102]
    "#);
    told!(story.motu(&["cp", "a", "b"]), @r#"
    ------- stderr -------
    error: exactly one side must be in a sandbox
    hint: such as: motu cp file.txt ID:/workspace/
    [exit code: 102]
    "#);
    told!(story.motu(&["run", "busybox", "--env", "UNSET", "--", "true"]), @r#"
    ------- stderr -------
    error: --env UNSET: it is not set here
    hint: give a value: --env UNSET=VALUE
    [exit code: 102]
    "#);
    told!(story.motu(&["run", "-t", "busybox", "--", "true"]), @r#"
    ------- stderr -------
    error: --tty needs a terminal
    hint: leave --tty out, or use --stdin alone
    [exit code: 102]
    "#);
    // None of these commands started a daemon.
    assert!(!story.home().join("daemon.sock").exists());
}

#[test]
fn versions_need_no_daemon() {
    let story = Story::new();
    told!(story.motu(&["--version"]), @"motu 0.1.0");
    told!(story.motu(&["version"]), @r#"
    motu 0.1.0, API 1
    no daemon is running
    "#);
    told!(story.motu(&["version", "--json"]), @r#"
    {
      "version": "0.1.0",
      "api_version": "1",
      "daemon": null
    }
    "#);
    told!(story.motu(&["serve", "--stop"]), @"no daemon is running");
    assert!(!story.home().exists());
}

/// A list of no sandboxes.
const NONE: &str = "{\n  \"count\": 0,\n  \"sandboxes\": []\n}\n";

#[test]
fn a_daemon_comes_when_it_is_needed_and_goes_when_told() {
    let story = Story::new();
    told!(story.motu(&["ps"]), @"ID  ENVIRONMENT  STATE  RUNTIME  ISOLATION  ACCEL  AGE  EXPIRES IN");
    told!(story.motu(&["ps", "--json"]), @r#"
    {
      "count": 0,
      "sandboxes": []
    }
    "#);
    told!(story.motu(&["version"]), @r#"
    motu 0.1.0, API 1
    daemon 0.1.0, pid N, state in $MOTU_HOME
    "#);
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = story.home().join(name);
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(
        (mode(""), mode("daemon.sock"), mode("daemon.log")),
        (0o700, 0o600, 0o600)
    );
    told!(story.motu(&["serve"]), @r#"
    ------- stderr -------
    error: a daemon already serves $MOTU_HOME
    hint: stop it with `motu serve --stop`, or choose another directory with --home
    [exit code: 105]
    "#);
    told!(story.motu(&["serve", "--stop"]), @"stopped");
    told!(story.motu(&["serve", "--stop"]), @"no daemon is running");
    assert!(!story.home().join("daemon.sock").exists());
}

#[test]
fn what_is_unknown_is_said_with_a_next_step() {
    let story = Story::new();
    told!(story.motu(&["run", "debain:12", "--", "true"]), @r#"
    ------- stderr -------
    error: environment "debain:12" is unknown
    hint: did you mean debian:12?
    [exit code: 104]
    "#);
    told!(story.motu(&["run", "--json", "debain:12", "--", "true"]), @r#"
    {
      "error": {
        "kind": "not_found",
        "message": "environment \"debain:12\" is unknown",
        "hint": "did you mean debian:12?",
        "details": {
          "audit_id": "run_ID",
          "environment": "debain:12",
          "suggestions": [
            "debian:12"
          ]
        }
      }
    }
    [exit code: 104]
    "#);
    told!(story.motu(&["exec", "sb-nobody", "--", "true"]), @r#"
    ------- stderr -------
    error: there is no sandbox sb-nobody
    hint: `motu ps` lists them
    [exit code: 104]
    "#);
    told!(story.motu(&["rm", "sb-nobody"]), @r#"
    ------- stderr -------
    error: there is no sandbox sb-nobody
    hint: `motu ps` lists them
    [exit code: 104]
    "#);
    told!(story.motu(&["env", "inspect", "nothing"]), @r#"
    ------- stderr -------
    error: environment "nothing" is unknown
    hint: `motu env list`, or `motu env pull docker.io/library/nothing:latest`
    [exit code: 104]
    "#);
    told!(story.motu(&["run", "busybox", "--mem-mib", "1", "--", "true"]), @r#"
    ------- stderr -------
    error: mem_mib is 1; it must be between 16 and 1048576
    [exit code: 102]
    "#);
    told!(story.motu(&["run", "busybox", "--policy", "nowhere", "--", "true"]), @r#"
    ------- stderr -------
    error: there is no policy "nowhere"
    hint: one of: none, packages, public; or write $MOTU_HOME/policies/nowhere.toml
    [exit code: 104]
    "#);
    told!(story.motu(&["run", "busybox"]), @r#"
    ------- stderr -------
    error: no command is given, and busybox has none of its own
    hint: put it after `--`
    [exit code: 102]
    "#);
}

#[test]
fn environments_are_listed_before_they_are_installed() {
    let story = Story::new();
    told!(story.motu(&["env", "list"]), @r#"
    NAME            INSTALLED  SIZE     DESCRIPTION
    busybox         no         1.9 MiB  One static busybox and its applets: the smallest machine that still has a shell.
    debian:12-base  no         76 MiB   Debian 12 with the essential packages and apt, nothing else.
    debian:12       no         224 MiB  Debian 12 with Python, pip, venv, git, make, curl and the usual tools; user `user` may use sudo.
    "#);
    told!(story.motu(&["env", "inspect", "busybox"]), @r#"
    name          busybox
    description   One static busybox and its applets: the smallest machine that still has a shell.
    installed     no
    size          1.9 MiB
    architecture  x86_64
    user          root
    workdir       /workspace
    source        debian bookworm
    "#);
    told!(story.motu(&["env", "prune"]), @"0 B freed");
}

#[test]
fn a_wrong_configuration_reaches_whoever_started_the_daemon() {
    let story = Story::new();
    story.configure("colour = 1\n");
    told!(story.motu(&["ps"]), @r#"
    ------- stderr -------
    error: config.toml: unknown field `colour`, expected one of `min_isolation`, `runtime`, `accel`, `max_sandboxes`, `dormant_seconds`, `min_free_disk_mib`, `daemon_idle_seconds`, `guest_silence_seconds`, `guest_call_seconds`, `pool_mem_mib`, `spare_seconds`, `pool`, `defaults`, `terminal`, `audit`, `qemu`, `gvisor`, `docker`, `http`, `e2b`, `grpc`, `listen`, `redaction`, `quota`, `registries`, `events`, `webhook`, `otlp`
    [exit code: 102]
    "#);
}

#[test]
fn commands_at_the_same_moment_share_one_daemon() {
    let story = Story::new();
    let spawn = |_| {
        story
            .command(&["ps"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let clients: Vec<_> = (0..8).map(spawn).collect();
    for mut client in clients {
        assert!(client.wait().unwrap().success());
    }
    let log = std::fs::read_to_string(story.home().join("daemon.log")).unwrap();
    assert_eq!(log.matches("serving").count(), 1, "{log}");
}

#[test]
fn the_log_is_json_where_that_is_asked_for() {
    let story = Story::new();
    let mut first = story.command(&["ps"]);
    let told = first.env("MOTU_LOG_FORMAT", "json").output().unwrap();
    assert!(told.status.success(), "{told:?}");
    let log = std::fs::read_to_string(story.home().join("daemon.log")).unwrap();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let serving = lines.iter().find(|line| line["message"] == "serving");
    let serving = serving.unwrap();
    assert_eq!(serving["level"], "INFO", "{log}");
    assert!(serving["pid"].is_u64() && serving["timestamp"].is_string());
    let elsewhere = Story::new();
    let mut wrong = elsewhere.command(&["serve"]);
    let told = wrong.env("MOTU_LOG_FORMAT", "xml").output().unwrap();
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(
        !told.status.success() && said.contains("MOTU_LOG_FORMAT is \"xml\""),
        "{said}"
    );
}

#[test]
fn an_idle_daemon_leaves_and_nobody_notices() {
    let story = Story::new();
    story.configure("daemon_idle_seconds = 1\n");
    let begin = Instant::now();
    // Repeatedly around the time of its idle exit, so that some commands meet it while it exits.
    for round in 0..40 {
        let told = story.motu(&["ps", "--json"]);
        assert_eq!((told.code, told.stdout.as_str()), (0, NONE), "{told}");
        std::thread::sleep(Duration::from_millis(if round % 4 == 0 {
            995 + round
        } else {
            5
        }));
        if begin.elapsed() > Duration::from_secs(15) {
            break;
        }
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while story.home().join("daemon.sock").exists() {
        assert!(Instant::now() < deadline, "the daemon is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = std::fs::read_to_string(story.home().join("daemon.log")).unwrap();
    assert!(log.contains("leaving"), "{log}");
}

#[test]
fn a_home_with_a_long_name_works() {
    let story = Story::new();
    let home = story.path().join("x".repeat(100)).join("y".repeat(100));
    let home = home.to_str().unwrap();
    let listed = story.motu(&["--home", home, "ps", "--json"]);
    let stopped = story.motu(&["--home", home, "serve", "--stop"]);
    assert_eq!(
        (listed.stdout.as_str(), stopped.stdout.as_str()),
        (NONE, "stopped\n"),
        "{listed}"
    );
}

#[test]
fn completions_exist_for_every_shell() {
    let story = Story::new();
    for shell in ["bash", "zsh", "fish"] {
        let told = story.motu(&["completions", shell]);
        assert!(told.code == 0 && told.stdout.contains("motu"), "{told}");
    }
}

#[test]
fn a_command_in_a_machine_of_its_own() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    told!(story.motu(&["run", "busybox", "--", "echo", "hello"]), @"hello");
    told!(story.motu(&["run", "busybox", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]), @r#"
    out
    ------- stderr -------
    err
    [exit code: 3]
    "#);
    told!(story.motu(&["run", "busybox", "--", "sh", "-c", "kill -9 $$"]), @"[exit code: 137]");
    told!(story.motu(&["run", "busybox", "--", "no-such-program"]), @r#"
    ------- stderr -------
    motu: program "no-such-program" in PATH: no such file or directory
    [exit code: 127]
    "#);
    told!(story.motu(&["run", "--json", "busybox", "--", "sh", "-c", "echo out; exit 3"]), @r#"
    {
      "sandbox_id": "sb-ID",
      "environment": "busybox",
      "exit_code": 3,
      "stdout": "out\n",
      "stderr": "",
      "truncated": false,
      "stdout_bytes": 4,
      "stderr_bytes": 0,
      "timed_out": false,
      "out_of_memory": false,
      "duration_ms": "N",
      "runtime": "container",
      "isolation": "container",
      "network": "off",
      "audit_id": "run_ID"
    }
    [exit code: 3]
    "#);
    told!(story.motu(&["run", "busybox", "--env", "A=1", "--workdir", "/tmp", "--", "sh", "-c", "echo $A $PWD"]), @"1 /tmp");
    let slow = story.motu(&[
        "run",
        "busybox",
        "--timeout-seconds",
        "1",
        "--",
        "sleep",
        "9",
    ]);
    assert_eq!(slow.code, 124, "{slow}");
    assert!(
        slow.stderr.starts_with("motu: timed out: stopped after 1."),
        "{slow}"
    );
    told!(story.motu(&["ps"]), @"ID  ENVIRONMENT  STATE  RUNTIME  ISOLATION  ACCEL  AGE  EXPIRES IN");
}

#[test]
fn input_output_and_signals_pass_through() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let mut tr = story.command(&["run", "-i", "busybox", "--", "tr", "a-z", "A-Z"]);
    let mut child = tr
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"loud\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"LOUD\n");

    // If the reader closes the pipe, the command ends quietly.
    let mut yes = story.command(&["run", "busybox", "--", "yes"]);
    let mut child = yes
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(
        (ended.status.code(), ended.stderr.len()),
        (Some(141), 0),
        "{ended:?}"
    );

    let script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done";
    let mut trap = story.command(&["run", "busybox", "--", "sh", "-c", script]);
    let mut child = trap.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(
        (ended.status.code(), &ended.stdout[..]),
        (Some(7), &b"caught\n"[..])
    );
}

#[test]
fn a_machine_that_stays() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    told!(story.motu(&["create", "busybox", "--id", "box"]), @"box");
    told!(story.motu(&["create", "busybox", "--id", "box"]), @r#"
    ------- stderr -------
    error: sandbox box exists already
    hint: choose another sandbox_id, or leave it out
    [exit code: 105]
    "#);
    told!(story.motu(&["exec", "box", "--", "hostname"]), @"box");
    std::fs::create_dir_all(story.path().join("tree/inner")).unwrap();
    std::fs::write(story.path().join("tree/inner/file"), "inside\n").unwrap();
    told!(story.motu(&["cp", "tree", "box:/tmp"]), @"");
    told!(story.motu(&["exec", "box", "--", "cat", "/tmp/tree/inner/file"]), @"inside");
    told!(story.motu(&["cp", "box:/tmp/tree/inner/file", "file"]), @"");
    told!(story.motu(&["cp", "box:/tmp/tree", "back"]), @"");
    assert_eq!(
        std::fs::read(story.path().join("file")).unwrap(),
        b"inside\n"
    );
    assert_eq!(
        std::fs::read(story.path().join("back/inner/file")).unwrap(),
        b"inside\n"
    );
    told!(story.motu(&["cp", "nothing", "box:/tmp"]), @r#"
    ------- stderr -------
    error: read nothing: no such file
    [exit code: 104]
    "#);
    told!(story.motu(&["cp", "box:/nothing", "."]), @r#"
    ------- stderr -------
    error: "/nothing": no such file or directory
    [exit code: 104]
    "#);
    told!(story.motu(&["pause", "box"]), @"box is paused");
    told!(story.motu(&["resume", "box"]), @"box is running");
    // The daemon stops; the machine continues.
    let stopped = story.motu(&["serve", "--stop"]).stdout;
    assert!(
        stopped.starts_with("stopped\n1 machine goes on without it:\n  box "),
        "{stopped}"
    );
    told!(story.motu(&["exec", "box", "--", "cat", "/tmp/tree/inner/file"]), @"inside");
    told!(story.motu(&["rm", "box"]), @"box");
    let rows = |told: motu_testkit::story::Told| {
        told.stdout
            .lines()
            .filter(|row| row.starts_with("box "))
            .count()
    };
    assert_eq!(rows(story.motu(&["ps"])), 0);
    assert_eq!(rows(story.motu(&["ps", "--all"])), 1);
    told!(story.motu(&["exec", "box", "--", "true"]), @r#"
    ------- stderr -------
    error: sandbox box was destroyed
    [exit code: 104]
    "#);
}

#[test]
fn the_demo_runs_to_its_end() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let told = story.motu(&["demo"]);
    assert!(told.code == 0, "{told}");
    assert!(told.stdout.contains("HELLO FROM THE HOST"), "{told}");
    assert!(told.stdout.contains("no network"), "{told}");
    assert!(told.stdout.contains("the shell is still here"), "{told}");
}

#[test]
fn a_command_without_its_dashes_gets_a_tip() {
    let story = Story::new();
    told!(story.motu(&["run", "busybox", "uname", "-a"]), @r#"
    ------- stderr -------
    error: unexpected argument 'uname' found

      tip: put `--` before the command and its arguments

    Usage: motu run [OPTIONS] [ENVIRONMENT] [-- <COMMAND>...]

    For more information, try '--help'.
    [exit code: 102]
    "#);
}

#[test]
fn a_time_to_live_that_ends_a_run_is_a_timeout() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    told!(story.motu(&["run", "--ttl-seconds", "1", "busybox", "--", "sleep", "20"]), @r#"
    ------- stderr -------
    error: the sandbox's time to live of 1 s was over
    hint: ask for a longer one with --ttl-seconds
    [exit code: 124]
    "#);
}
