//! Moves, erases and writes cells within margins.
//!
//! If the region is as wide as the screen, the grid does it: only the grid handles scrollback.
//! Between left and right margins there is no scrollback.

use super::layer::{Area, Layer, PROTECTED, Protection};
use alacritty_terminal::index::{Column, Line as GridLine};
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::vte::ansi::{Handler as _, Mode, NamedMode};
use std::ops::Range;
use unicode_width::UnicodeWidthChar as _;

impl Layer<'_> {
    pub fn blank(&self) -> Cell {
        self.term.grid().cursor.template.bg.into()
    }

    fn row(&mut self, line: i32) -> &mut [Cell] {
        let end = Column(self.columns());
        &mut self.term.grid_mut()[GridLine(line)][Column(0)..end]
    }

    pub fn scroll_up(&mut self, by: usize) {
        if !self.narrow() {
            return self.term.scroll_up(by);
        }
        let region = self.region();
        self.shift_rows(&region, by, true);
    }

    pub fn scroll_down(&mut self, by: usize) {
        if !self.narrow() {
            return self.term.scroll_down(by);
        }
        let region = self.region();
        self.shift_rows(&region, by, false);
    }

    /// IL and DL: shifts the region from the cursor's row on.
    pub fn shift_lines(&mut self, by: usize, up: bool) {
        if !self.between_margins() {
            return;
        }
        let line = self.at().line.0;
        match (self.narrow(), up) {
            (false, true) => self.term.delete_lines(by),
            (false, false) => self.term.insert_blank_lines(by),
            (true, _) => {
                let mut region = self.region();
                region.rows.start = line;
                self.shift_rows(&region, by, up);
            }
        }
        self.put(line, self.sides().0);
    }

    fn shift_rows(&mut self, area: &Area, by: usize, up: bool) {
        let height = area.rows.len();
        let by = by.min(height);
        let blank = self.blank();
        for step in 0..height {
            let (to, from) = match up {
                true => (step, step + by),
                false => (height - 1 - step, (height - 1 - step).wrapping_sub(by)),
            };
            let cells = match from < height {
                true => self.copy(area.rows.start + from as i32, area.columns.clone()),
                false => vec![blank.clone(); area.columns.len()],
            };
            self.write(area.rows.start + to as i32, area.columns.start, &cells);
        }
    }

    /// Shifts all rows of an area sideways; cells pushed out are lost.
    pub fn shift_columns(&mut self, area: &Area, by: usize, left: bool) {
        let blank = self.blank();
        let by = by.min(area.columns.len());
        for line in area.rows.clone() {
            let mut cells = self.copy(line, area.columns.clone());
            let width = cells.len();
            match left {
                true => {
                    cells.drain(..by);
                    cells.resize(width, blank.clone());
                }
                false => {
                    cells.splice(..0, std::iter::repeat_n(blank.clone(), by));
                    cells.truncate(width);
                }
            }
            self.write(line, area.columns.start, &cells);
        }
    }

    /// ICH and DCH: shifts the line from the cursor to the margin.
    pub fn shift_chars(&mut self, by: usize, left: bool) {
        if !self.between_sides() {
            return;
        }
        let at = self.at();
        let area = Area {
            rows: at.line.0..at.line.0 + 1,
            columns: at.column.0..self.sides().1 + 1,
        };
        self.shift_columns(&area, by, left);
        self.term.grid_mut().cursor.input_needs_wrap = false;
    }

    /// DECIC and DECDC: shifts the region from the cursor's column on.
    pub fn shift_from_cursor(&mut self, by: usize, left: bool) {
        if self.between_margins() {
            let mut region = self.region();
            region.columns.start = self.at().column.0;
            self.shift_columns(&region, by, left);
        }
    }

    pub fn copy(&mut self, line: i32, columns: Range<usize>) -> Vec<Cell> {
        self.row(line)[columns].to_vec()
    }

    /// Writes copied cells; halves of wide characters are removed.
    pub fn write(&mut self, line: i32, column: usize, cells: &[Cell]) {
        let row = self.row(line);
        for (place, cell) in row[column..].iter_mut().zip(cells) {
            place.clone_from(cell);
            // A copied cell must not carry its line's wrap flags along.
            place
                .flags
                .remove(Flags::WRAPLINE | Flags::LEADING_WIDE_CHAR_SPACER);
        }
        self.mend(line, column..column + cells.len());
    }

    /// Removes halves of wide characters in and beside changed columns.
    pub fn mend(&mut self, line: i32, columns: Range<usize>) {
        let row = self.row(line);
        let end = (columns.end + 1).min(row.len());
        for at in columns.start.saturating_sub(1)..end {
            let wide = row[at].flags.contains(Flags::WIDE_CHAR);
            let spacer = row[at].flags.contains(Flags::WIDE_CHAR_SPACER);
            let after = row.get(at + 1).map_or(Flags::empty(), |cell| cell.flags);
            let before = at.checked_sub(1).map_or(Flags::empty(), |at| row[at].flags);
            if (wide && !after.contains(Flags::WIDE_CHAR_SPACER))
                || (spacer && !before.contains(Flags::WIDE_CHAR))
            {
                row[at] = row[at].bg.into();
            }
        }
    }

    /// Erases cells; a selective erase skips protected ones.
    pub fn erase(&mut self, line: i32, columns: Range<usize>, selective: bool) {
        let blank = self.blank();
        let columns = columns.start..columns.end.min(self.columns());
        for cell in &mut self.row(line)[columns.clone()] {
            if !(selective && cell.flags.contains(PROTECTED)) {
                *cell = blank.clone();
            }
        }
        self.mend(line, columns);
    }

    /// Whether an ordinary erase must skip protected cells.
    pub fn spares(&self) -> bool {
        self.vt.protection == Protection::Iso
    }

    /// EL and DECSEL: 0 from the cursor on, 1 up to it, 2 everything.
    pub fn erase_in_line(&mut self, what: u16, selective: bool) {
        let at = self.at();
        let columns = match what {
            0 => at.column.0..self.columns(),
            1 => 0..at.column.0 + 1,
            2 => 0..self.columns(),
            _ => return,
        };
        self.erase(at.line.0, columns, selective);
    }

    /// ED and DECSED, with the same codes.
    pub fn erase_in_screen(&mut self, what: u16, selective: bool) {
        let line = self.at().line.0;
        let rows = match what {
            0 => line + 1..self.rows(),
            1 => 0..line,
            2 => 0..self.rows(),
            _ => return,
        };
        if what < 2 {
            self.erase_in_line(what, selective);
        }
        let columns = 0..self.columns();
        for row in rows {
            self.erase(row, columns.clone(), selective);
        }
    }

    /// Prints a character between margins or in insert mode: the grid would push one half of a wide
    /// character off the screen and keep the other.
    pub fn print(&mut self, char: char) {
        let width = match char.width() {
            Some(width @ 1..) => width,
            // A zero-width or combining character.
            _ => return self.term.input(char),
        };
        let wraps = self.on(TermMode::LINE_WRAP);
        if self.term.grid().cursor.input_needs_wrap && wraps {
            self.wrap();
        }
        let (left, right) = self.sides();
        let limit = |column: usize, last: usize| if column <= right { right } else { last };
        let last = self.columns() - 1;
        let mut column = self.at().column.0;
        if column + width > limit(column, last) + 1 {
            // A wide character does not fit at the end of a line, nor between narrower margins.
            if !wraps || right + 1 < left + width {
                return;
            }
            self.wrap();
            column = self.at().column.0;
        }
        let line = self.at().line.0;
        let insert = self.on(TermMode::INSERT);
        if insert {
            self.shift_chars(width, false);
            self.term.unset_mode(Mode::Named(NamedMode::Insert));
        }
        self.put(line, column);
        self.term.input(char);
        if insert {
            self.term.set_mode(Mode::Named(NamedMode::Insert));
        }
        let most = limit(column, last);
        if column + width > most {
            self.put(line, most);
            self.term.grid_mut().cursor.input_needs_wrap = true;
        }
        self.mend(line, column..column + width);
    }

    pub fn wrap(&mut self) {
        let narrow = self.narrow();
        let grid = self.term.grid_mut();
        grid.cursor.input_needs_wrap = false;
        if !narrow {
            grid.cursor_cell().flags.insert(Flags::WRAPLINE);
        }
        self.index();
        let line = self.at().line.0;
        self.put(line, self.sides().0);
    }
}
