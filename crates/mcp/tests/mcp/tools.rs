//! The server against rmcp's own client, over a pipe in memory.

mod desk;
mod people;
mod terminals;

use desk::{Person, desk, desk_with, params, text};
use motu_mcp::{Approvals, Options, Profile};
use rmcp::model::*;
use serde_json::json;
use std::sync::Arc;

/// An upper bound of tokens: common tokenizers need about one per four bytes of such text
/// (measured: o200k 3.9 and 4.2, cl100k 4.2 and 4.5 bytes per token).
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
    let all = tokens(&listed(Profile::All).await);
    println!(
        "tokens: vm-run {one}, workspace-core {core}, workspace-full {full}, terminal {terminal}, all {all}"
    );
    assert!(one < 640, "{one}");
    assert!(core < 4000, "{core}");
    assert!(full < 10_000, "{full}");
    assert!(terminal < 6000, "{terminal}");
    assert!(all < 16_500, "{all}");
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
            // Some clients check errors against this schema too.
            assert!(
                tool.output_schema
                    .as_ref()
                    .unwrap()
                    .get("required")
                    .is_none(),
                "{name}"
            );
            for (field, schema) in tool.input_schema["properties"].as_object().unwrap() {
                let said = schema["type"].is_string() || schema["anyOf"].is_array();
                assert!(said, "{name}.{field}");
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
async fn a_template_stands_in_the_place_of_the_usual_environment() {
    let desk = desk(Profile::All).await;
    let known = motu_core::template::Template {
        name: "py".to_string(),
        owner: String::new(),
        version: 1,
        digest: String::new(),
        definition: motu_core::template::TemplateDefinition::default(),
        built: None,
        saved: None,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        updated_at: jiff::Timestamp::UNIX_EPOCH,
        pool: motu_core::template::TemplatePool::default(),
    };
    desk.stub
        .recorder
        .on(move |_: motu_core::verb::GetTemplate| Ok(known.clone()));
    let made = motu_core::SandboxId::parse("sb-a").unwrap();
    desk.stub
        .recorder
        .on(move |_: motu_core::verb::CreateSandbox| Ok(crate::stub::sandbox(&made)));
    // Clients that fill in defaults also send the default environment.
    for given in [json!({}), json!({"environment": "debian:12"})] {
        let mut given = given;
        given["command"] = "echo hi".into();
        given["template"] = "py".into();
        assert_eq!(desk.told("vm_run", given).await["stdout"], "hi\n");
    }
    let _ = desk.told("vm_create", json!({"template": "py"})).await;
    let _ = desk
        .told("workspace_create", json!({"template": "py"}))
        .await;
    let recorder = &desk.stub.recorder;
    let mut asked = recorder.asked::<motu_core::verb::CreateSandbox>();
    asked.extend(recorder.asked::<motu_core::verb::CreateWorkspace>());
    for run in recorder.asked::<motu_core::verb::Run>() {
        asked.push(run["sandbox"].clone());
    }
    assert_eq!(asked.len(), 4, "{asked:?}");
    for one in asked {
        assert_eq!(
            (&one["template"], &one["environment"]),
            (&json!("py"), &json!(""))
        );
    }
}

#[tokio::test]
async fn a_long_output_is_cut_and_the_rest_can_be_read() {
    let desk = desk(Profile::VmRun).await;
    let result = desk.call("vm_run", json!({"command": "lines 20000"})).await;
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
    let small = json!({"command": "lines 20000", "max_output_bytes": 256});
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
    // A panic in one call is reported as an error, and the next call works.
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
    let options = Options {
        approvals: Approvals::Auto,
        ..Options::default()
    };
    let desk = desk_with(Person::new(ProtocolVersion::V_2025_11_25, None), options).await;
    let given = json!({
        "seed_path": "here", "network_policy": "egress",
        "secrets": [{"name": "KEY", "value": "v"}], "labels": {"a": "b"},
    });
    desk.told("workspace_create", given).await;
    let given =
        json!({"workspace_id": "ws-1", "command": "echo a", "secret_env": {"KEY": "TOKEN"}});
    desk.told("workspace_exec", given).await;
    let noted = desk.stub.recorder.written();
    let made = &noted[0].2;
    assert!(made["seed_path"].as_str().unwrap().starts_with('/'));
    assert_eq!(made["secrets"][0]["name"], "KEY");
    let ran = &noted[1].2;
    assert_eq!(ran["secret_env"][0]["variable"], "TOKEN");
    assert_eq!(ran["mode"], "shell");
}

#[tokio::test]
async fn resources_are_those_of_the_profile() {
    let all = [
        (
            "motu://workspaces/ws-1/logs",
            &["workspace-core", "workspace-full", "all"][..],
        ),
        (
            "motu://workspaces/ws-1/diff",
            &["workspace-core", "workspace-full", "all"],
        ),
        (
            "motu://workspaces/ws-1/services/a/logs",
            &["workspace-full", "all"],
        ),
        ("motu://terminals/a/screen", &["terminal", "all"]),
        ("motu://terminals/a/screen.png", &["terminal", "all"]),
        ("motu://terminals/a/transcript", &["terminal", "all"]),
        ("motu://terminals/a/recording", &["terminal", "all"]),
    ];
    for profile in Profile::ALL {
        let desk = desk(profile).await;
        for (uri, profiles) in &all {
            let asked = ReadResourceRequestParams::new(*uri);
            let read = desk.client.read_resource(asked).await;
            let refused = read.is_err_and(|error| error.to_string().contains("no such resource"));
            let its_own = profiles.contains(&profile.as_str());
            assert_eq!(refused, !its_own, "{uri} by {}", profile.as_str());
        }
        let templates = desk.client.list_resource_templates(None).await.unwrap();
        let words = serde_json::to_string(&templates).unwrap();
        assert_eq!(
            words.contains("motu://workspaces/"),
            profile.as_str().starts_with("workspace") || profile == Profile::All
        );
        assert_eq!(
            words.contains("motu://terminals/"),
            matches!(profile, Profile::Terminal | Profile::All)
        );
        assert_eq!(
            words.contains("/services/"),
            matches!(profile, Profile::WorkspaceFull | Profile::All)
        );
    }
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
