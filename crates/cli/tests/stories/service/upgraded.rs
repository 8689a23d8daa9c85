//! Connections that were upgraded, and a key that is good no more; what a caller reaches through
//! them, and what not.

use crate::service::until;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use motu_testkit::host::{Ask, Host};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A frame of a client: text, masked with zeros.
fn frame(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81];
    match text.len() {
        short @ ..126 => frame.push(0x80 | short as u8),
        long => {
            frame.push(0x80 | 126);
            frame.extend((long as u16).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    frame
}

/// A connection that was upgraded to this.
fn upgraded(host: &Host, key: &str, path: &str, protocol: &str) -> TcpStream {
    let mut stream = TcpStream::connect(host.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: motu\r\nAuthorization: Bearer {key}\r\n\
         Connection: upgrade\r\nUpgrade: {protocol}\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    let seen = String::from_utf8_lossy(&seen);
    assert!(seen.starts_with("HTTP/1.1 101"), "{path}: {seen}");
    stream
}

#[test]
fn what_was_upgraded_ends_with_its_key() {
    let host = Host::new("");
    let key = host.key(&["--project", "acme"]);
    let other = host.key(&["--project", "acme"]);
    let made = json!({"environment": "busybox", "sandbox_id": "box"});
    let made = host.call(&other, Ask::post("/v1/sandboxes", made));
    assert_eq!(made.status, 201, "{made}");
    let at = |rest: &str| format!("/v1/sandboxes/box{rest}");
    for (command, tag) in [
        ("while :; do echo ticks; sleep 0.2; done", "ticks"),
        ("nc -ll -p 7000 -e cat", "echo"),
    ] {
        let ask = json!({"command": ["sh", "-c", command], "tag": tag, "background": true});
        let begun = host.call(&other, Ask::post(&at("/exec"), ask));
        assert!(begun.status < 300, "{begun}");
    }
    let end = Instant::now() + Duration::from_secs(20);
    while host.call(&other, Ask::get(&at("/ports"))).json["ports"] == json!([]) {
        assert!(Instant::now() < end, "nothing listens");
        std::thread::sleep(Duration::from_millis(50));
    }
    let open = json!({"session_id": "shell", "sandbox_id": "box", "command": ["sh"]});
    let open = host.call(&other, Ask::post("/v1/terminals", open));
    assert_eq!(open.status, 201, "{open}");
    let live = |key: &str| {
        let run = json!({"command": ["sh", "-c", "echo begun; sleep 300"], "timeout_seconds": 400});
        let mut pty = run.clone();
        pty["tty"] = json!({"cols": 80, "rows": 24});
        let mut all = Vec::new();
        for (ask, word) in [(run, "begun"), (pty, "begun")] {
            let mut stream = upgraded(&host, key, &at("/exec/ws"), "websocket");
            stream.write_all(&frame(&ask.to_string())).unwrap();
            all.push((stream, "exec", word));
        }
        let attach = at("/processes/ticks/stream/ws");
        let attach = upgraded(&host, key, &attach, "websocket");
        all.push((attach, "attach", "ticks"));
        let terminal = "/v1/terminals/shell/stream/ws?cols=80&rows=24";
        let terminal = upgraded(&host, key, terminal, "websocket");
        all.push((terminal, "terminal", ""));
        let mut dial = upgraded(&host, key, &at("/ports/7000/dial"), "motu-dial");
        dial.write_all(b"there and back\n").unwrap();
        all.push((dial, "dial", "there and back"));
        all
    };
    let mut ends = live(&key);
    let mut stays = live(&other);
    for (stream, _, word) in ends.iter_mut().chain(&mut stays) {
        until(stream, word);
    }
    let id = key.split('_').nth(1).unwrap();
    let begin = Instant::now();
    assert_eq!(host.story.motu(&["key", "revoke", id]).code, 0);
    for (mut stream, what, _) in ends {
        let mut rest = Vec::new();
        // A reset is an end, too; running into the patience of the connection is none.
        let ended = stream.read_to_end(&mut rest);
        let late = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!late, "{what}: {}", String::from_utf8_lossy(&rest));
        // What is sent after it reaches nobody.
        let _ = stream.write_all(b"more\n");
        let after = stream.read(&mut [0; 64]);
        assert!(!matches!(after, Ok(1..)), "{what}: {after:?}");
    }
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "{:?}",
        begin.elapsed()
    );
    // Those of the other key go on, and so does what nobody waits for.
    let (mut attach, mut dial) = (stays.remove(2).0, stays.pop().unwrap().0);
    until(&mut attach, "ticks");
    dial.write_all(b"once more\n").unwrap();
    until(&mut dial, "once more");
}

/// The status of an answer to a request for an upgrade.
fn refused(host: &Host, key: &str, path: &str) -> (u16, String) {
    let ask = Ask::get(path).header("Connection: upgrade");
    let answer = host.call(key, ask.header("Upgrade: motu-dial"));
    let kind = answer.json["error"]["kind"].as_str().unwrap_or_default();
    (answer.status, kind.to_string())
}

#[test]
fn the_guest_itself_is_behind_no_port_and_no_socket() {
    let host = Host::new("");
    let key = host.key(&["--project", "acme"]);
    let made = json!({"environment": "busybox", "sandbox_id": "box"});
    let made = host.call(&key, Ask::post("/v1/sandboxes", made));
    assert_eq!(made.status, 201, "{made}");
    let at = |rest: &str| format!("/v1/sandboxes/box{rest}");
    // The guest answers here, so that it would be listening if it ever did.
    let ask = json!({"command": ["sh", "-c", "cat /proc/net/tcp /proc/net/tcp6; echo; cat /proc/net/unix"]});
    let ran = host.call(&key, Ask::post(&at("/exec"), ask));
    assert_eq!(ran.json["exit_code"], 0, "{ran}");
    let told = ran.json["stdout"].as_str().unwrap();
    let (tcp, unix) = told.split_once("\n\n").unwrap();
    // `0A` is a socket that listens; so is one whose flags have `10000`.
    let listens = |line: &&str| line.split_whitespace().nth(3) == Some("0A");
    assert_eq!(tcp.lines().find(listens), None, "{tcp}");
    let listening = |line: &&str| line.split_whitespace().nth(3) == Some("00010000");
    for line in unix.lines().filter(listening) {
        let path = line.split_whitespace().nth(7).unwrap_or_default();
        let path = path.replace('@', "%00");
        let dialled = refused(&host, &key, &at(&format!("/sockets/dial?path={path}")));
        assert_ne!(dialled.0, 101, "{line}");
    }
    let ports = host.call(&key, Ask::get(&at("/ports")));
    assert_eq!(ports.json["ports"], json!([]), "{ports}");
    // Ports of host agents elsewhere, and those of this daemon.
    let own = host.address.port();
    for port in [49983, 7443, 2375, 22, own] {
        let (status, kind) = refused(&host, &key, &at(&format!("/ports/{port}/dial")));
        assert!(status >= 400, "{port}: {status} {kind}");
        let page = host.call(&key, Ask::get(&at(&format!("/ports/{port}/"))));
        assert!(page.status >= 400, "{port}: {page}");
    }
}

/// The messages of a stream until one of this type.
fn messages(stream: &mut TcpStream, last: &str) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let mut head = [0; 2];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(head[0], 0x81, "no text: {all:?}");
        let length = match head[1] {
            126 => {
                let mut long = [0; 2];
                stream.read_exact(&mut long).unwrap();
                usize::from(u16::from_be_bytes(long))
            }
            short => usize::from(short),
        };
        let mut text = vec![0; length];
        stream.read_exact(&mut text).unwrap();
        let message: Value = serde_json::from_slice(&text).unwrap();
        let done = message["type"] == last;
        all.push(message);
        if done {
            return all;
        }
    }
}

/// What the messages of a type say together.
fn said(messages: &[Value], kind: &str) -> String {
    let of = messages.iter().filter(|one| one["type"] == kind);
    of.map(|one| one["data"].as_str().unwrap()).collect()
}

#[test]
fn a_capsule_has_commands_terminals_and_processes_live() {
    let host = Host::new("");
    let key = host.key(&["--project", "acme"]);
    let made = host.call(
        &key,
        Ask::post("/v1/capsules", json!({"template": "busybox"})),
    );
    assert_eq!(made.status, 202, "{made}");
    let at = |rest: &str| format!("/v1/capsules/{}{rest}", made.json["id"].as_str().unwrap());
    let open = |rest: &str, begin: Option<Value>| {
        let mut stream = upgraded(&host, &key, &at(rest), "websocket");
        if let Some(begin) = begin {
            stream.write_all(&frame(&begin.to_string())).unwrap();
        }
        stream
    };
    let script = "echo out; echo $A >&2; printf '\\303'; sleep 0.3; printf '\\244'; exit 3";
    let start = json!({"type": "start", "cmd": "sh", "args": ["-c", script], "envs": {"A": "err"}});
    let heard = messages(&mut open("/exec/stream", Some(start)), "exit");
    assert_eq!(heard[0]["type"], "start", "{heard:?}");
    assert!(heard[0]["pid"].as_u64().is_some_and(|pid| pid > 0));
    assert_eq!(said(&heard, "stdout"), "out\n\u{e4}", "{heard:?}");
    assert_eq!(said(&heard, "stderr"), "err\n", "{heard:?}");
    assert_eq!(heard.last().unwrap()["exit_code"], 3);
    // What is wrong says so, and a command ends when it is stopped.
    let wrong = json!({"type": "start", "cmd": "true", "background": true});
    let heard = messages(&mut open("/exec/stream", Some(wrong)), "error");
    assert_eq!(heard[0]["kind"], "invalid", "{heard:?}");
    let nap = json!({"type": "start", "cmd": "sleep", "args": ["300"]});
    let mut stopped = open("/exec/stream", Some(nap));
    messages(&mut stopped, "start");
    stopped.write_all(&frame(r#"{"type":"stop"}"#)).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while host.call(&key, Ask::get(&at("/processes"))).json["processes"] != json!([]) {
        assert!(Instant::now() < end, "it runs on");
        std::thread::sleep(Duration::from_millis(50));
    }
    // A terminal is left, and found again by its tag.
    let start = json!({"type": "start", "cmd": "sh", "cols": 100, "rows": 30, "tag": "term", "encoding": "base64"});
    let mut first = open("/pty", Some(start));
    let begun = messages(&mut first, "started");
    assert_eq!(begun.last().unwrap()["tag"], "term", "{begun:?}");
    drop(first);
    let connect = json!({"type": "connect", "tag": "term", "encoding": "base64"});
    let mut again = open("/pty", Some(connect));
    let typed = json!({"type": "input", "data": BASE64.encode("stty size; ")});
    again
        .write_all(&frame(r#"{"type":"resize","cols":90,"rows":20}"#))
        .unwrap();
    again.write_all(&frame(&typed.to_string())).unwrap();
    // What is typed may also be a binary message, which is what it is.
    let mut typed = frame("exit 5\n");
    typed[0] = 0x82;
    again.write_all(&typed).unwrap();
    let heard = messages(&mut again, "exit");
    let shown: Vec<u8> = heard
        .iter()
        .filter(|one| one["type"] == "output")
        .flat_map(|one| BASE64.decode(one["data"].as_str().unwrap()).unwrap())
        .collect();
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("20 90"), "{shown}");
    assert_eq!(heard.last().unwrap()["exit_code"], 5);
    // A process in the background is followed from its beginning.
    let words = json!({"cmd": "sh", "args": ["-c", "echo before; sleep 1; echo after"], "background": true, "tag": "job"});
    assert_eq!(host.call(&key, Ask::post(&at("/exec"), words)).status, 202);
    let heard = messages(&mut open("/processes/job/stream", None), "exit");
    assert_eq!(said(&heard, "stdout"), "before\nafter\n", "{heard:?}");
    // Another project finds none of it.
    let other = host.key(&["--project", "other"]);
    for rest in ["/processes/job/stream", "/processes"] {
        let answer = host.call(&other, Ask::get(&at(rest)));
        assert!([400, 404, 426].contains(&answer.status), "{answer}");
    }
}
