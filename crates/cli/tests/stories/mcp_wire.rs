//! Protocol behaviour of the MCP server that the SDK clients never exercise.

mod sessions;

use crate::mcp::Mcp;
use motu_testkit::story::Story;
use serde_json::{Value, json};

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
