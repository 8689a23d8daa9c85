//! The server over HTTP: which clients are admitted.

use crate::stub::Stub;
use motu_mcp::{Http, Options, Profile, Server};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

const TOKEN: &str = "0123456789abcdef";
const SHOWN: &str = "Authorization: Bearer 0123456789abcdef";

struct Serving {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    done: tokio::task::JoinHandle<motu_core::Result<()>>,
}

async fn serving() -> Serving {
    let options = Options {
        profile: Profile::VmRun,
        ..Options::default()
    };
    let server = Server::new(Arc::new(Stub::new().recorder), options);
    let http = Http {
        address: "127.0.0.1:0".parse().unwrap(),
        token: TOKEN.to_string(),
        hosts: vec!["box.example".to_string()],
        origins: vec!["http://localhost:6274".parse().unwrap()],
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let (tell, told) = oneshot::channel();
    let stopped = async {
        let _ = stopped.await;
    };
    let done = tokio::spawn(server.serve_http(http, stopped, |address| {
        let _ = tell.send(address);
    }));
    Serving {
        address: told.await.unwrap(),
        stop: Some(stop),
        done,
    }
}

impl Serving {
    /// Sends one request and returns everything that comes back.
    async fn ask(&self, path: &str, headers: &[&str], body: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nContent-Length: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nConnection: close\r\n",
            body.len()
        );
        for header in headers {
            request.push_str(&format!("{header}\r\n"));
        }
        request.push_str("\r\n");
        request.push_str(body);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A stream of events stays open, so the answer is what has arrived after a moment.
        let reading = stream.read_to_end(&mut answer);
        let _ = tokio::time::timeout(std::time::Duration::from_secs(2), reading).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// A complete request of the stateless revision.
fn listing() -> String {
    serde_json::json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/list",
        "params": {"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }},
    })
    .to_string()
}

const CURRENT: [&str; 2] = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    CURRENT.iter().chain(more).copied().collect()
}

#[tokio::test]
async fn a_client_with_the_token_is_served() {
    let mut serving = serving().await;
    let ours = ["Host: 127.0.0.1", SHOWN];
    let answer = serving.ask("/mcp", &with(&ours), &listing()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("vm_run"), "{answer}");
    for wrong in [
        &["Host: 127.0.0.1"][..],
        &["Host: 127.0.0.1", "Authorization: Bearer 0123456789abcdeg"],
        &["Host: 127.0.0.1", "Authorization: Basic 0123456789abcdef"],
    ] {
        let answer = serving.ask("/mcp", &with(wrong), &listing()).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        assert!(
            answer.contains("send `Authorization: Bearer TOKEN`"),
            "{answer}"
        );
        assert!(!answer.contains("vm_run"));
    }
    let answer = serving.ask("/", &with(&ours), &listing()).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    serving.stop.take();
    serving.done.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_browser_is_not_talked_into_being_a_client() {
    let serving = serving().await;
    let here = format!("Host: {}", serving.address);
    let answer = serving
        .ask("/mcp", &with(&[&here, SHOWN]), &listing())
        .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let named = serving
        .ask("/mcp", &with(&["Host: box.example", SHOWN]), &listing())
        .await;
    assert!(named.starts_with("HTTP/1.1 200"), "{named}");
    for wrong in [
        &["Host: evil.example", SHOWN][..],
        &["Host: 127.0.0.1", "Origin: http://evil.example", SHOWN],
        &["Host: 127.0.0.1", "Origin: null", SHOWN],
        &["Host: 127.0.0.1", "Origin: http://localhost:6275", SHOWN],
    ] {
        let answer = serving.ask("/mcp", &with(wrong), &listing()).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(!answer.contains("vm_run"));
    }
}

#[tokio::test]
async fn pages_that_the_operator_names_are_clients() {
    let serving = serving().await;
    let page = ["Host: 127.0.0.1", "Origin: http://localhost:6274", SHOWN];
    let answer = serving.ask("/mcp", &with(&page), &listing()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let heads = answer.to_lowercase();
    for told in [
        "access-control-allow-origin: http://localhost:6274",
        "access-control-expose-headers: mcp-session-id",
        "vary: origin",
    ] {
        assert!(heads.contains(told), "{told}: {answer}");
    }
    // A browser asks before, without the token.
    let asks = [
        "Origin: http://localhost:6274",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: authorization,mcp-protocol-version",
    ];
    let asked = head_of(&serving, "OPTIONS", &asks).await.to_lowercase();
    assert!(asked.starts_with("http/1.1 204"), "{asked}");
    assert!(asked.contains("authorization"), "{asked}");
    // A page without the token reads that it needs one.
    let without = ["Host: 127.0.0.1", "Origin: http://localhost:6274"];
    let refused = serving.ask("/mcp", &with(&without), &listing()).await;
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    assert!(
        refused
            .to_lowercase()
            .contains("access-control-allow-origin"),
        "{refused}"
    );
    // Another page may neither ask nor come, and is told what would let it.
    let other = [
        "Origin: http://localhost:8000",
        "Access-Control-Request-Method: POST",
    ];
    let refused = head_of(&serving, "OPTIONS", &other).await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let with_token = ["Host: 127.0.0.1", "Origin: http://localhost:8000", SHOWN];
    let refused = serving.ask("/mcp", &with(&with_token), &listing()).await;
    assert!(refused.contains("--allowed-origin"), "{refused}");
}

/// The head of the answer to a request without a token.
async fn head_of(serving: &Serving, method: &str, headers: &[&str]) -> String {
    let mut stream = TcpStream::connect(serving.address).await.unwrap();
    let headers = headers.join("\r\n");
    let request = format!(
        "{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn what_is_too_large_is_refused() {
    let serving = serving().await;
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(5 * 1024 * 1024));
    let mut stream = TcpStream::connect(serving.address).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{SHOWN}\r\nContent-Length: {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may stop reading before everything was sent.
    let _ = stream.write_all(body.as_bytes()).await;
    let mut answer = vec![0; 64];
    let read = stream.read(&mut answer).await.unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(read == 0 || answer.starts_with("HTTP/1.1 413"), "{answer}");
}

/// Sends a request without waiting for the end of the body, and returns the head of the answer.
async fn head(serving: &Serving, method: &str, headers: &[&str], body: &str) -> String {
    let mut stream = TcpStream::connect(serving.address).await.unwrap();
    let mut request = format!(
        "{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{SHOWN}\r\nContent-Length: {}\r\n\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n",
        body.len()
    );
    for header in headers {
        request.push_str(&format!("{header}\r\n"));
    }
    request.push_str("\r\n");
    request.push_str(body);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(4).any(|part| part == b"\r\n\r\n") {
        let mut piece = [0; 1024];
        match stream.read(&mut piece).await.unwrap() {
            0 => break,
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_session_is_ended_once() {
    let serving = serving().await;
    let hello = serde_json::json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        },
    })
    .to_string();
    let answer = head(&serving, "POST", &[], &hello).await;
    let lines = answer.lines().map(str::to_lowercase);
    let session = lines
        .into_iter()
        .find(|line| line.starts_with("mcp-session-id"));
    let session = session.unwrap_or_else(|| panic!("{answer}"));
    let own = [session.as_str(), "MCP-Protocol-Version: 2025-11-25"];
    let gone = head(&serving, "DELETE", &own, "").await;
    assert!(gone.starts_with("HTTP/1.1 204"), "{gone}");
    let again = head(&serving, "DELETE", &own, "").await;
    assert!(again.starts_with("HTTP/1.1 404"), "{again}");
}
