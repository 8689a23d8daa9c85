//! What the grid leaves out, or does otherwise than terminals do.
//!
//! Sequences are looked at before the grid's own parser sees them. Those in the table below are
//! done here, through what the grid offers; all others pass as they came.
//!
//! ```text
//!   CUU CUD CNL CPL VPR   stop at the margins            DECSC DECRC   with origin mode
//!   DECSTBM               margins are remembered         DECALN        homes, no margins
//!   DECSTR                the soft reset                 IL DL         to the first column
//!   47 1047 1048          screens and cursors of old     DSR DECXCPR   within the margins
//!   DECRQSS DECRQM        what is set                    DA3
//!   DECERA DECFRA DECCRA  rectangles                     DECRQCRA      their sum
//! ```

use super::Screen;
use super::report;
use alacritty_terminal::grid::Cursor;
use alacritty_terminal::index::{Column, Line as GridLine, Point};
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::Cell;

/// A sequence longer than this is left to the grid.
const LONGEST: usize = 256;

/// What has to be remembered for it.
#[derive(Debug)]
pub(super) struct Vt {
    /// The beginning of a sequence whose end has not come.
    held: Vec<u8>,
    /// Rows of the scrolling region; the second is the first below it.
    pub margins: (i32, i32),
    /// Origin mode as it was saved with the cursor, on the screen and on the alternate one.
    saved_origin: [bool; 2],
    /// Mode 9: the mouse as the first xterm told of it.
    pub x10_mouse: bool,
}

impl Vt {
    pub fn new(rows: u16) -> Vt {
        Vt {
            held: Vec::new(),
            margins: (0, rows.into()),
            saved_origin: [false; 2],
            x10_mouse: false,
        }
    }

    /// The grid was made anew, or has another size.
    pub fn reset(&mut self, rows: u16) {
        self.margins = (0, rows.into());
    }
}

/// A sequence that is done here.
#[derive(Debug, PartialEq, Eq)]
enum Ours {
    Csi(Csi),
    SaveCursor,
    RestoreCursor,
    Align,
    Reset,
    /// What is asked for (DECRQSS).
    Setting(Vec<u8>),
}

#[derive(Debug, PartialEq, Eq)]
struct Csi {
    /// `?`, `>` and the like, or 0.
    prefix: u8,
    params: Vec<u16>,
    /// `$`, `!` and the like, or 0.
    mid: u8,
    end: u8,
}

enum Sequence {
    Ours(usize, Ours),
    Other(usize),
    Unfinished,
}

impl Screen {
    /// Takes whole characters.
    pub(super) fn advance(&mut self, bytes: &[u8]) {
        let joined;
        let mut input = bytes;
        if !self.vt.held.is_empty() {
            joined = [std::mem::take(&mut self.vt.held).as_slice(), bytes].concat();
            input = &joined;
        }
        let (mut plain, mut at) = (0, 0);
        while let Some(found) = memchr::memchr(0x1b, &input[at..]) {
            let start = at + found;
            match sequence(&input[start..]) {
                Sequence::Ours(len, ours) => {
                    self.feed(&input[plain..start]);
                    self.obey(&ours, &input[start..start + len]);
                    at = start + len;
                    plain = at;
                }
                Sequence::Other(len) => at = start + len,
                Sequence::Unfinished => {
                    self.feed(&input[plain..start]);
                    self.vt.held = input[start..].to_vec();
                    return;
                }
            }
        }
        self.feed(&input[plain..]);
    }

    fn obey(&mut self, ours: &Ours, bytes: &[u8]) {
        // An escape ends whatever was unfinished before it, in the grid's parser too.
        self.feed(b"\x1b\\");
        match ours {
            Ours::Csi(csi) => self.obey_csi(csi, bytes),
            Ours::SaveCursor => self.save_cursor(),
            Ours::RestoreCursor => self.restore_cursor(),
            Ours::Align => {
                self.feed(bytes);
                self.feed(b"\x1b[r");
                self.vt.reset(self.size.rows());
                self.put(0, 0);
            }
            Ours::Reset => {
                self.vt = Vt::new(self.size.rows());
                self.feed(bytes);
            }
            Ours::Setting(what) => {
                let answer = report::setting(self, what);
                self.ear.lock().reply(&answer);
            }
        }
    }

    fn obey_csi(&mut self, csi: &Csi, bytes: &[u8]) {
        let count = i32::from(csi.params.first().copied().unwrap_or(0).max(1));
        match (csi.prefix, csi.mid, csi.end) {
            (0, 0, b'A') => self.move_rows(-count, false),
            (0, 0, b'B') => self.move_rows(count, false),
            (0, 0, b'E') => self.move_rows(count, true),
            (0, 0, b'F') => self.move_rows(-count, true),
            (0, 0, b'e') => {
                let at = self.at();
                let last = i32::from(self.size.rows()) - 1;
                self.put((at.line.0 + count).min(last), at.column.0);
            }
            (0, 0, b's') => self.save_cursor(),
            (0, 0, b'u') => self.restore_cursor(),
            (0, 0, b'r') => self.set_margins(csi, bytes),
            (0, 0, b'L' | b'M') => {
                self.feed(bytes);
                let at = self.at();
                if (self.vt.margins.0..self.vt.margins.1).contains(&at.line.0) {
                    self.put(at.line.0, 0);
                }
            }
            (0, b'!', b'p') => self.soft_reset(),
            (b'?', 0, b'h' | b'l') => self.set_modes(csi),
            (0, b'$', b'v' | b'x' | b'z' | b'{') => self.rectangle(csi),
            _ => match report::answer(self, csi.prefix, csi.mid, csi.end, &csi.params) {
                Some(answer) => self.ear.lock().reply(&answer),
                None => self.feed(bytes),
            },
        }
    }

    pub(super) fn at(&self) -> Point {
        self.term.grid().cursor.point
    }

    fn put(&mut self, line: i32, column: usize) {
        let last = usize::from(self.size.cols()) - 1;
        let cursor = &mut self.term.grid_mut().cursor;
        cursor.point = Point::new(GridLine(line), Column(column.min(last)));
        cursor.input_needs_wrap = false;
    }

    pub(super) fn origin(&self) -> bool {
        self.term.mode().contains(TermMode::ORIGIN)
    }

    fn alternate(&self) -> bool {
        self.term.mode().contains(TermMode::ALT_SCREEN)
    }

    /// Up or down, not past the margin it is inside of.
    fn move_rows(&mut self, by: i32, to_first_column: bool) {
        let (top, bottom) = self.vt.margins;
        let at = self.at();
        let line = at.line.0;
        let least = if line >= top { top } else { 0 };
        let most = if line < bottom {
            bottom - 1
        } else {
            i32::from(self.size.rows()) - 1
        };
        let column = if to_first_column { 0 } else { at.column.0 };
        self.put((line + by).clamp(least, most), column);
    }

    fn set_margins(&mut self, csi: &Csi, bytes: &[u8]) {
        let rows = i32::from(self.size.rows());
        let param = |at: usize| csi.params.get(at).copied().filter(|param| *param > 0);
        let top = i32::from(param(0).unwrap_or(1));
        let bottom = param(1).map_or(rows, i32::from).min(rows);
        // Margins that leave fewer than two rows are none; the grid takes them.
        if top < bottom {
            self.feed(bytes);
            self.vt.margins = (top - 1, bottom);
        }
    }

    fn save_cursor(&mut self) {
        self.feed(b"\x1b7");
        self.vt.saved_origin[usize::from(self.alternate())] = self.origin();
    }

    fn restore_cursor(&mut self) {
        self.feed(b"\x1b8");
        let saved = self.vt.saved_origin[usize::from(self.alternate())];
        if saved != self.origin() {
            // Setting the mode homes the cursor.
            let cursor = &self.term.grid().cursor;
            let (point, wraps) = (cursor.point, cursor.input_needs_wrap);
            self.feed(if saved { b"\x1b[?6h" } else { b"\x1b[?6l" });
            let cursor = &mut self.term.grid_mut().cursor;
            (cursor.point, cursor.input_needs_wrap) = (point, wraps);
        }
    }

    /// Modes, text and margins as at the beginning; what is on the screen and the cursor stay.
    fn soft_reset(&mut self) {
        let at = self.at();
        self.feed(b"\x1b[?25h\x1b[?6l\x1b[?7h\x1b[4l\x1b[?1l\x1b>\x1b[r\x1b[0m\x1b(B\x0f");
        self.vt.reset(self.size.rows());
        self.vt.saved_origin = [false; 2];
        self.term.grid_mut().saved_cursor = Cursor::default();
        self.put(at.line.0, at.column.0);
    }

    fn set_modes(&mut self, csi: &Csi) {
        let on = csi.end == b'h';
        for mode in &csi.params {
            match mode {
                47 | 1047 => self.switch_screen(on),
                1048 if on => self.save_cursor(),
                1048 => self.restore_cursor(),
                9 => self.vt.x10_mouse = on,
                mode => {
                    self.feed(format!("\x1b[?{mode}{}", char::from(csi.end)).as_bytes());
                    if *mode == 3 {
                        self.vt.reset(self.size.rows());
                    }
                }
            }
        }
    }

    /// The alternate screen without a cursor of its own.
    fn switch_screen(&mut self, on: bool) {
        if on == self.alternate() {
            return;
        }
        let cursor = self.term.grid().cursor.clone();
        let saved = self.term.grid().saved_cursor.clone();
        self.contained(|screen| screen.term.swap_alt());
        let grid = self.term.grid_mut();
        grid.cursor = cursor;
        if on {
            grid.saved_cursor = saved;
        }
    }

    /// DECERA, DECSERA, DECFRA and DECCRA.
    fn rectangle(&mut self, csi: &Csi) {
        let (skipped, fill) = match csi.end {
            b'x' => (1, csi.params.first().copied().unwrap_or(32)),
            _ => (0, 32),
        };
        let Some(from) = self.area(csi.params.get(skipped..).unwrap_or_default()) else {
            return;
        };
        let mut cell = Cell::default();
        if csi.end == b'x' {
            let printable = matches!(fill, 32..=126 | 160..=255);
            let Some(char) = char::from_u32(fill.into()).filter(|_| printable) else {
                return;
            };
            cell = self.term.grid().cursor.template.clone();
            cell.c = char;
        }
        if csi.end == b'v' {
            return self.copy_area(&from, csi.params.get(5..).unwrap_or_default());
        }
        let grid = self.term.grid_mut();
        for row in from.rows.clone() {
            for column in from.columns.clone() {
                grid[GridLine(row)][Column(column)] = cell.clone();
            }
        }
    }

    fn copy_area(&mut self, from: &Area, to: &[u16]) {
        let place = |at: usize| to.get(at).copied().unwrap_or(0).max(1);
        let Some(target) = self.area(&[place(0), place(1)]) else {
            return;
        };
        let grid = self.term.grid_mut();
        let mut cells = Vec::new();
        for row in from.rows.clone() {
            let row = &grid[GridLine(row)];
            cells.push(
                from.columns
                    .clone()
                    .map(|at| row[Column(at)].clone())
                    .collect::<Vec<_>>(),
            );
        }
        for (row, cells) in target.rows.zip(cells) {
            for (column, cell) in target.columns.clone().zip(cells) {
                grid[GridLine(row)][Column(column)] = cell;
            }
        }
    }

    /// Top, left, bottom, right, from one and to the last by default; within the margins in origin mode.
    pub(super) fn area(&self, params: &[u16]) -> Option<Area> {
        let (rows, cols) = (i32::from(self.size.rows()), usize::from(self.size.cols()));
        let (first, last) = match self.origin() {
            true => self.vt.margins,
            false => (0, rows),
        };
        let param = |at: usize| params.get(at).copied().filter(|param| *param > 0);
        let top = first + i32::from(param(0).unwrap_or(1)) - 1;
        let bottom = param(2)
            .map_or(last, |row| first + i32::from(row))
            .min(last);
        let left = usize::from(param(1).unwrap_or(1)) - 1;
        let right = param(3).map_or(cols, usize::from).min(cols);
        (top < bottom && left < right).then_some(Area {
            rows: top..bottom,
            columns: left..right,
        })
    }
}

/// A part of the screen.
#[derive(Debug)]
pub(super) struct Area {
    pub rows: std::ops::Range<i32>,
    pub columns: std::ops::Range<usize>,
}

/// What begins with this escape.
fn sequence(bytes: &[u8]) -> Sequence {
    match bytes.get(1) {
        None => Sequence::Unfinished,
        Some(b'[') => csi(bytes),
        Some(b'7') => Sequence::Ours(2, Ours::SaveCursor),
        Some(b'8') => Sequence::Ours(2, Ours::RestoreCursor),
        Some(b'c') => Sequence::Ours(2, Ours::Reset),
        Some(b'#') => match bytes.get(2) {
            None => Sequence::Unfinished,
            Some(b'8') => Sequence::Ours(3, Ours::Align),
            Some(_) => Sequence::Other(2),
        },
        Some(b'P') => setting(bytes),
        Some(_) => Sequence::Other(1),
    }
}

/// `DCS $ q … ST`, and no other of them.
fn setting(bytes: &[u8]) -> Sequence {
    let start = b"\x1bP$q";
    if bytes.len() < start.len() && start.starts_with(bytes) {
        return Sequence::Unfinished;
    }
    let Some(rest) = bytes.strip_prefix(start.as_slice()) else {
        return Sequence::Other(2);
    };
    match memchr::memchr(0x1b, rest) {
        Some(end) if rest.get(end + 1) == Some(&b'\\') => {
            let len = start.len() + end + 2;
            Sequence::Ours(len, Ours::Setting(rest[..end].to_vec()))
        }
        Some(end) if end + 1 < rest.len() => Sequence::Other(2),
        _ if bytes.len() < LONGEST => Sequence::Unfinished,
        _ => Sequence::Other(2),
    }
}

fn csi(bytes: &[u8]) -> Sequence {
    let rest = &bytes[2..];
    let params = rest
        .iter()
        .take_while(|byte| matches!(byte, 0x30..=0x3f))
        .count();
    let mids = rest[params..]
        .iter()
        .take_while(|byte| matches!(byte, 0x20..=0x2f))
        .count();
    let Some(&end) = rest.get(params + mids) else {
        return match bytes.len() < LONGEST {
            true => Sequence::Unfinished,
            false => Sequence::Other(2),
        };
    };
    let len = 2 + params + mids + 1;
    // A control inside, or too much of something: the grid's parser knows what to do.
    if !matches!(end, 0x40..=0x7e) || mids > 1 {
        return Sequence::Other(2);
    }
    let text = &rest[..params];
    let (prefix, text) = match text.first() {
        Some(first @ 0x3c..=0x3f) => (*first, &text[1..]),
        _ => (0, text),
    };
    let mid = rest.get(params).copied().filter(|_| mids == 1).unwrap_or(0);
    if !is_ours(prefix, mid, end) || text.iter().any(|byte| !matches!(byte, b'0'..=b'9' | b';')) {
        return Sequence::Other(len);
    }
    let number = |text: &[u8]| {
        let digits = std::str::from_utf8(text).unwrap_or_default();
        digits.parse::<u32>().unwrap_or(0).min(9999) as u16
    };
    let params: Vec<u16> = text.split(|byte| *byte == b';').map(number).collect();
    Sequence::Ours(
        len,
        Ours::Csi(Csi {
            prefix,
            params,
            mid,
            end,
        }),
    )
}

fn is_ours(prefix: u8, mid: u8, end: u8) -> bool {
    matches!(
        (prefix, mid, end),
        (
            0,
            0,
            b'A' | b'B' | b'E' | b'F' | b'e' | b'r' | b's' | b'u' | b'L' | b'M' | b'n'
        ) | (0, b'!', b'p')
            | (b'?', 0, b'h' | b'l' | b'n')
            | (b'?', b'$', b'p')
            | (b'=', 0, b'c')
            | (0, b'$', b'v' | b'x' | b'z' | b'{')
            | (0, b'*', b'y')
    )
}
