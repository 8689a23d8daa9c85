//! Converts names of mouse events to bytes, in the encoding the program has chosen.
//!
//! ```text
//!   Click:10,5   RightClick:0,0   Ctrl-Click:3,4   Press:1,1   Drag:8,1   Release:8,1
//!   Move:2,2     ScrollUp:10,5    ScrollDown:10,5
//! ```
//!
//! Column and row count from zero, as the cursor of a screen does.

use crate::error::TerminalError;
use crate::size::Size;

/// The mouse events that a program wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tracking {
    #[default]
    Nothing,
    /// Mode 9: presses.
    X10,
    /// Mode 1000: presses and releases.
    Buttons,
    /// Mode 1002: also moves with a button down.
    Drags,
    /// Mode 1003: every move.
    Moves,
}

/// How mouse events are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mouse {
    pub tracking: Tracking,
    /// Mode 1006: SGR encoding.
    pub sgr: bool,
    /// Mode 1015: urxvt's decimal encoding, with the codes of the original one.
    pub urxvt: bool,
    /// Mode 1005: coordinates as UTF-8 characters.
    pub utf8: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Press,
    Release,
    Click,
    DoubleClick,
    Drag,
    Move,
    /// A wheel has no release.
    Scroll,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    what: What,
    /// The button code without modifiers.
    button: u8,
    modifiers: u8,
    column: u16,
    row: u16,
}

const NAMES: &[(&str, What, u8)] = &[
    ("click", What::Click, 0),
    ("leftclick", What::Click, 0),
    ("middleclick", What::Click, 1),
    ("rightclick", What::Click, 2),
    ("doubleclick", What::DoubleClick, 0),
    ("press", What::Press, 0),
    ("middlepress", What::Press, 1),
    ("rightpress", What::Press, 2),
    ("release", What::Release, 0),
    ("middlerelease", What::Release, 1),
    ("rightrelease", What::Release, 2),
    ("drag", What::Drag, 0),
    ("middledrag", What::Drag, 1),
    ("rightdrag", What::Drag, 2),
    ("move", What::Move, 3),
    ("scrollup", What::Scroll, 64),
    ("scrolldown", What::Scroll, 65),
    ("scrollleft", What::Scroll, 66),
    ("scrollright", What::Scroll, 67),
];
const MODIFIERS: &[(&str, u8)] = &[("shift-", 4), ("alt-", 8), ("ctrl-", 16)];
/// The bit for motion.
const MOVING: u8 = 32;
/// The offset of the original encodings, and the largest coordinate they can encode.
const BASE: u16 = 32;
const LARGEST: u16 = 255 - BASE;

impl Event {
    /// `None` if the name is not one of a mouse event.
    pub fn parse(name: &str) -> Option<Result<Event, TerminalError>> {
        let (event, place) = name.split_once(':')?;
        let event = event.to_ascii_lowercase();
        let (mut modifiers, mut word) = (0, event.as_str());
        while let Some((rest, bit)) = MODIFIERS
            .iter()
            .find_map(|(name, bit)| Some((word.strip_prefix(name)?, bit)))
        {
            modifiers |= bit;
            word = rest;
        }
        let (_, what, button) = NAMES.iter().find(|(known, ..)| *known == word)?;
        let numbers = place.split_once(',').and_then(|(column, row)| {
            Some((column.trim().parse().ok()?, row.trim().parse().ok()?))
        });
        let Some((column, row)) = numbers else {
            return Some(Err(TerminalError::UnknownKey {
                key: name.chars().take(40).collect(),
            }));
        };
        Some(Ok(Event {
            what: *what,
            button: *button,
            modifiers,
            column,
            row,
        }))
    }

    /// The bytes a terminal sends for it.
    pub fn bytes(self, mouse: Mouse, size: Size) -> Result<Vec<u8>, TerminalError> {
        let needs = match self.what {
            What::Move => Tracking::Moves,
            What::Drag => Tracking::Drags,
            What::Release => Tracking::Buttons,
            _ => Tracking::X10,
        };
        if mouse.tracking < needs {
            return Err(TerminalError::NoMouse {
                what: match (mouse.tracking, needs) {
                    (Tracking::Nothing, _) => "the program in front has not asked for the mouse",
                    (_, Tracking::Moves) => "the program in front does not want to hear of moves",
                    (_, Tracking::Drags) => "the program in front does not want to hear of drags",
                    _ => "the program in front only wants to hear of presses",
                },
            });
        }
        if self.column >= size.cols() || self.row >= size.rows() {
            return Err(TerminalError::OffScreen {
                column: self.column,
                row: self.row,
            });
        }
        let mut out = Vec::new();
        let button = self.button;
        let clicks = if self.what == What::DoubleClick { 2 } else { 1 };
        match self.what {
            What::Press | What::Scroll => self.send(mouse, button, false, &mut out)?,
            What::Release => self.send(mouse, button, true, &mut out)?,
            What::Drag | What::Move => self.send(mouse, button | MOVING, false, &mut out)?,
            What::Click | What::DoubleClick => {
                for _ in 0..clicks {
                    self.send(mouse, button, false, &mut out)?;
                    if mouse.tracking > Tracking::X10 {
                        self.send(mouse, button, true, &mut out)?;
                    }
                }
            }
        }
        Ok(out)
    }

    fn send(
        self,
        mouse: Mouse,
        button: u8,
        released: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), TerminalError> {
        let (column, row) = (self.column + 1, self.row + 1);
        let modifiers = match mouse.tracking {
            Tracking::X10 => 0,
            _ => self.modifiers,
        };
        let code = u16::from(button) + u16::from(modifiers);
        if mouse.sgr {
            let end = if released { 'm' } else { 'M' };
            out.extend(format!("\x1b[<{code};{column};{row}{end}").into_bytes());
            return Ok(());
        }
        // These encodings do not tell which button was released.
        let code = if released {
            3 + u16::from(modifiers)
        } else {
            code
        };
        if mouse.urxvt {
            out.extend(format!("\x1b[{};{column};{row}M", code + BASE).into_bytes());
            return Ok(());
        }
        if !mouse.utf8 && (column > LARGEST || row > LARGEST) {
            return Err(TerminalError::NoMouse {
                what: "the form that the program in front has asked for cannot name that place",
            });
        }
        out.extend_from_slice(b"\x1b[M");
        for number in [code, column, row].map(|number| number + BASE) {
            match mouse.utf8 {
                true => {
                    let char = char::from_u32(number.into()).unwrap_or(' ');
                    out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                }
                false => out.push(number as u8),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(name: &str, mouse: Mouse) -> Result<Vec<u8>, TerminalError> {
        Event::parse(name)
            .unwrap()?
            .bytes(mouse, Size::new(300, 24))
    }

    fn of(tracking: Tracking) -> Mouse {
        Mouse {
            tracking,
            ..Mouse::default()
        }
    }

    #[test]
    fn every_form_has_its_bytes() {
        let sgr = Mouse {
            sgr: true,
            ..of(Tracking::Moves)
        };
        let text = |name, mouse| String::from_utf8(sent(name, mouse).unwrap()).unwrap();
        assert_eq!(text("Click:10,5", sgr), "\x1b[<0;11;6M\x1b[<0;11;6m");
        assert_eq!(
            text("Ctrl-RightClick:0,0", sgr),
            "\x1b[<18;1;1M\x1b[<18;1;1m"
        );
        assert_eq!(text("Drag:1,1", sgr), "\x1b[<32;2;2M");
        assert_eq!(text("Move:1,1", sgr), "\x1b[<35;2;2M");
        assert_eq!(text("ScrollDown:1,1", sgr), "\x1b[<65;2;2M");
        assert_eq!(
            text("click:10,5", of(Tracking::Buttons)),
            "\x1b[M +&\x1b[M#+&"
        );
        assert_eq!(text("Ctrl-Click:10,5", of(Tracking::X10)), "\x1b[M +&");
        let urxvt = Mouse {
            urxvt: true,
            ..of(Tracking::Drags)
        };
        assert_eq!(text("Click:250,5", urxvt), "\x1b[32;251;6M\x1b[35;251;6M");
        assert_eq!(text("Shift-RightDrag:0,0", urxvt), "\x1b[70;1;1M");
        assert_eq!(text("ScrollLeft:0,0", urxvt), "\x1b[98;1;1M");
        let utf8 = Mouse {
            utf8: true,
            ..of(Tracking::Buttons)
        };
        assert_eq!(text("Press:250,0", utf8), "\x1b[M \u{11b}!");
    }

    #[test]
    fn nothing_is_sent_to_who_did_not_ask() {
        for (name, tracking) in [
            ("Click:1,1", Tracking::Nothing),
            ("Release:1,1", Tracking::X10),
            ("Drag:1,1", Tracking::Buttons),
            ("Move:1,1", Tracking::Drags),
            ("Press:250,0", Tracking::Buttons),
        ] {
            let refused = sent(name, of(tracking)).unwrap_err();
            assert!(
                matches!(refused, TerminalError::NoMouse { .. }),
                "{name}: {refused}"
            );
        }
        let off = sent("Click:0,24", of(Tracking::Moves)).unwrap_err();
        assert_eq!(off, TerminalError::OffScreen { column: 0, row: 24 });
    }

    #[test]
    fn a_key_is_no_event() {
        for key in ["Up", "Ctrl-C", ":", "a", "click"] {
            assert!(Event::parse(key).is_none(), "{key}");
        }
        assert!(Event::parse("Click:x").unwrap().is_err());
    }
}
