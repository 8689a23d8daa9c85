//! The screen of a terminal.
//!
//! Owns the grid, its modes, title and scrollback. It never interprets what a program intends: that
//! is [`crate::classify`].
//!
//! The grid is alacritty's. It keeps only a few rows of history; older rows are packed into
//! [`line::History`]. A panic in it is contained: the screen is recreated empty at the same size,
//! and counted in [`Screen::rebuilt`].

mod colours;
mod handler;
mod layer;
mod line;
mod modes;
mod rectangle;
mod region;
mod report;
mod sequence;
mod view;
mod vt;

pub use crate::style::{Attrs, Ink, Style};
pub use line::{Line, Run};
pub use view::{Cursor, Modes, View, joined};

use crate::chars::{self, Held};
use crate::limits::*;
use crate::palette;
use crate::scan::{Piece, Scanner, Seen};
pub use crate::size::Size;
use alacritty_terminal::event::{Event, EventListener, WindowSize};
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line as GridLine};
use alacritty_terminal::term::{Config, Osc52, Term, TermMode};
use alacritty_terminal::vte::ansi::{Processor, Timeout};
use line::{History, Packer};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Rows of history the grid may hold before they are packed.
const GRID_HISTORY: usize = 1000;
/// Rows of history left in the grid, so that a growing screen gets its lines back.
const GRID_KEEP: usize = 32;
/// Rows of history left in the grid of a quiet screen.
const SETTLED_KEEP: usize = 4;
/// Bytes parsed between two checks of the grid's history; a byte makes at most one row.
const SLICE: usize = GRID_HISTORY - GRID_KEEP - 128;
/// Bytes after which excessive combining characters are removed.
const SWEEP_EVERY: usize = 64 * 1024;
/// History the grid may need while it is made narrower.
const RESIZE_HISTORY: usize = 50_000;

impl Dimensions for Size {
    fn total_lines(&self) -> usize {
        self.rows().into()
    }
    fn screen_lines(&self) -> usize {
        self.rows().into()
    }
    fn columns(&self) -> usize {
        self.cols().into()
    }
}

/// Synchronized updates are drawn as they come: buffering would let a program hide its screen, and
/// would need a clock here.
#[derive(Default)]
struct NoWait;

impl Timeout for NoWait {
    fn set_timeout(&mut self, _: Duration) {}
    fn clear_timeout(&mut self) {}
    fn pending_timeout(&self) -> bool {
        false
    }
}

/// Events of the grid while it parses.
#[derive(Debug, Default)]
struct Heard {
    replies: Vec<u8>,
    title: Option<String>,
    bells: u64,
    size: Size,
}

impl Heard {
    fn reply(&mut self, text: &str) {
        if self.replies.len() + text.len() <= REPLY_BYTES {
            self.replies.extend_from_slice(text.as_bytes());
        }
    }
}

#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Heard>>);

impl Ear {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventListener for Ear {
    fn send_event(&self, event: Event) {
        let mut heard = self.lock();
        match event {
            Event::PtyWrite(text) => heard.reply(&text),
            Event::Title(mut title) => {
                title.truncate(title.floor_char_boundary(TITLE_BYTES));
                heard.title = Some(title);
            }
            Event::ResetTitle => heard.title = None,
            Event::Bell => heard.bells += 1,
            Event::TextAreaSizeRequest(format) => {
                let window = WindowSize {
                    num_lines: heard.size.rows(),
                    num_cols: heard.size.cols(),
                    cell_width: palette::CELL_WIDTH as u16,
                    cell_height: palette::CELL_HEIGHT as u16,
                };
                heard.reply(&format(window));
            }
            _ => {}
        }
    }
}

/// The screen of one session.
pub struct Screen {
    term: Term<Ear>,
    parser: Processor<NoWait>,
    ear: Ear,
    scanner: Scanner,
    held: Held,
    packer: Packer,
    history: History,
    size: Size,
    unswept: usize,
    rebuilt: u32,
    vt: layer::Vt,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen")
            .field("size", &self.size)
            .field("history", &self.history.len())
            .finish_non_exhaustive()
    }
}

impl Screen {
    pub fn new(size: Size) -> Screen {
        let ear = Ear::default();
        ear.lock().size = size;
        Screen {
            term: term(size, &ear),
            parser: Processor::new(),
            ear,
            scanner: Scanner::default(),
            held: Held::default(),
            packer: Packer::default(),
            history: History::default(),
            size,
            unswept: 0,
            rebuilt: 0,
            vt: layer::Vt::new(size.rows()),
        }
    }

    /// Takes any bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        let mut scanner = std::mem::take(&mut self.scanner);
        scanner.push(bytes, &mut |piece| self.write_piece(&piece));
        self.scanner = scanner;
    }

    /// Takes a piece from a [`Scanner`].
    pub fn write_piece(&mut self, piece: &Piece<'_>) {
        if piece.seen.as_ref().is_some_and(is_ignored) {
            return;
        }
        let mut held = std::mem::take(&mut self.held);
        held.push(piece.bytes, &mut |bytes| self.advance(bytes));
        self.held = held;
        if let Some(Seen::Osc(payload)) = &piece.seen {
            self.colour(payload, piece.bytes.ends_with(b"\x07"));
        }
        if self.unswept >= SWEEP_EVERY {
            self.unswept = 0;
            self.contained(Screen::sweep);
        }
        if matches!(piece.seen, Some(Seen::ClearHistory | Seen::Reset)) {
            self.history.clear();
        }
    }

    /// Sets and tells colours; an answer ends like its question.
    fn colour(&mut self, payload: &[u8], bell: bool) {
        let end = if bell { "\x07" } else { "\x1b\\" };
        for answer in self.vt.colours.obey(payload) {
            self.ear.lock().reply(&format!("\x1b]{answer}{end}"));
        }
    }

    /// Passes bytes to the grid's parser.
    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (slice, rest) = bytes.split_at(chars::floor(bytes, SLICE));
            self.contained(|screen| {
                let mut layer = layer::Layer {
                    term: &mut screen.term,
                    vt: &mut screen.vt,
                };
                screen.parser.advance(&mut layer, slice);
                screen.pack(128);
            });
            self.unswept += slice.len();
            bytes = rest;
        }
    }

    /// Runs `work` on the grid; if it panics, the grid is recreated.
    fn contained(&mut self, work: impl FnOnce(&mut Screen)) {
        if catch_unwind(AssertUnwindSafe(|| work(self))).is_err() {
            self.rebuilt += 1;
            self.parser = Processor::new();
            self.term = term(self.size, &self.ear);
            self.vt.reset(self.size.rows());
        }
    }

    /// Moves rows from the grid's history into ours if there are more than `over` beyond the kept
    /// ones.
    fn pack(&mut self, over: usize) {
        let rows = self.term.grid().history_size();
        if rows <= GRID_KEEP + over || self.term.mode().contains(TermMode::ALT_SCREEN) {
            return;
        }
        self.pack_down_to(GRID_KEEP);
    }

    fn pack_down_to(&mut self, keep: usize) {
        let grid = self.term.grid_mut();
        let rows = grid.history_size();
        for index in (keep + 1..=rows).rev() {
            let line = self.packer.pack(&grid[GridLine(-(index as i32))]);
            self.history.push(line);
        }
        grid.update_history(keep.min(rows));
        grid.update_history(GRID_HISTORY);
    }

    /// Trims cells with more combining characters than any script uses.
    fn sweep(&mut self) {
        let grid = self.term.grid_mut();
        let top = -(grid.history_size() as i32);
        for row in top..i32::from(self.size.rows()) {
            let row = &mut grid[GridLine(row)];
            for column in 0..row.len() {
                if row[Column(column)].extra.is_none() {
                    continue;
                }
                let cell = &mut row[Column(column)];
                let marks = cell.zerowidth().unwrap_or_default();
                if marks.len() > COMBINING_PER_CELL {
                    let kept = marks[..COMBINING_PER_CELL].to_vec();
                    let (link, underline) = (cell.hyperlink(), cell.underline_color());
                    cell.extra = None;
                    kept.into_iter().for_each(|mark| cell.push_zerowidth(mark));
                    cell.set_hyperlink(link);
                    cell.set_underline_color(underline);
                }
            }
        }
    }

    /// Changes the size; lines are rewrapped.
    pub fn resize(&mut self, size: Size) {
        if size == self.size {
            return;
        }
        self.size = size;
        self.vt.reset(size.rows());
        self.ear.lock().size = size;
        self.contained(|screen| {
            if !screen.term.mode().contains(TermMode::ALT_SCREEN) {
                screen.term.grid_mut().update_history(RESIZE_HISTORY);
            }
            screen.term.resize(size);
        });
        // The alternate screen is cut, possibly through wide characters.
        self.on_grid(|layer| {
            for line in 0..layer.rows() {
                layer.mend(line, 0..layer.columns());
            }
        });
        if !self.term.mode().contains(TermMode::ALT_SCREEN) {
            self.pack_down_to(GRID_KEEP);
        }
    }

    /// Releases memory that only a busy screen needs. Call it when a session is quiet.
    pub fn settle(&mut self) {
        if self.term.mode().contains(TermMode::ALT_SCREEN) {
            return;
        }
        self.contained(|screen| {
            screen.pack_down_to(SETTLED_KEEP);
            screen.term.grid_mut().truncate();
        });
        self.packer = Packer::default();
    }

    pub fn size(&self) -> Size {
        self.size
    }

    /// How often the screen was recreated after a panic.
    pub fn rebuilt(&self) -> u32 {
        self.rebuilt
    }

    pub fn bells(&self) -> u64 {
        self.ear.lock().bells
    }

    /// Answers to queries of the program, to be written to the terminal.
    pub fn take_replies(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.ear.lock().replies)
    }

    /// Clears the scrollback; the visible part stays.
    pub fn clear_scrollback(&mut self) {
        self.history.clear();
        if !self.term.mode().contains(TermMode::ALT_SCREEN) {
            self.term.grid_mut().clear_history();
        }
    }
}

/// Operating system commands that the grid would only store: hyperlinks, which are not shown, and
/// long ones, which it would keep per cell or per saved title.
fn is_ignored(seen: &Seen) -> bool {
    matches!(seen, Seen::Osc(payload) if payload.len() > SCREEN_OSC_BYTES || payload.starts_with(b"8;"))
}

fn term(size: Size, ear: &Ear) -> Term<Ear> {
    let config = Config {
        scrolling_history: GRID_HISTORY,
        // The guest must not access the host's clipboard.
        osc52: Osc52::Disabled,
        ..Config::default()
    };
    Term::new(config, &size, ear.clone())
}
