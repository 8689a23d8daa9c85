//! Background processes of a sandbox: `motu logs`, `attach`, `wait`, `kill`, `top`.

use motu_testkit::story::{Story, Told, filters};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

fn started(story: &Story) -> String {
    let made = story.motu(&["create", "busybox", "--ttl-seconds", "300"]);
    assert_eq!(made.code, 0, "{made}");
    made.stdout.trim().to_string()
}

fn fine(told: Told) -> String {
    assert_eq!(told.code, 0, "{told}");
    told.stdout
}

fn json(told: Told) -> Value {
    serde_json::from_str(&fine(told)).unwrap()
}

#[test]
fn a_process_that_was_left_running_is_found_again() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let id = started(&story);
    // It prints, waits for a file, prints again, and exits with 7.
    let script =
        "echo first; echo oops >&2; until [ -e /tmp/go ]; do sleep 0.05; done; echo last; exit 7";
    fine(story.motu(&["exec", "-d", "--tag", "job", &id, "--", "sh", "-c", script]));

    let listed = json(story.motu(&["top", "--json", &id]));
    assert_eq!(listed["processes"][0]["tag"], "job", "{listed}");
    assert!(fine(story.motu(&["top", &id])).contains("running"));

    // The output so far; the first lines may not have arrived yet.
    let logs = loop {
        let logs = json(story.motu(&["logs", "--json", &id, "job"]));
        if logs["stdout"] == "first\n" && logs["stderr"] == "oops\n" {
            break logs;
        }
    };
    assert!(logs["process"]["exited"].is_null(), "{logs}");
    let written = story.path().join("job.log");
    let mut to_file = story.command(&["logs", &id, "job"]);
    to_file.stdout(std::fs::File::create(&written).unwrap());
    assert!(to_file.status().unwrap().success());
    assert_eq!(std::fs::read_to_string(&written).unwrap(), "first\n");
    let text = story.motu(&["logs", &id]);
    assert_eq!(
        (text.stdout.as_str(), text.stderr.as_str()),
        ("first\n", "oops\n")
    );

    // Two clients wait for its end: one for the exit code, one for the output.
    let mut waiting = story.command(&["wait", &id, "job"]).spawn().unwrap();
    let mut attached = story
        .command(&["attach", "--from-start", &id, "job"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(attached.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    fine(story.motu(&["exec", &id, "--", "touch", "/tmp/go"]));
    assert_eq!(lines.next().unwrap().unwrap(), "last");
    assert_eq!(waiting.wait().unwrap().code(), Some(7));
    assert_eq!(attached.wait().unwrap().code(), Some(7));

    // After its end all calls still work.
    assert_eq!(story.motu(&["wait", &id, "job"]).code, 7);
    assert_eq!(
        fine(story.motu(&["logs", "-f", &id, "job"])),
        "first\nlast\n"
    );
    assert!(fine(story.motu(&["top", &id])).contains("exited 7"));
}

#[test]
fn a_process_is_ended_by_name_and_mistakes_are_told() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let id = started(&story);
    let none = story.motu(&["logs", &id]).to_string();
    insta::with_settings!({filters => filters()}, { insta::assert_snapshot!(none, @r"
    ------- stderr -------
    error: nothing was started in sb-ID that is still known
    hint: `motu exec -d sb-ID -- COMMAND` starts something
    [exit code: 104]
    "); });

    fine(story.motu(&["exec", "-d", "--tag", "one", &id, "--", "sleep", "1000"]));
    fine(story.motu(&["exec", "-d", "--tag", "two", &id, "--", "sleep", "1000"]));
    let many = story.motu(&["wait", &id]);
    assert_eq!(many.code, 102, "{many}");
    assert!(many.stderr.contains("2 processes could be meant"), "{many}");
    let unknown = story.motu(&["kill", &id, "three"]);
    assert_eq!(unknown.code, 104, "{unknown}");
    let wrong = story.motu(&["kill", "--signal", "NOPE", &id, "one"]);
    assert_eq!(wrong.code, 102, "{wrong}");

    fine(story.motu(&["kill", "--signal", "TERM", &id, "one"]));
    assert_eq!(story.motu(&["wait", &id, "one"]).code, 128 + 15);
    // Only one process runs now, so no name is needed.
    fine(story.motu(&["kill", &id]));
    let ended = story.motu(&["wait", "--json", &id, "two"]);
    let how: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (ended.code, &how["signal"]),
        (128 + 9, &Value::from(9)),
        "{ended}"
    );
}

#[test]
fn a_command_that_lost_its_connection_tells_the_way_back() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let id = started(&story);
    let script = "echo begun; until [ -e /tmp/go ]; do sleep 0.05; done; echo done";
    let mut command = story
        .command(&[
            "exec",
            "--timeout-seconds",
            "120",
            &id,
            "--",
            "sh",
            "-c",
            script,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(command.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    fine(story.motu(&["serve", "--stop"]));
    let output = command.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_ne!(output.status.code(), Some(0), "{told}");
    assert!(told.contains(&format!("motu attach {id} ")), "{told}");

    // A new daemon finds it, and it runs to its end.
    fine(story.motu(&["exec", &id, "--", "touch", "/tmp/go"]));
    let end = fine(story.motu(&["attach", "--from-start", &id]));
    assert_eq!(end, "begun\ndone\n");
}

#[test]
fn an_id_may_be_shortened_and_a_workspace_named() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let id = started(&story);
    let short = &id[..10];
    assert_eq!(
        fine(story.motu(&["exec", short, "--", "echo", "hi"])),
        "hi\n"
    );
    // Too short for a prefix, but the error is clear.
    let unknown = story.motu(&["exec", "sb-", "--", "true"]);
    assert_eq!(unknown.code, 102, "{unknown}");
    let unknown = story.motu(&["exec", "sb-zz", "--", "true"]);
    assert_eq!(unknown.code, 104, "{unknown}");

    let made = json(story.motu(&[
        "workspace",
        "create",
        "busybox",
        "--name",
        "notes",
        "--json",
    ]));
    let full = made["workspace_id"].as_str().unwrap();
    let status = json(story.motu(&["workspace", "status", "notes", "--json"]));
    assert_eq!(status["workspace_id"], full, "{status}");
    // Ids chosen by a caller are never completed from a prefix.
    fine(story.motu(&["create", "busybox", "--id", "build-2"]));
    let gone = story.motu(&["rm", "build"]);
    assert_eq!(gone.code, 104, "{gone}");
    fine(story.motu(&["exec", "build-2", "--", "true"]));
    fine(story.motu(&["rm", short]));
    assert_eq!(story.motu(&["exec", &id, "--", "true"]).code, 104);
}
