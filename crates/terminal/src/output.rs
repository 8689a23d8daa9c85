//! A command's output as text, within a budget.
//!
//! Bytes are rendered as a terminal of the same width would show them: progress bars in their last
//! state, without colours. What does not fit is cut from the middle, and a cursor tells where to
//! read it.

use crate::limits::SCROLLBACK_ROWS;
use crate::screen::{Line, Screen, Size};
use serde::Serialize;

/// Default budget.
pub const DEFAULT_BUDGET: usize = motu_core::limits::TERMINAL_OUTPUT_BYTES.default as usize;
/// Smallest budget that can show both ends.
pub const MIN_BUDGET: usize = motu_core::limits::TERMINAL_OUTPUT_BYTES.min as usize;
/// The largest.
pub const MAX_BUDGET: usize = motu_core::limits::TERMINAL_OUTPUT_BYTES.max as usize;

/// Bytes of a stream and where they are from.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    pub from: u64,
    pub bytes: &'a [u8],
}

impl Span<'_> {
    pub fn end(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }
}

/// Returned output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Excerpt {
    pub text: String,
    /// Whether something was cut.
    pub truncated: bool,
    /// Bytes of the stream that `text` does not show.
    pub omitted_bytes: u64,
    /// Where to read the cut part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest_from: Option<u64>,
    /// Where `rest_from` ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest_to: Option<u64>,
}

/// How output is shown.
#[derive(Clone, Copy, Debug)]
pub struct Show {
    pub size: Size,
    /// Bytes of text.
    pub budget: usize,
    /// Keep escapes and control characters.
    pub raw: bool,
}

impl Show {
    pub fn plain(size: Size) -> Show {
        Show {
            size,
            budget: DEFAULT_BUDGET,
            raw: false,
        }
    }

    fn text(&self, bytes: &[u8]) -> String {
        if self.raw {
            String::from_utf8_lossy(bytes).into_owned()
        } else {
            text(bytes, self.size)
        }
    }
}

/// What a terminal of `size` shows after `bytes`, scrollback included.
pub fn text(bytes: &[u8], size: Size) -> String {
    if let Some(text) = simple(bytes) {
        return text;
    }
    let mut screen = Screen::new(size);
    let mut lines = Vec::new();
    // A session's scrollback is bounded; this text is bounded only by its bytes. So rows are moved
    // out of the scrollback long before it is full.
    for slice in bytes.chunks(ROWS_AT_ONCE) {
        screen.write(slice);
        let before = lines.len();
        if screen.take_scrollback(&mut lines) {
            lines.drain(..before);
        }
    }
    let row = lines.len() + screen.scrollback_rows() + usize::from(screen.cursor().row);
    lines.extend(screen.scrollback(0));
    written(&lines, row)
}

/// Bytes written between two checks of the scrollback; a byte makes at most one row.
const ROWS_AT_ONCE: usize = SCROLLBACK_ROWS / 2;

/// Text without control characters except line ends needs no screen.
fn simple(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' => out.push('\n'),
            char if char.is_control() => return None,
            char => out.push(char),
        }
    }
    Some(out)
}

/// The rows up to the last one with text, or up to the cursor when that is below.
fn written(lines: &[Line], cursor_row: usize) -> String {
    let last = lines
        .iter()
        .rposition(|line| !line.text().trim_end().is_empty());
    let end = last.map_or(0, |row| row + 1).max(cursor_row);
    let mut text = String::new();
    for (row, line) in lines.iter().enumerate().take(end) {
        if line.wrapped {
            text.push_str(line.text());
            continue;
        }
        text.push_str(line.text().trim_end());
        if row < cursor_row || row + 1 < end {
            text.push('\n');
        }
    }
    text
}

/// The text of one output. `head` and `tail` are the stored parts, possibly with a gap between
/// them.
pub fn excerpt(head: Span<'_>, tail: Span<'_>, show: &Show) -> Excerpt {
    let budget = show.budget.clamp(MIN_BUDGET, MAX_BUDGET);
    let gap = tail.from.saturating_sub(head.end());
    if gap == 0 {
        let mut all = head.bytes.to_vec();
        let overlap = head.end().saturating_sub(tail.from) as usize;
        all.extend_from_slice(tail.bytes.get(overlap..).unwrap_or_default());
        let text = show.text(&all);
        if text.len() <= budget {
            return Excerpt {
                text,
                ..Excerpt::default()
            };
        }
        let all = Span {
            from: head.from,
            bytes: &all,
        };
        return middle_cut(all, all, budget, show);
    }
    middle_cut(head, tail, budget, show)
}

fn middle_cut(head: Span<'_>, tail: Span<'_>, budget: usize, show: &Show) -> Excerpt {
    let first = front(head.bytes, budget * 2 / 5, show);
    let floor = head.from + first as u64;
    let mut last = back(tail.bytes, budget * 3 / 5, show);
    last = last.max(floor.saturating_sub(tail.from) as usize);
    let (from, to) = (floor, tail.from + last as u64);
    if from >= to {
        // Both ends meet: nothing is cut.
        let mut bytes = head.bytes[..first].to_vec();
        bytes.extend_from_slice(&tail.bytes[last..]);
        return Excerpt {
            text: show.text(&bytes),
            ..Excerpt::default()
        };
    }
    let mut text = show.text(&head.bytes[..first]);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!("[... {} bytes left out ...]\n", to - from));
    text.push_str(&show.text(&tail.bytes[last..]));
    Excerpt {
        text,
        truncated: true,
        omitted_bytes: to - from,
        rest_from: Some(from),
        rest_to: Some(to),
    }
}

/// How many bytes from the front render to at most `budget` bytes of text; whole lines if possible.
fn front(bytes: &[u8], budget: usize, show: &Show) -> usize {
    let (mut taken, mut shown) = (0, 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let len = show.text(line).len();
        if shown + len > budget {
            if taken == 0 {
                return cut(line, budget, true);
            }
            break;
        }
        shown += len;
        taken += line.len();
    }
    taken
}

/// Where the last bytes begin that render to at most `budget` bytes of text.
fn back(bytes: &[u8], budget: usize, show: &Show) -> usize {
    let (mut from, mut shown) = (bytes.len(), 0);
    while from > 0 {
        let start = memchr::memrchr(b'\n', &bytes[..from - 1]).map_or(0, |at| at + 1);
        let len = show.text(&bytes[start..from]).len();
        if shown + len > budget {
            if from == bytes.len() {
                return start + cut(&bytes[start..], budget, false);
            }
            break;
        }
        shown += len;
        from = start;
    }
    from
}

/// Cuts one long line, at a character boundary.
fn cut(line: &[u8], budget: usize, front: bool) -> usize {
    let mut at = if front {
        budget.min(line.len())
    } else {
        line.len().saturating_sub(budget)
    };
    while at > 0 && at < line.len() && line[at] & 0xc0 == 0x80 {
        at -= 1;
    }
    at
}

/// A page of output, from a cursor on: its text, and the cursor after it.
pub fn page(span: Span<'_>, show: &Show) -> (String, u64) {
    let budget = show.budget.clamp(MIN_BUDGET, MAX_BUDGET);
    let taken = front(span.bytes, budget, show);
    (show.text(&span.bytes[..taken]), span.from + taken as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &str) -> String {
        text(bytes.as_bytes(), Size::new(40, 10))
    }

    #[test]
    fn simple_output_is_itself() {
        assert_eq!(shown("hi\r\n"), "hi\n");
        assert_eq!(shown("no newline"), "no newline");
        assert_eq!(shown("a\r\n\r\n\r\n"), "a\n\n\n");
        assert_eq!(shown(""), "");
        assert_eq!(shown("漢字 é ❤️\r\n"), "漢字 é ❤️\n");
    }

    #[test]
    fn progress_has_become_its_last_state() {
        assert_eq!(shown("  1%\r 50%\r100%\r\ndone\r\n"), "100%\ndone\n");
        assert_eq!(shown("|\x08/\x08-\x08\\\x08ok\r\n"), "ok\n");
        assert_eq!(shown("\x1b[31mred\x1b[0m\r\n"), "red\n");
        // Two bars, redrawn from above.
        let bars = "one  10%\r\ntwo  20%\r\n\x1b[2A\x1b[Kone 100%\r\n\x1b[Ktwo 100%\r\nend\r\n";
        assert_eq!(shown(bars), "one 100%\ntwo 100%\nend\n");
    }

    #[test]
    fn long_lines_are_joined_and_long_output_is_whole() {
        let long = "x".repeat(100);
        assert_eq!(
            shown(&format!("\x1b[1m{long}\x1b[0m\r\n")),
            format!("{long}\n")
        );
        let many: String = (0..3000)
            .map(|n| format!("\x1b[32m{n}\x1b[0m\r\n"))
            .collect();
        let expected: String = (0..3000).map(|n| format!("{n}\n")).collect();
        assert_eq!(shown(&many), expected);
    }

    #[test]
    fn a_full_screen_program_leaves_nothing() {
        assert_eq!(
            shown("\x1b[?1049h\x1b[2J\x1b[Hfull screen\x1b[?1049lbye\r\n"),
            "bye\n"
        );
    }

    #[test]
    fn coloured_output_longer_than_a_scrollback_is_whole() {
        let rows = SCROLLBACK_ROWS * 3 / 2;
        let all: String = (0..rows)
            .map(|n| format!("\x1b[32mline {n}\x1b[0m\r\n"))
            .collect();
        let plain: String = (0..rows).map(|n| format!("line {n}\n")).collect();
        let span = Span {
            from: 0,
            bytes: all.as_bytes(),
        };
        let show = Show {
            budget: MAX_BUDGET,
            ..Show::plain(Size::default())
        };
        let whole = excerpt(span, span, &show);
        assert!(!whole.truncated);
        assert!(whole.text == plain, "{} bytes", whole.text.len());
    }

    #[test]
    fn a_cleared_scrollback_stays_cleared() {
        let many = "\x1b[1mold\x1b[0m\r\n".repeat(SCROLLBACK_ROWS);
        let text = shown(&format!("{many}\x1b[2J\x1b[3J\x1b[Hnew\r\n"));
        assert_eq!(text, "new\n");
    }

    #[test]
    fn the_middle_is_left_out_and_can_be_read() {
        let all: String = (0..1000).map(|n| format!("line {n}\r\n")).collect();
        let span = Span {
            from: 100,
            bytes: all.as_bytes(),
        };
        let show = Show {
            budget: 400,
            ..Show::plain(Size::default())
        };
        let cut = excerpt(span, span, &show);
        assert!(cut.truncated);
        assert!(cut.text.len() <= 460, "{}", cut.text.len());
        assert!(cut.text.starts_with("line 0\nline 1\n"));
        assert!(cut.text.ends_with("line 998\nline 999\n"));
        // Reading page by page returns exactly what was cut.
        let (mut from, to) = (cut.rest_from.unwrap(), cut.rest_to.unwrap());
        assert_eq!(to - from, cut.omitted_bytes);
        let mut rest = String::new();
        while from < to {
            let bytes = &all.as_bytes()[(from - 100) as usize..(to - 100) as usize];
            let (text, next) = page(Span { from, bytes }, &show);
            assert!(next > from);
            rest.push_str(&text);
            from = next;
        }
        let marker = cut.text.find("[...").unwrap();
        let after = cut.text.find("left out ...]\n").unwrap() + "left out ...]\n".len();
        let whole = format!("{}{rest}{}", &cut.text[..marker], &cut.text[after..]);
        assert_eq!(whole, all.replace('\r', ""));
    }

    #[test]
    fn a_gap_between_head_and_tail_is_left_out_too() {
        let head = Span {
            from: 0,
            bytes: b"begin\r\n",
        };
        let tail = Span {
            from: 1_000_000,
            bytes: b"end\r\n",
        };
        let cut = excerpt(head, tail, &Show::plain(Size::default()));
        assert_eq!(cut.text, "begin\n[... 999993 bytes left out ...]\nend\n");
        assert_eq!((cut.rest_from, cut.rest_to), (Some(7), Some(1_000_000)));
    }

    #[test]
    fn one_endless_line_is_cut_between_characters() {
        let all = "é".repeat(10_000);
        let span = Span {
            from: 0,
            bytes: all.as_bytes(),
        };
        let show = Show {
            budget: 300,
            ..Show::plain(Size::default())
        };
        let cut = excerpt(span, span, &show);
        assert!(
            cut.truncated && !cut.text.contains('\u{fffd}'),
            "{}",
            cut.text
        );
    }
}
