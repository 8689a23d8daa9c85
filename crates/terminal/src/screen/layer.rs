//! The layer between the parser and the grid: state for sequences that the grid does not support,
//! and cursor movement within margins.
//!
//! ```text
//!   bytes ─► vt (sequences that nobody else knows) ─► parser ─► Layer ─► the grid
//! ```
//!
//! Rows and columns count from zero. A region is the area inside the margins: `top..bottom`, and
//! the columns from `left` to `right` inclusive.

use super::Ear;
use super::colours::Colours;
use alacritty_terminal::grid::{Cursor, Dimensions as _};
use alacritty_terminal::index::{Column, Line as GridLine, Point};
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::term::{Term, TermMode};
use std::collections::BTreeMap;
use std::ops::Range;

/// A cell bit that the grid does not use: marks cells that a selective erase skips.
pub(super) const PROTECTED: Flags = Flags::from_bits_retain(0x8000);

/// Which erases skip protected cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Protection {
    #[default]
    None,
    /// DECSCA: only selective erases.
    Dec,
    /// SPA and EPA: every erase.
    Iso,
}

/// State beyond the grid's.
#[derive(Debug)]
pub(super) struct Vt {
    /// An incomplete sequence.
    pub held: Vec<u8>,
    /// Rows of the scrolling region, end exclusive.
    pub margins: (i32, i32),
    /// DECLRMM: whether left and right margins are enabled.
    pub sides_on: bool,
    /// The first and last column inside the margins; `None` for the whole width.
    pub sides: Option<(usize, usize)>,
    /// Origin mode saved with the cursor, for the main and the alternate screen.
    pub saved_origin: [bool; 2],
    /// Mode 9: X10 mouse reporting.
    pub x10_mouse: bool,
    /// Mode 1015: urxvt mouse reporting.
    pub urxvt_mouse: bool,
    /// Modes 45 and 1045: reverse wrap.
    pub reverse_wrap: bool,
    pub protection: Protection,
    /// DECSACE: with 2, DECCARA and DECRARA affect a rectangle, not the stream between its corners.
    pub extent: u16,
    /// DECSCL: the level, 1 to 4. What came with a later level is not understood.
    pub level: u8,
    /// Modes that are only remembered; one bit each.
    pub noted: u32,
    /// Modes that XTSAVE has saved.
    pub saved_modes: BTreeMap<u16, bool>,
    pub colours: Colours,
    /// The saved cursors of the main and the alternate screen while the other one is shown.
    pub parked: [Option<Cursor<Cell>>; 2],
    /// The contents of the alternate screen when it was left by mode 47.
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
            extent: 0,
            level: 4,
            noted: 0,
            saved_modes: BTreeMap::new(),
            colours: Colours::default(),
            parked: [None, None],
            other_screen: None,
        }
    }

    /// Resets state after the grid was recreated or resized.
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

    /// The first and last column inside the margins.
    pub fn sides(&self) -> (usize, usize) {
        let last = self.columns() - 1;
        match self.vt.sides {
            Some((left, right)) if self.vt.sides_on => (left, right.min(last)),
            _ => (0, last),
        }
    }

    /// Whether the margins make lines narrower than the screen.
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

    /// Moves to a row and column as a program counts them, but from zero: relative to the region in
    /// origin mode, and confined to it.
    pub fn go(&mut self, line: i32, column: usize) {
        if !self.on(TermMode::ORIGIN) {
            return self.put(line, column);
        }
        let (top, bottom) = self.vt.margins;
        let (left, right) = self.sides();
        let line = line.max(0).saturating_add(top).min(bottom - 1);
        self.put(line, column.saturating_add(left).min(right));
    }

    /// The cursor position as a program counts it, but from zero.
    pub fn place(&self) -> (i32, usize) {
        let at = self.at();
        if !self.on(TermMode::ORIGIN) {
            return (at.line.0, at.column.0);
        }
        let line = (at.line.0 - self.vt.margins.0).max(0);
        (line, at.column.0.saturating_sub(self.sides().0))
    }

    /// Moves up or down, not past the margin the cursor is inside of.
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

    /// Moves left; past the start of the line in reverse wrap mode.
    pub fn back(&mut self, by: usize) {
        let reverse = self.vt.reverse_wrap && self.on(TermMode::LINE_WRAP);
        let cursor = &self.term.grid().cursor;
        // A character in the last column leaves the cursor on it with a pending wrap, which counts
        // as one step.
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

    /// The row above; above the first one the last.
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

    /// IND: moves one row down, or scrolls the region up.
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

    /// A line feed keeps a pending wrap.
    fn down_keeping_wrap(&mut self) {
        let wraps = self.term.grid().cursor.input_needs_wrap;
        self.move_rows(1);
        self.term.grid_mut().cursor.input_needs_wrap = wraps;
    }

    /// RI: moves one row up, or scrolls the region down.
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

    /// DECBI and DECFI: moves one column, or scrolls the region sideways.
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
