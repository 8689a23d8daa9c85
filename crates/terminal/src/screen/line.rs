//! One row of text with its styles, and the scrollback made of them.
//!
//! The screen model keeps 24 bytes per cell whether something is in it or not.
//! Rows that leave the screen are packed here: their text, and runs of style
//! only where there is any. A full scrollback of 80 columns is two megabytes
//! instead of nineteen, and a row keeps the width it had; rows that were one
//! line are joined again when read, which is what reflow would show.

use crate::limits::{COMBINING_PER_CELL, SCROLLBACK_BYTES, SCROLLBACK_ROWS};
use crate::style::{self, Style};
use alacritty_terminal::grid::Row;
use alacritty_terminal::index::Column;
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::vte::ansi::{Color, NamedColor};
use serde::Serialize;
use std::collections::VecDeque;

/// Characters of one style.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    pub text: String,
    #[serde(flatten)]
    pub style: Style,
}

/// One row of the screen or of the scrollback, without blanks at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    text: Box<str>,
    /// Bytes of `text` and their style; empty when everything is plain.
    styles: Box<[(u32, Style)]>,
    /// The line goes on in the next row.
    pub wrapped: bool,
}

impl Line {
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn runs(&self) -> Vec<Run> {
        self.pieces()
            .map(|(text, style)| Run {
                text: text.to_owned(),
                style,
            })
            .collect()
    }

    /// Text and style, in order.
    pub fn pieces(&self) -> impl Iterator<Item = (&str, Style)> {
        let plain = (self.styles.is_empty() && !self.text.is_empty())
            .then_some((&*self.text, Style::default()));
        let mut at = 0;
        let styled = self.styles.iter().map(move |&(len, style)| {
            let from = at;
            at += len as usize;
            (&self.text[from..at], style)
        });
        plain.into_iter().chain(styled)
    }

    /// Whether all of its text is drawn in inverse.
    pub fn stands_out(&self) -> bool {
        let mut written = self
            .pieces()
            .filter(|(text, _)| !text.trim().is_empty())
            .peekable();
        written.peek().is_some() && written.all(|(_, style)| style.attrs.has(style::Attrs::INVERSE))
    }

    fn bytes(&self) -> usize {
        size_of::<Line>() + self.text.len() + size_of_val(&*self.styles)
    }
}

/// Packs rows; keeps its buffers between rows.
#[derive(Debug, Default)]
pub(super) struct Packer {
    text: String,
    styles: Vec<(u32, Style)>,
}

impl Packer {
    pub fn pack(&mut self, row: &Row<Cell>) -> Line {
        self.text.clear();
        self.styles.clear();
        let cells = &row[Column(0)..Column(row.len())];
        let wrapped = cells
            .last()
            .is_some_and(|cell| cell.flags.contains(Flags::WRAPLINE));
        let mut rest = &cells[..used(cells, wrapped)];
        // Neighbours that look alike are taken together: this runs for every row that scrolls away.
        while let Some(first) = rest.first() {
            let look = Look::of(first);
            let len = rest
                .iter()
                .position(|cell| Look::of(cell) != look)
                .unwrap_or(rest.len());
            self.push(&rest[..len]);
            rest = &rest[len..];
        }
        if self.styles.iter().all(|(_, style)| style.is_plain()) {
            self.styles.clear();
        }
        Line {
            text: self.text.as_str().into(),
            styles: self.styles.as_slice().into(),
            wrapped,
        }
    }

    fn push(&mut self, cells: &[Cell]) {
        let before = self.text.len();
        for cell in cells {
            if cell.flags.intersects(SPACERS) {
                continue;
            }
            // A tab leaves its character in the cell it started from; the columns are what counts.
            self.text.push(if cell.c == '\t' { ' ' } else { cell.c });
            if cell.extra.is_some() {
                let marks = cell.zerowidth().unwrap_or_default();
                self.text.extend(marks.iter().take(COMBINING_PER_CELL));
            }
        }
        let len = (self.text.len() - before) as u32;
        let style = style::of(&cells[0]);
        match self.styles.last_mut() {
            Some(last) if last.1 == style => last.0 += len,
            _ => self.styles.push((len, style)),
        }
    }
}

const SPACERS: Flags = Flags::WIDE_CHAR_SPACER.union(Flags::LEADING_WIDE_CHAR_SPACER);
/// What makes a blank cell visible.
const MARKED: Flags = Flags::INVERSE
    .union(Flags::ALL_UNDERLINES)
    .union(Flags::STRIKEOUT)
    .union(Flags::WIDE_CHAR_SPACER);
const BLANK_LOOK: u32 = NamedColor::Background as u32;

/// Everything about a cell's look, cheap to compare.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look(u32, u32, u16);

impl Look {
    #[inline(always)]
    fn of(cell: &Cell) -> Look {
        Look(
            Look::color(cell.fg),
            Look::color(cell.bg),
            cell.flags.bits(),
        )
    }

    #[inline(always)]
    fn color(color: Color) -> u32 {
        match color {
            Color::Named(named) => named as u32,
            Color::Indexed(index) => 0x1_0000 | u32::from(index),
            Color::Spec(rgb) => {
                0x100_0000 | u32::from(rgb.r) << 16 | u32::from(rgb.g) << 8 | u32::from(rgb.b)
            }
        }
    }
}

/// Cells up to the last one that shows something.
fn used(cells: &[Cell], wrapped: bool) -> usize {
    if wrapped {
        return cells.len();
    }
    let shows = |cell: &Cell| {
        (cell.c != ' ' && cell.c != '\t')
            || cell.extra.is_some()
            || Look::color(cell.bg) != BLANK_LOOK
            || cell.flags.intersects(MARKED)
    };
    cells.iter().rposition(shows).map_or(0, |at| at + 1)
}

/// Rows that have left the screen, oldest first.
#[derive(Debug, Default)]
pub struct History {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Rows dropped because the scrollback was full.
    dropped: u64,
    /// Whether it was emptied since rows were last taken.
    cleared: bool,
}

impl History {
    pub(super) fn push(&mut self, line: Line) {
        self.bytes += line.bytes();
        self.lines.push_back(line);
        while self.lines.len() > SCROLLBACK_ROWS || self.bytes > SCROLLBACK_BYTES {
            let Some(oldest) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes();
            self.dropped += 1;
        }
    }

    pub(super) fn clear(&mut self) {
        *self = History {
            dropped: self.dropped,
            cleared: true,
            ..History::default()
        };
    }

    /// Moves all rows into `rows`; true if the history was emptied since the last time.
    pub(super) fn take(&mut self, rows: &mut Vec<Line>) -> bool {
        self.bytes = 0;
        rows.extend(self.lines.drain(..));
        std::mem::take(&mut self.cleared)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Line> + ExactSizeIterator {
        self.lines.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}
