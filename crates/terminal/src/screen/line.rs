//! One row of text with styles, and the scrollback of such rows.
//!
//! The grid uses 24 bytes per cell, even for empty ones. Rows that leave the screen are packed:
//! their text, and runs of style only where there are any. A full scrollback of 80 columns takes
//! two megabytes instead of nineteen, and a row keeps its width; rows of one wrapped line are
//! joined again when read.

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

/// One row of the screen or scrollback, without trailing blanks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    text: Box<str>,
    /// Byte lengths and their style; empty if everything has the default style.
    styles: Box<[(u32, Style)]>,
    /// The line continues in the next row.
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

    /// Whether all of its text is inverse.
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

/// Packs rows; reuses its buffers.
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
        // Group cells of equal style: this runs for every row that scrolls away.
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
            // A tab is stored in its first cell; only the columns matter.
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
/// Flags that make a blank cell visible.
const MARKED: Flags = Flags::INVERSE
    .union(Flags::ALL_UNDERLINES)
    .union(Flags::STRIKEOUT)
    .union(Flags::WIDE_CHAR_SPACER);
const BLANK_LOOK: u32 = NamedColor::Background as u32;

/// A cell's look in a form that is cheap to compare.
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

/// The number of cells up to the last visible one.
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
    /// Whether it was cleared since rows were last taken.
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

    /// Moves all rows into `rows`; true if the history was cleared since the last call.
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
