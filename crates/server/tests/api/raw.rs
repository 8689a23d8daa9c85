//! WebSockets without frames, and those of capsules, which say where they are.

use super::*;
use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error as Broken, Message};

type Socket = WebSocketStream<UnixStream>;

async fn connect(world: &World, path: &str) -> Result<Socket, Broken> {
    let stream = UnixStream::connect(&world.socket).await.unwrap();
    let address = format!("ws://motu{path}");
    Ok(tokio_tungstenite::client_async(address, stream).await?.0)
}

async fn opened(world: &World, path: &str, request: &str) -> Socket {
    let mut socket = connect(world, path).await.unwrap();
    socket.send(Message::text(request)).await.unwrap();
    socket
}

/// The binary messages until the end, and the code and the reason of the close.
async fn heard(mut socket: Socket) -> (Vec<Vec<u8>>, u16, Value) {
    let mut pieces = Vec::new();
    loop {
        match within(socket.next()).await {
            Some(Ok(Message::Binary(bytes))) => pieces.push(bytes.to_vec()),
            Some(Ok(Message::Close(Some(frame)))) => {
                let reason = serde_json::from_str(&frame.reason).unwrap();
                return (pieces, frame.code.into(), reason);
            }
            other => panic!("{other:?}"),
        }
    }
}

const EXEC: &str = "/v1/sandboxes/sb-a/exec/ws?mode=raw";

#[tokio::test]
async fn raw_messages_are_what_is_typed_and_what_is_written() {
    let world = world();
    let mut socket = opened(&world, EXEC, r#"{"command":["cat"]}"#).await;
    let odd = &b"\x00\x01\xff hi"[..];
    socket.send(Message::binary(odd)).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap().into_data(), odd);
    let resize = r#"{"type":"resize","cols":80,"rows":24}"#;
    socket.send(Message::text(resize)).await.unwrap();
    let sized = socket.next().await.unwrap().unwrap().into_data();
    assert_eq!(sized, &b"80x24\n"[..]);
    let close = Message::text(r#"{"type":"close_stdin"}"#);
    socket.send(close).await.unwrap();
    let ended = heard(socket).await;
    assert_eq!(ended, (Vec::new(), 1000, json!({"exit_code": 0})));
}

#[tokio::test]
async fn raw_output_of_both_channels_comes_in_its_order() {
    let world = world();
    let socket = opened(&world, EXEC, r#"{"command":["both"]}"#).await;
    let (pieces, code, reason) = heard(socket).await;
    assert_eq!(pieces, [b"out".to_vec(), b"err\xff".to_vec()]);
    assert_eq!((code, reason), (1000, json!({"exit_code": 3})));
}

#[tokio::test]
async fn a_raw_session_that_fails_says_why_in_its_close() {
    let world = world();
    for (request, kind) in [
        (r#"{"command":["fail"]}"#, "transport"),
        (r#"{"command":["nonesuch"]}"#, "invalid"),
        ("{", "invalid"),
    ] {
        let socket = opened(&world, EXEC, request).await;
        let (_, code, reason) = heard(socket).await;
        assert_eq!((code, &reason["error"]["kind"]), (1011, &json!(kind)));
    }
    // A text that is no control is one failure more, and ends the command.
    let mut socket = opened(&world, EXEC, r#"{"command":["sleep"]}"#).await;
    socket.send(Message::text("hello")).await.unwrap();
    let (_, code, reason) = heard(socket).await;
    assert_eq!((code, &reason["error"]["kind"]), (1011, &json!("invalid")));
    within(world.sessions.killed.notified()).await;
}

/// The process `kept` has written ten bytes, of which the first four are gone.
fn tell_of_kept(recorder: &Recorder) {
    recorder.on(|call: verb::AttachProcess| {
        if call.selector != Selector::Tag("kept".to_string()) {
            return Err(Error::not_found("no such process"));
        }
        let (all, oldest) = ("0123456789", 4);
        let first = match call.ask.begin()? {
            AttachFrom::Offsets { stdout, .. } => (stdout as usize).min(all.len()),
            _ => oldest,
        };
        let begun = ExecEvent::Started(Started {
            pid: 7,
            tag: "kept".to_string(),
            stdout_from: first as u64,
            stderr_from: 0,
        });
        let head = vec![begun, ExecEvent::Stdout(all[first..].into())];
        Sessions::default().start(&["true".to_string()], head)
    });
}

#[tokio::test]
async fn what_runs_already_is_followed_raw_from_an_offset() {
    let world = world();
    tell_of_kept(&world.recorder);
    let path = "/v1/sandboxes/sb-a/processes/kept/stream/ws";
    let at = format!("{path}?stdout_from=6&mode=raw&stderr_from=0");
    let (pieces, code, _) = heard(connect(&world, &at).await.unwrap()).await;
    assert_eq!((pieces, code), (vec![b"6789".to_vec()], 1000));
    let path = "/v1/terminals/db%20shell/stream/ws?mode=raw";
    let mut socket = connect(&world, path).await.unwrap();
    let screen = socket.next().await.unwrap().unwrap().into_data();
    assert_eq!(screen, &b"the screen\r\n"[..]);
}

#[tokio::test]
async fn a_mode_that_is_not_known_is_refused() {
    let world = world();
    for path in [
        "/v1/run/ws?mode=text",
        "/v1/terminals/a/stream/ws?mode=rawest",
    ] {
        match connect(&world, path).await {
            Err(Broken::Http(answer)) => assert_eq!(answer.status(), 400),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_session_that_is_silent_is_pinged() {
    let world = world();
    for path in ["/v1/run/ws", "/v1/run/ws?mode=raw"] {
        let request = r#"{"exec":{"command":["sleep"]}}"#;
        let mut socket = opened(&world, path, request).await;
        if !path.contains("raw") {
            // The sandbox, and that the command has begun.
            for _ in 0..2 {
                let told = within(socket.next()).await.unwrap().unwrap();
                assert!(told.is_binary(), "{told:?}");
            }
        }
        // The clock now jumps to whatever is waited for.
        tokio::time::pause();
        let message = socket.next().await.unwrap().unwrap();
        tokio::time::resume();
        assert!(message.is_ping(), "{message:?}");
        drop(socket);
        within(world.sessions.killed.notified()).await;
    }
}

/// The messages of JSON until the end.
async fn told(mut socket: Socket) -> Vec<Value> {
    let mut all = Vec::new();
    while let Some(Ok(message)) = within(socket.next()).await {
        if let Message::Text(text) = message {
            all.push(serde_json::from_str(&text).unwrap());
        }
    }
    all
}

#[tokio::test]
async fn a_capsules_process_is_followed_from_where_its_caller_was() {
    let world = world();
    tell_of_kept(&world.recorder);
    let path = "/v1/capsules/sb-a/processes/kept/stream";
    let exit = json!({"type": "exit", "exit_code": 0, "timed_out": false});
    let first = told(connect(&world, path).await.unwrap()).await;
    let output = json!({"type": "stdout", "data": "456789", "from": 4, "to": 10});
    assert_eq!(
        first,
        [json!({"type": "start", "pid": 7}), output, exit.clone()]
    );
    let at = format!("{path}?stdout_from=8&stderr_from=0");
    let again = told(connect(&world, &at).await.unwrap()).await;
    let output = json!({"type": "stdout", "data": "89", "from": 8, "to": 10});
    assert_eq!(again, [json!({"type": "start", "pid": 7}), output, exit]);
}

#[tokio::test]
async fn a_capsules_terminal_goes_on_where_its_caller_was() {
    let world = world();
    tell_of_kept(&world.recorder);
    let connect = r#"{"type": "connect", "tag": "kept", "stdout_from": 8, "encoding": "base64"}"#;
    let socket = opened(&world, "/v1/capsules/sb-a/pty", connect).await;
    let again = told(socket).await;
    let output = json!({"type": "output", "data": "ODk=", "from": 8, "to": 10});
    assert_eq!(again[1], output, "{again:?}");
    // As it is, it says only where it begins.
    let connect = r#"{"type": "connect", "tag": "kept", "stdout_from": 8}"#;
    let mut socket = opened(&world, "/v1/capsules/sb-a/pty", connect).await;
    let begun = within(socket.next()).await.unwrap().unwrap();
    let begun: Value = serde_json::from_str(begun.to_text().unwrap()).unwrap();
    assert_eq!(
        (&begun["type"], &begun["from"]),
        (&json!("started"), &json!(8))
    );
    let output = within(socket.next()).await.unwrap().unwrap();
    assert_eq!(output, Message::binary(&b"89"[..]));
}

#[tokio::test]
async fn what_is_typed_into_a_capsules_terminal_is_binary() {
    let world = world();
    world.recorder.on(|call: verb::ExecBackground| {
        Ok(motu_core::exec::Background {
            pid: 7,
            tag: call.ask.tag.unwrap_or_default(),
        })
    });
    world.recorder.on(|call: verb::AttachProcess| {
        let Selector::Tag(tag) = call.selector else {
            return Err(Error::not_found("no such process"));
        };
        assert!(is_tag("pty-", &tag), "{tag}");
        let begun = ExecEvent::Started(Started {
            pid: 7,
            tag,
            stdout_from: 0,
            stderr_from: 0,
        });
        Sessions::default().start(&["cat".to_string()], vec![begun])
    });
    let mut socket = opened(&world, "/v1/capsules/sb-a/pty", r#"{"type": "start"}"#).await;
    let begun = within(socket.next()).await.unwrap().unwrap();
    let begun: Value = serde_json::from_str(begun.to_text().unwrap()).unwrap();
    assert!(is_tag("pty-", begun["tag"].as_str().unwrap()), "{begun}");
    for typed in [&b"\x00\xff hi\n"[..], br#"{"type":"kill"}"#] {
        socket.send(Message::binary(typed)).await.unwrap();
        let shown = within(socket.next()).await.unwrap().unwrap();
        assert_eq!(shown, Message::binary(typed));
        // The answer to a ping is no input.
        let pong = r#"{"type":"pong"}"#;
        socket.send(Message::text(pong)).await.unwrap();
    }
    // A command has no input: this ends it, and says so.
    let socket = "/v1/capsules/sb-a/exec/stream";
    let start = r#"{"type": "start", "cmd": "sleep"}"#;
    let mut socket = opened(&world, socket, start).await;
    socket.send(Message::binary(&b"x"[..])).await.unwrap();
    let failed = told(socket).await;
    assert_eq!(failed.last().unwrap()["kind"], "invalid", "{failed:?}");
}

/// Whether a tag is this and eight digits of base 16.
fn is_tag(begin: &str, tag: &str) -> bool {
    let digits = tag.strip_prefix(begin).unwrap_or_default();
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.len() == 8 && digits.bytes().all(digit)
}
