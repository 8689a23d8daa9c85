//! Sessions: opening, naming and reading them.

use crate::tools::desk::{Desk, Person, desk, desk_with};
use motu_mcp::{Approvals, Options, Place, Profile};
use rmcp::model::*;
use serde_json::json;

#[tokio::test]
async fn a_session_is_opened_by_its_first_use_and_not_by_a_look() {
    let options = Options {
        profile: Profile::Terminal,
        approvals: Approvals::Auto,
        ..Options::default()
    };
    let desk = desk_with(Person::new(ProtocolVersion::V_2025_11_25, None), options).await;
    let looked = desk.told("get_screen", json!({"session_id": "a"})).await;
    assert_eq!(looked["status"], "unknown");
    assert_eq!(desk.stub.calls("open_terminal"), 0);
    let ran = desk
        .told("run", json!({"session_id": "a", "command": "ls"}))
        .await;
    for field in [
        "status",
        "prompt",
        "output",
        "timed_out",
        "output_truncated",
        "dropped_bytes",
        "state_reason",
    ] {
        assert!(ran.get(field).is_some(), "{field}");
    }
    assert_eq!(ran["exit_code"], 0);
    assert_eq!(ran["output"], "ls\n");
    assert_eq!(desk.stub.calls("open_terminal"), 1);
    desk.told("run", json!({"session_id": "a", "command": "ls"}))
        .await;
    assert_eq!(desk.stub.calls("open_terminal"), 1);
    assert_eq!(
        desk.told("terminate", json!({"session_id": "a"})).await["status"],
        "terminated"
    );
    for (tool, given) in [
        ("run", json!({"session_id": "a", "command": "ls"})),
        ("get_metadata", json!({"session_id": "a"})),
        ("create_session", json!({"session_id": "a", "cwd": "/"})),
        ("terminate", json!({"session_id": "a"})),
    ] {
        assert_eq!(
            desk.told(tool, given).await["status"],
            "terminated",
            "{tool}"
        );
    }
}

#[tokio::test]
async fn explicit_sessions_are_opened_by_name_alone() {
    let options = Options {
        profile: Profile::Terminal,
        explicit_sessions: true,
        place: Place::In(motu_core::SandboxId::parse("ws-9").unwrap()),
        ..Options::default()
    };
    let desk = desk_with(Person::new(ProtocolVersion::V_2025_06_18, None), options).await;
    let ran = desk
        .told("run", json!({"session_id": "a", "command": "ls"}))
        .await;
    assert_eq!(ran["status"], "unknown");
    assert!(
        ran["state_reason"]
            .as_str()
            .unwrap()
            .contains("create_session")
    );
    let made = desk
        .told("create_session", json!({"session_id": "a", "cwd": "/src"}))
        .await;
    assert_eq!(made["created"], true);
    let asked = desk.stub.recorder.asked::<motu_core::verb::OpenTerminal>()[0].clone();
    assert_eq!(asked["sandbox_id"], "ws-9");
    assert_eq!(asked["cwd"], "/src");
    assert_eq!(
        desk.told("run", json!({"session_id": "a", "command": "ls"}))
            .await["status"],
        "ready"
    );
}

#[tokio::test]
async fn both_generations_of_names_are_known() {
    let desk = desk(Profile::Terminal).await;
    desk.told("create_session", json!({"session_id": "a", "tag": "x"}))
        .await;
    let older = json!({"session_id": "a", "tag": "build", "prompt_regex": "> $"});
    let newer = json!({"session_id": "a", "description": "build", "shell_prompt_regex": "> $"});
    for given in [older, newer] {
        let set = desk.told("configure_session", given).await;
        assert_eq!(
            (&set["tag"], &set["description"]),
            (&json!("build"), &json!("build"))
        );
        assert_eq!(
            (&set["prompt_regex"], &set["shell_prompt_regex"]),
            (&json!("> $"), &json!("> $"))
        );
    }
    let both = json!({"session_id": "a", "tag": "x", "description": "y"});
    assert_eq!(desk.refused("configure_session", both).await.0, "invalid");
}

#[tokio::test]
async fn what_was_expected_is_beside_the_rest() {
    let desk = desk(Profile::Terminal).await;
    let given = json!({"session_id": "a", "pattern": "port (\\d+)( x)?"});
    let found = desk.told("expect", given).await;
    assert_eq!(found["matched"], true);
    assert_eq!(found["match"], "port 80");
    assert_eq!(found["groups"][0], "80");
    assert_eq!(found["next_cursor"], "20");
    let (code, _) = desk.refused("expect", json!({"session_id": "a"})).await;
    assert_eq!(code, "invalid");
}

#[tokio::test]
async fn a_screen_can_be_a_picture() {
    let desk = desk(Profile::Terminal).await;
    desk.told("run", json!({"session_id": "a b", "command": "ls"}))
        .await;
    let result = desk
        .call("get_screen", json!({"session_id": "a b", "format": "png"}))
        .await;
    let image = result
        .content
        .iter()
        .find_map(|block| block.as_image())
        .unwrap();
    assert_eq!(
        (image.mime_type.as_str(), image.data.as_str()),
        ("image/png", "iVBORw0KGgo=")
    );
    let listed = desk.client.list_resources(None).await.unwrap().resources;
    let uris: Vec<&str> = listed.iter().map(|one| one.uri.as_str()).collect();
    assert!(uris.contains(&"motu://terminals/a%20b/screen"), "{uris:?}");
    let png = ReadResourceRequestParams::new("motu://terminals/a%20b/screen.png");
    let read = desk.client.read_resource(png).await.unwrap();
    assert!(matches!(
        &read.contents[0],
        ResourceContents::BlobResourceContents { .. }
    ));
}

/// A client that cannot ask anybody, and whose server has these names.
async fn alone(scope: Option<&str>, explicit_sessions: bool) -> Desk {
    let options = Options {
        profile: Profile::Terminal,
        approvals: Approvals::Always,
        scope: scope.map(String::from),
        explicit_sessions,
        ..Options::default()
    };
    desk_with(Person::new(ProtocolVersion::V_2025_11_25, None), options).await
}

/// Puts a session into the stub that no client of this server has opened.
fn left(desk: &Desk, name: &str, ended: bool) {
    let mut all = desk.stub.terminals.lock().unwrap();
    all.insert(name.to_string(), ended);
}

#[tokio::test]
async fn a_server_ends_what_it_has_opened_without_a_person() {
    let mine = json!({"session_id": "mine"});
    let run = json!({"session_id": "mine", "command": "ls"});
    for scope in [None, Some("word")] {
        let desk = alone(scope, false).await;
        left(&desk, "theirs", false);
        desk.told("run", run.clone()).await;
        let ended = desk.told("terminate", mine.clone()).await;
        assert_eq!(ended["status"], "terminated");
    }
    // Somebody else's: what it types there it may, but not end it.
    let desk = alone(None, false).await;
    left(&desk, "theirs", false);
    let theirs = json!({"session_id": "theirs"});
    desk.told("run", json!({"session_id": "theirs", "command": "ls"}))
        .await;
    desk.told("create_session", theirs.clone()).await;
    let (kind, _) = desk.refused("terminate", theirs).await;
    assert_eq!(kind, "denied");
    assert_eq!(desk.stub.calls("terminate_terminal"), 0);
    // One with its own name, which an earlier server of that name has left.
    let desk = alone(Some("word"), false).await;
    left(&desk, "mine@word", false);
    desk.told("terminate", mine).await;
    assert_eq!(desk.stub.calls("terminate_terminal"), 1);
}

#[tokio::test]
async fn the_name_of_a_session_that_ended_with_an_earlier_server_is_free() {
    let run = json!({"session_id": "a", "command": "ls"});
    let desk = alone(Some("word"), false).await;
    left(&desk, "a@word", true);
    for _ in 0..2 {
        desk.told("run", run.clone()).await;
        assert_eq!(desk.stub.calls("open_terminal"), 1);
    }
    let desk = alone(Some("word"), true).await;
    left(&desk, "a@word", true);
    let unknown = desk.told("run", run).await;
    assert_eq!(unknown["status"], "unknown");
    let reason = unknown["state_reason"].as_str().unwrap();
    assert!(reason.contains("earlier server"), "{reason}");
    assert_eq!(desk.stub.calls("open_terminal"), 0);
}

#[tokio::test]
async fn a_session_is_described_before_it_is_opened() {
    let desk = desk(Profile::Terminal).await;
    let given = json!({"session_id": "a", "tag": "build", "shell_prompt_regex": "> $"});
    let kept = desk.told("configure_session", given).await;
    assert_eq!(kept["session_exists"], false, "{kept}");
    let later = json!({"session_id": "a", "quiescence_ms": 250});
    desk.told("configure_session", later).await;
    let looked = desk.told("get_metadata", json!({"session_id": "a"})).await;
    assert_eq!(
        (
            &looked["tag"],
            &looked["prompt_regex"],
            &looked["quiescence_ms"]
        ),
        (&json!("build"), &json!("> $"), &json!(250))
    );
    assert_eq!(desk.stub.calls("open_terminal"), 0);
    desk.told("run", json!({"session_id": "a", "command": "ls"}))
        .await;
    let asked = desk.stub.recorder.asked::<motu_core::verb::OpenTerminal>();
    assert_eq!(
        (
            &asked[0]["description"],
            &asked[0]["prompt_regex"],
            &asked[0]["quiescence_ms"]
        ),
        (&json!("build"), &json!("> $"), &json!(250))
    );
    // What is said when it is opened counts more, and what cannot be is refused at once.
    let given = json!({"session_id": "b", "tag": "one", "prompt_regex": "% $"});
    desk.told("configure_session", given).await;
    desk.told("create_session", json!({"session_id": "b", "tag": "two"}))
        .await;
    let asked = desk.stub.recorder.asked::<motu_core::verb::OpenTerminal>();
    assert_eq!(
        (&asked[1]["description"], &asked[1]["prompt_regex"]),
        (&json!("two"), &json!("% $"))
    );
    let wrong = json!({"session_id": "c", "prompt_regex": "("});
    assert_eq!(desk.refused("configure_session", wrong).await.0, "invalid");
}
