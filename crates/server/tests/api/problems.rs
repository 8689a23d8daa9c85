//! Every error is a problem of RFC 9457, and still the error that it was.

use super::*;
use motu_core::ErrorKind;
use serde_json::{Value, json};

/// The status, the content type and the body of an answer.
fn parts(answer: &str) -> (u16, String, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    let kind = head
        .lines()
        .find_map(|line| line.strip_prefix("content-type: "));
    (
        status.parse().unwrap_or_default(),
        kind.unwrap_or_default().to_string(),
        serde_json::from_str(body).unwrap_or_default(),
    )
}

#[tokio::test]
async fn each_kind_of_error_is_a_problem_of_its_own() {
    let world = world();
    let mut titles = std::collections::BTreeSet::new();
    for kind in ErrorKind::ALL {
        let name = kind.as_str();
        let error = Error::new(kind, "as asked").hint("once more");
        let it = &world.recorder;
        it.on(move |_: verb::GetSandbox| Err(error.clone()));
        let answer = world.raw("GET /v1/sandboxes/sb-a HTTP/1.1", "").await;
        let (status, content_type, body) = parts(&answer);
        assert_eq!(content_type, "application/problem+json", "{answer}");
        assert_eq!(status, kind.http_status(), "{answer}");
        assert_eq!(body["type"], json!(format!("/problems/{name}")), "{answer}");
        assert_eq!(body["status"], json!(status), "{answer}");
        assert_eq!(body["detail"], "as asked", "{answer}");
        let title = body["title"].as_str().unwrap_or_default().to_string();
        assert!(!title.is_empty() && titles.insert(title), "{answer}");
        // What clients have read until now is where it was.
        assert_eq!(body["error"]["kind"], json!(name), "{answer}");
        assert_eq!(body["error"]["message"], "as asked", "{answer}");
        assert_eq!(body["error"]["hint"], "once more", "{answer}");
        let error = world.client.get_sandbox(&id()).await.unwrap_err();
        assert_eq!(error.kind, kind);
    }
}

#[tokio::test]
async fn whatever_refuses_a_request_answers_with_a_problem() {
    let world = world();
    world.recorder.on(found);
    world.recorder.on(|_: verb::Examine| panic!("as asked"));
    let absent = || Error::not_found("as asked");
    world
        .recorder
        .on(move |_: verb::BuildTemplate| Err(absent()));
    world
        .recorder
        .on(move |_: verb::PullEnvironment| Err(absent()));
    files::Files::of(&world.recorder);
    files::tell_of_trees(&world.recorder);
    live::tell_of_ports(&world.recorder);
    let cases = [
        ("GET /v1/nowhere", "", 404),
        ("PATCH /v1/version", "", 405),
        ("POST /v1/sandboxes", "{", 400),
        ("GET /v1/sandboxes/%ff", "", 400),
        ("GET /v1/sandboxes/sb-a/files?colour=1", "", 400),
        ("GET /v1/run/ws", "", 400),
        ("GET /v1/doctor", "", 500),
        ("GET /v1/sandboxes/sb-a/files/content?path=/none", "", 404),
        ("GET /v1/sandboxes/sb-a/files/tree?path=/gone", "", 404),
        ("GET /v1/sandboxes/sb-a/ports/1/", "", 503),
        ("GET /v1/sandboxes/sb-a/ports/99999/", "", 400),
        ("GET /v1/sandboxes/%ff/ports/80/", "", 400),
        ("POST /v1/keys", "", 400),
        ("POST /v1/keys", "[]", 400),
        ("POST /v1/run", "[]", 400),
        ("POST /v1/sandboxes", "", 400),
        ("PUT /v1/secrets/key", "", 400),
        ("POST /v1/sandboxes/sb-a/fork", "", 400),
        ("POST /v1/sandboxes/sb-a/exec", "", 400),
        ("POST /v1/run", "", 400),
        ("POST /v1/environments/build", "", 400),
        ("POST /v1/templates/none/build", "{}", 404),
        ("POST /v1/environments/none/pull", "", 404),
        ("GET /v1/capsules/missing", "", 404),
        ("GET /v1/capsules/%ff", "", 400),
        ("PUT /v1/capsules", "", 405),
        ("GET /v1/capsules/sb-a/exec/stream", "", 400),
        ("GET /v1/capsules/sb-a/pty", "", 400),
        ("GET /v1/capsules/sb-a/processes/7/stream", "", 400),
        ("DELETE /v1/capsules/sb-a/processes/7?colour=1", "", 400),
        ("POST /v1/capsules/sb-a/files/write", "", 400),
    ];
    for (line, body, expected) in cases {
        let answer = within(world.raw(&format!("{line} HTTP/1.1"), body)).await;
        let (status, content_type, body) = parts(&answer);
        assert_eq!(status, expected, "{line}: {answer}");
        assert_eq!(content_type, "application/problem+json", "{line}: {answer}");
        assert_eq!(body["status"], json!(status), "{line}: {answer}");
        assert!(body["error"]["kind"].is_string(), "{line}: {answer}");
        // Clients of host agents know errors by a code.
        let theirs = line.contains("/v1/capsules");
        assert_eq!(
            body["error"]["code"].is_string(),
            theirs,
            "{line}: {answer}"
        );
    }
}
