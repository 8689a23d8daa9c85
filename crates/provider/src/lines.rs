//! The output of a command, one JSON object per line.
//!
//! Clients of this protocol accept lines of at most 64 KiB, and only text. So pieces are small,
//! and a character that was split between two pieces is joined. Binary output is sent as text with
//! replacement characters and, exactly, as `data_base64`.

use bytes::Bytes;
use motu_core::exec::Exited;
use motu_core::files::encode_base64;
use serde::Serialize;

/// The maximum size of a piece: its JSON is at most six times as long.
const PIECE: usize = 8 * 1024;

#[derive(Serialize)]
struct Line<'a> {
    stream: &'static str,
    data: std::borrow::Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

#[derive(Serialize)]
struct Last {
    exit_code: i32,
    timed_out: bool,
}

/// One of the two output channels.
#[derive(Debug)]
pub(crate) struct Channel {
    name: &'static str,
    /// The first bytes of a character whose rest has not arrived yet.
    begun: Vec<u8>,
}

impl Channel {
    pub fn new(name: &'static str) -> Channel {
        let begun = Vec::new();
        Channel { name, begun }
    }

    /// Encodes these bytes as lines.
    pub fn say(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        let whole = all.len() - unfinished(&all);
        self.begun = all.split_off(whole);
        self.lines(&all)
    }

    /// Encodes the bytes that were held back.
    pub fn end(&mut self) -> Vec<u8> {
        let rest = std::mem::take(&mut self.begun);
        self.lines(&rest)
    }

    fn lines(&self, mut bytes: &[u8]) -> Vec<u8> {
        let mut lines = Vec::new();
        while !bytes.is_empty() {
            let mut end = bytes.len().min(PIECE);
            if end < bytes.len() {
                end -= unfinished(&bytes[..end]);
            }
            let (piece, rest) = bytes.split_at(end);
            let data = String::from_utf8_lossy(piece);
            let data_base64 = matches!(data, std::borrow::Cow::Owned(_))
                .then(|| encode_base64(&Bytes::copy_from_slice(piece)));
            let stream = self.name;
            push(
                &mut lines,
                &Line {
                    stream,
                    data,
                    data_base64,
                },
            );
            bytes = rest;
        }
        lines
    }
}

/// The line with the exit of a command, for callers that requested it.
pub(crate) fn ended(exited: &Exited) -> Vec<u8> {
    let mut line = Vec::new();
    let last = Last {
        exit_code: exited.exit_code,
        timed_out: exited.timed_out,
    };
    push(&mut line, &last);
    line
}

/// An error as a line of stderr: the protocol has no other place for it.
pub(crate) fn failed(message: &str) -> Vec<u8> {
    let mut channel = Channel::new("stderr");
    let mut lines = channel.say(format!("motu: {message}\n").as_bytes());
    lines.extend(channel.end());
    lines
}

fn push(lines: &mut Vec<u8>, line: &impl Serialize) {
    if serde_json::to_writer(&mut *lines, line).is_ok() {
        lines.push(b'\n');
    }
}

/// How many bytes at the end are an incomplete character.
fn unfinished(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    for (back, byte) in bytes[from..].iter().rev().enumerate() {
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if back + 1 < length { back + 1 } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[u8]) -> String {
        let lines = lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        lines
            .map(|line| {
                assert!(line.len() < 60_000);
                let line: serde_json::Value = serde_json::from_slice(line).unwrap();
                line["data"].as_str().unwrap().to_string()
            })
            .collect()
    }

    #[test]
    fn characters_are_whole_however_they_came() {
        let said = "aé€😀z".repeat(3000);
        for cut in 1..12 {
            let mut channel = Channel::new("stdout");
            let mut lines = Vec::new();
            for piece in said.as_bytes().chunks(cut * 7 + 1) {
                lines.extend(channel.say(piece));
            }
            lines.extend(channel.end());
            assert_eq!(text(&lines), said, "{cut}");
            assert!(!String::from_utf8(lines).unwrap().contains("base64"));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_exact_too() {
        let mut channel = Channel::new("stderr");
        let mut lines = channel.say(&[0xff, 0xfe, 0x80, b'a']);
        lines.extend(channel.say(&[0xe2, 0x82]));
        lines.extend(channel.end());
        let lines = String::from_utf8(lines).unwrap();
        assert!(lines.contains(r#""stream":"stderr""#), "{lines}");
        assert!(lines.contains(r#""data_base64":"//6AYQ==""#), "{lines}");
        assert!(lines.contains(r#""data_base64":"4oI=""#), "{lines}");
    }

    #[test]
    fn control_characters_do_not_make_a_line_too_long() {
        let mut channel = Channel::new("stdout");
        assert_eq!(text(&channel.say(&[1; 100_000])).len(), 100_000);
    }
}
