//! Answers to what a program asks of its terminal, where the grid has none.

use super::Screen;
use alacritty_terminal::index::{Column, Line as GridLine};
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::vte::ansi::{Color, CursorShape, NamedColor};

/// The answer to a control sequence; `None` leaves it to the grid.
pub(super) fn answer(
    screen: &Screen,
    prefix: u8,
    mid: u8,
    end: u8,
    params: &[u16],
) -> Option<String> {
    let first = params.first().copied().unwrap_or(0);
    match (prefix, mid, end) {
        (0, 0, b'n') if first == 6 && screen.origin() => {
            let (row, column) = place(screen);
            Some(format!("\x1b[{row};{column}R"))
        }
        (b'?', 0, b'n') => status(screen, first, params.get(1).copied().unwrap_or(0)),
        (b'?', b'$', b'p') => mode(screen, first).map(|set| format!("\x1b[?{first};{set}$y")),
        (b'=', 0, b'c') => Some("\x1bP!|00000000\x1b\\".to_string()),
        (0, b'*', b'y') => {
            // The second is a page, of which there is one.
            let sum = checksum(screen, params.get(2..).unwrap_or_default());
            Some(format!("\x1bP{first}!~{sum:04X}\x1b\\"))
        }
        _ => None,
    }
}

/// The cursor, counted from one, within the margins in origin mode.
fn place(screen: &Screen) -> (i32, usize) {
    let at = screen.at();
    let top = if screen.origin() {
        screen.vt.margins.0
    } else {
        0
    };
    (at.line.0 - top + 1, at.column.0 + 1)
}

/// DSR of the DEC kind: there is no printer, no locator, and nobody has changed the keys.
fn status(screen: &Screen, what: u16, number: u16) -> Option<String> {
    Some(match what {
        6 => {
            let (row, column) = place(screen);
            format!("\x1b[?{row};{column};1R")
        }
        15 => "\x1b[?13n".to_string(),
        25 => "\x1b[?20n".to_string(),
        26 => "\x1b[?27;1;0;0n".to_string(),
        53 | 55 => "\x1b[?50n".to_string(),
        56 => "\x1b[?57;0n".to_string(),
        62 => "\x1b[0*{".to_string(),
        63 => format!("\x1bP{number}!~0000\x1b\\"),
        75 => "\x1b[?70n".to_string(),
        85 => "\x1b[?83n".to_string(),
        _ => return None,
    })
}

/// 1 is set, 2 is not.
fn mode(screen: &Screen, mode: u16) -> Option<u8> {
    let set = match mode {
        9 => screen.vt.x10_mouse,
        47 | 1047 => screen.term.mode().contains(TermMode::ALT_SCREEN),
        1048 => true,
        _ => return None,
    };
    Some(if set { 1 } else { 2 })
}

/// DECRQSS: a setting as the sequence that would set it.
pub(super) fn setting(screen: &Screen, what: &[u8]) -> String {
    let size = screen.size;
    let (top, bottom) = screen.vt.margins;
    let value = match what {
        b"m" => Some(graphics(&screen.term.grid().cursor.template)),
        b"r" => Some(format!("{};{bottom}", top + 1)),
        b"s" => Some(format!("1;{}", size.cols())),
        b"t" | b"*|" => Some(size.rows().to_string()),
        b"$|" => Some(size.cols().to_string()),
        b"\"p" => Some("62;1".to_string()),
        b"\"q" => Some("0".to_string()),
        b" q" => {
            let style = screen.term.cursor_style();
            let steady = match style.shape {
                CursorShape::Underline => 4,
                CursorShape::Beam => 6,
                _ => 2,
            };
            Some((steady - u8::from(style.blinking)).to_string())
        }
        _ => None,
    };
    match value {
        Some(value) => format!("\x1bP1$r{value}{}\x1b\\", String::from_utf8_lossy(what)),
        None => "\x1bP0$r\x1b\\".to_string(),
    }
}

/// The parameters of SGR that make a cell look as this one.
fn graphics(cell: &Cell) -> String {
    let mut words = vec!["0".to_string()];
    for (flag, number) in [
        (Flags::BOLD, "1"),
        (Flags::DIM, "2"),
        (Flags::ITALIC, "3"),
        (Flags::UNDERLINE, "4"),
        (Flags::INVERSE, "7"),
        (Flags::HIDDEN, "8"),
        (Flags::STRIKEOUT, "9"),
    ] {
        if cell.flags.contains(flag) {
            words.push(number.to_string());
        }
    }
    words.extend(colour(cell.fg, 30));
    words.extend(colour(cell.bg, 40));
    words.join(";")
}

/// `base` is 30 for the text and 40 for what is behind it.
fn colour(colour: Color, base: usize) -> Option<String> {
    match colour {
        Color::Named(NamedColor::Foreground | NamedColor::Background) => None,
        Color::Named(named) => match named as usize {
            number @ 0..=7 => Some((base + number).to_string()),
            number @ 8..=15 => Some((base + 60 + number - 8).to_string()),
            _ => None,
        },
        Color::Indexed(number) => Some(format!("{};5;{number}", base + 8)),
        Color::Spec(rgb) => Some(format!("{};2;{};{};{}", base + 8, rgb.r, rgb.g, rgb.b)),
    }
}

/// The sum of a rectangle's characters, as DEC's terminals make it: below zero.
fn checksum(screen: &Screen, params: &[u16]) -> u16 {
    let Some(area) = screen.area(params) else {
        return 0;
    };
    let grid = screen.term.grid();
    let mut sum = 0u16;
    for row in area.rows {
        for column in area.columns.clone() {
            let char = grid[GridLine(row)][Column(column)].c;
            sum = sum.wrapping_add(u32::from(char) as u16);
        }
    }
    sum.wrapping_neg()
}
