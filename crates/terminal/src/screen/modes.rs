//! Modes: which are on, what is answered about them, and saving them.

use super::Screen;
use alacritty_terminal::term::TermMode;

/// Modes that are only remembered. But for 41 they have no effect.
const NOTED: [u16; 15] = [3, 4, 5, 8, 18, 19, 34, 35, 36, 40, 41, 42, 67, 95, 1046];

/// The bit of such a mode.
pub(super) fn noted(mode: u16) -> Option<u32> {
    let at = NOTED.iter().position(|known| *known == mode)?;
    Some(1 << at)
}

/// DECRQM: 1 is set, 2 is reset, 4 is never set; `None` leaves the answer to the grid.
pub(super) fn told(screen: &Screen, mode: u16) -> Option<u8> {
    // The window follows no cursor sideways (DECHCCM).
    if mode == 60 {
        return Some(4);
    }
    let set = if mode == 1048 {
        true
    } else {
        here(screen, mode)?
    };
    Some(if set { 1 } else { 2 })
}

/// Whether a mode is on that the grid does not know, or not by this number.
fn here(screen: &Screen, mode: u16) -> Option<bool> {
    let vt = &screen.vt;
    Some(match mode {
        9 => vt.x10_mouse,
        45 | 1045 => vt.reverse_wrap,
        47 | 1047 => screen.term.mode().contains(TermMode::ALT_SCREEN),
        66 => screen.term.mode().contains(TermMode::APP_KEYPAD),
        69 => vt.sides_on,
        1015 => vt.urxvt_mouse,
        mode => vt.noted & noted(mode)? != 0,
    })
}

/// Whether a mode is on, if it is one that XTSAVE can save.
fn is_on(screen: &Screen, mode: u16) -> Option<bool> {
    let flag = match mode {
        1 => TermMode::APP_CURSOR,
        6 => TermMode::ORIGIN,
        7 => TermMode::LINE_WRAP,
        25 => TermMode::SHOW_CURSOR,
        1000 => TermMode::MOUSE_REPORT_CLICK,
        1002 => TermMode::MOUSE_DRAG,
        1003 => TermMode::MOUSE_MOTION,
        1004 => TermMode::FOCUS_IN_OUT,
        1005 => TermMode::UTF8_MOUSE,
        1006 => TermMode::SGR_MOUSE,
        1007 => TermMode::ALTERNATE_SCROLL,
        1049 => TermMode::ALT_SCREEN,
        2004 => TermMode::BRACKETED_PASTE,
        mode => return here(screen, mode),
    };
    Some(screen.term.mode().contains(flag))
}

impl Screen {
    /// XTSAVE: remembers modes, one state for each.
    pub(super) fn save_modes(&mut self, modes: &[u16]) {
        for &mode in modes {
            // Only known modes are kept, so there are never many.
            if let Some(on) = is_on(self, mode) {
                self.vt.saved_modes.insert(mode, on);
            }
        }
    }

    /// XTRESTORE: sets modes as they were saved; those that were not stay as they are.
    pub(super) fn restore_modes(&mut self, modes: &[u16]) {
        for mode in modes {
            if let Some(&on) = self.vt.saved_modes.get(mode) {
                self.set_mode(*mode, on);
            }
        }
    }
}

/// ANSI modes: 0 is unknown, 4 is permanently reset.
pub(super) fn ansi(screen: &Screen, mode: u16) -> u8 {
    let flag = match mode {
        4 => TermMode::INSERT,
        20 => TermMode::LINE_FEED_NEW_LINE,
        // SRM is permanently set: the terminal does not echo. KAM is permanently reset.
        12 => return 3,
        1 | 2 | 5 | 7 | 10 | 11 | 13..=19 => return 4,
        _ => return 0,
    };
    if screen.term.mode().contains(flag) {
        1
    } else {
        2
    }
}
