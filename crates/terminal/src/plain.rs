//! The stream as plain text: without escapes, lines in their final state.
//!
//! Used for matching while bytes arrive. It follows changes within one line (carriage return,
//! backspace, erasing, wrapping at the screen's width); a move to another row ends the line.
//! [`crate::output`] renders whole screens.

use crate::chars::Held;
use alacritty_terminal::vte::{Params, Parser, Perform};
use unicode_width::UnicodeWidthChar as _;

/// The second column of a wide character, or hidden text.
const FILLER: char = '\0';
/// Longest line; the rest is dropped until the line ends.
const LINE_CHARS: usize = 64 * 1024;

/// Turns bytes into lines.
pub struct Plain {
    parser: Parser,
    held: Held,
    line: LineEditor,
    /// The stream position of the next byte.
    offset: u64,
    /// Where the current line began.
    line_from: u64,
    done: Vec<DoneLine>,
}

impl std::fmt::Debug for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plain")
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

/// A finished line and where in the stream it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneLine {
    pub from: u64,
    pub text: String,
}

impl Plain {
    pub fn new(cols: u16, offset: u64) -> Plain {
        Plain {
            parser: Parser::new(),
            held: Held::default(),
            line: LineEditor {
                cols: usize::from(cols.max(2)),
                ..LineEditor::default()
            },
            offset,
            line_from: offset,
            done: Vec::new(),
        }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // Line by line, so that the start of each line is known.
            let len = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
            let (parser, line) = (&mut self.parser, &mut self.line);
            self.held
                .push(&bytes[..len], &mut |whole| parser.advance(line, whole));
            self.offset += len as u64;
            for text in self.line.ended.drain(..) {
                let from = std::mem::replace(&mut self.line_from, self.offset);
                self.done.push(DoneLine { from, text });
            }
            bytes = &bytes[len..];
        }
    }

    /// Muted text takes its place on the line, but is hidden.
    pub fn mute(&mut self, muted: bool) {
        self.line.muted = muted;
    }

    pub fn set_cols(&mut self, cols: u16) {
        self.line.cols = usize::from(cols.max(2));
    }

    /// Lines finished since the last call.
    pub fn take_done(&mut self) -> Vec<DoneLine> {
        std::mem::take(&mut self.done)
    }

    /// The line that is being written, so far.
    pub fn current(&self) -> DoneLine {
        DoneLine {
            from: self.line_from,
            text: self.line.text(),
        }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }
}

#[derive(Default)]
struct LineEditor {
    cols: usize,
    /// Full, wrapped rows of this line.
    before: String,
    row: Vec<char>,
    col: usize,
    muted: bool,
    ended: Vec<String>,
}

impl LineEditor {
    fn text(&self) -> String {
        let mut text = self.before.clone();
        text.extend(self.row.iter().filter(|char| **char != FILLER));
        text.truncate(text.trim_end_matches(' ').len());
        text
    }

    fn end(&mut self) {
        let text = self.text();
        self.ended.push(text);
        self.before.clear();
        self.row.clear();
        self.col = 0;
    }

    /// Handles a move to another row: non-empty text becomes a line.
    fn jump(&mut self) {
        if !self.before.is_empty() || !self.row.is_empty() {
            self.end();
        }
    }

    fn put(&mut self, char: char) {
        let char = if self.muted { FILLER } else { char };
        if self.col == self.row.len() {
            self.row.push(char);
        } else if self.col < self.row.len() {
            self.row[self.col] = char;
        } else {
            self.row.resize(self.col, ' ');
            self.row.push(char);
        }
        self.col += 1;
    }

    fn wrap(&mut self) {
        if self.before.len() < LINE_CHARS {
            self.before
                .extend(self.row.iter().filter(|char| **char != FILLER));
        }
        self.row.clear();
        self.col = 0;
    }

    fn erase(&mut self, mode: u16) {
        match mode {
            0 => self.row.truncate(self.col),
            1 => {
                let until = (self.col + 1).min(self.row.len());
                self.row[..until].fill(' ');
            }
            _ => self.row.clear(),
        }
    }
}

fn first(params: &Params) -> u16 {
    params
        .iter()
        .next()
        .and_then(|param| param.first().copied())
        .unwrap_or(0)
}

impl Perform for LineEditor {
    fn print(&mut self, char: char) {
        let width = char.width().unwrap_or(0);
        if width == 0 {
            if self.col > 0 && self.col == self.row.len() {
                self.row.push(char);
                self.col += 1;
            }
            return;
        }
        if self.col + width > self.cols {
            self.wrap();
        }
        self.put(char);
        if width == 2 {
            self.put(FILLER);
        }
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' | 0x0b | 0x0c => self.end(),
            b'\r' => self.col = 0,
            0x08 => self.col = self.col.min(self.cols).saturating_sub(1),
            b'\t' => self.col = ((self.col / 8 + 1) * 8).min(self.cols - 1),
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], _ignore: bool, action: char) {
        if !intermediates.is_empty() {
            // Private modes; switching to or from the alternate screen is a move.
            let modes = [47, 1047, 1049];
            if intermediates == b"?" && params.iter().any(|param| modes.contains(&param[0])) {
                self.jump();
            }
            return;
        }
        let count = usize::from(first(params).max(1));
        match action {
            'C' => self.col = (self.col + count).min(self.cols - 1),
            'D' => self.col = self.col.min(self.cols).saturating_sub(count),
            'G' | '`' => self.col = (count - 1).min(self.cols - 1),
            'K' => self.erase(first(params)),
            // Line editors clean their line by erasing below.
            'J' if first(params) == 0 => self.erase(0),
            'P' if self.col < self.row.len() => {
                let until = (self.col + count).min(self.row.len());
                self.row.drain(self.col..until);
            }
            '@' if self.col < self.row.len() => {
                let blanks = vec![' '; count.min(self.cols)];
                self.row.splice(self.col..self.col, blanks);
                self.row.truncate(self.cols);
            }
            'X' => {
                let until = (self.col + count).min(self.row.len());
                if self.col < until {
                    self.row[self.col..until].fill(' ');
                }
            }
            'A' | 'B' | 'E' | 'F' | 'H' | 'f' | 'd' | 'J' | 'S' | 'T' | 'L' | 'M' => self.jump(),
            _ => {}
        }
    }

    fn esc_dispatch(&mut self, _intermediates: &[u8], _ignore: bool, byte: u8) {
        match byte {
            b'D' | b'E' => self.end(),
            b'M' | b'c' => self.jump(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<String> {
        let mut plain = Plain::new(20, 0);
        for byte in bytes {
            plain.push(std::slice::from_ref(byte));
        }
        let mut lines: Vec<String> = plain
            .take_done()
            .into_iter()
            .map(|line| line.text)
            .collect();
        lines.push(plain.current().text);
        lines
    }

    #[test]
    fn colours_and_overwriting_are_gone() {
        assert_eq!(lines(b"\x1b[1;31mred\x1b[0m\r\n"), ["red", ""]);
        assert_eq!(lines(b" 10%\r 55%\r100%\r\ndone"), ["100%", "done"]);
        assert_eq!(lines(b"abc\x08\x08X\r\n"), ["aXc", ""]);
        assert_eq!(lines(b"long line\rab\x1b[K\n"), ["ab", ""]);
        assert_eq!(lines(b"a\tb"), ["a       b"]);
    }

    #[test]
    fn a_line_editor_that_wraps_writes_one_line() {
        // Twenty columns: readline writes a space and returns at the margin.
        assert_eq!(
            lines(b"$ echo 8901234567890 \rXabc\n"),
            ["$ echo 8901234567890Xabc", ""]
        );
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(lines("漢字\rab".as_bytes()), ["ab字"]);
    }

    #[test]
    fn lines_know_where_they_began() {
        let mut plain = Plain::new(80, 100);
        plain.push(b"one\r\ntw");
        plain.push(b"o\r\nthree");
        let done = plain.take_done();
        assert_eq!((done[0].from, done[1].from), (100, 105));
        assert_eq!(
            plain.current(),
            DoneLine {
                from: 110,
                text: "three".into()
            }
        );
    }
}
