//! Sequences that the grid lacks, or handles differently from real terminals.
//!
//! Sequences are examined before the grid's own parser sees them. Those in the table below are
//! handled here; all others pass unchanged, and the parser's actions go through [`super::layer`],
//! which keeps the cursor and the cells within the margins.
//!
//! ```text
//!   DECSTBM DECSLRM       margins are remembered         DECSC DECRC   with origin mode
//!   DECSTR                the soft reset                 DECALN        homes, no margins
//!   47 1047 1048          screens and cursors of old     HPR VPR       past the margins
//!   DECSCA SPA EPA        protected cells                DECSED DECSEL spare them
//!   DECBI DECFI SL SR DECIC DECDC                        columns that move
//!   DECERA DECSERA DECFRA DECCRA DECCARA DECRARA         rectangles
//!   DA DSR DECXCPR DECRQSS DECRQM DECRQCRA XTVERSION XTGETTCAP     what is asked
//!   DECSCL                the level                      XTSAVE XTRESTORE   modes
//! ```

use super::layer::{Layer, PROTECTED, Protection, Vt};
use super::sequence::{Csi, Ours, Sequence, sequence};
use super::{Screen, modes, report};
use alacritty_terminal::grid::Cursor;
use alacritty_terminal::index::{Column, Line as GridLine};
use alacritty_terminal::term::TermMode;

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

    /// Runs `work` on the grid with the layer's state.
    pub(super) fn on_grid(&mut self, work: impl FnOnce(&mut Layer<'_>)) {
        self.contained(|screen| work(&mut screen.layer()));
    }

    pub(super) fn layer(&mut self) -> Layer<'_> {
        Layer {
            term: &mut self.term,
            vt: &mut self.vt,
        }
    }

    fn obey(&mut self, ours: &Ours, bytes: &[u8]) {
        // Terminate any unfinished sequence in the grid's parser first, as an ESC would.
        self.feed(b"\x1b\\");
        match ours {
            Ours::Csi(csi) => self.obey_csi(csi, bytes),
            Ours::SaveCursor => self.save_cursor(),
            Ours::RestoreCursor => self.restore_cursor(),
            Ours::Align => {
                self.feed(bytes);
                self.feed(b"\x1b[r");
                self.vt.reset(self.size.rows());
                self.on_grid(|layer| layer.put(0, 0));
            }
            Ours::Reset => {
                self.vt = Vt::new(self.size.rows());
                self.feed(bytes);
            }
            Ours::Index => self.on_grid(|layer| layer.index()),
            Ours::BackIndex | Ours::ForwardIndex if self.vt.level < 4 => {}
            Ours::BackIndex => self.on_grid(|layer| layer.column_index(false)),
            Ours::ForwardIndex => self.on_grid(|layer| layer.column_index(true)),
            Ours::Guard => self.protect(Protection::Iso, true),
            Ours::Unguard => self.protect(Protection::Iso, false),
            Ours::Setting(_) if self.vt.level < 3 => {}
            Ours::Setting(what) => {
                let answer = report::setting(self, what);
                self.ear.lock().reply(&answer);
            }
            Ours::Capabilities(names) => {
                let answer = report::capabilities(names);
                self.ear.lock().reply(&answer);
            }
        }
        self.pack(128);
    }

    fn obey_csi(&mut self, csi: &Csi, bytes: &[u8]) {
        if self.vt.level < csi.level() {
            return;
        }
        let count = csi.count();
        match (csi.prefix, csi.mid, csi.end) {
            (0, 0, b'a') => self.on_grid(|layer| {
                let (line, column) = layer.place();
                layer.go(line, column + count);
            }),
            (0, 0, b'e') => self.on_grid(|layer| {
                let (line, column) = layer.place();
                layer.go(line + count as i32, column);
            }),
            (0, 0, b's') if self.vt.sides_on => self.set_sides(csi),
            (0, 0, b's') => self.save_cursor(),
            (0, 0, b'u') => self.restore_cursor(),
            (0, 0, b'r') => self.set_margins(csi, bytes),
            (0, b' ', b'@' | b'A') => self.on_grid(|layer| {
                let region = layer.region();
                layer.shift_columns(&region, count, csi.end == b'@');
            }),
            (0, b'\'', b'}' | b'~') => {
                self.on_grid(|layer| layer.shift_from_cursor(count, csi.end == b'~'));
            }
            (0, b'"', b'p') => self.set_level(csi),
            (0, b'"', b'q') => match csi.params.first() {
                Some(1) => self.protect(Protection::Dec, true),
                Some(0 | 2) | None => self.protect(Protection::Dec, false),
                _ => {}
            },
            (0, b'!', b'p') => self.soft_reset(),
            (0, b'*', b'x') => self.vt.extent = csi.param(0).filter(|by| *by <= 2).unwrap_or(0),
            (b'?', 0, b'J') => {
                self.on_grid(|layer| layer.erase_in_screen(csi.param(0).unwrap_or(0), true));
            }
            (b'?', 0, b'K') => {
                self.on_grid(|layer| layer.erase_in_line(csi.param(0).unwrap_or(0), true));
            }
            (b'?', 0, b'h' | b'l') => {
                for &mode in &csi.params {
                    self.set_mode(mode, csi.end == b'h');
                }
            }
            (b'?', 0, b's') => self.save_modes(&csi.params),
            (b'?', 0, b'r') => self.restore_modes(&csi.params),
            (0, b'$', b'r' | b't' | b'v' | b'x' | b'z' | b'{') => {
                self.on_grid(|layer| layer.rectangle(csi));
            }
            _ => match report::answer(self, csi) {
                Some(answer) => self.ear.lock().reply(&answer),
                None => self.feed(bytes),
            },
        }
    }

    pub(super) fn origin(&self) -> bool {
        self.term.mode().contains(TermMode::ORIGIN)
    }

    fn alternate(&self) -> bool {
        self.term.mode().contains(TermMode::ALT_SCREEN)
    }

    fn protect(&mut self, by: Protection, on: bool) {
        self.vt.protection = by;
        let flags = &mut self.term.grid_mut().cursor.template.flags;
        flags.set(PROTECTED, on);
    }

    fn set_margins(&mut self, csi: &Csi, bytes: &[u8]) {
        let rows = i32::from(self.size.rows());
        let top = i32::from(csi.param(0).unwrap_or(1));
        let bottom = csi.param(1).map_or(rows, i32::from).min(rows);
        // Margins need at least two rows; otherwise the grid ignores them.
        if top < bottom {
            self.feed(bytes);
            self.vt.margins = (top - 1, bottom);
            self.on_grid(|layer| layer.go(0, 0));
        }
    }

    fn set_sides(&mut self, csi: &Csi) {
        let columns = usize::from(self.size.cols());
        let left = usize::from(csi.param(0).unwrap_or(1));
        let right = csi.param(1).map_or(columns, usize::from).min(columns);
        if left < right {
            let whole = left == 1 && right == columns;
            self.vt.sides = (!whole).then_some((left - 1, right - 1));
            self.on_grid(|layer| layer.go(0, 0));
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
            // Setting origin mode homes the cursor: restore it.
            let cursor = &self.term.grid().cursor;
            let (point, wraps) = (cursor.point, cursor.input_needs_wrap);
            self.feed(if saved { b"\x1b[?6h" } else { b"\x1b[?6l" });
            let cursor = &mut self.term.grid_mut().cursor;
            (cursor.point, cursor.input_needs_wrap) = (point, wraps);
        }
    }

    /// DECSTR: resets modes, attributes and margins; contents and cursor stay.
    fn soft_reset(&mut self) {
        let at = self.term.grid().cursor.point;
        self.feed(b"\x1b[?25h\x1b[?6l\x1b[?7h\x1b[4l\x1b[?1l\x1b>\x1b[r\x1b[0m\x1b(B\x0f");
        let rows = self.size.rows();
        self.vt = Vt {
            x10_mouse: self.vt.x10_mouse,
            urxvt_mouse: self.vt.urxvt_mouse,
            noted: self.vt.noted,
            level: self.vt.level,
            saved_modes: std::mem::take(&mut self.vt.saved_modes),
            colours: std::mem::take(&mut self.vt.colours),
            parked: std::mem::take(&mut self.vt.parked),
            other_screen: self.vt.other_screen.take(),
            ..Vt::new(rows)
        };
        self.protect(Protection::None, false);
        self.term.grid_mut().saved_cursor = Cursor::default();
        self.on_grid(|layer| layer.put(at.line.0, at.column.0));
    }

    /// DECSCL: chooses a level, with a soft reset.
    fn set_level(&mut self, csi: &Csi) {
        if let Some(level @ 61..=65) = csi.param(0) {
            self.soft_reset();
            // Who asks for a VT500 gets all there is, as before another level was chosen.
            self.vt.level = (level - 60).min(4) as u8;
        }
    }

    pub(super) fn set_mode(&mut self, mode: u16, on: bool) {
        match mode {
            3 => self.set_columns(on),
            6 => {
                self.feed(if on { b"\x1b[?6h" } else { b"\x1b[?6l" });
                self.on_grid(|layer| layer.go(0, 0));
            }
            9 => self.vt.x10_mouse = on,
            45 | 1045 => self.vt.reverse_wrap = on,
            47 | 1047 => self.switch_screen(on, mode == 1047),
            66 => self.feed(if on { b"\x1b=" } else { b"\x1b>" }),
            69 if self.vt.level < 4 => {}
            69 => {
                self.vt.sides_on = on;
                self.vt.sides = None;
            }
            1015 => self.vt.urxvt_mouse = on,
            1048 if on => self.save_cursor(),
            1048 => self.restore_cursor(),
            1049 => self.switch_with_cursor(on),
            mode => {
                self.note(mode, on);
                let end = if on { 'h' } else { 'l' };
                self.feed(format!("\x1b[?{mode}{end}").as_bytes());
            }
        }
    }

    /// Remembers the state of a mode that is only remembered.
    fn note(&mut self, mode: u16, on: bool) {
        if let Some(bit) = modes::noted(mode) {
            self.vt.noted = self.vt.noted & !bit | if on { bit } else { 0 };
        }
    }

    /// DECCOLM: the width is not changed, but its side effects happen.
    fn set_columns(&mut self, on: bool) {
        self.note(3, on);
        self.feed(if on { b"\x1b[?3h" } else { b"\x1b[?3l" });
        self.vt.reset(self.size.rows());
        self.on_grid(|layer| layer.put(0, 0));
    }

    fn switch_with_cursor(&mut self, on: bool) {
        if on == self.alternate() {
            return;
        }
        if on {
            self.save_cursor();
        }
        self.change_screens(|screen| {
            screen.feed(if on { b"\x1b[?1049h" } else { b"\x1b[?1049l" });
        });
        if !on {
            self.restore_cursor();
        }
    }

    /// Switches screens without a separate cursor. The alternate screen keeps its contents, unless
    /// it was left by mode 1047.
    fn switch_screen(&mut self, on: bool, cleared: bool) {
        if on == self.alternate() {
            return;
        }
        let cursor = self.term.grid().cursor.clone();
        if !on {
            self.vt.other_screen = (!cleared).then(|| self.cells());
        }
        self.change_screens(|screen| screen.contained(|screen| screen.term.swap_alt()));
        self.term.grid_mut().cursor = cursor;
        if on {
            self.show_other_screen();
        }
    }

    /// Switches screens; each keeps its saved cursor, which the grid would lose.
    fn change_screens(&mut self, change: impl FnOnce(&mut Screen)) {
        let from = usize::from(self.alternate());
        self.vt.parked[from] = Some(self.term.grid().saved_cursor.clone());
        change(self);
        let to = usize::from(self.alternate());
        let mut saved = self.vt.parked[to].take().unwrap_or_default();
        // The screen may have become smaller meanwhile.
        let at = &mut saved.point;
        at.line = at.line.min(GridLine(i32::from(self.size.rows()) - 1));
        at.column = at.column.min(Column(usize::from(self.size.cols()) - 1));
        self.term.grid_mut().saved_cursor = saved;
    }

    fn cells(&self) -> Vec<Vec<alacritty_terminal::term::cell::Cell>> {
        let grid = self.term.grid();
        let columns = Column(0)..Column(self.size.cols().into());
        (0..i32::from(self.size.rows()))
            .map(|line| grid[GridLine(line)][columns.clone()].to_vec())
            .collect()
    }

    fn show_other_screen(&mut self) {
        let Some(cells) = self.vt.other_screen.take() else {
            return;
        };
        self.on_grid(|layer| {
            for (line, cells) in (0..layer.rows()).zip(&cells) {
                layer.write(line, 0, cells);
            }
        });
    }
}
