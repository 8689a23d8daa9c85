//! Typed calls, from the command line to a real machine and back.

mod failing;
mod kept;

use motu_testkit::story::{Story, Told};
use serde_json::{Value, json};
use std::path::Path;

const POLICY: &str = r#"
version = 1
[call]
images = ["busybox"]
secrets = ["api-key"]
max_timeout_seconds = 60
[call.languages]
sh = "busybox"
"#;

/// Files of this size are unused disks prepared in advance, and are not searched.
const DISK: u64 = 64 << 20;

/// Long enough to be redacted from output.
const VALUE: &str = "hunter2-hunter2-hunter2";

struct World {
    story: Story,
}

impl World {
    fn new() -> Option<World> {
        let story = Story::with_machines()?;
        std::fs::create_dir(story.home().join("policies")).unwrap();
        std::fs::write(story.home().join("policies/calls.toml"), POLICY).unwrap();
        Some(World { story })
    }

    fn call(&self, request: &Value) -> Told {
        let file = self.story.path().join("call.json");
        std::fs::write(&file, request.to_string()).unwrap();
        let arguments = [
            "call",
            "--request",
            "call.json",
            "--policy",
            "calls",
            "--json",
        ];
        self.story.motu(&arguments)
    }

    /// The answer of a call whose command ran.
    fn answered(&self, request: &Value) -> Value {
        let told = self.call(request);
        serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{told}"))
    }

    /// The error of a call whose command did not run.
    fn refused(&self, request: &Value) -> Value {
        let told = self.call(request);
        assert_ne!(told.code, 0, "{told}");
        let error: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{told}"));
        error["error"].clone()
    }
}

fn script(text: &str) -> Value {
    json!({"language": "sh", "command": ["sh", "-c", text], "state": {"retention": "destroy"}})
}

fn with(mut request: Value, more: Value) -> Value {
    request
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    request
}

#[test]
fn files_go_in_and_come_out_and_nothing_stays() {
    let Some(world) = World::new() else { return };
    let request = with(
        script("./tool.sh; cat data/in.txt > out.txt; printf '\\377' > raw; pwd"),
        json!({
            "files": [
                {"path": "tool.sh", "content": "#!/bin/sh\necho tool\n", "executable": true},
                {"path": "/work/data/in.txt", "content": "aGVsbG8=", "encoding": "base64"},
            ],
            "files_out": ["out.txt", "/work/raw", "missing"],
        }),
    );
    let answer = world.answered(&request);
    assert_eq!(answer["stdout"], "tool\n/work\n", "{answer}");
    assert_eq!(answer["exit_code"], 0);
    assert_eq!(answer["failure"], Value::Null);
    assert_eq!(answer["retention"], "destroy");
    assert_eq!(answer["policy"]["name"], "calls");
    let audited = answer["audit_id"].as_str().unwrap();
    let entry = world.story.motu(&["audit", "show", audited, "--json"]);
    assert!(
        entry
            .stdout
            .contains(answer["policy"]["hash"].as_str().unwrap()),
        "{entry}"
    );
    let out = &answer["files_out"];
    assert_eq!(
        (&out[0]["content"], &out[0]["bytes"]),
        (&json!("hello"), &json!(5))
    );
    assert_eq!(
        (&out[1]["content"], &out[1]["encoding"]),
        (&json!("/w=="), &json!("base64"))
    );
    assert!(out[2]["error"].is_string(), "{out}");
    let id = answer["sandbox_id"].as_str().unwrap();
    let left: Value = serde_json::from_str(&world.story.motu(&["ps", "--json"]).stdout).unwrap();
    let left = left["sandboxes"].as_array().unwrap();
    assert!(!left.iter().any(|one| one["sandbox_id"] == id), "{left:?}");
}

#[test]
fn every_failure_says_its_class() {
    let Some(world) = World::new() else { return };
    let failed = world.answered(&script("echo half; exit 3"));
    assert_eq!(
        failed["failure"]["class"], "guest_command_failure",
        "{failed}"
    );
    assert_eq!(
        (&failed["exit_code"], &failed["stdout"]),
        (&json!(3), &json!("half\n"))
    );
    let late = with(
        script("echo before; sleep 100"),
        json!({"timeout_seconds": 1}),
    );
    let late = world.answered(&late);
    assert_eq!(late["failure"]["class"], "timeout", "{late}");
    assert_eq!(
        (&late["timed_out"], &late["stdout"]),
        (&json!(true), &json!("before\n"))
    );
    assert_eq!(late["exit_code"], Value::Null);
    for (more, kind, class) in [
        (
            json!({"language": null, "image": "debian:12"}),
            "denied",
            "policy_denial",
        ),
        (
            json!({"secrets": {"K": {"ref": "other"}}}),
            "denied",
            "policy_denial",
        ),
        (
            json!({"network": {"mode": "bridge"}}),
            "denied",
            "policy_denial",
        ),
        (
            json!({"files": [{"path": "/etc/passwd", "content": ""}]}),
            "invalid",
            "validation_failure",
        ),
        (
            json!({"timeout_seconds": 61}),
            "invalid",
            "validation_failure",
        ),
        (json!({"state": null}), "invalid", "validation_failure"),
        (
            json!({"secrets": {"K": {"ref": "api-key"}}}),
            "not_found",
            "validation_failure",
        ),
    ] {
        let error = world.refused(&with(script("true"), more.clone()));
        assert_eq!(error["kind"], kind, "{more}: {error}");
        assert_eq!(error["details"]["class"], class, "{more}: {error}");
        assert!(error["details"]["retry"].is_string(), "{error}");
        assert!(error["details"]["audit_id"].is_string(), "{error}");
    }
}

#[test]
fn a_secret_is_used_and_never_seen() {
    let Some(world) = World::new() else { return };
    let value = world.story.path().join("value");
    std::fs::write(&value, VALUE).unwrap();
    let set = world
        .story
        .motu(&["secret", "set", "api-key", "--file", "value", "--json"]);
    assert_eq!(set.code, 0, "{set}");
    std::fs::remove_file(value).unwrap();
    let request = with(
        script("echo $KEY; echo $KEY | base64; echo $KEY >&2; echo $KEY > out; [ ${#KEY} = 23 ]"),
        json!({"secrets": {"KEY": {"ref": "api-key"}}, "files_out": ["out"]}),
    );
    let told = world.call(&request);
    assert_eq!(told.code, 0, "{told}");
    assert!(!told.to_string().contains(VALUE), "{told}");
    assert!(told.stdout.contains("[redacted KEY]"), "{told}");
    let listed = world.story.motu(&["secret", "list"]);
    assert!(
        listed.stdout.contains("api-key") && !listed.stdout.contains(VALUE),
        "{listed}"
    );
    // Stop the daemon first, so that everything is written to disk before the search.
    assert_eq!(world.story.motu(&["serve", "--stop"]).code, 0);
    assert_eq!(holding(&world.story.home(), VALUE.as_bytes()), [""; 0]);
    let rotated = world
        .story
        .motu(&["secret", "rotate", "none-such", "--variable", "X"]);
    assert_eq!(rotated.code, 104, "{rotated}");
    assert_eq!(world.story.motu(&["secret", "rm", "api-key"]).code, 0);
}

#[test]
fn well_known_credentials_are_taken_out_of_calls_and_workspaces_but_not_of_plain_commands() {
    let Some(world) = World::new() else { return };
    // In two parts, so that the command itself does not contain it.
    let (echo, token) = (
        "echo npm_$(printf 'a1%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18)",
        "npm_".to_string() + &"a1".repeat(18),
    );
    let answer = world.answered(&script(echo));
    assert_eq!(answer["stdout"], "npm_[redacted npm-token]\n", "{answer}");
    let run = ["run", "busybox", "--", "sh", "-c", echo];
    assert_eq!(world.story.motu(&run).stdout.trim(), token);
    let made = world
        .story
        .motu(&["workspace", "create", "busybox", "--id", "ws-net"]);
    assert_eq!(made.code, 0, "{made}");
    let exec = ["workspace", "exec", "ws-net", "--", "sh", "-c", echo];
    let told = world.story.motu(&exec);
    assert_eq!(told.stdout, "npm_[redacted npm-token]\n", "{told}");
    let history = world.story.motu(&["workspace", "logs", "ws-net"]);
    assert!(!history.stdout.contains(&token), "{history}");
}

#[test]
fn a_dry_run_tells_everything_and_starts_nothing() {
    let Some(world) = World::new() else { return };
    let dry = |request: &Value| -> (i32, Value) {
        let file = world.story.path().join("call.json");
        std::fs::write(&file, request.to_string()).unwrap();
        let words = "call --request call.json --policy calls --dry-run --json";
        let told = world.story.motu(&words.split(' ').collect::<Vec<_>>());
        let plan = serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{told}"));
        (told.code, plan)
    };
    let (code, plan) = dry(&script("echo never"));
    assert_eq!((code, &plan["allowed"]), (0, &json!(true)), "{plan}");
    assert_eq!(plan["environment"], "busybox");
    assert!(plan["runtime"].is_string(), "{plan}");
    // Several fields are wrong, and each is reported.
    let wrong = with(
        script("true"),
        json!({
            "language": "cobol",
            "timeout_seconds": 100_000,
            "secrets": {"KEY": {"ref": "other"}},
            "network": {"mode": "bridge", "allow": [{"host": "example.com", "port": 443}]},
        }),
    );
    let (code, plan) = dry(&wrong);
    assert_eq!((code, &plan["allowed"]), (103, &json!(false)), "{plan}");
    let checks = plan["checks"].as_array().unwrap();
    let refused: Vec<&Value> = checks
        .iter()
        .filter(|one| one["allowed"] == false)
        .collect();
    let names: Vec<&str> = refused
        .iter()
        .map(|one| one["check"].as_str().unwrap())
        .collect();
    let expected = [
        "times and sizes",
        "secrets",
        "environment",
        "network",
        "secrets are kept",
    ];
    assert_eq!(names, expected, "{plan}");
    assert_eq!(refused[1]["rule"], "call.secrets", "{plan}");
    assert_eq!(refused[1]["class"], "policy_denial", "{plan}");
    assert_eq!(plan["destinations"][0]["allowed"], false, "{plan}");
    // The log records it as a dry run, and no sandbox was ever created.
    let log = world.story.motu(&["audit", "list", "--json"]);
    assert!(log.stdout.contains("\"dry_run_call\""), "{log}");
    let sandboxes = world.story.motu(&["ps", "--all", "--json"]);
    assert!(!sandboxes.stdout.contains("sandbox_id"), "{sandboxes}");
}

/// The files below a directory that contain these bytes.
fn holding(directory: &Path, bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() && entry.file_name() != "environments" {
            found.extend(holding(&path, bytes));
        } else if kind.is_file() && entry.metadata().unwrap().len() < DISK {
            let content = std::fs::read(&path).unwrap();
            if content.windows(bytes.len()).any(|window| window == bytes) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[test]
fn a_state_is_kept_as_it_was_asked_for() {
    let Some(world) = World::new() else { return };
    for (retention, state) in [
        ("stop", "stopped"),
        ("cold", "paused"),
        ("snapshot", "stopped"),
    ] {
        let request = with(
            script("echo kept > file"),
            json!({"state": {"retention": retention, "ttl_seconds": 600}}),
        );
        let answer = world.answered(&request);
        assert_eq!(answer["failure"], Value::Null, "{answer}");
        assert!(answer["expires_at"].is_string(), "{answer}");
        let id = answer["sandbox_id"].as_str().unwrap();
        let shown = world.story.motu(&["workspace", "status", id, "--json"]);
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        assert_eq!(shown["state"], state, "{shown}");
        assert_eq!(shown["labels"]["motu.call"], retention);
        match retention {
            "cold" => assert_eq!(world.story.motu(&["resume", id]).code, 0),
            _ => assert_eq!(world.story.motu(&["workspace", "start", id]).code, 0),
        }
        let read = world
            .story
            .motu(&["workspace", "exec", id, "--", "cat", "/work/file"]);
        assert_eq!(read.stdout, "kept\n", "{read}");
        if retention == "snapshot" {
            assert_eq!(answer["snapshot"], "call");
            let snapshots = world.story.motu(&["workspace", "snapshot", "list", id]);
            assert!(snapshots.stdout.contains("call"), "{snapshots}");
        }
        assert_eq!(world.story.motu(&["workspace", "delete", id]).code, 0);
    }
}
