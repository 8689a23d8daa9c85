//! Waits for text.
//!
//! A [`Watch`] searches the stream from a cursor on, never before it, and never the echo of typed
//! input unless asked to. It keeps a bounded window; a match cannot be longer than that.

use crate::error::TerminalError;
use crate::limits::*;
use crate::plain::{DoneLine, Plain};
use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// What to look for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    Regex(String),
    Literal(String),
}

/// A position in the stream: a byte, and how much of the line beginning there is already consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    pub offset: u64,
    pub skip: u32,
}

impl Cursor {
    pub fn at(offset: u64) -> Cursor {
        Cursor { offset, skip: 0 }
    }

    /// Reads what [`Cursor`]'s `Display` writes: `1234` or `1234+5`.
    pub fn parse(text: &str) -> Option<Cursor> {
        let (offset, skip) = text.split_once('+').unwrap_or((text, "0"));
        Some(Cursor {
            offset: offset.parse().ok()?,
            skip: skip.parse().ok()?,
        })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.skip {
            0 => write!(f, "{}", self.offset),
            skip => write!(f, "{}+{skip}", self.offset),
        }
    }
}

/// A match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The index of the pattern.
    pub index: usize,
    pub text: String,
    pub groups: Vec<Option<String>>,
    /// The text before it, within the window.
    pub before: String,
    /// Where the next search begins.
    pub after: Cursor,
}

/// Options of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub cols: u16,
    pub from: Cursor,
    /// Match the raw bytes, escapes included.
    pub raw: bool,
    /// Match echoes too.
    pub echo: bool,
}

/// Sent text that may be echoed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The stream position when it was sent.
    pub at: u64,
    pub text: String,
}

/// One wait for one of several patterns.
#[derive(Debug)]
pub struct Watch {
    patterns: Vec<Regex>,
    look: Look,
    plain: Plain,
    offset: u64,
    window: Window,
    /// Lines expected as echoes, in order.
    echoes: VecDeque<String>,
    /// Characters to wait before the next echo is given up.
    echo_patience: usize,
}

/// The text a watch remembers: finished lines, or raw chunks, and their positions.
#[derive(Debug, Default)]
struct Window {
    lines: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
}

impl Watch {
    pub fn new(patterns: &[Pattern], look: Look) -> Result<Watch, TerminalError> {
        if patterns.is_empty() {
            return Err(TerminalError::NoPattern);
        }
        if patterns.len() > EXPECT_PATTERNS {
            return Err(TerminalError::TooLong {
                what: "the list of patterns",
                len: patterns.len(),
                limit: EXPECT_PATTERNS,
            });
        }
        let patterns = patterns
            .iter()
            .enumerate()
            .map(|(index, pattern)| compile(index, pattern))
            .collect::<Result<_, _>>()?;
        Ok(Watch {
            patterns,
            look,
            plain: Plain::new(look.cols, look.from.offset),
            offset: look.from.offset,
            window: Window::default(),
            echoes: VecDeque::new(),
            echo_patience: ECHO_SEARCH_CHARS,
        })
    }

    /// The position up to which the watch has read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Expects the echo of text sent from now on.
    pub fn expect_echo(&mut self, text: &str) {
        if self.look.echo || text.len() > ECHO_BYTES {
            return;
        }
        self.echoes.extend(echo_lines(text));
        self.echo_patience = ECHO_SEARCH_CHARS;
    }

    /// Takes bytes that must not match: the shell's echo, identified by marks.
    pub fn skip(&mut self, bytes: &[u8]) {
        if self.look.echo {
            self.take(bytes);
        } else if self.look.raw {
            self.offset += bytes.len() as u64;
        } else {
            self.plain.mute(true);
            self.take(bytes);
            self.plain.mute(false);
        }
    }

    /// Takes the next bytes of the stream.
    pub fn take(&mut self, bytes: &[u8]) {
        let from = self.offset;
        self.offset += bytes.len() as u64;
        if self.look.raw {
            self.window.push(from, bytes.to_vec());
            return;
        }
        self.plain.push(bytes);
        for line in self.plain.take_done() {
            self.finish_line(line);
        }
    }

    fn finish_line(&mut self, mut line: DoneLine) {
        self.without_echo(&mut line.text, true);
        self.spend_patience(line.text.len());
        let mut text = line.text.into_bytes();
        text.push(b'\n');
        self.window.push(line.from, text);
    }

    fn spend_patience(&mut self, chars: usize) {
        self.echo_patience = self.echo_patience.saturating_sub(chars + 1);
        if self.echo_patience == 0 {
            self.echoes.clear();
        }
    }

    /// Removes the echo from a line. An unfinished line may contain only the start of one.
    ///
    /// Input typed just as a command ended may be echoed within the shell's marks, where it is
    /// not seen here: an echo that arrives means that earlier ones will not.
    fn without_echo(&mut self, text: &mut String, finished: bool) {
        let whole = self
            .echoes
            .iter()
            .enumerate()
            .find_map(|(nth, echo)| Some((nth, text.find(echo.as_str())?, echo.len())));
        if let Some((nth, at, len)) = whole {
            text.replace_range(at..at + len, "");
            if finished {
                self.echoes.drain(..=nth);
                self.echo_patience = ECHO_SEARCH_CHARS;
            }
        } else if !finished
            && let Some(len) = self.echoes.iter().find_map(|echo| overlap(text, echo))
        {
            text.truncate(text.len() - len);
        }
    }

    /// Searches the text taken so far.
    pub fn find(&mut self) -> Option<Found> {
        let mut current = self.plain.current();
        self.without_echo(&mut current.text, false);
        let mut hay = Vec::with_capacity(self.window.bytes + current.text.len());
        let mut starts = Vec::with_capacity(self.window.lines.len() + 1);
        for (from, text) in &self.window.lines {
            starts.push((hay.len(), *from));
            hay.extend_from_slice(text);
        }
        if !self.look.raw {
            starts.push((hay.len(), current.from));
            hay.extend_from_slice(current.text.as_bytes());
        }
        if starts.is_empty() {
            return None;
        }
        let skipped = self.skipped(&starts, hay.len());
        let found = self
            .patterns
            .iter()
            .enumerate()
            .filter_map(|(index, pattern)| {
                let groups = pattern.captures_at(&hay, skipped)?;
                let all = groups.get(0)?;
                Some((all.start(), index, all.end(), groups))
            })
            .min_by_key(|(start, index, ..)| (*start, *index));
        let Some((start, index, end, groups)) = found else {
            self.window.shrink(EXPECT_WINDOW_BYTES);
            return None;
        };
        let text =
            |range: std::ops::Range<usize>| String::from_utf8_lossy(&hay[range]).into_owned();
        Some(Found {
            index,
            text: text(start..end),
            groups: groups
                .iter()
                .skip(1)
                .map(|group| group.map(|group| text(group.range())))
                .collect(),
            before: text(skipped..start),
            after: self.place(&starts, end),
        })
    }

    /// How much at the front was consumed before this watch began.
    fn skipped(&self, starts: &[(usize, u64)], len: usize) -> usize {
        let begins_here = starts
            .first()
            .is_some_and(|(_, from)| *from == self.look.from.offset);
        if begins_here {
            (self.look.from.skip as usize).min(len)
        } else {
            0
        }
    }

    /// The cursor for a position in the text.
    fn place(&self, starts: &[(usize, u64)], end: usize) -> Cursor {
        let at = starts.partition_point(|(start, _)| *start < end).max(1) - 1;
        let (start, offset) = starts[at];
        if self.look.raw {
            return Cursor::at(offset + (end - start) as u64);
        }
        // A match up to the end of a finished line ends at the next one.
        match starts.get(at + 1) {
            Some((next, from)) if *next == end => Cursor::at(*from),
            _ => Cursor {
                offset,
                skip: (end - start) as u32,
            },
        }
    }
}

impl Window {
    fn push(&mut self, from: u64, text: Vec<u8>) {
        self.bytes += text.len();
        self.lines.push_back((from, text));
        // Bound the window even in a burst without a search in between.
        self.shrink(EXPECT_WINDOW_BYTES * 4);
    }

    fn shrink(&mut self, limit: usize) {
        while self.bytes > limit && self.lines.len() > 1 {
            if let Some((_, text)) = self.lines.pop_front() {
                self.bytes -= text.len();
            }
        }
    }
}

fn compile(index: usize, pattern: &Pattern) -> Result<Regex, TerminalError> {
    let (Pattern::Regex(text) | Pattern::Literal(text)) = pattern;
    let bad = |reason: String| TerminalError::BadPattern { index, reason };
    if text.is_empty() {
        return Err(bad("it is empty".into()));
    }
    if text.len() > PATTERN_BYTES {
        return Err(TerminalError::TooLong {
            what: "the pattern",
            len: text.len(),
            limit: PATTERN_BYTES,
        });
    }
    let source = match pattern {
        Pattern::Regex(text) => text.clone(),
        Pattern::Literal(text) => regex::escape(text),
    };
    RegexBuilder::new(&source)
        .multi_line(true)
        .size_limit(PATTERN_PROGRAM_BYTES)
        .dfa_size_limit(PATTERN_PROGRAM_BYTES)
        .build()
        .map_err(|error| {
            let text = error.to_string();
            bad(text
                .lines()
                .last()
                .unwrap_or("not a regular expression")
                .trim()
                .to_owned())
        })
}

/// What a terminal echoes of typed text, line by line.
fn echo_lines(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(['\r', '\n'])
        .map(|line| {
            line.chars()
                .filter(|char| !char.is_control())
                .collect::<String>()
        })
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
}

/// Length of the longest suffix of `text` that is a prefix of `echo`.
fn overlap(text: &str, echo: &str) -> Option<usize> {
    (1..=echo.len().min(text.len()))
        .rev()
        .filter(|&len| echo.is_char_boundary(len))
        .find(|&len| text.ends_with(&echo[..len]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(from: Cursor) -> Look {
        Look {
            cols: 80,
            from,
            raw: false,
            echo: false,
        }
    }

    fn watch(pattern: &str) -> Watch {
        Watch::new(&[Pattern::Regex(pattern.into())], look(Cursor::default())).unwrap()
    }

    #[test]
    fn a_match_may_be_cut_anywhere_and_coloured() {
        let stream = b"start\r\n\x1b[1mBUILD\x1b[32m_DONE\x1b[0m in 3 s\r\n";
        for cut in 0..=stream.len() {
            let mut watch = watch(r"BUILD_DONE in (\d+) s");
            watch.take(&stream[..cut]);
            let early = watch.find();
            watch.take(&stream[cut..]);
            let found = early.or_else(|| watch.find()).unwrap();
            assert_eq!(found.groups, [Some("3".into())]);
            assert_eq!(found.before, "start\n");
        }
    }

    #[test]
    fn the_echo_of_what_was_sent_does_not_match() {
        let mut watch = watch("BUILD_DONE");
        watch.expect_echo("sleep 3; echo BUILD_DONE\n");
        for byte in b"$ sleep 3; echo BUILD_DONE\r\n" {
            watch.take(&[*byte]);
            assert_eq!(watch.find(), None);
        }
        watch.take(b"BUILD_DONE\r\n");
        assert_eq!(watch.find().unwrap().text, "BUILD_DONE");
    }

    #[test]
    fn an_echo_that_never_comes_does_not_hide_the_next() {
        let mut watch = watch("needle");
        watch.expect_echo("typed at a prompt\n");
        watch.expect_echo("needle\n");
        for byte in b"needle\r\n" {
            watch.take(&[*byte]);
            assert!(watch.find().is_none());
        }
        watch.take(b"needle\r\n");
        assert!(watch.find().is_some(), "this one is output");
    }

    #[test]
    fn the_echo_matches_when_asked_to() {
        let pattern = [Pattern::Literal("DONE".into())];
        let echo = Look {
            echo: true,
            ..look(Cursor::default())
        };
        let mut watch = Watch::new(&pattern, echo).unwrap();
        watch.expect_echo("echo DONE\n");
        watch.take(b"$ echo DONE");
        assert!(watch.find().is_some());
    }

    #[test]
    fn an_echo_by_marks_is_skipped_and_the_prompt_stays() {
        let mut watch = watch("(?m)^DONE|prompt");
        watch.take(b"prompt$ ");
        watch.skip(b"echo DONE\r\n");
        let found = watch.find().unwrap();
        assert_eq!((found.text.as_str(), found.before.as_str()), ("prompt", ""));
        watch.take(b"DONE\r\n");
    }

    #[test]
    fn a_cursor_never_sees_the_same_text_twice() {
        let stream = b"ready ready\r\nready\r\n";
        let mut from = Cursor::default();
        let mut count = 0;
        loop {
            let mut watch = Watch::new(&[Pattern::Literal("ready".into())], look(from)).unwrap();
            watch.take(&stream[from.offset as usize..]);
            let Some(found) = watch.find() else { break };
            assert!(found.after > from);
            from = Cursor::parse(&found.after.to_string()).unwrap();
            count += 1;
        }
        assert_eq!(count, 3);
    }

    #[test]
    fn the_first_of_several_patterns_wins_by_place() {
        let patterns = [
            Pattern::Literal("error".into()),
            Pattern::Regex("ok|fine".into()),
        ];
        let mut watch = Watch::new(&patterns, look(Cursor::default())).unwrap();
        watch.take(b"all fine, no error");
        let found = watch.find().unwrap();
        assert_eq!((found.index, found.text.as_str()), (1, "fine"));
    }

    #[test]
    fn raw_sees_escapes() {
        let pattern = [Pattern::Regex(r"\x1b\[31m(\w+)".into())];
        let raw = Look {
            raw: true,
            ..look(Cursor::at(7))
        };
        let mut watch = Watch::new(&pattern, raw).unwrap();
        watch.take(b"a\x1b[31");
        assert_eq!(watch.find(), None);
        watch.take(b"mred\x1b[0m");
        let found = watch.find().unwrap();
        assert_eq!(found.groups, [Some("red".into())]);
        assert_eq!(found.after, Cursor::at(7 + 9));
    }

    #[test]
    fn memory_is_bounded_and_bad_patterns_are_named() {
        let mut watch = watch("never");
        for _ in 0..100 {
            watch.take(&b"a line of output that does not match anything\r\n".repeat(1000));
            assert!(watch.window.bytes <= EXPECT_WINDOW_BYTES * 4);
            assert_eq!(watch.find(), None);
            assert!(watch.window.bytes <= EXPECT_WINDOW_BYTES);
        }
        for bad in ["(", "", r"(\w{1000}){1000}"] {
            let error = Watch::new(&[Pattern::Regex(bad.into())], look(Cursor::default()));
            assert!(
                matches!(error, Err(TerminalError::BadPattern { index: 0, .. })),
                "{bad}"
            );
        }
    }
}
