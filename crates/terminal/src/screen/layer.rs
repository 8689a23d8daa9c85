//! The layer between the parser and the grid: what has to be remembered for the sequences that the
//! grid does not know, and the movements of the cursor within margins.
//!
//! ```text
//!   bytes ─► vt (sequences that nobody else knows) ─► parser ─► Layer ─► the grid
//! ```
//!
//! Rows and columns count from zero. A region is what is between the margins: `top..bottom`, and the
//! columns from `left` to `right`, both of them in it.

use super::Ear;
use alacritty_terminal::grid::Dimensions as _;
use alacritty_terminal::index::{Column, Line as GridLine, Point};
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::term::{Term, TermMode};
use std::ops::Range;

/// The one bit of a cell that the grid has no use for marks those that a selective erase leaves alone.
pub(super) const PROTECTED: Flags = Flags::from_bits_retain(0x8000);

/// Who may erase protected cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Protection {
    #[default]
    None,
    /// DECSCA: only the selective erases leave them alone.
    Dec,
    /// SPA and EPA: every erase leaves them alone.
    Iso,
}

/// What has to be remembered.
#[derive(Debug)]
pub(super) struct Vt {
    /// The beginning of a sequence whose end has not come.
    pub held: Vec<u8>,
    /// Rows of the scrolling region; the second is the first below it.
    pub margins: (i32, i32),
    /// DECLRMM: whether there may be margins on the sides.
    pub sides_on: bool,
    /// The first and the last column between them; none is the whole width.
    pub sides: Option<(usize, usize)>,
    /// Origin mode as it was saved with the cursor, on the screen and on the alternate one.
    pub saved_origin: [bool; 2],
    /// Mode 9: the mouse as the first xterm told of it.
    pub x10_mouse: bool,
    /// Mode 1015: the mouse as urxvt tells of it.
    pub urxvt_mouse: bool,
    /// Modes 45 and 1045: backwards over the beginning of a line.
    pub reverse_wrap: bool,
    pub protection: Protection,
    /// DECSACE: DECCARA and DECRARA change a rectangle, not what is between its corners.
    pub rectangles: bool,
    /// Modes that change nothing here but can be asked for; one bit for each of a list.
    pub noted: u32,
    /// What was on the alternate screen when it was left by mode 47.
    pub other_screen: Option<Vec<Vec<Cell>>>,
}

impl Vt {
    pub fn new(rows: u16) -> Vt {
        Vt {
            held: Vec::new(),
            margins: (0, rows.into()),
            sides_on: false,
            sides: None,
            saved_origin: [false; 2],
            x10_mouse: false,
            urxvt_mouse: false,
            reverse_wrap: false,
            protection: Protection::None,
            rectangles: false,
            noted: 0,
            other_screen: None,
        }
    }

    /// The grid was made anew, or has another size.
    pub fn reset(&mut self, rows: u16) {
        self.margins = (0, rows.into());
        self.sides = None;
        self.other_screen = None;
    }
}

/// A part of the screen.
#[derive(Clone, Debug)]
pub(super) struct Area {
    pub rows: Range<i32>,
    pub columns: Range<usize>,
}

pub(super) struct Layer<'a> {
    pub term: &'a mut Term<Ear>,
    pub vt: &'a mut Vt,
}

impl Layer<'_> {
    pub fn columns(&self) -> usize {
        self.term.columns()
    }

    pub fn rows(&self) -> i32 {
        self.term.screen_lines() as i32
    }

    /// The first and the last column between the margins.
    pub fn sides(&self) -> (usize, usize) {
        let last = self.columns() - 1;
        match self.vt.sides {
            Some((left, right)) if self.vt.sides_on => (left, right.min(last)),
            _ => (0, last),
        }
    }

    /// Whether lines are shorter than the screen is wide.
    pub fn narrow(&self) -> bool {
        self.vt.sides_on && self.vt.sides.is_some()
    }

    pub fn region(&self) -> Area {
        let (left, right) = self.sides();
        Area {
            rows: self.vt.margins.0..self.vt.margins.1,
            columns: left..right + 1,
        }
    }

    pub fn at(&self) -> Point {
        self.term.grid().cursor.point
    }

    pub fn put(&mut self, line: i32, column: usize) {
        let (line, column) = (
            line.clamp(0, self.rows() - 1),
            column.min(self.columns() - 1),
        );
        let cursor = &mut self.term.grid_mut().cursor;
        cursor.point = Point::new(GridLine(line), Column(column));
        cursor.input_needs_wrap = false;
    }

    pub fn on(&self, mode: TermMode) -> bool {
        self.term.mode().contains(mode)
    }

    pub fn between_sides(&self) -> bool {
        let (left, right) = self.sides();
        (left..=right).contains(&self.at().column.0)
    }

    pub fn between_margins(&self) -> bool {
        let (top, bottom) = self.vt.margins;
        (top..bottom).contains(&self.at().line.0) && self.between_sides()
    }

    /// Row and column as a program counts them, but from zero: from the region's corner in origin mode,
    /// and not out of it.
    pub fn go(&mut self, line: i32, column: usize) {
        if !self.on(TermMode::ORIGIN) {
            return self.put(line, column);
        }
        let (top, bottom) = self.vt.margins;
        let (left, right) = self.sides();
        let line = line.max(0).saturating_add(top).min(bottom - 1);
        self.put(line, column.saturating_add(left).min(right));
    }

    /// Where the cursor is, as a program counts it, but from zero.
    pub fn place(&self) -> (i32, usize) {
        let at = self.at();
        if !self.on(TermMode::ORIGIN) {
            return (at.line.0, at.column.0);
        }
        let line = (at.line.0 - self.vt.margins.0).max(0);
        (line, at.column.0.saturating_sub(self.sides().0))
    }

    /// Up or down, not past the margin it is inside of.
    pub fn move_rows(&mut self, by: i32) {
        let (top, bottom) = self.vt.margins;
        let at = self.at();
        let line = at.line.0;
        let least = if line >= top { top } else { 0 };
        let most = match line < bottom {
            true => bottom - 1,
            false => self.rows() - 1,
        };
        self.put(line.saturating_add(by).clamp(least, most), at.column.0);
    }

    pub fn forward(&mut self, by: usize) {
        let at = self.at();
        let most = match self.sides() {
            (_, right) if at.column.0 <= right => right,
            _ => self.columns() - 1,
        };
        self.put(at.line.0, at.column.0.saturating_add(by).min(most));
    }

    /// To the left; over the beginning of the line in reverse wrap mode.
    pub fn back(&mut self, by: usize) {
        let reverse = self.vt.reverse_wrap && self.on(TermMode::LINE_WRAP);
        let cursor = &self.term.grid().cursor;
        // A character in the last column leaves the cursor on it: it takes one step to be behind it.
        let mut by = by - usize::from(reverse && cursor.input_needs_wrap && by > 0);
        let at = self.at();
        let (mut line, mut column) = (at.line.0, at.column.0);
        let (left, right) = self.sides();
        loop {
            let least = if column >= left { left } else { 0 };
            let room = column - least;
            if by <= room || !reverse {
                column -= by.min(room);
                break;
            }
            by -= room + 1;
            column = right;
            line = self.row_above(line);
        }
        self.put(line, column);
    }

    /// The row above, and above the first the last.
    fn row_above(&self, line: i32) -> i32 {
        match self.vt.margins {
            (top, bottom) if line == top => bottom - 1,
            _ if line == 0 => self.rows() - 1,
            _ => line - 1,
        }
    }

    pub fn go_to_line_start(&mut self) {
        let (left, _) = self.sides();
        let at = self.at();
        let column = match at.column.0 >= left || self.on(TermMode::ORIGIN) {
            true => left,
            false => 0,
        };
        self.put(at.line.0, column);
    }

    /// One row down, or the region one row up.
    pub fn index(&mut self) {
        use alacritty_terminal::vte::ansi::Handler as _;
        if !self.narrow() {
            return self.term.linefeed();
        }
        if self.at().line.0 + 1 != self.vt.margins.1 {
            self.down_keeping_wrap();
        } else if self.between_sides() {
            self.scroll_up(1);
        }
    }

    /// A line feed leaves a full line as it is: the next character goes to the next line.
    fn down_keeping_wrap(&mut self) {
        let wraps = self.term.grid().cursor.input_needs_wrap;
        self.move_rows(1);
        self.term.grid_mut().cursor.input_needs_wrap = wraps;
    }

    /// One row up, or the region one row down.
    pub fn reverse_index(&mut self) {
        let at = self.at();
        if at.line.0 != self.vt.margins.0 {
            let wraps = self.term.grid().cursor.input_needs_wrap;
            self.move_rows(-1);
            self.term.grid_mut().cursor.input_needs_wrap = wraps;
        } else if self.between_sides() {
            self.scroll_down(1);
        }
    }

    /// DECBI and DECFI: one column to the side, or the region one to the other.
    pub fn column_index(&mut self, forward: bool) {
        let at = self.at();
        let (left, right) = self.sides();
        let (edge, end) = match forward {
            true => (right, self.columns() - 1),
            false => (left, 0),
        };
        if at.column.0 == edge {
            if self.between_margins() {
                let region = self.region();
                self.shift_columns(&region, 1, forward);
            }
        } else if at.column.0 != end {
            let column = if forward {
                at.column.0 + 1
            } else {
                at.column.0 - 1
            };
            self.put(at.line.0, column);
        }
    }
}
