//! Protocol behaviour of the MCP server that the SDK clients never exercise.

mod sessions;

use crate::mcp::Mcp;
use motu_testkit::story::Story;
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

const NEWER: &str = "2025-11-25";

#[test]
fn every_line_gets_its_answer() {
    let story = Story::new();
    let mut mcp = Mcp::start(&story, &["--profile", "all"], NEWER);
    mcp.say("{this is not json");
    let answer = mcp.answer(&Value::Null);
    assert_eq!(answer["error"]["code"], -32700, "{answer}");
    mcp.say("[]");
    assert_eq!(mcp.answer(&Value::Null)["error"]["code"], -32600);

    // Twenty megabytes, with the id before and after them.
    let long = "x".repeat(20_000_000);
    mcp.say(&format!(
        r#"{{"jsonrpc":"2.0","id":"first","method":"tools/call","params":{{"name":"{long}"}}}}"#
    ));
    assert_eq!(mcp.answer(&json!("first"))["error"]["code"], -32600);
    mcp.say(&format!(
        r#"{{"method":"tools/call","params":{{"name":"{long}"}},"jsonrpc":"2.0","id":77}}"#
    ));
    assert_eq!(mcp.answer(&json!(77))["error"]["code"], -32600);

    for (method, params, code) in [
        (
            "tools/call",
            json!({"name": "vm_run", "arguments": []}),
            -32602,
        ),
        (
            "tools/call",
            json!({"name": "vm_run", "arguments": "echo"}),
            -32602,
        ),
        ("tools/call", json!({}), -32602),
        ("tools/call", json!({"name": "no_such_tool"}), -32602),
        ("resources/read", json!({"uri": 3}), -32602),
        ("prompts/list", json!({}), -32601),
        ("prompts/get", json!({"name": "x"}), -32601),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}}),
            -32601,
        ),
        ("no/such/method", json!({}), -32601),
    ] {
        let answer = mcp.ask(method, &params);
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
    }
    // Invalid arguments are reported to the model, which can correct them.
    let wrong = mcp.result("vm_run", &json!({"timeout_seconds": 0}));
    assert_eq!(wrong["isError"], true, "{wrong}");
    let uri = "motu://outputs/o-none";
    let missing = mcp.ask("resources/read", &json!({"uri": uri}));
    assert_eq!(missing["error"]["code"], -32002, "{missing}");
    assert_eq!(missing["error"]["data"]["uri"], uri);
    assert!(
        !story.home().join("daemon.sock").exists(),
        "it started a daemon"
    );
}

/// What a server answers to these requests after the `initialize` request, when its input ends
/// after the last of them. It must leave by itself.
fn answers(story: &Story, options: &[&str], input: Input, requests: &[Value]) -> Vec<Value> {
    let hello = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": NEWER, "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "lines", "version": "1"},
        },
    });
    let lines: Vec<String> = [&[hello], requests]
        .concat()
        .iter()
        .map(Value::to_string)
        .collect();
    // The last line has no newline.
    let text = lines.join("\n");
    let mut command = story.command(&[&["mcp", "serve"], options].concat());
    command.stdout(Stdio::piped());
    let mut server = match input {
        Input::File => {
            let file = story.path().join("requests");
            std::fs::write(&file, &text).unwrap();
            command.stdin(std::fs::File::open(&file).unwrap());
            command.spawn().unwrap()
        }
        Input::Pipe => command.stdin(Stdio::piped()).spawn().unwrap(),
    };
    if let Some(mut pipe) = server.stdin.take() {
        pipe.write_all(text.as_bytes()).unwrap();
    }
    let told = server.wait_with_output().unwrap();
    assert!(told.status.success(), "{told:?}");
    let told = String::from_utf8(told.stdout).unwrap();
    told.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[derive(Clone, Copy)]
enum Input {
    Pipe,
    File,
}

fn tool(id: u64, name: &str, arguments: Value) -> Value {
    let params = json!({"name": name, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

fn of(answers: &[Value], id: u64) -> &Value {
    let found = answers
        .iter()
        .find(|answer| answer["id"] == id && answer["method"].is_null());
    found.unwrap_or_else(|| panic!("no answer to {id}: {answers:?}"))
}

#[test]
fn what_was_read_before_the_input_ended_is_answered() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    for input in [Input::Pipe, Input::File] {
        // A command may go on for longer than anything else waits for it.
        let requests = [
            tool(
                1,
                "vm_run",
                json!({"command": "sleep 7; echo late", "environment": "busybox"}),
            ),
            json!({"jsonrpc": "2.0", "id": 2, "method": "no/such/method"}),
            tool(
                3,
                "vm_run",
                json!({"command": ["echo", "$HOME"], "environment": "busybox"}),
            ),
            json!({"jsonrpc": "2.0", "id": 4, "method": "tools/list"}),
        ];
        let all = answers(&story, &["--profile", "vm-run"], input, &requests);
        let said = |id| of(&all, id)["result"]["structuredContent"]["stdout"].clone();
        assert_eq!(said(1), "late\n", "{all:?}");
        assert_eq!(of(&all, 2)["error"]["code"], -32601);
        assert_eq!(said(3), "$HOME\n", "{all:?}");
        assert!(of(&all, 4)["result"]["tools"].is_array());
    }
}

#[test]
fn a_question_after_the_input_ended_is_answered_by_nobody() {
    let story = Story::new();
    let begun = std::time::Instant::now();
    let asks = tool(1, "workspace_delete", json!({"workspace_id": "ws-1"}));
    let all = answers(&story, &[], Input::Pipe, &[asks]);
    assert!(
        all.iter()
            .any(|told| told["method"] == "elicitation/create")
    );
    let result = &of(&all, 1)["result"];
    assert_eq!(result["isError"], true, "{all:?}");
    let message = result["structuredContent"]["message"].as_str().unwrap();
    assert!(message.contains("has closed its end"), "{message}");
    // A person would have had ten minutes.
    assert!(begun.elapsed().as_secs() < 60);
}

#[test]
fn a_client_that_reads_text_alone_reads_json() {
    let story = Story::new();
    let asked = json!({"command": "true", "no_such_field": 1});
    for (revision, options, is_json) in [
        ("2024-11-05", &[][..], true),
        ("2025-03-26", &[], true),
        ("2025-03-26", &["--text", "plain"], false),
        (NEWER, &[], false),
        (NEWER, &["--text", "json"], true),
    ] {
        let mut mcp = Mcp::start(&story, options, revision);
        let result = mcp.result("vm_run", &asked);
        let text = result["content"][0]["text"].as_str().unwrap();
        let read: Result<Value, _> = serde_json::from_str(text);
        assert_eq!(read.is_ok(), is_json, "{revision} {options:?}: {text}");
        if let Ok(read) = read {
            assert_eq!(read, result["structuredContent"]);
        }
    }
}

#[test]
fn a_machine_is_asked_for_by_its_isolation_or_its_runtime() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let mut mcp = Mcp::start(&story, &["--profile", "all"], NEWER);
    let given = |more: Value| {
        let mut given = json!({"command": "echo hi", "environment": "busybox"});
        given
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        given
    };
    let ran = mcp.call("vm_run", &given(json!({"runtime": "container"})));
    assert_eq!(ran["runtime"], "container", "{ran}");
    let ran = mcp.call("vm_run", &given(json!({"isolation": "container"})));
    assert_eq!(ran["stdout"], "hi\n", "{ran}");
    let refused = mcp.call("vm_run", &given(json!({"runtime": "no-such-runtime"})));
    assert!(refused["kind"].is_string(), "{refused}");
    // The story's daemon has one runtime, whose isolation is weaker.
    let weak = json!({"environment": "busybox", "isolation": "vm", "runtime": "container"});
    let refused = mcp.call("workspace_create", &weak);
    assert!(refused["kind"].is_string(), "{refused}");
}

#[test]
fn names_of_other_contracts_stand_beside_ours() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let mut mcp = Mcp::start(&story, &["--profile", "all"], NEWER);
    let made = json!({"environment": "busybox", "ttl_seconds": 3600});
    let made = mcp.call("workspace_create", &made);
    assert!(made["expires_at"].is_string(), "{made}");
    let id = made["workspace_id"].clone();
    let with = |more: Value| {
        let mut all = json!({"workspace_id": id});
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        all
    };
    let ran = mcp.call(
        "workspace_exec",
        &with(json!({"command": ["echo", "it's"]})),
    );
    assert_eq!(ran["stdout"], "it's\n", "{ran}");
    assert_eq!(ran["command"], "echo 'it'\\''s'");
    assert_eq!(
        (&ran["cwd"], &ran["execution_mode"]),
        (&json!("/workspace"), &json!("guest_vsock"))
    );
    let saved = mcp.call("snapshot_create", &with(json!({"snapshot_name": "one"})));
    assert_eq!(saved["snapshot"]["snapshot_name"], "one", "{saved}");
    let service = with(json!({
        "service_name": "web", "command": "touch ready; sleep 1000", "ready_file": "ready",
    }));
    let started = mcp.call("service_start", &service);
    assert_eq!(started["state"], "running", "{started}");
    let twice = with(json!({
        "service_name": "two", "command": "true", "ready_file": "a", "ready_command": "true",
    }));
    assert_eq!(mcp.call("service_start", &twice)["kind"], "invalid");
    let shell = mcp.call("shell_open", &with(json!({})))["shell_id"].clone();
    let closed = mcp.call("shell_close", &with(json!({"shell_id": shell})));
    assert_eq!(closed["closed"], true, "{closed}");
    let reset = mcp.call("workspace_reset", &with(json!({"snapshot": "one"})));
    assert_eq!(reset["workspace_reset"]["snapshot_name"], "one", "{reset}");
    let gone = mcp.call("snapshot_delete", &with(json!({"snapshot_name": "one"})));
    assert_eq!(gone["deleted"], true, "{gone}");
    assert_eq!(
        mcp.call("workspace_delete", &with(json!({})))["deleted"],
        true
    );
}

/// A story with the environments that all tests share, because sessions start from debian:12.
fn with_debian() -> Option<Story> {
    Story::with_debian("container")
}

/// The uri of the first notification that a resource has changed.
fn updated(mcp: &mut Mcp) -> Value {
    loop {
        let message = match mcp.heard.is_empty() {
            true => mcp.next(),
            false => mcp.heard.remove(0),
        };
        if message["method"] == "notifications/resources/updated" {
            return message["params"]["uri"].clone();
        }
    }
}

#[test]
fn a_terminal_is_followed() {
    let Some(story) = with_debian() else {
        return;
    };
    let options = ["--profile", "terminal", "--share-sessions"];
    let mut mcp = Mcp::start(&story, &options, NEWER);
    let opened = mcp.call("create_session", &json!({"session_id": "build"}));
    assert_eq!(opened["session_id"], "build", "{opened}");
    let uri = "motu://terminals/build/transcript";
    let answer = mcp.ask("resources/subscribe", &json!({"uri": uri}));
    assert!(answer["error"].is_null(), "{answer}");
    // Another client types; this one is notified.
    let mut other = Mcp::start(&story, &options, NEWER);
    let typed = json!({"session_id": "build", "command": "echo new''s"});
    other.call("run", &typed);
    assert_eq!(updated(&mut mcp), uri);
    let mut text = String::new();
    while !text.contains("news") {
        let read = mcp.ask("resources/read", &json!({"uri": uri}));
        text = read["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .to_string();
    }
    // The end of a session is notified too.
    mcp.heard.clear();
    other.call("terminate", &json!({"session_id": "build"}));
    assert_eq!(updated(&mut mcp), uri);
    for (uri, code) in [
        ("motu://terminals/nobody/screen", -32002),
        ("motu://outputs/o-none", -32602),
    ] {
        let refused = mcp.ask("resources/subscribe", &json!({"uri": uri}));
        assert_eq!(refused["error"]["code"], code, "{refused}");
        assert_eq!(refused["error"]["data"]["uri"], uri);
    }
}

#[test]
fn a_directory_of_the_host_is_not_in_the_machine() {
    let Some(story) = with_debian() else {
        return;
    };
    let project = story.path().join("project");
    std::fs::create_dir(&project).unwrap();
    let mut mcp = Mcp::start(&story, &["--profile", "terminal"], NEWER);
    let asked = json!({"session_id": "build", "cwd": project});
    let refused = mcp.call("create_session", &asked);
    let hint = refused["hint"].as_str().unwrap_or_default();
    assert!(
        hint.contains("--host") && hint.contains("seed"),
        "{refused}"
    );
}
