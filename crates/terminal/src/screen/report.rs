//! Replies to terminal queries that the grid does not answer.

use super::layer::PROTECTED;
use super::sequence::Csi;
use super::{Screen, Size};
use crate::palette;
use alacritty_terminal::index::{Column, Line as GridLine};
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::vte::ansi::{Color, CursorShape, NamedColor};

/// The reply to a control sequence; `None` leaves it to the grid.
pub(super) fn answer(screen: &mut Screen, csi: &Csi) -> Option<String> {
    let first = csi.params.first().copied().unwrap_or(0);
    match (csi.prefix, csi.mid, csi.end) {
        (0, 0, b'c') => Some(match first {
            0 => DEVICE.to_string(),
            _ => String::new(),
        }),
        (0, 0, b'n') if first == 6 => {
            let (row, column) = place(screen);
            Some(format!("\x1b[{row};{column}R"))
        }
        (0, 0, b't') => window(screen.size, first),
        (0, b'$', b'p') => Some(format!("\x1b[{first};{}$y", ansi_mode(screen, first))),
        (b'?', 0, b'n') => status(screen, first, csi.params.get(1).copied().unwrap_or(0)),
        (b'?', b'$', b'p') => mode(screen, first).map(|set| format!("\x1b[?{first};{set}$y")),
        (b'=', 0, b'c') => Some("\x1bP!|00000000\x1b\\".to_string()),
        (b'>', 0, b'q') => Some(match first {
            0 => concat!("\x1bP>|motu(", env!("CARGO_PKG_VERSION"), ")\x1b\\").to_string(),
            _ => String::new(),
        }),
        (0, b'*', b'y') => {
            // The second parameter is a page; there is only one.
            let sum = checksum(screen, csi.rest(2));
            Some(format!("\x1bP{first}!~{sum:04X}\x1b\\"))
        }
        _ => None,
    }
}

/// Device attributes: a VT420 with selective erase, horizontal scrolling, colours and rectangles.
const DEVICE: &str = "\x1b[?64;6;21;22;28c";

/// The cursor, counted from one, relative to the margins in origin mode.
fn place(screen: &mut Screen) -> (i32, usize) {
    let (line, column) = screen.layer().place();
    (line + 1, column + 1)
}

/// Window reports. Titles are never reported: the reply would be typed into the shell, and any
/// displayed text could have set them.
fn window(size: Size, what: u16) -> Option<String> {
    let (rows, cols) = (usize::from(size.rows()), usize::from(size.cols()));
    let (height, width) = (palette::CELL_HEIGHT, palette::CELL_WIDTH);
    Some(match what {
        11 => "\x1b[1t".to_string(),
        13 => "\x1b[3;0;0t".to_string(),
        15 => format!("\x1b[5;{};{}t", rows * height, cols * width),
        16 => format!("\x1b[6;{height};{width}t"),
        19 => format!("\x1b[9;{rows};{cols}t"),
        20 => "\x1b]L\x1b\\".to_string(),
        21 => "\x1b]l\x1b\\".to_string(),
        _ => return None,
    })
}

/// DEC-style DSR: no printer, no locator, no user-defined keys.
fn status(screen: &mut Screen, what: u16, number: u16) -> Option<String> {
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

/// Modes without effect: only their state is reported.
const NOTED: [u16; 14] = [3, 4, 5, 8, 18, 19, 34, 35, 36, 40, 42, 67, 95, 1046];

/// The bit of such a mode.
pub(super) fn noted(mode: u16) -> Option<u32> {
    let at = NOTED.iter().position(|known| *known == mode)?;
    Some(1 << at)
}

/// DECRQM: 1 is set, 2 is reset.
fn mode(screen: &Screen, mode: u16) -> Option<u8> {
    let vt = &screen.vt;
    let set = match mode {
        9 => vt.x10_mouse,
        45 | 1045 => vt.reverse_wrap,
        47 | 1047 => screen.term.mode().contains(TermMode::ALT_SCREEN),
        66 => screen.term.mode().contains(TermMode::APP_KEYPAD),
        69 => vt.sides_on,
        1015 => vt.urxvt_mouse,
        1048 => true,
        mode => vt.noted & noted(mode)? != 0,
    };
    Some(if set { 1 } else { 2 })
}

/// ANSI modes: 0 is unknown, 4 is permanently reset.
fn ansi_mode(screen: &Screen, mode: u16) -> u8 {
    let flag = match mode {
        4 => TermMode::INSERT,
        20 => TermMode::LINE_FEED_NEW_LINE,
        // SRM is permanently set: the terminal does not echo. KAM is permanently reset.
        12 => return 3,
        1 | 2 | 5 | 7 | 10 | 11 | 13..=19 => return 4,
        _ => return 0,
    };
    if screen.term.mode().contains(flag) {
        1
    } else {
        2
    }
}

/// DECRQSS: reports a setting as the sequence that would set it.
pub(super) fn setting(screen: &mut Screen, what: &[u8]) -> String {
    let size = screen.size;
    let (top, bottom) = screen.vt.margins;
    let value = match what {
        b"m" => Some(graphics(&screen.term.grid().cursor.template)),
        b"r" => Some(format!("{};{bottom}", top + 1)),
        b"s" => {
            let (left, right) = screen.layer().sides();
            Some(format!("{};{}", left + 1, right + 1))
        }
        b"t" | b"*|" => Some(size.rows().to_string()),
        b"$|" => Some(size.cols().to_string()),
        b"\"p" => Some("64;1".to_string()),
        b"\"q" => {
            let template = &screen.term.grid().cursor.template;
            Some(u8::from(template.flags.contains(PROTECTED)).to_string())
        }
        b"*x" => Some(if screen.vt.rectangles { "2" } else { "1" }.to_string()),
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

/// The SGR parameters of a cell.
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

/// `base` is 30 for the foreground and 40 for the background.
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

/// The checksum of a rectangle's characters as in DEC terminals: the negated sum.
fn checksum(screen: &mut Screen, params: &[u16]) -> u16 {
    let Some(area) = screen.layer().area(params) else {
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
