//! Handles what the parser recognized, on its way to the grid.

use super::layer::{Layer, PROTECTED};
use super::modes;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::vte::ansi::{
    Attr, CharsetIndex, ClearMode, CursorShape, CursorStyle, Handler, KeyboardModes,
    KeyboardModesApplyBehavior, LineClearMode, Mode, PrivateMode, Rgb, StandardCharset,
    TabulationClearMode,
};

/// Methods passed on to the grid unchanged.
macro_rules! passed_on {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        $(#[inline]
        fn $name(&mut self, $($arg: $type),*) {
            self.term.$name($($arg),*);
        })*
    };
}

impl Handler for Layer<'_> {
    passed_on! {
        set_title(title: Option<String>);
        set_cursor_style(style: Option<CursorStyle>);
        set_cursor_shape(shape: CursorShape);
        identify_terminal(intermediate: Option<char>);
        device_status(what: usize);
        bell();
        substitute();
        set_horizontal_tabstop();
        clear_tabs(mode: TabulationClearMode);
        set_tabs(interval: u16);
        save_cursor_position();
        restore_cursor_position();
        reset_state();
        set_mode(mode: Mode);
        unset_mode(mode: Mode);
        report_mode(mode: Mode);
        set_private_mode(mode: PrivateMode);
        unset_private_mode(mode: PrivateMode);
        report_private_mode(mode: PrivateMode);
        set_scrolling_region(top: usize, bottom: Option<usize>);
        set_keypad_application_mode();
        unset_keypad_application_mode();
        set_active_charset(index: CharsetIndex);
        configure_charset(index: CharsetIndex, charset: StandardCharset);
        set_color(index: usize, color: Rgb);
        dynamic_color_sequence(prefix: String, index: usize, terminator: &str);
        reset_color(index: usize);
        decaln();
        push_title();
        pop_title();
        text_area_size_pixels();
        text_area_size_chars();
        report_keyboard_mode();
        push_keyboard_mode(mode: KeyboardModes);
        pop_keyboard_modes(count: u16);
        set_keyboard_mode(mode: KeyboardModes, how: KeyboardModesApplyBehavior);
    }

    #[inline]
    fn input(&mut self, char: char) {
        match self.narrow() || self.on(TermMode::INSERT) {
            true => self.print(char),
            false => self.term.input(char),
        }
    }

    #[inline]
    fn linefeed(&mut self) {
        self.index();
        if self.on(TermMode::LINE_FEED_NEW_LINE) {
            self.go_to_line_start();
        }
    }

    #[inline]
    fn carriage_return(&mut self) {
        self.go_to_line_start();
    }

    fn goto(&mut self, line: i32, column: usize) {
        self.go(line, column);
    }

    fn goto_line(&mut self, line: i32) {
        let (_, column) = self.place();
        self.go(line, column);
    }

    fn goto_col(&mut self, column: usize) {
        let (line, _) = self.place();
        self.go(line, column);
    }

    fn move_up(&mut self, by: usize) {
        self.move_rows(-(by as i32));
    }

    fn move_down(&mut self, by: usize) {
        self.move_rows(by as i32);
    }

    fn move_up_and_cr(&mut self, by: usize) {
        self.move_rows(-(by as i32));
        self.go_to_line_start();
    }

    fn move_down_and_cr(&mut self, by: usize) {
        self.move_rows(by as i32);
        self.go_to_line_start();
    }

    fn move_forward(&mut self, by: usize) {
        self.forward(by);
    }

    fn move_backward(&mut self, by: usize) {
        self.back(by);
    }

    fn backspace(&mut self) {
        self.back(1);
    }

    fn put_tab(&mut self, count: u16) {
        let wraps = self.term.grid().cursor.input_needs_wrap && self.on(TermMode::LINE_WRAP);
        // The fix for more(1): a tab after a full line goes to the next one.
        if wraps && modes::noted(41).is_some_and(|bit| self.vt.noted & bit != 0) {
            self.wrap();
        }
        self.move_forward_tabs(count);
    }

    fn move_forward_tabs(&mut self, count: u16) {
        let before = self.at();
        let wraps = self.term.grid().cursor.input_needs_wrap;
        self.term.move_forward_tabs(count);
        let mut column = self.at().column.0;
        let (_, right) = self.sides();
        if before.column.0 <= right {
            column = column.min(right);
        }
        self.put(before.line.0, column);
        // A tab at the end of a line does not move: the next character still wraps.
        self.term.grid_mut().cursor.input_needs_wrap = wraps && column == before.column.0;
    }

    fn move_backward_tabs(&mut self, count: u16) {
        let before = self.at();
        for _ in 0..count.min(self.columns() as u16) {
            let column = self.at().column;
            self.term.move_backward_tabs(1);
            if self.at().column == column {
                self.put(before.line.0, 0);
                break;
            }
        }
        let least = match self.on(TermMode::ORIGIN) {
            true => self.sides().0,
            false => 0,
        };
        self.put(before.line.0, self.at().column.0.max(least));
    }

    fn insert_blank(&mut self, count: usize) {
        self.shift_chars(count, false);
    }

    fn delete_chars(&mut self, count: usize) {
        self.shift_chars(count, true);
    }

    fn erase_chars(&mut self, count: usize) {
        let at = self.at();
        let end = at.column.0.saturating_add(count);
        self.erase(at.line.0, at.column.0..end, self.spares());
    }

    fn insert_blank_lines(&mut self, count: usize) {
        self.shift_lines(count, false);
    }

    fn delete_lines(&mut self, count: usize) {
        self.shift_lines(count, true);
    }

    fn scroll_up(&mut self, by: usize) {
        Layer::scroll_up(self, by);
    }

    fn scroll_down(&mut self, by: usize) {
        Layer::scroll_down(self, by);
    }

    fn reverse_index(&mut self) {
        Layer::reverse_index(self);
    }

    fn clear_line(&mut self, mode: LineClearMode) {
        if !self.spares() {
            return self.term.clear_line(mode);
        }
        let what = match mode {
            LineClearMode::Right => 0,
            LineClearMode::Left => 1,
            LineClearMode::All => 2,
        };
        self.erase_in_line(what, true);
    }

    fn clear_screen(&mut self, mode: ClearMode) {
        let what = match mode {
            ClearMode::Below => 0,
            ClearMode::Above => 1,
            ClearMode::All => 2,
            ClearMode::Saved => 3,
        };
        match (what, self.spares()) {
            // The grid does not clear the first row if the cursor is in the second.
            (1, spares) => self.erase_in_screen(1, spares),
            (0 | 2, true) => self.erase_in_screen(what, true),
            _ => self.term.clear_screen(mode),
        }
    }

    #[inline]
    fn terminal_attribute(&mut self, attr: Attr) {
        // SGR does not reset character protection.
        let kept = self.term.grid().cursor.template.flags & PROTECTED;
        self.term.terminal_attribute(attr);
        self.term.grid_mut().cursor.template.flags |= kept;
    }
}
