//! Keys: the same answer once more, other requests, restarts, damage.

use super::*;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, post};
use http::StatusCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use tower_service::Service as _;

/// Bytes of a long answer: 90 of them are more than are remembered.
const LONG: usize = 200_000;

struct World {
    home: tempfile::TempDir,
    calls: Arc<AtomicUsize>,
    /// The slow request has begun.
    begun: Arc<tokio::sync::Notify>,
}

impl World {
    fn new() -> World {
        World {
            home: tempfile::tempdir().unwrap(),
            calls: Arc::default(),
            begun: Arc::default(),
        }
    }

    /// A daemon that counts, fails at `/broken` and waits at `/slow` until the gate opens.
    fn serve(&self, gate: Arc<tokio::sync::Semaphore>) -> Router {
        let calls = self.calls.clone();
        let count = move || format!("{{\"call\":{}}}", calls.fetch_add(1, Ordering::SeqCst));
        let (count, broken) = (count.clone(), count);
        let (slow, begun) = (broken.clone(), self.begun.clone());
        Router::new()
            .route(
                "/made",
                any(async move || (StatusCode::CREATED, [("motu-audit-id", "a1")], count())),
            )
            .route("/long", post(async || "x".repeat(LONG)))
            .route(
                "/broken",
                post(async move || (StatusCode::BAD_GATEWAY, broken())),
            )
            .route(
                "/slow",
                post(async move || {
                    begun.notify_one();
                    let _open = gate.acquire().await;
                    slow()
                }),
            )
            .layer(from_fn_with_state(
                Repeats::open(self.home.path()).unwrap(),
                once,
            ))
    }

    fn open(&self) -> Router {
        self.serve(Arc::new(tokio::sync::Semaphore::new(1)))
    }
}

async fn ask(router: &Router, key: &str, path: &str, body: &str) -> (u16, String, bool) {
    let request = http::Request::post(path)
        .header(KEY, key)
        .body(Body::from(body.to_string()));
    send(router, request.unwrap()).await
}

async fn send(router: &Router, request: Request) -> (u16, String, bool) {
    let response = router.clone().call(request).await.unwrap();
    let replayed = response.headers().contains_key(REPLAYED);
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap(), replayed)
}

#[tokio::test]
async fn a_request_that_comes_twice_is_done_once_also_after_a_restart() {
    let world = World::new();
    let daemon = world.open();
    assert_eq!(
        ask(&daemon, "k1", "/made", "x").await,
        (201, "{\"call\":0}".into(), false)
    );
    assert_eq!(
        ask(&daemon, "k1", "/made", "x").await,
        (201, "{\"call\":0}".into(), true)
    );
    assert_eq!(
        ask(&daemon, "k2", "/made", "x").await,
        (201, "{\"call\":1}".into(), false)
    );
    let daemon = world.open();
    assert_eq!(
        ask(&daemon, "k1", "/made", "x").await,
        (201, "{\"call\":0}".into(), true)
    );
    assert_eq!(world.calls.load(Ordering::SeqCst), 2);
    let (status, said, _) = ask(&daemon, "k1", "/made", "y").await;
    assert!(
        status == 409 && said.contains("another request"),
        "{status} {said}"
    );
}

#[tokio::test]
async fn what_failed_may_be_tried_again() {
    let world = World::new();
    let daemon = world.open();
    assert_eq!(ask(&daemon, "k", "/broken", "").await.1, "{\"call\":0}");
    assert_eq!(ask(&daemon, "k", "/broken", "").await.1, "{\"call\":1}");
    assert_eq!(
        ask(&world.open(), "k", "/broken", "").await.1,
        "{\"call\":2}"
    );
}

#[tokio::test]
async fn what_is_being_done_is_not_begun_again_and_ends_without_its_caller() {
    let world = World::new();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let daemon = world.serve(gate.clone());
    let first = tokio::spawn({
        let daemon = daemon.clone();
        async move { ask(&daemon, "k", "/slow", "").await }
    });
    world.begun.notified().await;
    let (status, said, _) = ask(&daemon, "k", "/slow", "").await;
    assert_eq!(status, 409);
    assert!(said.contains("still being done"), "{said}");
    // Its caller leaves; a daemon that ends now does not know how it went.
    first.abort();
    let (status, said, _) = ask(&world.open(), "k", "/slow", "").await;
    assert!(
        status == 409 && said.contains("daemon ended"),
        "{status} {said}"
    );
    gate.add_permits(1);
    let answer = loop {
        let (status, said, replayed) = ask(&daemon, "k", "/slow", "").await;
        if status == 200 {
            break (said, replayed);
        }
        assert_eq!(status, 409, "{said}");
        tokio::task::yield_now().await;
    };
    assert_eq!(answer, ("{\"call\":0}".to_string(), true));
}

#[tokio::test]
async fn keys_are_for_requests_with_one_answer() {
    let daemon = World::new().open();
    let long = "k".repeat(limits::IDEMPOTENCY_KEY_BYTES.max as usize + 1);
    for key in ["", "a b", &long] {
        assert_eq!(ask(&daemon, key, "/made", "").await.0, 400, "{key:?}");
    }
    let get = http::Request::get("/made")
        .header(KEY, "k")
        .body(Body::empty());
    assert_eq!(send(&daemon, get.unwrap()).await.0, 400);
    assert_eq!(ask(&daemon, "k", "/v1/keys", "").await.0, 400);
}

#[tokio::test]
async fn a_cut_off_line_is_forgotten_and_damage_is_put_aside() {
    let world = World::new();
    ask(&world.open(), "k", "/made", "").await;
    let path = world.home.path().join("idempotency.jsonl");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&whole[..], b"{\"id\":\"half"].concat()).unwrap();
    assert!(ask(&world.open(), "k", "/made", "").await.2);
    // Lines after a damaged one count.
    std::fs::write(&path, [b"nonsense\n", &whole[..]].concat()).unwrap();
    assert!(ask(&world.open(), "k", "/made", "").await.2);
    assert!(path.with_extension("damaged").exists());
}

#[tokio::test]
async fn the_oldest_answers_are_forgotten_when_they_are_too_long_together() {
    let world = World::new();
    let daemon = world.open();
    for number in 0..90 {
        let (status, _, replayed) = ask(&daemon, &format!("k{number}"), "/long", "").await;
        assert_eq!((status, replayed), (200, false));
    }
    for (daemon, forgotten) in [(daemon, "k0"), (world.open(), "k1")] {
        assert!(ask(&daemon, "k89", "/long", "").await.2);
        assert!(!ask(&daemon, forgotten, "/long", "").await.2);
    }
}

#[test]
fn no_owner_makes_anothers_keys_forgotten() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("idempotency.jsonl");
    let key = |owner: &str, id: String| Identity {
        owner: owner.to_string(),
        id,
    };
    let answer = |text: &str| Answer {
        status: 200,
        headers: Vec::new(),
        body: Some(text.to_string()),
    };
    // Written at once: a key brings its record to the disk before it is used.
    let most = limits::IDEMPOTENCY_KEYS.default;
    let mut lines = Vec::new();
    let mut write = |record: Record| {
        serde_json::to_writer(&mut lines, &record).unwrap();
        lines.push(b'\n');
    };
    write(Record {
        answer: Some(answer("mine")),
        ..Record::begun(&key("project:beta", "beta-0".to_string()), "r")
    });
    for number in 0..most {
        write(Record::begun(
            &key("project:acme", format!("acme-{number}")),
            "r",
        ));
    }
    std::fs::write(&path, lines).unwrap();
    let (log, records) = Log::open(&path).unwrap();
    assert_eq!(records.len() as u64, most + 1);
    // One more of the same owner takes that owner's oldest, and nobody else's.
    let one_more = Record::begun(&key("project:acme", "acme-more".to_string()), "r");
    assert_eq!(log.append(one_more).unwrap(), ["acme-0"]);
    let of_beta = Record::begun(&key("project:beta", "beta-1".to_string()), "r");
    assert!(log.append(of_beta).unwrap().is_empty());
    // So it is with the length of answers.
    let long = "x".repeat(limits::IDEMPOTENCY_ANSWER_BYTES.max as usize);
    let fit = limits::IDEMPOTENCY_BYTES.default / limits::IDEMPOTENCY_ANSWER_BYTES.max;
    let mut dropped = Vec::new();
    for number in 0..=fit {
        let record = Record {
            answer: Some(answer(&long)),
            ..Record::begun(&key("project:long", format!("long-{number}")), "r")
        };
        dropped.extend(log.append(record).unwrap());
    }
    assert_eq!(dropped, ["long-0"]);
    let (_, records) = Log::open(&path).unwrap();
    assert!(records.iter().any(|record| record.id == "beta-0"));
}
