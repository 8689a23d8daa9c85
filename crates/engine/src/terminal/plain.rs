//! Converts terminal output to plain text.
//!
//! Control sequences are removed; carriage return and backspace move the cursor within the line, so
//! that a progress bar appears in its last state.

/// A line longer than this is emitted as it is.
const LINE: usize = 64 * 1024;

/// The readable text.
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

/// The first `max` characters of some output; an incomplete UTF-8 sequence is left for the next
/// read. Returns the text and the number of bytes it was made from.
pub fn beginning(bytes: &[u8], max: usize) -> (String, usize) {
    let mut whole = bytes.len();
    if let Err(error) = std::str::from_utf8(bytes)
        && error.error_len().is_none()
    {
        whole = error.valid_up_to();
    }
    let text = String::from_utf8_lossy(&bytes[..whole]);
    if text.chars().count() <= max {
        return (text.into_owned(), whole);
    }
    let cut: String = text.chars().take(max).collect();
    // Count original bytes: an invalid sequence was replaced by a character of another length.
    (cut, bytes_of(&bytes[..whole], max))
}

/// How many bytes the first `chars` characters of a lossy conversion stand for.
fn bytes_of(bytes: &[u8], chars: usize) -> usize {
    let (mut left, mut used) = (chars, 0);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if left == 0 {
                return used;
            }
            left -= 1;
            used += c.len_utf8();
        }
        if !chunk.invalid().is_empty() {
            if left == 0 {
                return used;
            }
            left -= 1;
            used += chunk.invalid().len();
        }
    }
    used
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

    /// Erases from the cursor to the end of the line.
    fn erase_right(&mut self) {
        self.line.truncate(self.at);
    }
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Skips an escape sequence, after ESC.
fn skip_sequence(rest: &mut Rest<'_>, page: &mut Page) {
    match rest.next() {
        Some('[') => skip_control(rest, page),
        Some(']' | 'P' | '_' | '^' | 'X') => skip_string(rest),
        // Selects a character set: one more character follows.
        Some('(' | ')' | '*' | '+' | '#' | '%') => drop(rest.next()),
        _ => {}
    }
}

/// Skips a control sequence, after CSI: parameters, then a final letter.
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

/// Skips a control string up to BEL or ST (`ESC \`).
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
    fn text_is_cut_between_characters() {
        assert_eq!(beginning("aéz".as_bytes(), 2), ("aé".to_string(), 3));
        assert_eq!(beginning(b"a\xc3", 9), ("a".to_string(), 1));
        assert_eq!(beginning(b"a\xffb", 2), ("a\u{fffd}".to_string(), 2));
        assert_eq!(beginning(b"", 5), (String::new(), 0));
    }

    proptest! {
        #[test]
        fn nothing_that_controls_a_terminal_is_left(raw in any::<String>()) {
            prop_assert!(!text(&raw).chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        }
    }
}
