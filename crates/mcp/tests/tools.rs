//! The server against rmcp's own client, over a pipe in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod stub;

use motu_mcp::{Approvals, Options, Place, Profile, Server};
use rmcp::model::*;
use rmcp::service::{ClientServiceExt, Peer, RequestContext, RoleClient, RunningService};
use rmcp::{ClientHandler, ServiceExt};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stub::Stub;

/// Somebody at a client, who answers questions.
#[derive(Clone)]
struct Person {
    version: ProtocolVersion,
    /// What they say; without it the client cannot ask them.
    says: Option<bool>,
    asked: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Person {
    fn new(version: ProtocolVersion, says: Option<bool>) -> Person {
        Person {
            version,
            says,
            asked: Arc::default(),
            heard: Arc::default(),
        }
    }
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.says.is_some() {
            capabilities.elicitation = Some(ElicitationCapability::default());
        }
        let mut config = ClientConfig::new(capabilities, Implementation::new("person", "1"));
        config.protocol_version = self.version.clone();
        config
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut result = ElicitResult::new(ElicitationAction::Accept);
        result.content = Some(json!({"approve": self.says.unwrap_or(false)}));
        Ok(result)
    }

    async fn on_progress(
        &self,
        note: ProgressNotificationParam,
        _: rmcp::service::NotificationContext<RoleClient>,
    ) {
        self.heard
            .lock()
            .unwrap()
            .push(note.message.unwrap_or_default());
    }
}

struct Desk {
    stub: Arc<Stub>,
    client: RunningService<RoleClient, Person>,
}

async fn desk_with(person: Person, options: Options) -> Desk {
    let stub = Arc::new(Stub::default());
    let server = Server::new(stub.clone(), options);
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        if let Ok(running) = server.serve(theirs).await {
            let _ = running.waiting().await;
        }
    });
    let client = match person.version >= ProtocolVersion::V_2026_07_28 {
        true => {
            let mode = rmcp::service::ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            };
            person.serve_with_lifecycle(ours, mode).await.unwrap()
        }
        false => person.serve(ours).await.unwrap(),
    };
    Desk { stub, client }
}

async fn desk(profile: Profile) -> Desk {
    let options = Options {
        profile,
        ..Options::default()
    };
    desk_with(Person::new(ProtocolVersion::V_2025_11_25, None), options).await
}

fn params(tool: &str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(tool.to_string())
        .with_arguments(arguments.as_object().unwrap().clone())
}

impl Desk {
    async fn call(&self, tool: &str, arguments: Value) -> CallToolResult {
        self.client
            .call_tool(params(tool, arguments))
            .await
            .unwrap()
    }

    /// The structured answer of a call that must not fail.
    async fn told(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments).await;
        assert_ne!(result.is_error, Some(true), "{result:?}");
        result.structured_content.unwrap()
    }

    /// The code and the text of a call that must fail.
    async fn refused(&self, tool: &str, arguments: Value) -> (String, String) {
        let result = self.call(tool, arguments).await;
        assert_eq!(result.is_error, Some(true), "{result:?}");
        let structured = result.structured_content.clone().unwrap();
        (
            structured["code"].as_str().unwrap().to_string(),
            text(&result),
        )
    }
}

fn text(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| block.as_text());
    texts.map(|block| block.text.clone()).collect()
}

/// More than any tokenizer we know makes of such a text: the usual ones need a token for
/// four bytes of it (measured: o200k 3.9 and 4.2, cl100k 4.2 and 4.5 bytes a token).
fn tokens(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).unwrap().len() * 2 / 7
}

async fn listed(profile: Profile) -> ListToolsResult {
    desk(profile).await.client.list_tools(None).await.unwrap()
}

#[tokio::test]
async fn a_list_of_tools_is_cheap() {
    let one = tokens(&listed(Profile::VmRun).await);
    let core = tokens(&listed(Profile::WorkspaceCore).await);
    let full = tokens(&listed(Profile::WorkspaceFull).await);
    let terminal = tokens(&listed(Profile::Terminal).await);
    println!(
        "tokens: vm-run {one}, workspace-core {core}, workspace-full {full}, terminal {terminal}"
    );
    assert!(one < 600, "{one}");
    assert!(core < 4000, "{core}");
    assert!(full < 10_000, "{full}");
    assert!(terminal < 6000, "{terminal}");
}

#[tokio::test]
async fn each_profile_has_its_tools() {
    let mut all = String::new();
    for profile in Profile::ALL {
        all.push_str(&format!("{}\n", profile.as_str()));
        for tool in listed(profile).await.tools {
            let fields = tool.input_schema["properties"].as_object().unwrap();
            let fields: Vec<&str> = fields.keys().map(String::as_str).collect();
            all.push_str(&format!("  {}({})\n", tool.name, fields.join(", ")));
        }
    }
    insta::assert_snapshot!(all);
}

#[tokio::test]
async fn every_tool_is_described_for_a_model_and_a_client() {
    for profile in Profile::ALL {
        for tool in listed(profile).await.tools {
            let name = &tool.name;
            assert!(tool.description.as_ref().unwrap().len() > 20, "{name}");
            assert_eq!(tool.input_schema["additionalProperties"], false, "{name}");
            assert_eq!(
                tool.output_schema.as_ref().unwrap()["type"],
                "object",
                "{name}"
            );
            let hints = tool.annotations.as_ref().unwrap();
            assert!(hints.read_only_hint.is_some(), "{name}");
            assert_eq!(hints.open_world_hint, Some(false), "{name}");
            // Some clients check an error against this schema too.
            assert!(
                tool.output_schema
                    .as_ref()
                    .unwrap()
                    .get("required")
                    .is_none(),
                "{name}"
            );
            for (field, schema) in tool.input_schema["properties"].as_object().unwrap() {
                assert!(schema["type"].is_string(), "{name}.{field}");
            }
        }
    }
}

#[tokio::test]
async fn a_command_says_how_it_ended_and_what_it_said() {
    let desk = desk(Profile::VmRun).await;
    let result = desk.call("vm_run", json!({"command": "both"})).await;
    assert_eq!(
        text(&result),
        "[exit code 3 after 5 ms]\nout\n[stderr]\nerr\u{fffd}\n"
    );
    let known = result.structured_content.unwrap();
    assert_eq!(known["exit_code"], 3);
    assert_eq!(known["stdout"], "out");
    assert_eq!(known["isolation"], "container");
    assert_eq!(known["truncated"], false);
}

#[tokio::test]
async fn an_environment_is_installed_when_that_is_all_that_is_missing() {
    let desk = desk(Profile::VmRun).await;
    let given = json!({"command": "echo hi", "environment": "later"});
    assert_eq!(desk.told("vm_run", given).await["stdout"], "hi\n");
    assert_eq!(desk.stub.calls("pull_environment"), 1);
}

#[tokio::test]
async fn a_long_output_is_cut_and_the_rest_can_be_read() {
    let desk = desk(Profile::VmRun).await;
    let result = desk.call("vm_run", json!({"command": "flood 20000"})).await;
    let known = result.structured_content.clone().unwrap();
    assert!(text(&result).len() < 17 * 1024);
    assert!(known["stdout"].as_str().unwrap().ends_with("line 19999\n"));
    assert_eq!(known["truncated"], true);
    let uri = known["rest"].as_str().unwrap();
    let mut whole = String::new();
    let mut offset = 0;
    loop {
        let uri = format!("{uri}?offset={offset}");
        let read = desk
            .client
            .read_resource(ReadResourceRequestParams::new(uri))
            .await
            .unwrap();
        let ResourceContents::TextResourceContents { text, meta, .. } = &read.contents[0] else {
            panic!("{read:?}")
        };
        whole.push_str(text);
        match meta.as_ref().unwrap().0.get("next_offset") {
            Some(next) => offset = next.as_u64().unwrap(),
            None => break,
        }
    }
    assert_eq!(whole.lines().count(), 20_000);
    let small = json!({"command": "flood 20000", "max_output_bytes": 256});
    assert!(text(&desk.call("vm_run", small).await).len() < 600);
    let gone = ReadResourceRequestParams::new("motu://outputs/o-none");
    assert!(desk.client.read_resource(gone).await.is_err());
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_said() {
    let desk = desk(Profile::WorkspaceFull).await;
    let (code, text) = desk
        .refused("vm_run", json!({"command": "echo", "timout": 1}))
        .await;
    assert_eq!(code, "invalid");
    assert!(
        text.starts_with("invalid: there is no field \"timout\" — the fields are: command,"),
        "{text}"
    );
    let (code, text) = desk.refused("vm_status", json!({"vm_id": "missing"})).await;
    assert_eq!(
        (code.as_str(), text.as_str()),
        ("not_found", "not_found: no sandbox missing — make one")
    );
    let (code, _) = desk.refused("vm_status", json!({"vm_id": "No!"})).await;
    assert_eq!(code, "invalid");
    let (code, _) = desk.refused("vm_run", json!({"command": "fail"})).await;
    assert_eq!(code, "transport");
    // A bug in one call is an answer, and the next call works.
    let (code, _) = desk.refused("vm_status", json!({"vm_id": "panic"})).await;
    assert_eq!(code, "internal");
    assert_eq!(
        desk.told("vm_status", json!({"vm_id": "sb-1"})).await["vm_id"],
        "sb-1"
    );
    assert!(
        desk.client
            .call_tool(params("run", json!({})))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_narrow_profile_refuses_what_it_does_not_show() {
    let desk = desk(Profile::WorkspaceCore).await;
    for (tool, field, value) in [
        ("workspace_create", "network_policy", json!("egress")),
        ("workspace_create", "secrets", json!([])),
        ("workspace_exec", "secret_env", json!({})),
    ] {
        let mut given = json!({"workspace_id": "ws-1", "command": "echo"});
        if tool == "workspace_create" {
            given = json!({});
        }
        given[field] = value;
        let (_, text) = desk.refused(tool, given).await;
        assert!(text.contains(field), "{text}");
    }
    assert!(
        desk.client
            .call_tool(params("vm_create", json!({})))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn secrets_and_paths_reach_the_service() {
    let desk = desk(Profile::WorkspaceFull).await;
    let given = json!({
        "seed_path": "here", "network_policy": "egress",
        "secrets": [{"name": "KEY", "value": "v"}], "labels": {"a": "b"},
    });
    desk.told("workspace_create", given).await;
    let given =
        json!({"workspace_id": "ws-1", "command": "echo a", "secret_env": {"KEY": "TOKEN"}});
    desk.told("workspace_exec", given).await;
    let noted = desk.stub.noted.lock().unwrap();
    let made = &noted[0].1;
    assert!(made["seed_path"].as_str().unwrap().starts_with('/'));
    assert_eq!(made["secrets"][0]["name"], "KEY");
    let ran = &noted[1].1;
    assert_eq!(ran["secret_env"][0]["variable"], "TOKEN");
    assert_eq!(ran["mode"], "shell");
}

async fn deleting(
    version: ProtocolVersion,
    says: Option<bool>,
    approvals: Approvals,
) -> (Desk, CallToolResult) {
    let options = Options {
        approvals,
        ..Options::default()
    };
    let desk = desk_with(Person::new(version, says), options).await;
    let result = desk
        .call("workspace_delete", json!({"workspace_id": "ws-1"}))
        .await;
    (desk, result)
}

#[tokio::test]
async fn a_person_is_asked_in_both_ways() {
    for version in [ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28] {
        let (desk, result) = deleting(version.clone(), Some(true), Approvals::Auto).await;
        assert_ne!(result.is_error, Some(true), "{version}: {result:?}");
        assert_eq!(
            desk.client.service().asked.load(Ordering::SeqCst),
            1,
            "{version}"
        );
        assert_eq!(desk.stub.calls("delete_workspace"), 1);

        let (desk, result) = deleting(version.clone(), Some(false), Approvals::Auto).await;
        assert_eq!(
            result.structured_content.unwrap()["code"],
            "denied",
            "{version}"
        );
        assert_eq!(desk.stub.calls("delete_workspace"), 0);

        let (desk, result) = deleting(version.clone(), None, Approvals::Auto).await;
        assert_ne!(result.is_error, Some(true), "{version}");
        assert_eq!(desk.stub.calls("delete_workspace"), 1);

        let (desk, result) = deleting(version.clone(), None, Approvals::Always).await;
        assert_eq!(
            result.structured_content.unwrap()["code"],
            "denied",
            "{version}"
        );
        assert_eq!(desk.stub.calls("delete_workspace"), 0);

        let (desk, _) = deleting(version, Some(false), Approvals::Never).await;
        assert_eq!(desk.client.service().asked.load(Ordering::SeqCst), 0);
        assert_eq!(desk.stub.calls("delete_workspace"), 1);
    }
}

#[tokio::test]
async fn an_approval_is_good_for_its_own_call_and_once() {
    let person = Person::new(ProtocolVersion::V_2026_07_28, Some(true));
    let desk = desk_with(person, Options::default()).await;
    let ask = |id: &str| params("workspace_delete", json!({"workspace_id": id}));
    let peer: &Peer<RoleClient> = desk.client.peer();
    let CallToolResponse::InputRequired(required) = peer.call_tool_once(ask("ws-1")).await.unwrap()
    else {
        panic!("a person must be asked")
    };
    let state = required.request_state.unwrap();
    let yes = InputResponses::from([(
        required
            .input_requests
            .unwrap()
            .keys()
            .next()
            .unwrap()
            .clone(),
        json!({"action": "accept", "content": {"approve": true}}),
    )]);
    let again = |id: &str, state: &str| {
        ask(id)
            .with_input_responses(yes.clone())
            .with_request_state(state)
    };
    // For another workspace, or with a note of one's own, the answer is the question again.
    for wrong in [again("ws-2", &state), again("ws-1", "rs1.AAAA.AAAA")] {
        let answer = peer.call_tool_once(wrong).await.unwrap();
        assert!(matches!(answer, CallToolResponse::InputRequired(_)));
    }
    assert_eq!(desk.stub.calls("delete_workspace"), 0);
    let done = peer.call_tool_once(again("ws-1", &state)).await.unwrap();
    assert!(matches!(done, CallToolResponse::Complete(_)));
    assert_eq!(desk.stub.calls("delete_workspace"), 1);
    let replay = peer.call_tool_once(again("ws-1", &state)).await.unwrap();
    assert!(matches!(replay, CallToolResponse::InputRequired(_)));
    assert_eq!(desk.stub.calls("delete_workspace"), 1);
}

/// Sends a call and gives it up.
async fn cancelled(desk: &Desk, tool: &str, arguments: Value) {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params(tool, arguments)));
    let options = rmcp::service::PeerRequestOptions::no_options();
    let sent = desk
        .client
        .peer()
        .send_cancellable_request(request, options)
        .await
        .unwrap();
    // The work has begun when the service was asked.
    while desk.stub.calls("run") + desk.stub.calls("exec_stream") == 0
        && desk.stub.terminals.lock().unwrap().is_empty()
    {
        tokio::task::yield_now().await;
    }
    sent.cancel(Some("enough".to_string())).await.unwrap();
}

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn giving_up_kills_the_command() {
    let desk = desk(Profile::WorkspaceFull).await;
    cancelled(&desk, "vm_run", json!({"command": "sleep"})).await;
    tokio::time::timeout(SOON, desk.stub.killed.notified())
        .await
        .unwrap();
}

#[tokio::test]
async fn giving_up_a_vm_exec_also_deletes_its_machine() {
    let desk = desk(Profile::WorkspaceFull).await;
    cancelled(
        &desk,
        "vm_exec",
        json!({"vm_id": "sb-1", "command": "sleep"}),
    )
    .await;
    tokio::time::timeout(SOON, desk.stub.killed.notified())
        .await
        .unwrap();
    let deleted = async {
        while desk.stub.calls("destroy_sandbox") == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, deleted).await.unwrap();
}

#[tokio::test]
async fn a_vm_is_gone_after_its_one_command() {
    let desk = desk(Profile::WorkspaceFull).await;
    let done = desk
        .told("vm_exec", json!({"vm_id": "sb-1", "command": "echo a"}))
        .await;
    assert_eq!(done["stdout"], "a\n");
    assert_eq!(desk.stub.calls("destroy_sandbox"), 1);
}

#[tokio::test]
async fn giving_up_a_run_interrupts_the_terminal() {
    let desk = desk(Profile::Terminal).await;
    cancelled(&desk, "run", json!({"session_id": "a", "command": "sleep"})).await;
    tokio::time::timeout(SOON, desk.stub.interrupted.notified())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_hears_how_far_it_is() {
    let desk = desk(Profile::VmRun).await;
    let request = params("vm_run", json!({"command": "sleep"}));
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(request));
    let options = rmcp::service::PeerRequestOptions::no_options();
    let sent = desk
        .client
        .peer()
        .send_cancellable_request(request, options)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(3500)).await;
    sent.cancel(None).await.unwrap();
    let heard = desk.client.service().heard.lock().unwrap().clone();
    assert_eq!(heard.len(), 3, "{heard:?}");
    assert!(heard[0].starts_with("1 s"), "{heard:?}");
}

#[tokio::test]
async fn a_session_is_opened_by_its_first_use_and_not_by_a_look() {
    let desk = desk(Profile::Terminal).await;
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
    let asked = desk.stub.noted.lock().unwrap()[0].1.clone();
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

#[tokio::test]
async fn nobody_is_woken_by_a_list() {
    let options = Options {
        awake: Arc::new(|| false),
        ..Options::default()
    };
    let desk = desk_with(Person::new(ProtocolVersion::V_2025_11_25, None), options).await;
    assert!(
        desk.client
            .list_resources(None)
            .await
            .unwrap()
            .resources
            .is_empty()
    );
    assert_eq!(desk.stub.calls("list_workspaces"), 0);
}
