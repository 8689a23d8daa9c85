//! Renders a screen as bytes for another terminal.

use crate::screen::{Attrs, Ink, Line, Style, View};
use std::fmt::Write as _;

const CODES: [(Attrs, u8); 7] = [
    (Attrs::BOLD, 1),
    (Attrs::DIM, 2),
    (Attrs::ITALIC, 3),
    (Attrs::UNDERLINE, 4),
    (Attrs::INVERSE, 7),
    (Attrs::HIDDEN, 8),
    (Attrs::STRIKE, 9),
];

/// Rows of text with SGR escapes, separated by newlines. Every row begins and ends with default
/// attributes.
pub fn lines<'a>(lines: impl IntoIterator<Item = &'a Line>) -> String {
    let mut out = String::new();
    for (row, line) in lines.into_iter().enumerate() {
        if row > 0 {
            out.push('\n');
        }
        styled(&mut out, line);
    }
    out
}

/// The bytes that make another terminal of the same size look and behave the same: text, cursor and
/// the modes that affect keys.
pub fn redraw(view: &View) -> String {
    let modes = &view.modes;
    let mut out = String::from("\x1b[!p");
    let screen = if modes.alternate_screen { 'h' } else { 'l' };
    let _ = write!(out, "\x1b[?1049{screen}\x1b[m\x1b[H\x1b[2J");
    for (row, line) in view.lines.iter().enumerate() {
        if !line.text().is_empty() {
            let _ = write!(out, "\x1b[{};1H", row + 1);
            styled(&mut out, line);
        }
    }
    for (on, number) in [
        (modes.app_cursor, "1"),
        (modes.bracketed_paste, "2004"),
        (modes.mouse, "1002"),
        (modes.sgr_mouse, "1006"),
        (modes.focus, "1004"),
    ] {
        let _ = write!(out, "\x1b[?{number}{}", if on { 'h' } else { 'l' });
    }
    out.push_str(if modes.app_keypad { "\x1b=" } else { "\x1b>" });
    if let Some(title) = &view.title {
        let title: String = title.chars().filter(|char| !char.is_control()).collect();
        let _ = write!(out, "\x1b]2;{title}\x07");
    }
    let cursor = view.cursor;
    let _ = write!(
        out,
        "\x1b[{};{}H\x1b[?25{}",
        u32::from(cursor.row) + 1,
        u32::from(cursor.col) + 1,
        if cursor.visible { 'h' } else { 'l' }
    );
    out
}

fn styled(out: &mut String, line: &Line) {
    let mut plain = true;
    for (text, style) in line.pieces() {
        if !(plain && style.is_plain()) {
            sgr(out, &style);
        }
        plain = style.is_plain();
        out.extend(text.chars().filter(|char| !char.is_control()));
    }
    if !plain {
        out.push_str("\x1b[m");
    }
}

fn sgr(out: &mut String, style: &Style) {
    out.push_str("\x1b[0");
    for (attr, code) in CODES {
        if style.attrs.has(attr) {
            let _ = write!(out, ";{code}");
        }
    }
    ink(out, style.fg, 30);
    ink(out, style.bg, 40);
    out.push('m');
}

/// `base` is 30 for the foreground and 40 for the background.
fn ink(out: &mut String, ink: Ink, base: u8) {
    let _ = match ink {
        Ink::Default => Ok(()),
        Ink::Indexed(index @ 0..=7) => write!(out, ";{}", base + index),
        Ink::Indexed(index @ 8..=15) => write!(out, ";{}", base + 60 + index - 8),
        Ink::Indexed(index) => write!(out, ";{};5;{index}", base + 8),
        Ink::Rgb(r, g, b) => write!(out, ";{};2;{r};{g};{b}", base + 8),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::{Screen, Size};

    fn screen(bytes: &[u8]) -> Screen {
        let mut screen = Screen::new(Size::new(20, 5));
        screen.write(bytes);
        screen
    }

    #[test]
    fn a_redrawn_screen_is_the_same() {
        for bytes in [
            &b"plain\r\n\x1b[1;31mred\x1b[0m and \x1b[48;5;200mback\x1b[m\r\n\x1b[38;2;1;2;3mrgb"[..],
            b"\x1b[?1049h\x1b[3;4Hhere\x1b[7mthere\x1b[?25l\x1b[?2004h\x1b[?1h",
            "wide: \u{4f60}\u{597d} e\u{301}\x1b[2;2H\x1b[93;104mbright".as_bytes(),
            b"\x1b]2;a title\x07\x1b[4munder\x1b[9mstruck",
            b"",
        ] {
            let view = screen(bytes).view();
            let again = screen(redraw(&view).as_bytes()).view();
            assert_eq!(again.lines, view.lines);
            assert_eq!(again.cursor, view.cursor);
            assert_eq!(again.modes, view.modes);
            assert_eq!(again.title, view.title);
        }
    }

    #[test]
    fn rows_are_plain_at_both_ends() {
        let view = screen(b"a\x1b[32mb\r\nc\x1b[m d").view();
        assert_eq!(
            lines(&view.lines[..2]),
            "a\x1b[0;32mb\x1b[m\n\x1b[0;32mc\x1b[0m d"
        );
    }
}
