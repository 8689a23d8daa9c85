//! Approvals by users, waiting, and cancelled calls.

use crate::tools::desk::{Desk, Person, desk, desk_with, params};
use motu_mcp::{Approvals, Options, Profile};
use rmcp::model::*;
use rmcp::service::{Peer, RoleClient};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;

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
        let (desk, result) = deleting(version.clone(), Some(true), Approvals::default()).await;
        assert_ne!(result.is_error, Some(true), "{version}: {result:?}");
        assert_eq!(
            desk.client.service().asked.load(Ordering::SeqCst),
            1,
            "{version}"
        );
        assert_eq!(desk.stub.calls("delete_workspace"), 1);

        let (desk, result) = deleting(version.clone(), Some(false), Approvals::Auto).await;
        assert_eq!(
            result.structured_content.unwrap()["kind"],
            "denied",
            "{version}"
        );
        assert_eq!(desk.stub.calls("delete_workspace"), 0);

        let (desk, result) = deleting(version.clone(), None, Approvals::Auto).await;
        assert_ne!(result.is_error, Some(true), "{version}");
        assert_eq!(desk.stub.calls("delete_workspace"), 1);

        // A user who cannot be asked has not approved; the error says what to do.
        let (desk, result) = deleting(version.clone(), None, Approvals::default()).await;
        let refused = result.structured_content.unwrap();
        assert_eq!(refused["kind"], "denied", "{version}");
        assert!(
            refused["hint"]
                .as_str()
                .unwrap()
                .contains("--approvals auto")
        );
        assert_eq!(desk.stub.calls("delete_workspace"), 0);

        let (desk, _) = deleting(version, Some(false), Approvals::Never).await;
        assert_eq!(desk.client.service().asked.load(Ordering::SeqCst), 0);
        assert_eq!(desk.stub.calls("delete_workspace"), 1);
    }
}

#[tokio::test]
async fn the_host_is_asked_for_once() {
    let host = json!({"environment": "debian:12", "runtime": "host", "allow_host_compat": true});
    let free = motu_core::Leave {
        unwalled: true,
        ..Default::default()
    };
    for version in [ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28] {
        for (says, leave, made, asked) in [
            (Some(true), free.clone(), 2, 1),
            (Some(false), free.clone(), 0, 2),
            (None, free.clone(), 0, 0),
            // Where the operator allows nothing there is nothing to ask: the daemon refuses it.
            (Some(true), motu_core::Leave::default(), 2, 0),
        ] {
            let options = Options {
                leave,
                ..Options::default()
            };
            let desk = desk_with(Person::new(version.clone(), says), options).await;
            for _ in 0..2 {
                let _ = desk.call("vm_create", host.clone()).await;
            }
            assert_eq!(
                desk.stub.calls("create_sandbox"),
                made,
                "{version} {says:?}"
            );
            let questions = desk.client.service().asked.load(Ordering::SeqCst);
            assert_eq!(questions, asked, "{version} {says:?}");
        }
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
    // For another workspace, or with a forged state, the question is asked again.
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

/// Sends a call and cancels it.
async fn cancelled(desk: &Desk, tool: &str, arguments: Value) {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params(tool, arguments)));
    let options = rmcp::service::PeerRequestOptions::no_options();
    let sent = desk
        .client
        .peer()
        .send_cancellable_request(request, options)
        .await
        .unwrap();
    // The work has begun when the call reaches the service.
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
    tokio::time::timeout(SOON, desk.stub.sessions.killed.notified())
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
    tokio::time::timeout(SOON, desk.stub.sessions.killed.notified())
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
