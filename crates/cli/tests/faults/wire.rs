//! Malformed requests on the socket.

use motu_core::Service;
use motu_testkit::world::{SOON, World, connect};
use std::io::{Read, Write};
use std::net::Shutdown;

/// An answer, unparsed.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head
            .split_whitespace()
            .nth(1)
            .and_then(|word| word.parse().ok());
        Answer {
            status: status.unwrap_or(0),
            body: body.to_string(),
        }
    }

    /// The status and the kind of error.
    pub fn kind(&self) -> (u16, &str) {
        let at = self.body.find("\"kind\":\"").map(|at| &self.body[at + 8..]);
        let kind = at.and_then(|rest| rest.split('"').next());
        (self.status, kind.unwrap_or("none"))
    }
}

/// Sends a complete request and reads the answer to its end.
fn send(world: &World, bytes: &[u8]) -> Answer {
    converse(world, bytes, false)
}

/// Sends bytes and closes the sending side.
fn babble(world: &World, bytes: &[u8]) -> Answer {
    converse(world, bytes, true)
}

fn converse(world: &World, bytes: &[u8], last: bool) -> Answer {
    let mut stream = connect(&world.socket()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_write_timeout(Some(SOON)).unwrap();
    // The daemon may close the connection before it has read everything.
    let _ = stream.write_all(bytes);
    if last {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Answer::parse(&answer)
}

/// A request with an arbitrary body.
pub fn request(world: &World, method: &str, address: &str, body: &[u8]) -> Answer {
    let length = body.len();
    let head = format!(
        "{method} {address} HTTP/1.1\r\nhost: motu\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    send(world, &[head.as_bytes(), body].concat())
}

/// A request with a query in which every byte is escaped.
pub fn query(world: &World, method: &str, address: &str, pairs: &[(&str, &str)]) -> Answer {
    let escape = |text: &str| {
        text.bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect::<String>()
    };
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", escape(value)))
        .collect();
    request(
        world,
        method,
        &format!("{address}?{}", pairs.join("&")),
        b"",
    )
}

#[tokio::test]
async fn malformed_requests_are_typed_errors() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let exec = format!("/v1/sandboxes/{id}/exec");
    for (method, address, body) in [
        ("POST", "/v1/sandboxes", "{"),
        ("POST", "/v1/sandboxes", "[]"),
        ("POST", "/v1/sandboxes", "null"),
        ("POST", "/v1/sandboxes", r#"{"environment": 7}"#),
        (
            "POST",
            "/v1/sandboxes",
            r#"{"environment": "busybox", "colour": 1}"#,
        ),
        (
            "POST",
            "/v1/sandboxes",
            r#"{"environment": "busybox", "mem_mib": -1}"#,
        ),
        (
            "POST",
            "/v1/sandboxes",
            r#"{"environment": "busybox", "sandbox_id": "../x"}"#,
        ),
        (
            "POST",
            "/v1/sandboxes",
            r#"{"environment": "busybox", "env": {"A=B": "c"}}"#,
        ),
        (
            "POST",
            "/v1/sandboxes",
            r#"{"environment": "busybox", "workdir": "here"}"#,
        ),
        ("POST", &exec, r#"{"command": []}"#),
        ("POST", &exec, r#"{"command": ["a\u0000b"]}"#),
        (
            "POST",
            &exec,
            r#"{"command": ["true"], "timeout_seconds": 0}"#,
        ),
        (
            "POST",
            &exec,
            r#"{"command": ["true"], "no_timeout": true, "timeout_seconds": 5}"#,
        ),
        ("POST", &exec, r#"{"command": ["true"], "colour": 1}"#),
        ("POST", &exec, r#"{"command": ["true"], "tag": "a b"}"#),
        (
            "POST",
            "/v1/run",
            r#"{"sandbox": {}, "exec": {"command": ["true"]}}"#,
        ),
        ("GET", "/v1/sandboxes/..%2f..%2fetc", ""),
        ("DELETE", "/v1/sandboxes/UPPER", ""),
        ("GET", &format!("/v1/sandboxes/{id}/ports/70000/dial"), ""),
        (
            "GET",
            &format!("/v1/sandboxes/{id}/files?path=/&colour=1"),
            "",
        ),
        (
            "GET",
            &format!("/v1/sandboxes/{id}/files?path=/&path_base64=Lw"),
            "",
        ),
        (
            "GET",
            &format!("/v1/sandboxes/{id}/files?path_base64=%21"),
            "",
        ),
    ] {
        let answer = request(&world, method, address, body.as_bytes());
        assert_eq!(
            answer.kind(),
            (400, "invalid"),
            "{method} {address} {body}: {answer:?}"
        );
    }
    for (method, address) in [
        ("GET", "/"),
        ("GET", "/v2/version"),
        ("GET", "/v1/sandboxes/sb-nobody"),
    ] {
        let answer = request(&world, method, address, b"");
        assert_eq!(answer.kind(), (404, "not_found"), "{address}: {answer:?}");
    }
    assert_eq!(request(&world, "PATCH", "/v1/sandboxes", b"").status, 405);
    world.assert_works(&id).await;
    assert_eq!(
        world
            .client()
            .list_sandboxes(Default::default())
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn oversized_requests_are_refused_without_growing() {
    let Some(world) = World::new() else { return };
    let before = motu_testkit::traces::resident(world.daemon_pid());
    let body = format!(r#"{{"environment": "{}"}}"#, "x".repeat(32 << 20));
    let answer = request(&world, "POST", "/v1/sandboxes", body.as_bytes());
    assert_eq!(answer.kind(), (429, "limit"), "{:?}", answer.status);
    let head = format!(
        "GET /{} HTTP/1.1\r\nhost: motu\r\n\r\n",
        "y".repeat(1 << 20)
    );
    let answer = send(&world, head.as_bytes());
    assert!((400..500).contains(&answer.status), "{answer:?}");
    let mut head = "GET /v1/version HTTP/1.1\r\nhost: motu\r\n".to_string();
    for number in 0..5000 {
        head.push_str(&format!("x-{number}: {number}\r\n"));
    }
    let answer = send(&world, format!("{head}\r\n").as_bytes());
    assert!((400..500).contains(&answer.status), "{answer:?}");
    // Deeply nested JSON is an error, not a stack overflow.
    let nested = format!(
        r#"{{"environment": {}1{}}}"#,
        "[".repeat(500_000),
        "]".repeat(500_000)
    );
    let answer = request(&world, "POST", "/v1/sandboxes", nested.as_bytes());
    assert_eq!(answer.kind(), (400, "invalid"), "{:?}", answer.status);
    let after = motu_testkit::traces::resident(world.daemon_pid());
    assert!(after < before + (24 << 20), "from {before} to {after}");
    world.client().version().await.unwrap();
}

#[tokio::test]
async fn garbage_on_the_socket_is_survived() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let mut dice = motu_testkit::world::Dice::new(0x6761_7262);
    for round in 0..40 {
        let length = 1 + dice.below(5000) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| dice.below(256) as u8).collect();
        if round % 4 == 1 {
            // A valid beginning, then noise.
            let head =
                b"POST /v1/sandboxes HTTP/1.1\r\nhost: motu\r\ntransfer-encoding: chunked\r\n\r\n";
            bytes.splice(0..0, head.iter().copied());
        }
        if round % 4 == 2 {
            let head = format!(
                "POST /v1/sandboxes/{id}/exec HTTP/1.1\r\nhost: motu\r\naccept: application/vnd.motu.stream\r\ncontent-length: {length}\r\n\r\n"
            );
            bytes.splice(0..0, head.bytes());
        }
        let answer = babble(&world, &bytes);
        assert!(
            answer.status == 0 || answer.status >= 400,
            "round {round}: {answer:?}"
        );
    }
    // Frames with a wrong length.
    for frame in [
        &b"\0\xff\xff\xff\xff"[..],
        b"\x01\0\0\0\x04abcd",
        b"\x09\0\0\0\0",
        b"\0\0\0\0\x02{",
    ] {
        let head = format!(
            "POST /v1/run HTTP/1.1\r\nhost: motu\r\naccept: application/vnd.motu.stream\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            frame.len()
        );
        let answer = send(&world, &[head.as_bytes(), frame].concat());
        assert_eq!(answer.kind(), (400, "invalid"), "{frame:?}: {answer:?}");
    }
    // Many connections that send nothing.
    let silent: Vec<_> = (0..200)
        .map(|_| connect(&world.socket()).unwrap())
        .collect();
    world.assert_works(&id).await;
    drop(silent);
    world.assert_works(&id).await;
}

/// A `POST` with a body and a key, whose connection ends with the answer.
fn keyed(key: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: motu\r\nConnection: close\r\n");
    format!("{head}Idempotency-Key: {key}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

#[tokio::test]
async fn a_request_with_a_key_is_done_once_although_the_daemon_is_killed() {
    let Some(mut world) = World::new() else {
        return;
    };
    let environment = motu_testkit::world::ENVIRONMENT;
    let body = format!("{{\"environment\": \"{environment}\", \"runtime\": \"container\"}}");
    let create = keyed("once", "/v1/sandboxes", &body);
    let first = send(&world, &create);
    assert_eq!(first.status, 201, "{first:?}");
    let second = send(&world, &create);
    assert_eq!((second.status, &second.body), (201, &first.body));
    world.kill();
    world.start();
    let third = send(&world, &create);
    assert_eq!((third.status, &third.body), (201, &first.body));
    let all = world.client().list_sandboxes(Default::default()).await;
    assert_eq!(all.unwrap().sandboxes.len(), 1);
    let other = send(&world, &keyed("once", "/v1/sandboxes", "{}"));
    assert_eq!(other.kind(), (409, "conflict"));
}
