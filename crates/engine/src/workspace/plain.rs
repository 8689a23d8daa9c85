//! Terminal output as a person would read it.
//!
//! Control sequences go; a carriage return and a backspace move back over the
//! line, so that a progress bar is its last state.

/// What a line may grow to before it is taken as it is.
const LINE: usize = 64 * 1024;

/// The text that is left to read.
pub fn text(raw: &str) -> String {
    let mut page = Page::default();
    let mut rest = raw.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_sequence(&mut rest, &mut page),
            '\u{9b}' => skip_control(&mut rest, &mut page),
            '\n' => page.end_line(),
            '\r' => page.at = 0,
            '\u{8}' => page.at = page.at.saturating_sub(1),
            '\t' => page.put('\t'),
            c if c.is_control() => {}
            c => page.put(c),
        }
    }
    page.finish()
}

/// Output that is shown again later, without what a terminal would answer: the answer
/// would be typed into a program that asked long ago.
pub fn without_questions(raw: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = escape(rest) {
        kept.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let length = question(rest);
        if length == 0 {
            kept.push(rest[0]);
            rest = &rest[1..];
        } else {
            rest = &rest[length..];
        }
    }
    kept.extend_from_slice(rest);
    kept
}

fn escape(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == 0x1b)
}

/// The length of a question at the beginning; 0 if it is none. Reports of the device, its
/// state and the cursor (`c`, `n`), of modes (`$p`), of colours and the clipboard (OSC with `?`).
fn question(bytes: &[u8]) -> usize {
    match bytes {
        [0x1b, b'[', parameters @ ..] => {
            let end = parameters
                .iter()
                .position(|byte| !(0x20..=0x3f).contains(byte));
            let Some(end) = end else { return 0 };
            let asks = match parameters[end] {
                b'c' | b'n' => true,
                b'p' => parameters[..end].ends_with(b"$"),
                _ => false,
            };
            if asks { end + 3 } else { 0 }
        }
        [0x1b, b']', text @ ..] => {
            let end = text.iter().position(|byte| matches!(byte, 0x07 | 0x1b));
            let Some(end) = end else { return 0 };
            let closing = if text[end] == 0x07 { 1 } else { 2 };
            let asks = text[..end].ends_with(b"?");
            if asks {
                (end + 2 + closing).min(bytes.len())
            } else {
                0
            }
        }
        [0x1b, b'Z', ..] => 2,
        _ => 0,
    }
}

#[derive(Default)]
struct Page {
    done: String,
    line: Vec<char>,
    at: usize,
}

impl Page {
    fn put(&mut self, c: char) {
        match self.line.get_mut(self.at) {
            Some(place) => *place = c,
            None => {
                self.line.resize(self.at, ' ');
                self.line.push(c);
            }
        }
        self.at += 1;
        if self.line.len() > LINE {
            self.end_line();
        }
    }

    fn end_line(&mut self) {
        self.done.extend(self.line.drain(..));
        self.done.push('\n');
        self.at = 0;
    }

    fn finish(mut self) -> String {
        self.done.extend(self.line);
        self.done
    }

    /// What follows the cursor is erased.
    fn erase_right(&mut self) {
        self.line.truncate(self.at);
    }
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// After ESC.
fn skip_sequence(rest: &mut Rest<'_>, page: &mut Page) {
    match rest.next() {
        Some('[') => skip_control(rest, page),
        Some(']' | 'P' | '_' | '^' | 'X') => skip_string(rest),
        // Which character set: one more character.
        Some('(' | ')' | '*' | '+' | '#' | '%') => drop(rest.next()),
        _ => {}
    }
}

/// After CSI: parameters, then one letter.
fn skip_control(rest: &mut Rest<'_>, page: &mut Page) {
    let mut parameters = String::new();
    for c in rest.by_ref() {
        match c {
            '\u{20}'..='\u{3f}' if parameters.len() < 64 => parameters.push(c),
            '\u{20}'..='\u{3f}' => {}
            'K' if matches!(parameters.as_str(), "" | "0") => return page.erase_right(),
            'K' if parameters == "2" => return page.line.clear(),
            'G' => {
                let column: usize = parameters.parse().unwrap_or(1);
                page.at = column.saturating_sub(1).min(page.line.len());
                return;
            }
            _ => return,
        }
    }
}

/// Up to BEL or ESC \.
fn skip_string(rest: &mut Rest<'_>) {
    while let Some(c) = rest.next() {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                rest.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_person_reads_is_left() {
        for (raw, read) in [
            ("\u{1b}[1;31mred\u{1b}[0m\r\n", "red\n"),
            ("10%\r50%\r100%\n", "100%\n"),
            ("abc\u{8}\u{8}X\n", "aXc\n"),
            ("\u{1b}]0;title\u{7}$ ls\r\n", "$ ls\n"),
            ("\u{1b}[?2004h$ \u{1b}[K", "$ "),
            ("long line\rshort\u{1b}[K\n", "short\n"),
            ("half \u{1b}[3", "half "),
        ] {
            assert_eq!(text(raw), read);
        }
    }

    #[test]
    fn questions_are_not_asked_again() {
        for (raw, kept) in [
            (&b"a\x1b[6nb\x1b[cc\x1b[>0qd"[..], &b"abc\x1b[>0qd"[..]),
            (b"\x1b]11;?\x07x\x1b]0;title\x07y", b"x\x1b]0;title\x07y"),
            (b"\x1b[31mred\x1b[?2004$p", b"\x1b[31mred"),
            (b"\x1b[6", b"\x1b[6"),
            (b"\x1b", b"\x1b"),
        ] {
            assert_eq!(without_questions(raw), kept);
        }
    }

    proptest! {
        #[test]
        fn what_is_no_question_stays(raw in prop::collection::vec(any::<u8>(), 0..80)) {
            let kept = without_questions(&raw);
            prop_assert!(kept.len() <= raw.len());
            prop_assert_eq!(without_questions(&kept.clone()).len() <= kept.len(), true);
        }

        #[test]
        fn nothing_that_controls_a_terminal_is_left(raw in any::<String>()) {
            prop_assert!(!text(&raw).chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        }
    }
}
