//! Splits the byte stream at the sequences that the session itself must see.
//!
//! The screen's parser handles everything; this scanner only looks for operating system commands
//! (OSC) and the two sequences that clear the scrollback. It holds an OSC back until it is
//! complete, so that later stages never see half a mark, and cuts endless ones, which the screen's
//! parser would buffer without bound.

use crate::limits::OSC_BYTES;

/// A sequence the session must know, at its place in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A whole operating system command, without introducer and terminator.
    Osc(Vec<u8>),
    /// `CSI 3 J`: the scrollback is emptied.
    ClearHistory,
    /// `ESC c`: everything is reset.
    Reset,
}

/// A part of the stream. `bytes` are whole sequences of `seen`, or plain stream when it is `None`.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    pub bytes: &'a [u8],
    pub seen: Option<Seen>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ground,
    Escape,
    /// Inside a control sequence; the parameters so far are exactly `3`, nothing, or something
    /// else.
    Csi(Params),
    Osc,
    /// An OSC that is too long: skipped until it ends.
    Endless,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Params {
    None,
    Three,
    Other,
}

/// The scanner; one per session, safe at any chunk border.
#[derive(Debug)]
pub struct Scanner {
    state: State,
    /// `ESC ]` and its payload, held until the terminator.
    held: Vec<u8>,
}

impl Default for Scanner {
    fn default() -> Scanner {
        Scanner {
            state: State::Ground,
            held: Vec::new(),
        }
    }
}

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;

impl Scanner {
    /// Takes the next bytes and hands out pieces in order.
    pub fn push(&mut self, input: &[u8], sink: &mut dyn FnMut(Piece<'_>)) {
        let mut rest = input;
        while !rest.is_empty() {
            rest = match self.state {
                State::Osc => self.in_osc(rest, sink),
                State::Endless => self.in_endless(rest),
                _ => self.in_stream(rest, sink),
            };
        }
    }

    /// Bytes held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Scans ordinary bytes until there is something to report or hold.
    fn in_stream<'a>(&mut self, input: &'a [u8], sink: &mut dyn FnMut(Piece<'_>)) -> &'a [u8] {
        let mut at = 0;
        if self.state == State::Escape {
            match self.after_escape(input, sink) {
                Some(rest) => return rest,
                None => at = 1,
            }
        }
        while at < input.len() {
            if let State::Csi(params) = self.state {
                let byte = input[at];
                self.state = csi_next(params, byte);
                // An ESC inside a sequence is examined again as a start.
                at += usize::from(byte != ESC);
                if byte == b'J' && params == Params::Three {
                    let bytes = &input[..at];
                    sink(Piece {
                        bytes,
                        seen: Some(Seen::ClearHistory),
                    });
                    return &input[at..];
                }
                continue;
            }
            let Some(found) = memchr::memchr(ESC, &input[at..]) else {
                at = input.len();
                break;
            };
            at += found;
            match input.get(at + 1) {
                Some(b'[') => {
                    self.state = State::Csi(Params::None);
                    at += 2;
                }
                None | Some(b']' | b'c') => {
                    plain(&input[..at], sink);
                    self.state = State::Escape;
                    self.held.push(ESC);
                    return &input[at + 1..];
                }
                Some(&ESC) => at += 1,
                // Intermediate bytes and other strings need no handling: only an ESC ends or starts
                // anything here.
                Some(_) => at += 2,
            }
        }
        plain(&input[..at], sink);
        &input[at..]
    }

    /// Handles the byte after a held ESC. `None`: `input` continues as ordinary bytes.
    fn after_escape<'a>(
        &mut self,
        input: &'a [u8],
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Option<&'a [u8]> {
        self.state = match input[0] {
            b']' => {
                self.held.push(b']');
                self.state = State::Osc;
                return Some(&input[1..]);
            }
            b'c' => {
                self.held.push(b'c');
                self.state = State::Ground;
                self.release(sink, Some(Seen::Reset));
                return Some(&input[1..]);
            }
            ESC => return Some(&input[1..]),
            b'[' => State::Csi(Params::None),
            _ => State::Ground,
        };
        self.release(sink, None);
        None
    }

    fn in_osc<'a>(&mut self, input: &'a [u8], sink: &mut dyn FnMut(Piece<'_>)) -> &'a [u8] {
        for (at, &byte) in input.iter().enumerate() {
            match byte {
                BEL => {
                    self.held.push(byte);
                    self.end_osc(sink, 1, byte);
                    return &input[at + 1..];
                }
                ESC | CAN | SUB => {
                    // The terminator's ESC is examined again: it may begin any sequence.
                    self.end_osc(sink, 0, byte);
                    return &input[at..];
                }
                _ if self.held.len() >= OSC_BYTES => {
                    self.held.clear();
                    self.state = State::Endless;
                    return &input[at..];
                }
                _ => self.held.push(byte),
            }
        }
        &[]
    }

    fn in_endless<'a>(&mut self, input: &'a [u8]) -> &'a [u8] {
        let end = input
            .iter()
            .position(|byte| matches!(*byte, BEL | ESC | CAN | SUB));
        match end {
            None => &[],
            Some(at) => {
                self.state = State::Ground;
                &input[at + usize::from(input[at] == BEL)..]
            }
        }
    }

    fn end_osc(&mut self, sink: &mut dyn FnMut(Piece<'_>), terminator: usize, by: u8) {
        let payload = self.held[2..self.held.len() - terminator].to_vec();
        if terminator == 0 {
            // What follows is examined again, so an end is added: that of the program's choice, as
            // an answer ends like its question.
            let end: &[u8] = if by == ESC { b"\x1b\\" } else { &[BEL] };
            self.held.extend_from_slice(end);
        }
        self.state = State::Ground;
        self.release(sink, Some(Seen::Osc(payload)));
    }

    fn release(&mut self, sink: &mut dyn FnMut(Piece<'_>), seen: Option<Seen>) {
        sink(Piece {
            bytes: &self.held,
            seen,
        });
        self.held.clear();
    }
}

fn csi_next(params: Params, byte: u8) -> State {
    match byte {
        b'3' if params == Params::None => State::Csi(Params::Three),
        0x20..=0x3f => State::Csi(Params::Other),
        // Control characters inside a sequence are executed and change nothing else.
        0x00..=0x17 | 0x19 | 0x1c..=0x1f | 0x7f => State::Csi(params),
        _ => State::Ground,
    }
}

fn plain(bytes: &[u8], sink: &mut dyn FnMut(Piece<'_>)) {
    if !bytes.is_empty() {
        sink(Piece { bytes, seen: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(chunks: &[&[u8]]) -> (Vec<u8>, Vec<Seen>) {
        let mut scanner = Scanner::default();
        let (mut bytes, mut seen) = (Vec::new(), Vec::new());
        for chunk in chunks {
            scanner.push(chunk, &mut |piece| {
                bytes.extend_from_slice(piece.bytes);
                seen.extend(piece.seen);
            });
        }
        (bytes, seen)
    }

    #[test]
    fn any_cut_gives_the_same() {
        let stream = b"one\x1b[31mred\x1b[0m\x1b]133;A\x07two\x1b]7;file:///x\x1b\\\x1b[3J\x1bc\x1b]2;t\xc3\xa9\x07end\x1b[2J\x1b[33J";
        let whole = scan(&[stream]);
        assert_eq!(
            whole.1,
            [
                Seen::Osc(b"133;A".to_vec()),
                Seen::Osc(b"7;file:///x".to_vec()),
                Seen::ClearHistory,
                Seen::Reset,
                Seen::Osc("2;té".into()),
            ]
        );
        for cut in 0..=stream.len() {
            for cut2 in cut..=stream.len() {
                let parts = scan(&[&stream[..cut], &stream[cut..cut2], &stream[cut2..]]);
                assert_eq!(parts, whole, "cut at {cut} and {cut2}");
            }
        }
    }

    #[test]
    fn an_endless_command_is_cut_and_never_held() {
        let mut scanner = Scanner::default();
        scanner.push(b"\x1b]0;", &mut |_| {});
        let mut passed = 0;
        for _ in 0..1000 {
            scanner.push(&[b'x'; 1024], &mut |piece| passed += piece.bytes.len());
            assert!(scanner.held.len() <= OSC_BYTES);
        }
        assert_eq!(passed, 0);
        let mut after = Vec::new();
        scanner.push(b"\x07hello", &mut |piece| {
            after.extend_from_slice(piece.bytes)
        });
        assert_eq!(after, b"hello");
    }

    #[test]
    fn a_cancelled_command_ends_where_it_was_cancelled() {
        let (bytes, seen) = scan(&[b"a\x1b]2;title\x18b"]);
        assert_eq!(seen, [Seen::Osc(b"2;title".to_vec())]);
        assert_eq!(bytes, b"a\x1b]2;title\x07\x18b");
    }
}
