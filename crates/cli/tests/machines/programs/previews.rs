//! A web server in a sandbox, seen through the API.

use crate::programs::desk::Desk;
use motu_core::exec::ExecRequest;
use motu_core::terminal::Terminals;
use motu_core::{SandboxId, Service};
use motu_testkit::world::{eventually, shell};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Tells what it was asked, counts what it is sent, and echoes the frames of a WebSocket.
const SERVER: &str = r#"
import base64, hashlib, http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def answer(self, body, status=200, **headers):
        self.send_response(status)
        for name, value in headers.items(): self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if self.headers.get("Upgrade", "").lower() == "websocket": return self.echo()
        if self.path == "/big": return self.answer(bytes(range(256)) * 40960)
        if self.path == "/moved": return self.answer(b"", 302, Location="/new", Motu_Audit_Id="forged")
        if self.path == "/nothing": return self.wfile.write(b"this is no HTTP\r\n\r\n") or self.connection.shutdown(2)
        self.answer(json.dumps({"path": self.path, **dict(self.headers)}).encode(), X_Own="kept")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(f"{len(body)} {hashlib.sha256(body).hexdigest()}".encode())
    def echo(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        while True:
            head = self.rfile.read(2)
            if len(head) < 2: break
            mask = self.rfile.read(4)
            text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127)))
            self.wfile.write(bytes([0x81, len(text)]) + text.upper())
        self.close_connection = True
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"#;

struct Site {
    desk: Desk,
    id: SandboxId,
}

impl Site {
    async fn new() -> Option<Site> {
        let desk = Desk::new().await?;
        let client = desk.world.client();
        let id = client.get_terminal(&desk.id).await.unwrap().sandbox_id;
        let mut serve: ExecRequest = shell("exec python3 -c \"$SERVER\"");
        serve.program.env = [("SERVER".to_string(), SERVER.to_string())].into();
        client.exec_background(&id, serve).await.unwrap();
        eventually("the server listens", async || {
            let found = client.list_ports(&id).await.unwrap().ports;
            (found.iter().any(|port| port.port == 8000), found)
        })
        .await;
        Some(Site { desk, id })
    }

    /// Sends a request and gives the whole answer.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> (String, Vec<u8>) {
        let mut stream = self.send(
            method,
            path,
            &format!("{headers}Connection: close\r\n"),
            body,
        );
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        (head, answer.split_off(end + 4))
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> UnixStream {
        let mut stream = UnixStream::connect(self.desk.world.socket()).unwrap();
        let address = format!("/v1/sandboxes/{}/ports/{path}", self.id);
        let length = body.len();
        let head = format!(
            "{method} {address} HTTP/1.1\r\nHost: motu.test\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        stream
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_inside_is_seen_through_the_api() {
    let Some(site) = Site::new().await else {
        return;
    };
    let key = "Authorization: Bearer motu_abc_secret\r\nX-Mine: 1\r\n";
    let (head, body) = site.ask("GET", "8000/a%20b?c=d", key, b"");
    assert!(
        head.starts_with("http/1.1 200") && head.contains("x-own: kept"),
        "{head}"
    );
    let told: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(told["path"], "/a%20b?c=d");
    assert_eq!(told["host"], "localhost:8000");
    assert_eq!(told["x-forwarded-host"], "motu.test");
    assert_eq!(told["x-mine"], "1");
    assert!(!body.windows(6).any(|six| six == b"secret"), "{told}");

    let (head, body) = site.ask("GET", "8000/big", "", b"");
    assert!(head.contains("content-length: 10485760"), "{head}");
    assert!(body.chunks(256).all(|part| {
        part.iter()
            .enumerate()
            .all(|(at, byte)| at == usize::from(*byte))
    }));

    let sent = vec![7u8; 10 << 20];
    let (_, body) = site.ask("POST", "8000/", "", &sent);
    let told = String::from_utf8_lossy(&body).into_owned();
    assert!(told.starts_with("10485760 "), "{told}");

    let (head, _) = site.ask("GET", "8000/moved", "", b"");
    let location = format!("location: /v1/sandboxes/{}/ports/8000/new", site.id);
    assert!(
        head.contains(&location) && !head.contains("forged"),
        "{head}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_answer_in_http_is_an_error_with_its_cause() {
    let Some(site) = Site::new().await else {
        return;
    };
    let (head, body) = site.ask("GET", "8000/nothing", "", b"");
    let said = String::from_utf8_lossy(&body).into_owned();
    assert!(head.starts_with("http/1.1 502"), "{head} {said}");
    assert!(said.contains("port 8000 did not answer in HTTP"), "{said}");
    for (path, status) in [
        ("8001/", "404"),
        ("0/", "400"),
        ("70000/", "400"),
        ("x/", "400"),
    ] {
        let (head, body) = site.ask("GET", path, "", b"");
        let said = String::from_utf8_lossy(&body).into_owned();
        let wanted = format!("http/1.1 {status}");
        assert!(head.starts_with(&wanted), "{path}: {head} {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_goes_through() {
    let Some(site) = Site::new().await else {
        return;
    };
    let headers = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let mut stream = site.send("GET", "8000/socket", headers, b"");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(head.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    for text in ["hello", "again"] {
        let mask = [1u8, 2, 3, 4];
        let masked = text
            .bytes()
            .enumerate()
            .map(|(at, byte)| byte ^ mask[at % 4]);
        let frame: Vec<u8> = [0x81, 0x80 | text.len() as u8]
            .into_iter()
            .chain(mask)
            .chain(masked)
            .collect();
        stream.write_all(&frame).unwrap();
        let mut answer = vec![0; 2 + text.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer[2..], text.to_uppercase().as_bytes());
    }
}
