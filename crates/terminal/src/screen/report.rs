//! Replies to terminal queries that the grid does not answer.

use super::layer::PROTECTED;
use super::sequence::Csi;
use super::{Screen, Size, modes};
use crate::palette;
use alacritty_terminal::index::{Column, Line as GridLine};
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
        (0, b'$', b'p') => Some(format!("\x1b[{first};{}$y", modes::ansi(screen, first))),
        (b'?', 0, b'n') => status(screen, first, csi.params.get(1).copied().unwrap_or(0)),
        (b'?', b'$', b'p') => {
            modes::told(screen, first).map(|set| format!("\x1b[?{first};{set}$y"))
        }
        (b'>', 0, b'c') => Some(match first {
            0 => VERSION.to_string(),
            _ => String::new(),
        }),
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

/// Secondary device attributes: a VT420 too, and the release of xterm whose behaviour this screen
/// has. Programs choose by that number what they may use.
const VERSION: &str = "\x1b[>41;379;0c";

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
        b"\"p" => Some(format!("6{};1", screen.vt.level)),
        b"\"q" => {
            let template = &screen.term.grid().cursor.template;
            Some(u8::from(template.flags.contains(PROTECTED)).to_string())
        }
        b"*x" => Some(screen.vt.extent.to_string()),
        // There is no status line, so all output goes to the screen.
        b"$}" | b"$~" => Some("0".to_string()),
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

/// XTGETTCAP: the terminfo entries that programs ask for by name. Names and values are in
/// hexadecimal; the first unknown name ends the list, as in an xterm.
pub(super) fn capabilities(names: &[u8]) -> String {
    let mut told = Vec::new();
    for name in names.split(|byte| *byte == b';') {
        let value = match plain(name).as_deref() {
            Some(b"TN" | b"name") => "xterm-256color",
            Some(b"Co" | b"colors") => "256",
            Some(b"RGB") => "8/8/8",
            _ => break,
        };
        let value: String = value.bytes().map(|byte| format!("{byte:02X}")).collect();
        told.push(format!("{}={value}", String::from_utf8_lossy(name)));
    }
    match told.is_empty() {
        true => "\x1bP0+r\x1b\\".to_string(),
        false => format!("\x1bP1+r{}\x1b\\", told.join(";")),
    }
}

/// What pairs of hexadecimal digits spell.
fn plain(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| match *pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    };
    digits.chunks(2).map(pair).collect()
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
