//! Clients of each face, which look at every answer.

use bytes::{BufMut, Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use motu_grpc::wire::{ExecRequest, ExecResponse, SERVICE};
use prost::Message;
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How often each does what it does.
const ROUNDS: usize = 4;
/// Kinds of frames inside the messages of a WebSocket.
const JSON: u8 = 0;
const DATA: u8 = 1;

/// One of many.
pub struct Client {
    pub address: SocketAddr,
    pub project: usize,
    pub key: String,
    pub number: usize,
}

impl Client {
    /// Does its work, on the face that its number says.
    pub async fn work(self) {
        match (self.number / 2) % 3 {
            0 => self.rest().await,
            1 => self.grpc().await,
            _ => self.websockets().await,
        }
    }

    /// What nobody else is told.
    fn word(&self, round: usize) -> String {
        format!(
            "project {} client {} round {round}",
            self.project, self.number
        )
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    fn request(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", "motu")
            .header("authorization", format!("Bearer {}", self.key))
            .body(Full::new(body.into()))
            .unwrap()
    }

    async fn rest(self) {
        let stream = TokioIo::new(self.connect().await);
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let file = format!("/v1/sandboxes/box/files/content?path=/tmp/{}", self.number);
        for round in 0..ROUNDS {
            let word = self.word(round);
            let ask = json!({"command": ["echo", word]}).to_string();
            let ask = self.request("POST", "/v1/sandboxes/box/exec", ask);
            let (status, ran) = whole(sender.send_request(ask).await.unwrap()).await;
            let ran: Value = serde_json::from_slice(&ran).unwrap();
            assert_eq!((status, &ran["exit_code"]), (200, &json!(0)), "{ran}");
            assert_eq!(ran["stdout"], format!("{word}\n"));
            let ask = self.request("PUT", &file, word.clone());
            let (status, said) = whole(sender.send_request(ask).await.unwrap()).await;
            assert_eq!(status, 200, "{said:?}");
            let ask = self.request("GET", &file, "");
            let (status, read) = whole(sender.send_request(ask).await.unwrap()).await;
            assert_eq!((status, &read[..]), (200, word.as_bytes()));
        }
        let ask = self.request("GET", "/v1/sandboxes/box-of-nobody", "");
        let (status, _) = whole(sender.send_request(ask).await.unwrap()).await;
        assert_eq!(status, 404);
    }

    async fn grpc(self) {
        let stream = TokioIo::new(self.connect().await);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream)
            .await
            .unwrap();
        tokio::spawn(connection);
        for round in 0..ROUNDS {
            let word = self.word(round);
            let ask = ExecRequest {
                sandbox_id: "box".to_string(),
                cmd: "sh".to_string(),
                args: vec!["-c".into(), "echo \"$0\"; exit 3".into(), word.clone()],
                ..ExecRequest::default()
            };
            let mut body = BytesMut::new();
            body.put_u8(0);
            body.put_u32(ask.encoded_len() as u32);
            ask.encode(&mut body).unwrap();
            let path = format!("http://motu/{SERVICE}/Exec");
            let mut ask = self.request("POST", &path, body.freeze());
            let grpc = http::HeaderValue::from_static("application/grpc");
            ask.headers_mut().remove("host");
            ask.headers_mut().insert("content-type", grpc);
            sender.ready().await.unwrap();
            let answer = sender.send_request(ask).await.unwrap();
            let whole = answer.into_body().collect().await.unwrap();
            let status = whole.trailers().map(|all| all["grpc-status"].clone());
            assert_eq!(status.unwrap(), "0");
            let ran = ExecResponse::decode(&whole.to_bytes()[5..]).unwrap();
            assert_eq!(ran.exit_code, 3);
            assert_eq!(ran.stdout, format!("{word}\n"));
        }
    }

    /// A connection for each command, which says everything back.
    async fn websockets(self) {
        for round in 0..ROUNDS {
            let mut socket = WebSocket::open(&self).await;
            let ask = json!({"command": ["cat"], "stdin": true, "timeout_seconds": 120});
            socket.send(JSON, ask.to_string().as_bytes()).await;
            let word = self.word(round);
            socket.send(DATA, word.as_bytes()).await;
            socket.send(JSON, br#"{"type":"close_stdin"}"#).await;
            let mut heard = Vec::new();
            let ended = loop {
                let (kind, payload) = socket.receive().await;
                match kind {
                    DATA => heard.extend(payload),
                    _ => {
                        let event: Value = serde_json::from_slice(&payload).unwrap();
                        if event["type"] != "started" {
                            break event;
                        }
                    }
                }
            };
            assert_eq!(ended["type"], "exited", "{ended}");
            assert_eq!(ended["exit_code"], 0, "{ended}");
            assert_eq!(heard, word.as_bytes());
        }
    }
}

async fn whole(answer: Response<Incoming>) -> (u16, Bytes) {
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap();
    (status, body.to_bytes())
}

/// Frames of motu, one in each binary message.
struct WebSocket(TcpStream);

impl WebSocket {
    async fn open(client: &Client) -> WebSocket {
        let mut stream = client.connect().await;
        let head = format!(
            "GET /v1/sandboxes/box/exec/ws HTTP/1.1\r\nHost: motu\r\nAuthorization: Bearer {}\r\n\
             Connection: upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            client.key
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            seen.push(stream.read_u8().await.unwrap());
        }
        let seen = String::from_utf8_lossy(&seen);
        assert!(seen.starts_with("HTTP/1.1 101"), "{seen}");
        WebSocket(stream)
    }

    async fn send(&mut self, kind: u8, payload: &[u8]) {
        let length = payload.len() + 5;
        assert!(length < 126, "a message of a test is short");
        // Masked with zeros, which changes nothing.
        let mut frame = vec![0x82, 0x80 | length as u8, 0, 0, 0, 0, kind];
        frame.extend((payload.len() as u32).to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await.unwrap();
    }

    async fn receive(&mut self) -> (u8, Vec<u8>) {
        let opcode = self.0.read_u8().await.unwrap();
        assert_eq!(opcode, 0x82);
        let length = match self.0.read_u8().await.unwrap() {
            126 => usize::from(self.0.read_u16().await.unwrap()),
            short => usize::from(short),
        };
        let mut message = vec![0; length];
        self.0.read_exact(&mut message).await.unwrap();
        (message[0], message[5..].to_vec())
    }
}
