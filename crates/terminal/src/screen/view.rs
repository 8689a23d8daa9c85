//! Read access to a screen: a view of it, and its scrollback.

pub use motu_core::terminal::Modes;

use super::line::{Line, Packer};
use super::{Screen, Size};
use crate::mouse::{Mouse, Tracking};
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::Line as GridLine;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::vte::ansi::CursorShape;
use serde::Serialize;

/// Where the cursor is, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cursor {
    pub row: u16,
    pub col: u16,
    pub visible: bool,
}

/// A picture of the visible screen.
#[derive(Clone, Debug)]
pub struct View {
    pub size: Size,
    pub cursor: Cursor,
    pub modes: Modes,
    pub title: Option<String>,
    /// One per row, from the top; `lines[cursor.row]` is the cursor's.
    pub lines: Vec<Line>,
}

impl View {
    /// Every row on a line of its own, without the blank rows at the bottom.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            text.push_str(line.text().trim_end());
            text.push('\n');
        }
        text.truncate(text.trim_end_matches('\n').len());
        text
    }

    /// The row the cursor is in.
    pub fn cursor_line(&self) -> &str {
        self.lines
            .get(usize::from(self.cursor.row))
            .map_or("", |line| line.text())
    }
}

impl Screen {
    pub fn modes(&self) -> Modes {
        let mode = *self.term.mode();
        Modes {
            alternate_screen: mode.contains(TermMode::ALT_SCREEN),
            app_cursor: mode.contains(TermMode::APP_CURSOR),
            app_keypad: mode.contains(TermMode::APP_KEYPAD),
            bracketed_paste: mode.contains(TermMode::BRACKETED_PASTE),
            mouse: mode.intersects(TermMode::MOUSE_MODE) || self.vt.x10_mouse,
            sgr_mouse: mode.contains(TermMode::SGR_MOUSE),
            focus: mode.contains(TermMode::FOCUS_IN_OUT),
        }
    }

    /// The mouse events that the program wants, and their encoding.
    pub fn mouse(&self) -> Mouse {
        let mode = *self.term.mode();
        let tracking = [
            (TermMode::MOUSE_MOTION, Tracking::Moves),
            (TermMode::MOUSE_DRAG, Tracking::Drags),
            (TermMode::MOUSE_REPORT_CLICK, Tracking::Buttons),
        ];
        let asked = tracking.iter().find(|(flag, _)| mode.contains(*flag));
        let x10 = match self.vt.x10_mouse {
            true => Tracking::X10,
            false => Tracking::Nothing,
        };
        Mouse {
            tracking: asked.map_or(x10, |(_, tracking)| *tracking),
            sgr: mode.contains(TermMode::SGR_MOUSE),
            urxvt: self.vt.urxvt_mouse,
            utf8: mode.contains(TermMode::UTF8_MOUSE),
        }
    }

    pub fn cursor(&self) -> Cursor {
        let point = self.term.grid().cursor.point;
        let shown = self.term.mode().contains(TermMode::SHOW_CURSOR)
            && self.term.cursor_style().shape != CursorShape::Hidden;
        Cursor {
            row: point.line.0.max(0) as u16,
            col: point.column.0 as u16,
            visible: shown,
        }
    }

    pub fn title(&self) -> Option<String> {
        self.ear.lock().title.clone()
    }

    pub fn view(&self) -> View {
        let mut packer = Packer::default();
        let grid = self.term.grid();
        let lines = (0..grid.screen_lines())
            .map(|row| packer.pack(&grid[GridLine(row as i32)]))
            .collect();
        View {
            size: self.size,
            cursor: self.cursor(),
            modes: self.modes(),
            title: self.title(),
            lines,
        }
    }

    /// Rows above the visible screen.
    pub fn scrollback_rows(&self) -> usize {
        self.history.len() + self.grid_history()
    }

    /// Rows of scrollback that were dropped.
    pub fn scrollback_dropped(&self) -> u64 {
        self.history.dropped()
    }

    /// Moves rows far above the visible screen into `rows`, oldest first. True if a program cleared
    /// the scrollback since the last call: rows taken before are then obsolete.
    pub fn take_scrollback(&mut self, rows: &mut Vec<Line>) -> bool {
        self.history.take(rows)
    }

    fn grid_history(&self) -> usize {
        if self.term.mode().contains(TermMode::ALT_SCREEN) {
            return 0;
        }
        self.term.grid().history_size()
    }

    /// The last `rows` of scrollback and screen together, oldest first; 0 asks for all of them.
    pub fn scrollback(&self, rows: usize) -> Vec<Line> {
        let mut packer = Packer::default();
        let view = self.view();
        let grid = self.term.grid();
        let total = self.scrollback_rows() + view.lines.len();
        let mut skip = if rows == 0 {
            0
        } else {
            total.saturating_sub(rows)
        };
        let mut lines = Vec::with_capacity(total - skip);
        lines.extend(self.history.iter().skip(skip).cloned());
        skip = skip.saturating_sub(self.history.len());
        let inner = self.grid_history();
        lines.extend(
            (1..=inner)
                .rev()
                .skip(skip)
                .map(|index| packer.pack(&grid[GridLine(-(index as i32))])),
        );
        skip = skip.saturating_sub(inner);
        lines.extend(view.lines.into_iter().skip(skip));
        lines
    }

    /// All text, wrapped rows joined, without trailing blank lines.
    pub fn full_text(&self) -> String {
        joined(&self.scrollback(0))
    }
}

/// Text of rows, with wrapped rows joined.
pub fn joined(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        if line.wrapped {
            text.push_str(line.text());
        } else {
            text.push_str(line.text().trim_end());
            text.push('\n');
        }
    }
    text.truncate(text.trim_end_matches('\n').len());
    text
}
