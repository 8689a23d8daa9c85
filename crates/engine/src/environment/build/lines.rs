//! Lines of output as a terminal would leave them.
//!
//! A program that shows its progress writes over its line after a carriage return, and colours it
//! with escape sequences. A line is what is left of that: the text since the last return, without
//! the sequences.

/// Longest line that is kept in one piece.
const LINE_BYTES: usize = 4096;
const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;

/// Puts the bytes of a command's output together to lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    /// A carriage return came last: the next text begins the line anew, unless the line ends here.
    returned: bool,
    sequence: Sequence,
}

/// Where the bytes are in an escape sequence.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Sequence {
    #[default]
    None,
    /// After the escape.
    Begun,
    /// After `ESC [`: until a byte from `@` to `~`.
    Control,
    /// After `ESC ]`: until a bell, or an escape and a backslash.
    Text,
}

impl Lines {
    /// Takes one byte; returns the line that it ends.
    pub(super) fn add(&mut self, byte: u8) -> Option<String> {
        match (self.sequence, byte) {
            (_, b'\n') => {
                self.sequence = Sequence::None;
                return Some(self.take());
            }
            (Sequence::None, b'\r') => self.returned = true,
            (_, ESCAPE) => self.sequence = Sequence::Begun,
            (Sequence::None, byte) => return self.text(byte),
            (Sequence::Begun, b'[') => self.sequence = Sequence::Control,
            (Sequence::Begun, b']') => self.sequence = Sequence::Text,
            // Two bytes, or the intermediate bytes of a longer one.
            (Sequence::Begun, b' '..=b'/') => {}
            (Sequence::Control, byte) if !(b'@'..=b'~').contains(&byte) => {}
            (Sequence::Text, byte) if byte != BELL => {}
            _ => self.sequence = Sequence::None,
        }
        None
    }

    fn text(&mut self, byte: u8) -> Option<String> {
        if std::mem::take(&mut self.returned) {
            self.line.clear();
        }
        let full = (self.line.len() >= LINE_BYTES).then(|| self.take());
        self.line.push(byte);
        full
    }

    fn take(&mut self) -> String {
        self.returned = false;
        let text = String::from_utf8_lossy(&self.line).into_owned();
        self.line.clear();
        text
    }

    /// What came after the last line, if anything did.
    pub(super) fn rest(&mut self) -> Option<String> {
        (!self.line.is_empty()).then(|| self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        let mut lines = Lines::default();
        let mut all: Vec<String> = text.bytes().filter_map(|byte| lines.add(byte)).collect();
        all.extend(lines.rest());
        all
    }

    #[test]
    fn a_line_is_what_a_terminal_would_leave() {
        assert_eq!(lines("a\n\nb"), ["a", "", "b"]);
        assert_eq!(lines("one\r\ntwo\r\n"), ["one", "two"]);
        assert_eq!(lines(" 10%\r 50%\r100%\n"), ["100%"]);
        assert_eq!(lines("\rdone\r"), ["done"]);
        assert_eq!(lines("\x1b[1;31mred\x1b[0m\x1b[K\n"), ["red"]);
        assert_eq!(lines("\x1b]0;title\x07a\x1b]8;;x\x1b\\b\x1b(Bc"), ["abc"]);
        // A sequence that has no end is over with its line.
        assert_eq!(lines("\x1b]0;never\nnext\n"), ["", "next"]);
        assert_eq!(lines("ä\u{1b}[0mö"), ["äö"]);
    }

    #[test]
    fn a_long_line_comes_in_pieces() {
        let long = "x".repeat(LINE_BYTES + 1);
        let pieces = lines(&long);
        assert_eq!(
            pieces.iter().map(String::len).collect::<Vec<_>>(),
            [LINE_BYTES, 1]
        );
    }
}
