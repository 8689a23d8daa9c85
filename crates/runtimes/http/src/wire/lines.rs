//! The output of a command as sent by the service: one JSON object per line.
//!
//! The bytes are untrusted. The length of a line is bounded; an invalid line ends the stream with
//! an error.

use bytes::{Buf as _, Bytes, BytesMut};
use motu_core::files::decode_base64;
use serde::Deserialize;

/// One parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Out(Bytes),
    Err(Bytes),
    /// The last line, if the service sends one.
    Exit {
        code: i32,
        timed_out: bool,
    },
}

/// Why the bytes are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    TooLong,
    /// The beginning of the invalid line.
    Nonsense(Vec<u8>),
}

#[derive(Deserialize)]
struct Line {
    stream: Option<String>,
    data: Option<String>,
    data_base64: Option<String>,
    exit_code: Option<i32>,
    #[serde(default)]
    timed_out: bool,
}

/// Splits bytes into lines.
#[derive(Debug)]
pub struct Lines {
    buffer: BytesMut,
    /// How much of the buffer was searched for a newline.
    looked: usize,
    most: usize,
}

impl Lines {
    /// With a bound for the length of a line.
    pub fn new(most: usize) -> Lines {
        Lines {
            buffer: BytesMut::new(),
            looked: 0,
            most,
        }
    }

    /// Adds bytes. Call [`Lines::line`] until it returns nothing first.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete line.
    pub fn line(&mut self) -> Result<Option<Said>, Unreadable> {
        loop {
            let end = self.buffer[self.looked..].iter().position(|b| *b == b'\n');
            let Some(end) = end.map(|at| at + self.looked) else {
                self.looked = self.buffer.len();
                return match self.looked > self.most {
                    true => Err(Unreadable::TooLong),
                    false => Ok(None),
                };
            };
            let line = self.buffer.split_to(end);
            self.buffer.advance(1);
            self.looked = 0;
            if line.len() > self.most {
                return Err(Unreadable::TooLong);
            }
            if !line.trim_ascii().is_empty() {
                return read(&line).map(Some);
            }
        }
    }

    /// At the end of the stream: the last line may lack its newline.
    pub fn last(&mut self) -> Result<Option<Said>, Unreadable> {
        let line = self.buffer.split();
        self.looked = 0;
        match line.trim_ascii().is_empty() {
            true => Ok(None),
            false => read(&line).map(Some),
        }
    }
}

fn read(line: &[u8]) -> Result<Said, Unreadable> {
    let nonsense = || Unreadable::Nonsense(line[..line.len().min(400)].to_vec());
    let found: Line = serde_json::from_slice(line).map_err(|_| nonsense())?;
    if let Some(code) = found.exit_code {
        let timed_out = found.timed_out;
        return Ok(Said::Exit { code, timed_out });
    }
    let bytes = match (found.data_base64, found.data) {
        (Some(text), _) => decode_base64(&text).map_err(|_| nonsense())?,
        (None, Some(text)) => Bytes::from(text),
        (None, None) => return Err(nonsense()),
    };
    match found.stream.as_deref() {
        Some("stdout") => Ok(Said::Out(bytes)),
        Some("stderr") => Ok(Said::Err(bytes)),
        _ => Err(nonsense()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &mut Lines) -> Vec<Said> {
        std::iter::from_fn(|| lines.line().unwrap()).collect()
    }

    #[test]
    fn lines_are_read_however_they_come() {
        let text = concat!(
            r#"{"stream":"stdout","data":"a\né"}"#,
            "\n\n",
            r#"{"stream":"stderr","data":"�","data_base64":"//6A"}"#,
            "\r\n",
            r#"{"exit_code":3,"timed_out":true}"#,
        );
        let expected = [
            Said::Out(Bytes::from("a\né")),
            Said::Err(Bytes::from_static(&[0xff, 0xfe, 0x80])),
            Said::Exit {
                code: 3,
                timed_out: true,
            },
        ];
        for size in [1, 7, 1000] {
            let mut lines = Lines::new(1000);
            let mut said = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                lines.feed(piece);
                said.extend(all(&mut lines));
            }
            said.extend(lines.last().unwrap());
            assert_eq!(said, expected, "{size}");
            assert_eq!(lines.last(), Ok(None));
        }
    }

    #[test]
    fn a_line_may_be_long_but_not_endless() {
        let long = format!(
            "{{\"stream\":\"stdout\",\"data\":\"{}\"}}\n",
            "x".repeat(200_000)
        );
        let mut lines = Lines::new(300_000);
        lines.feed(long.as_bytes());
        assert_eq!(
            all(&mut lines),
            [Said::Out(Bytes::from("x".repeat(200_000)))]
        );
        let mut lines = Lines::new(100);
        lines.feed(long.as_bytes());
        assert_eq!(lines.line(), Err(Unreadable::TooLong));
        let mut lines = Lines::new(100);
        lines.feed(&[b'x'; 101]);
        assert_eq!(lines.line(), Err(Unreadable::TooLong));
    }

    #[test]
    fn what_is_no_line_is_told() {
        for wrong in [
            "hello",
            "{}",
            "[1]",
            r#"{"stream":"stdin","data":""}"#,
            r#"{"stream":"stdout"}"#,
            r#"{"stream":"stdout","data_base64":"!"}"#,
            "\u{1}",
        ] {
            let mut lines = Lines::new(100);
            lines.feed(format!("{wrong}\n").as_bytes());
            assert!(
                matches!(lines.line(), Err(Unreadable::Nonsense(_))),
                "{wrong}"
            );
        }
    }
}
