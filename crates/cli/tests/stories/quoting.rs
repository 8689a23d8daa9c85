//! What callers sent in the wrong place is not sent back: credentials in no error of any face, and the
//! values of secrets not even where no pattern knows them.

use crate::mcp::Mcp;
use motu_testkit::story::Story;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const GITHUB: &str = "ghp_0123456789abcdefABCDEF0123456789abcd";
const OPENAI: &str = "sk-proj-0123456789abcdefABCDEF0123456789abcdefABCDEF";
/// What no pattern knows.
const PASSWORD: &str = "correcthorsebattery";

#[track_caller]
fn says_none(place: &str, said: &str) {
    for value in ["0123456789abcdef", PASSWORD] {
        assert!(!said.contains(value), "{place}: {said}");
    }
}

#[test]
fn the_command_line_quotes_no_credential() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let github = format!("KEY={GITHUB}");
    let password = format!("KEY={PASSWORD}");
    let template = ["template", "create", "t", "--from", "busybox", "--secret"];
    let path = format!("/srv/{GITHUB}/x");
    let mut lines = vec![
        vec!["env", "inspect", GITHUB],
        vec!["run", GITHUB, "--", "true"],
        vec!["run", "busybox", "--policy", OPENAI, "--", "true"],
        vec!["run", "busybox", "--runtime", GITHUB, "--", "true"],
        vec!["workspace", "status", GITHUB],
        vec![
            "workspace",
            "create",
            "busybox",
            "--seed-path",
            path.as_str(),
        ],
        vec!["workspace", "create", "busybox", "--secret", GITHUB],
        vec!["terminal", "run", OPENAI, "true"],
        vec!["terminal", "screen", "none", GITHUB],
        vec!["ps", GITHUB],
        vec!["policy", "show", OPENAI],
        vec!["secret", "set", "key", PASSWORD],
        vec!["secret", "set", "key", GITHUB],
        [&template[..], &["KEY"]].concat(),
    ];
    for value in [github.as_str(), password.as_str()] {
        lines.push([&template[..], &[value]].concat());
        lines.push(vec![
            "run",
            "busybox",
            "--network",
            "--secret-ref",
            value,
            "--",
            "true",
        ]);
        lines.push(vec![
            "workspace",
            "create",
            "busybox",
            "--secret-ref",
            value,
        ]);
    }
    for line in lines {
        for json in [false, true] {
            let end = line.iter().position(|word| *word == "--");
            let mut line = line.clone();
            if json {
                line.insert(end.unwrap_or(line.len()), "--json");
            }
            let told = story.motu(&line);
            let said = format!("{}{}", told.stdout, told.stderr);
            if told.code != 0 {
                says_none(&line.join(" "), &said);
            } else {
                // A template may refer to what is made later, by the name it was given.
                assert_eq!(line[0], "template", "{line:?}: {told}");
            }
        }
    }
}

/// One request over the daemon's socket, and all that is answered.
fn asked(story: &Story, method: &str, address: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(story.home().join("daemon.sock")).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {address} HTTP/1.1\r\nhost: motu\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Requests with something where it does not belong.
fn wrong() -> Vec<(&'static str, Value)> {
    let sandbox = |more: Value| {
        let mut whole = json!({"environment": "busybox"});
        let more = more.as_object().unwrap().clone();
        whole.as_object_mut().unwrap().extend(more);
        whole
    };
    let call = |more: Value| {
        let mut whole =
            json!({"command": ["true"], "image": "busybox", "state": {"retention": "destroy"}});
        let more = more.as_object().unwrap().clone();
        whole.as_object_mut().unwrap().extend(more);
        whole
    };
    let mut all = vec![
        ("/v1/calls", call(json!({"image": GITHUB}))),
        (
            "/v1/calls",
            call(json!({"files": [{"path": format!("/{OPENAI}"), "content": ""}]})),
        ),
        ("/v1/sandboxes", json!({"environment": GITHUB})),
        ("/v1/sandboxes", sandbox(json!({ (GITHUB): true }))),
        ("/v1/sandboxes", sandbox(json!({"runtime": OPENAI}))),
        ("/v1/sandboxes", sandbox(json!({"sandbox_id": GITHUB}))),
    ];
    for value in [GITHUB, OPENAI, PASSWORD] {
        all.extend([
            ("/v1/calls", call(json!({"secrets": {"KEY": value}}))),
            (
                "/v1/calls",
                call(json!({"secrets": {"KEY": {"ref": value}}})),
            ),
            ("/v1/calls", call(json!({ "secrets": value }))),
            (
                "/v1/sandboxes",
                sandbox(json!({"secret_refs": {"KEY": value}, "network": true})),
            ),
            (
                "/v1/sandboxes",
                sandbox(json!({"secret_refs": {"KEY": {"ref": value}}, "network": true})),
            ),
            ("/v1/workspaces", sandbox(json!({ "secrets": value }))),
            ("/v1/workspaces", sandbox(json!({"secrets": [value]}))),
            (
                "/v1/workspaces",
                sandbox(json!({"secrets": [{"name": "KEY", "value": [value]}]})),
            ),
        ]);
    }
    all
}

#[test]
fn rest_quotes_no_credential() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    assert_eq!(story.motu(&["ps"]).code, 0);
    for (address, body) in wrong() {
        let answer = asked(&story, "POST", address, &body.to_string());
        assert!(answer.starts_with("HTTP/1.1 4"), "{body}: {answer}");
        says_none(&body.to_string(), &answer);
    }
    let longer = [
        format!("/v1/sandboxes/{GITHUB}"),
        format!("/v1/sandboxes?limit={GITHUB}"),
        format!("/v1/environments/{OPENAI}"),
        format!("/v1/audit/entries/{GITHUB}"),
        format!("/v1/sandboxes/none/ports/{OPENAI}"),
    ];
    for address in longer {
        let answer = asked(&story, "GET", &address, "");
        assert!(answer.starts_with("HTTP/1.1 4"), "{address}: {answer}");
        says_none(&address, &answer);
    }
}

#[test]
fn a_model_is_quoted_no_credential() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let mut mcp = Mcp::start(&story, &["--profile", "all"], "2025-11-25");
    let mut asks = vec![
        (GITHUB, json!({})),
        ("vm_run", json!({"command": "true", (GITHUB): 1})),
        ("vm_run", json!({"command": "true", "environment": GITHUB})),
        ("workspace_status", json!({"workspace_id": GITHUB})),
        (
            "workspace_create",
            json!({"seed_path": format!("/{OPENAI}")}),
        ),
    ];
    for value in [GITHUB, OPENAI, PASSWORD] {
        let state = json!({"retention": "destroy"});
        let call = |secrets: Value| json!({"command": ["true"], "image": "busybox", "secrets": secrets, "state": state});
        asks.extend([
            ("call", call(json!(value))),
            ("call", call(json!({ "KEY": value }))),
            ("call", call(json!({"KEY": {"ref": value}}))),
            ("workspace_create", json!({"environment": "busybox", "secrets": value})),
            ("workspace_create", json!({"environment": "busybox", "secrets": [value]})),
            (
                "vm_run",
                json!({"command": "true", "environment": "busybox", "network": true, "secret_refs": {"KEY": value}}),
            ),
            (
                "workspace_create",
                json!({"environment": "busybox", "secret_refs": {"KEY": value}}),
            ),
        ]);
    }
    for (tool, arguments) in asks {
        let answer = mcp.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        let failed = answer["error"].is_object() || answer["result"]["isError"] == true;
        assert!(failed, "{tool} {arguments}: {answer}");
        says_none(&format!("{tool} {arguments}"), &answer.to_string());
    }
    let read = mcp.ask(
        "resources/read",
        &json!({"uri": format!("motu://{GITHUB}")}),
    );
    says_none("resources/read", &read.to_string());
}
