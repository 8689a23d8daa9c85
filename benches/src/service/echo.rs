//! A key that is typed into a terminal of a live container over a WebSocket, until its echo is back.

use super::{Fallible, Live};
use crate::stats::Timings;
use crate::{Bench, Outcome};
use serde_json::json;
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Fewer than a line of a terminal may have.
const KEYS: usize = 1000;

/// Kinds of frames inside the messages of a WebSocket (docs/api.md).
const JSON: u8 = 0;
const DATA: u8 = 1;
/// Opcodes of messages, with the bit that says that they are whole.
const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("the host as a service: a terminal over a WebSocket");
    bench.note_load();
    let live = Live::create(&bench.motu)?;
    let address = format!("/v1/sandboxes/{}/exec/ws", live.id);
    let mut socket = WebSocket::open(&bench.motu.home.join("daemon.sock"), &address)?;
    let ask = json!({"command": ["cat"], "tty": {"cols": 80, "rows": 24}, "timeout_seconds": 600});
    socket.send(TEXT, ask.to_string().as_bytes())?;
    while !socket.receive()?.starts_with(&[JSON]) {}
    let echo = Timings::of(KEYS, || {
        socket.send(BINARY, &[DATA, 0, 0, 0, 1, b'x'])?;
        match socket.receive()?.as_slice() {
            [DATA, _, _, _, 1, b'x'] => Ok(()),
            other => Err(format!("no echo: {other:?}")),
        }
        .map_err(Box::<dyn std::error::Error>::from)
    })?;
    let report = &mut bench.report;
    report.at_most("echo of a key, p50", echo.p50(), 1.5, "ms");
    report.note("  p99", format!("{:.2} ms", echo.quantile(0.99)));
    Ok(())
}

/// A minimal blocking client: messages that fit in one frame.
struct WebSocket(BufReader<UnixStream>);

impl WebSocket {
    fn open(socket: &Path, address: &str) -> Fallible<WebSocket> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let head = format!(
            "GET {address} HTTP/1.1\r\nHost: motu\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        let mut io = BufReader::new(stream);
        let (mut seen, mut byte) = (Vec::new(), [0]);
        while !seen.ends_with(b"\r\n\r\n") {
            io.read_exact(&mut byte)?;
            seen.push(byte[0]);
        }
        match seen.starts_with(b"HTTP/1.1 101") {
            true => Ok(WebSocket(io)),
            false => Err(String::from_utf8_lossy(&seen).into()),
        }
    }

    fn send(&mut self, opcode: u8, payload: &[u8]) -> Outcome {
        let mut frame = vec![opcode];
        match payload.len() {
            short @ ..126 => frame.push(0x80 | short as u8),
            long => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(long)?.to_be_bytes());
            }
        }
        // A mask of zeros changes nothing.
        frame.extend([0; 4]);
        frame.extend(payload);
        Ok(self.0.get_mut().write_all(&frame)?)
    }

    fn receive(&mut self) -> Fallible<Vec<u8>> {
        let mut head = [0; 2];
        self.0.read_exact(&mut head)?;
        if head[0] != BINARY {
            return Err(format!("opcode {:#x} is no binary message", head[0]).into());
        }
        let length = match head[1] {
            126 => {
                let mut long = [0; 2];
                self.0.read_exact(&mut long)?;
                usize::from(u16::from_be_bytes(long))
            }
            short @ ..126 => usize::from(short),
            _ => return Err("a message too long for a terminal".into()),
        };
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload)?;
        Ok(payload)
    }
}
