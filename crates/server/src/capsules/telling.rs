//! What happens in a session, as messages of JSON.
//!
//! Every message with output says which bytes of its channel it holds, `from` and `to`: a client that
//! comes back with the last `to` hears nothing twice and misses nothing that is still kept.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use motu_core::exec::{Channel, ExecEvent, Started};
use serde_json::{Value, json};

/// How output is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Two channels of text.
    Command,
    /// One channel of bytes, as they are: `started` and `gap` say where in the output they stand.
    Terminal,
    /// One channel of bytes, in base64.
    Encoded,
}

impl Shape {
    pub fn is_terminal(self) -> bool {
        self != Shape::Command
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Json(Value),
    Output(Bytes),
}

/// Turns events into messages.
#[derive(Debug)]
pub struct Teller {
    shape: Shape,
    stdout: Output,
    stderr: Output,
}

impl Teller {
    pub fn new(shape: Shape) -> Teller {
        Teller {
            shape,
            stdout: Output::new("stdout"),
            stderr: Output::new("stderr"),
        }
    }

    pub fn event(&mut self, event: ExecEvent) -> Vec<Said> {
        match (event, self.shape) {
            (ExecEvent::Stdout(bytes), Shape::Terminal) => vec![Said::Output(bytes)],
            (event, _) => self.told(event).into_iter().map(Said::Json).collect(),
        }
    }

    fn told(&mut self, event: ExecEvent) -> Vec<Value> {
        match event {
            ExecEvent::Sandbox(_) => Vec::new(),
            ExecEvent::Started(started) => vec![self.started(started)],
            ExecEvent::Stdout(bytes) => match self.shape {
                Shape::Command => self.stdout.text(&bytes),
                Shape::Terminal | Shape::Encoded => vec![self.stdout.bytes(&bytes)],
            },
            ExecEvent::Stderr(bytes) => self.stderr.text(&bytes),
            ExecEvent::Gap(gap) => {
                let output = match gap.channel {
                    Channel::Stdout => &mut self.stdout,
                    Channel::Stderr => &mut self.stderr,
                };
                let mut told = output.rest();
                output.at = gap.to;
                let channel = output.channel;
                told.push(
                    json!({"type": "gap", "channel": channel, "from": gap.from, "to": gap.to}),
                );
                told
            }
            ExecEvent::Exited(exited) => {
                let mut told = self.stdout.rest();
                told.extend(self.stderr.rest());
                told.push(json!({
                    "type": "exit", "exit_code": exited.exit_code, "timed_out": exited.timed_out,
                }));
                told
            }
        }
    }

    fn started(&mut self, started: Started) -> Value {
        let Started { pid, tag, .. } = started;
        (self.stdout.at, self.stderr.at) = (started.stdout_from, started.stderr_from);
        match self.shape {
            Shape::Command => json!({"type": "start", "pid": pid}),
            Shape::Terminal | Shape::Encoded => {
                let from = self.stdout.at;
                json!({"type": "started", "pid": pid, "tag": tag, "from": from})
            }
        }
    }
}

/// One channel. Of text, a character that comes in two pieces is told whole; what is no text is told
/// in base64.
#[derive(Debug)]
struct Output {
    channel: &'static str,
    /// The next byte to be told.
    at: u64,
    /// The beginning of a character.
    rest: Vec<u8>,
}

impl Output {
    fn new(channel: &'static str) -> Output {
        Output {
            channel,
            at: 0,
            rest: Vec::new(),
        }
    }

    fn bytes(&mut self, bytes: &[u8]) -> Value {
        self.message(
            bytes.len(),
            json!({"type": "output", "data": STANDARD.encode(bytes)}),
        )
    }

    fn text(&mut self, bytes: &[u8]) -> Vec<Value> {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Ok(text) => text.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return self.rest(),
        };
        let rest = self.rest.split_off(whole);
        let told = std::mem::replace(&mut self.rest, rest);
        match String::from_utf8(told) {
            Ok(text) if !text.is_empty() => {
                vec![self.message(text.len(), json!({"type": self.channel, "data": text}))]
            }
            _ => Vec::new(),
        }
    }

    /// What is left, which is no text.
    fn rest(&mut self) -> Vec<Value> {
        let rest = std::mem::take(&mut self.rest);
        let data = STANDARD.encode(&rest);
        let message = json!({"type": self.channel, "data": data, "encoding": "base64"});
        match rest.is_empty() {
            true => Vec::new(),
            false => vec![self.message(rest.len(), message)],
        }
    }

    /// A message with so many of the next bytes.
    fn message(&mut self, length: usize, mut message: Value) -> Value {
        let from = self.at;
        self.at += length as u64;
        message["from"] = json!(from);
        message["to"] = json!(self.at);
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::exec::{Exited, Gap};

    #[test]
    fn a_character_in_two_pieces_is_one() {
        let mut text = Output::new("stdout");
        let first = json!({"type": "stdout", "data": "a", "from": 0, "to": 1});
        assert_eq!(text.text(b"a\xc3"), [first]);
        let second = json!({"type": "stdout", "data": "\u{e4}", "from": 1, "to": 3});
        assert_eq!(text.text(b"\xa4"), [second]);
        assert_eq!(text.text(b"\xe2\x82"), [Value::Null; 0]);
        let odd = json!({
            "type": "stdout", "data": "4oL/", "encoding": "base64", "from": 3, "to": 6,
        });
        assert_eq!(text.text(b"\xff"), [odd]);
        let next = json!({"type": "stdout", "data": "z", "from": 6, "to": 7});
        assert_eq!(text.text(b"z\xe2"), [next]);
        let left = json!({
            "type": "stdout", "data": "4g==", "encoding": "base64", "from": 7, "to": 8,
        });
        assert_eq!(text.rest(), [left]);
    }

    #[test]
    fn each_message_says_which_bytes_it_holds() {
        let mut teller = Teller::new(Shape::Encoded);
        let mut plain = Teller::new(Shape::Terminal);
        let bytes = Bytes::from_static(b"\xff\0");
        let said = plain.event(ExecEvent::Stdout(bytes.clone()));
        assert_eq!(said, [Said::Output(bytes)]);
        let mut told = Vec::new();
        for event in [
            ExecEvent::Started(Started {
                pid: 7,
                tag: "t".to_string(),
                stdout_from: 100,
                stderr_from: 0,
            }),
            ExecEvent::Stdout("ab".into()),
            ExecEvent::Gap(Gap {
                channel: Channel::Stdout,
                from: 102,
                to: 110,
            }),
            ExecEvent::Stdout("c".into()),
            ExecEvent::Exited(Exited::default()),
        ] {
            told.extend(teller.told(event));
        }
        let expected = [
            json!({"type": "started", "pid": 7, "tag": "t", "from": 100}),
            json!({"type": "output", "data": "YWI=", "from": 100, "to": 102}),
            json!({"type": "gap", "channel": "stdout", "from": 102, "to": 110}),
            json!({"type": "output", "data": "Yw==", "from": 110, "to": 111}),
            json!({"type": "exit", "exit_code": 0, "timed_out": false}),
        ];
        assert_eq!(told, expected);
    }
}
