//! Terminal sessions of models: whose names they are, how many are listed, and with what one opens.

use crate::mcp::Mcp;
use crate::mcp_wire::{NEWER, with_debian};
use motu_testkit::story::Story;
use serde_json::{Value, json};

const TERMINAL: [&str; 2] = ["--profile", "terminal"];

fn names(listed: &Value) -> Vec<String> {
    let rows = listed["sessions"].as_array().unwrap().iter();
    let name = |row: &Value| row["session_id"].as_str().unwrap().to_string();
    rows.map(name).collect()
}

fn said(mcp: &mut Mcp, session: &str, command: &str) -> String {
    let ran = mcp.call("run", &json!({"session_id": session, "command": command}));
    assert_eq!(ran["end"], "command_ended", "{ran}");
    ran["output"].as_str().unwrap().to_string()
}

#[test]
fn two_servers_share_the_names_that_both_ask_to_share() {
    let Some(story) = with_debian() else { return };
    let mut one = Mcp::start(&story, &TERMINAL, NEWER);
    let mut other = Mcp::start(&story, &TERMINAL, NEWER);
    said(&mut one, "build", "mine=first");
    let listed = other.call("list_sessions", &json!({}));
    assert_eq!((&listed["count"], names(&listed)), (&json!(0), vec![]));
    let unknown = other.call("get_metadata", &json!({"session_id": "build"}));
    assert_eq!(unknown["session_exists"], false, "{unknown}");
    // The same name is another session there.
    assert_eq!(said(&mut other, "build", "echo [$mine]"), "[]\n");
    assert_eq!(said(&mut one, "build", "echo [$mine]"), "[first]\n");
    // Those of others are listed when that is asked for.
    let all = other.call("list_sessions", &json!({"all": true}));
    assert_eq!(all["count"], 2, "{all}");

    let shared = json!({"session_id": "common", "shared": true});
    assert_eq!(one.call("create_session", &shared)["created"], true);
    said(&mut one, "common", "ours=both");
    // Whoever does not ask has a session of its own.
    assert_eq!(said(&mut other, "common", "echo [$ours]"), "[]\n");
    let mut third = Mcp::start(&story, &TERMINAL, NEWER);
    assert_eq!(third.call("create_session", &shared)["created"], false);
    assert_eq!(said(&mut third, "common", "echo [$ours]"), "[both]\n");
    assert_eq!(
        names(&third.call("list_sessions", &json!({}))),
        ["common"],
        "its own and the shared ones"
    );
}

#[test]
fn a_later_server_finds_what_an_earlier_one_has_left() {
    let Some(story) = with_debian() else { return };
    // The client cannot ask anybody, and nothing is approved in advance.
    let options = [&TERMINAL[..], &["--approvals", "always"]].concat();
    let start = |more: &[&str]| Mcp::start(&story, &[&options, more].concat(), NEWER);
    let mut one = start(&[]);
    said(&mut one, "build", "mine=first");
    said(&mut one, "gone", "mine=second");
    let ended = one.call("terminate", &json!({"session_id": "gone"}));
    assert_eq!(ended["status"], "terminated", "{ended}");
    drop(one);

    let mut later = start(&[]);
    assert_eq!(said(&mut later, "build", "echo [$mine]"), "[first]\n");
    let listed = later.call("list_sessions", &json!({}));
    assert_eq!(listed["count"], 2, "{listed}");
    // The transcript of an ended one is found, and what it was stands beside it.
    let kept = later.call("transcript", &json!({"session_id": "gone"}));
    let read = |name: &str| std::fs::read_to_string(kept[name].as_str().unwrap()).unwrap();
    assert!(read("transcript").contains("mine=second"), "{kept}");
    let metadata: Value = serde_json::from_str(&read("metadata")).unwrap();
    assert_eq!(
        (&metadata["terminated"], &metadata["reason"]),
        (&json!(true), &json!("the session was terminated"))
    );
    assert_eq!(metadata["sandbox_id"], "terminals", "{metadata}");
    // Its name is free; that of one which this server has ended itself is not, until it is opened.
    assert_eq!(said(&mut later, "gone", "echo [$mine]"), "[]\n");
    let ended = later.call("terminate", &json!({"session_id": "build"}));
    assert_eq!(ended["status"], "terminated", "{ended}");
    let ran = json!({"session_id": "build", "command": "true"});
    assert_eq!(later.call("run", &ran)["status"], "terminated");

    // Beside a server that runs, and for sessions elsewhere, names are others.
    let mut beside = start(&[]);
    assert_eq!(beside.call("list_sessions", &json!({}))["count"], 0);
    drop((later, beside));
    let made = story.motu(&["create", "debian:12", "--id", "place"]);
    assert_eq!(made.code, 0, "{made}");
    let mut elsewhere = start(&["--sandbox", "place"]);
    assert_eq!(elsewhere.call("list_sessions", &json!({}))["count"], 0);
    let mut explicit = start(&["--explicit-sessions"]);
    let unknown = explicit.call("run", &ran);
    assert_eq!(unknown["status"], "unknown", "{unknown}");
    let reason = unknown["state_reason"].as_str().unwrap();
    assert!(reason.contains("call create_session"), "{reason}");
}

#[test]
fn a_session_of_others_is_ended_by_a_person_alone() {
    let Some(story) = with_debian() else { return };
    let opened = story.motu(&["terminal", "open", "theirs"]);
    assert_eq!(opened.code, 0, "{opened}");
    let options = ["--approvals", "always", "--share-sessions"];
    let mut mcp = Mcp::start(&story, &[&TERMINAL[..], &options].concat(), NEWER);
    said(&mut mcp, "theirs", "true");
    let refused = mcp.result("terminate", &json!({"session_id": "theirs"}));
    assert_eq!(refused["structuredContent"]["kind"], "denied", "{refused}");
    said(&mut mcp, "mine", "true");
    let ended = mcp.call("terminate", &json!({"session_id": "mine"}));
    assert_eq!(ended["status"], "terminated", "{ended}");
}

#[test]
fn sessions_are_listed_in_pages() {
    let Some(story) = with_debian() else { return };
    let mut mcp = Mcp::start(&story, &TERMINAL, NEWER);
    for name in ["a", "b", "c", "d", "e"] {
        let opened = mcp.call("create_session", &json!({"session_id": name}));
        assert_eq!(opened["created"], true, "{opened}");
    }
    let whole = mcp.call("list_sessions", &json!({}));
    assert_eq!(
        (&whole["count"], &whole["next_after"]),
        (&json!(5), &json!(null))
    );
    let mut seen = Vec::new();
    let mut asked = json!({"limit": 2});
    for expected in [2, 2, 1] {
        let page = mcp.call("list_sessions", &asked);
        assert_eq!(page["count"], 5, "{page}");
        assert_eq!(names(&page).len(), expected, "{page}");
        seen.extend(names(&page));
        asked["after"] = page["next_after"].clone();
    }
    assert_eq!(
        asked["after"],
        Value::Null,
        "there is no page after the last"
    );
    assert_eq!(seen, names(&whole));
    for limit in [0, 501] {
        let refused = mcp.result("list_sessions", &json!({"limit": limit}));
        assert_eq!(refused["isError"], true, "{refused}");
        assert_eq!(refused["structuredContent"]["kind"], "invalid", "{refused}");
    }
}

#[test]
fn a_session_opens_with_the_shell_the_variables_the_user_and_the_place_it_is_given() {
    let Some(story) = with_debian() else { return };
    let made = story.motu(&["create", "debian:12", "--id", "place"]);
    assert_eq!(made.code, 0, "{made}");
    let mut mcp = Mcp::start(&story, &TERMINAL, NEWER);
    let asked = json!({
        "session_id": "s", "sandbox_id": "place", "shell": "bash --norc", "user": "root",
        "env": {"GREETING": "hi there"}, "cwd": "/usr/share", "cols": 100, "rows": 30,
    });
    let opened = mcp.call("create_session", &asked);
    assert_eq!(opened["sandbox_id"], "place", "{opened}");
    assert_eq!(
        (&opened["status"], &opened["cwd"]),
        (&json!("ready"), &json!("/usr/share"))
    );
    let command = "echo $GREETING; id -un; stty size; shopt -q login_shell || echo plain";
    let ran = mcp.call("run", &json!({"session_id": "s", "command": command}));
    assert_eq!(ran["output"], "hi there\nroot\n30 100\nplain\n", "{ran}");
    // Without them: the workspace for terminals, the environment's user, bash.
    let opened = mcp.call("create_session", &json!({"session_id": "t"}));
    assert_eq!(opened["sandbox_id"], "terminals", "{opened}");
    assert_eq!(
        said(&mut mcp, "t", "echo [$GREETING]; id -un"),
        "[]\nuser\n"
    );
}

#[test]
fn opening_a_session_pulls_what_is_missing() {
    let Some(source) = Story::with_machines() else {
        return;
    };
    let root = motu_testkit::directory::of_busybox(&source);
    let story = Story::new();
    story.configure(&format!(
        "runtime = \"container\"\n[terminal]\nenvironment = \"dir:{}\"\n",
        root.display()
    ));
    // Whoever starts the server says that this directory may be used.
    let below = root.canonicalize().unwrap().display().to_string();
    let options = [&TERMINAL[..], &["--host-dir", &below]].concat();
    let mut mcp = Mcp::start(&story, &options, NEWER);
    let asked = json!({"session_id": "s", "shell": "sh"});
    let opened = mcp.call("create_session", &asked);
    assert_eq!(opened["created"], true, "{opened}");
    let typed = json!({"session_id": "s", "command": "echo pulled"});
    let ran = mcp.call("run", &typed);
    assert_eq!(ran["output"], "pulled\n", "{ran}");
}
