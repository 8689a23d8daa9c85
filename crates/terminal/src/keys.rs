//! Converts names of keys to bytes, as xterm sends them in the screen's modes.

use crate::error::TerminalError;
use crate::screen::Modes;

/// Modifier bits of xterm.
const SHIFT: u8 = 1;
const ALT: u8 = 2;
const CTRL: u8 = 4;

/// One key with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    base: Base,
    modifiers: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Char(char),
    /// Arrows, Home, End: `CSI X` or, for application cursor keys, `SS3 X`.
    Cursor(u8),
    /// `CSI n ~`.
    Tilde(u8),
    /// F1 to F4: `SS3 X`.
    Function(u8),
    Enter,
    Tab,
    Escape,
    Backspace,
}

impl Key {
    /// `Enter`, `Up`, `F5`, `Ctrl-C`, `ctrl+shift+left`, `C-x`, `M-f`, `^C`, `a`. Case matters for single characters only.
    pub fn parse(name: &str) -> Result<Key, TerminalError> {
        let unknown = || TerminalError::UnknownKey {
            key: name.chars().take(40).collect(),
        };
        if let Some(rest) = name.strip_prefix('^').filter(|rest| !rest.is_empty()) {
            return one_char(rest)
                .map(|char| Key {
                    base: Base::Char(char),
                    modifiers: CTRL,
                })
                .ok_or_else(unknown);
        }
        let (mut modifiers, mut rest) = (0, name);
        while let Some((modifier, after)) = modifier(rest) {
            modifiers |= modifier;
            rest = after;
        }
        let mut base = base(rest).ok_or_else(unknown)?;
        if let Base::Char(char) = base
            && modifiers & SHIFT != 0
        {
            base = Base::Char(char.to_uppercase().next().unwrap_or(char));
        }
        Ok(Key { base, modifiers })
    }

    /// The bytes a terminal sends for it.
    pub fn bytes(self, modes: &Modes) -> Vec<u8> {
        let param = self.modifiers + 1;
        match self.base {
            Base::Cursor(letter) if self.modifiers != 0 => {
                format!("\x1b[1;{param}{}", char::from(letter)).into_bytes()
            }
            Base::Cursor(letter) if modes.app_cursor => vec![0x1b, b'O', letter],
            Base::Cursor(letter) => vec![0x1b, b'[', letter],
            Base::Tilde(number) if self.modifiers != 0 => {
                format!("\x1b[{number};{param}~").into_bytes()
            }
            Base::Tilde(number) => format!("\x1b[{number}~").into_bytes(),
            Base::Function(letter) if self.modifiers != 0 => {
                format!("\x1b[1;{param}{}", char::from(letter)).into_bytes()
            }
            Base::Function(letter) => vec![0x1b, b'O', letter],
            Base::Tab if self.modifiers & SHIFT != 0 => self.alt(b"\x1b[Z"),
            Base::Tab => self.alt(b"\t"),
            Base::Enter => self.alt(b"\r"),
            Base::Escape => self.alt(b"\x1b"),
            Base::Backspace if self.modifiers & CTRL != 0 => self.alt(b"\x08"),
            Base::Backspace => self.alt(b"\x7f"),
            Base::Char(char) => match control(char).filter(|_| self.modifiers & CTRL != 0) {
                Some(byte) => self.alt(&[byte]),
                None => self.alt(char.encode_utf8(&mut [0; 4]).as_bytes()),
            },
        }
    }

    fn alt(self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + 1);
        if self.modifiers & ALT != 0 {
            out.push(0x1b);
        }
        out.extend_from_slice(bytes);
        out
    }
}

/// The key of `send_control`: a letter means Ctrl and that letter, `[` means Escape; names of keys
/// work too.
pub fn control_key(name: &str, modes: &Modes) -> Result<Vec<u8>, TerminalError> {
    match one_char(name).and_then(control) {
        Some(byte) => Ok(vec![byte]),
        None => Ok(Key::parse(name)?.bytes(modes)),
    }
}

/// The markers of bracketed paste.
pub const PASTE_START: &[u8] = b"\x1b[200~";
pub const PASTE_END: &[u8] = b"\x1b[201~";

/// Pasted text: bracketed if the program asked for it, so that its lines are not run one by one.
pub fn paste(text: &str, modes: &Modes) -> Vec<u8> {
    let text = text.replace("\r\n", "\r").replace('\n', "\r");
    if !modes.bracketed_paste {
        return text.into_bytes();
    }
    // An end marker inside the text would make the rest count as typed.
    let text = text.replace('\x1b', "");
    format!("\x1b[200~{text}\x1b[201~").into_bytes()
}

fn one_char(text: &str) -> Option<char> {
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}

/// The control character of a key, if it has one.
fn control(char: char) -> Option<u8> {
    match char {
        'a'..='z' | 'A'..='Z' => Some(char.to_ascii_lowercase() as u8 - b'a' + 1),
        '@' | ' ' | '2' => Some(0),
        '[' | '3' => Some(0x1b),
        '\\' | '4' => Some(0x1c),
        ']' | '5' => Some(0x1d),
        '^' | '6' => Some(0x1e),
        '_' | '/' | '7' => Some(0x1f),
        '?' | '8' => Some(0x7f),
        _ => None,
    }
}

fn modifier(text: &str) -> Option<(u8, &str)> {
    let at = text
        .find(['-', '+'])
        .filter(|&at| at > 0 && at + 1 < text.len())?;
    let modifier = match text[..at].to_ascii_lowercase().as_str() {
        "ctrl" | "control" | "c" => CTRL,
        "alt" | "meta" | "option" | "m" => ALT,
        "shift" | "s" => SHIFT,
        _ => return None,
    };
    Some((modifier, &text[at + 1..]))
}

fn base(text: &str) -> Option<Base> {
    if let Some(char) = one_char(text) {
        return Some(Base::Char(char));
    }
    let name = text.to_ascii_lowercase().replace([' ', '_', '-'], "");
    Some(match name.as_str() {
        "up" | "arrowup" => Base::Cursor(b'A'),
        "down" | "arrowdown" => Base::Cursor(b'B'),
        "right" | "arrowright" => Base::Cursor(b'C'),
        "left" | "arrowleft" => Base::Cursor(b'D'),
        "home" => Base::Cursor(b'H'),
        "end" => Base::Cursor(b'F'),
        "insert" | "ins" => Base::Tilde(2),
        "delete" | "del" => Base::Tilde(3),
        "pageup" | "pgup" => Base::Tilde(5),
        "pagedown" | "pgdn" | "pgdown" => Base::Tilde(6),
        "enter" | "return" | "cr" => Base::Enter,
        "tab" => Base::Tab,
        "esc" | "escape" => Base::Escape,
        "backspace" | "bs" => Base::Backspace,
        "space" => Base::Char(' '),
        _ => return function(&name),
    })
}

fn function(name: &str) -> Option<Base> {
    let number: u8 = name.strip_prefix('f')?.parse().ok()?;
    // The gaps in these numbers come from the VT220's keyboard.
    Some(match number {
        1..=4 => Base::Function(b'P' + number - 1),
        5 => Base::Tilde(15),
        6..=10 => Base::Tilde(17 + number - 6),
        11..=14 => Base::Tilde(23 + number - 11),
        15..=16 => Base::Tilde(28 + number - 15),
        17..=20 => Base::Tilde(31 + number - 17),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(name: &str, modes: &Modes) -> String {
        String::from_utf8(Key::parse(name).unwrap().bytes(modes)).unwrap()
    }

    #[test]
    fn keys_as_xterm_sends_them() {
        let plain = Modes::default();
        for (name, bytes) in [
            ("Enter", "\r"),
            ("tab", "\t"),
            ("Esc", "\x1b"),
            ("Backspace", "\x7f"),
            ("Space", " "),
            ("Up", "\x1b[A"),
            ("left", "\x1b[D"),
            ("Home", "\x1b[H"),
            ("End", "\x1b[F"),
            ("PageUp", "\x1b[5~"),
            ("page-down", "\x1b[6~"),
            ("Delete", "\x1b[3~"),
            ("Insert", "\x1b[2~"),
            ("F1", "\x1bOP"),
            ("F4", "\x1bOS"),
            ("F5", "\x1b[15~"),
            ("F6", "\x1b[17~"),
            ("F10", "\x1b[21~"),
            ("F11", "\x1b[23~"),
            ("F12", "\x1b[24~"),
            ("F20", "\x1b[34~"),
            ("Ctrl-C", "\x03"),
            ("ctrl+d", "\x04"),
            ("C-z", "\x1a"),
            ("^[", "\x1b"),
            ("Ctrl-Space", "\0"),
            ("Ctrl-\\", "\x1c"),
            ("Alt-x", "\x1bx"),
            ("M-f", "\x1bf"),
            ("Ctrl-Alt-a", "\x1b\x01"),
            ("Shift-Tab", "\x1b[Z"),
            ("Ctrl-Left", "\x1b[1;5D"),
            ("Shift-F5", "\x1b[15;2~"),
            ("Ctrl-F1", "\x1b[1;5P"),
            ("Ctrl+Shift+Right", "\x1b[1;6C"),
            ("a", "a"),
            ("é", "é"),
            ("-", "-"),
            ("Ctrl--", "-"),
            ("^", "^"),
        ] {
            assert_eq!(sent(name, &plain), bytes, "{name}");
        }
    }

    #[test]
    fn application_cursor_keys_differ() {
        let modes = Modes {
            app_cursor: true,
            ..Modes::default()
        };
        assert_eq!(sent("Up", &modes), "\x1bOA");
        assert_eq!(sent("Ctrl-Up", &modes), "\x1b[1;5A");
    }

    #[test]
    fn names_that_are_no_keys_are_refused() {
        for name in ["", "Foo", "F0", "F21", "Hyper-x", "Ctrl-", "fx"] {
            assert!(Key::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn control_takes_letters_and_names() {
        let modes = Modes::default();
        for (name, bytes) in [
            ("c", &b"\x03"[..]),
            ("D", b"\x04"),
            ("[", b"\x1b"),
            ("escape", b"\x1b"),
            ("Up", b"\x1b[A"),
            ("Ctrl-X", b"\x18"),
        ] {
            assert_eq!(control_key(name, &modes).unwrap(), bytes, "{name}");
        }
    }

    #[test]
    fn a_paste_cannot_leave_its_brackets() {
        let modes = Modes {
            bracketed_paste: true,
            ..Modes::default()
        };
        assert_eq!(paste("a\nb", &modes), b"\x1b[200~a\rb\x1b[201~");
        assert_eq!(paste("x\x1b[201~rm", &modes), b"\x1b[200~x[201~rm\x1b[201~");
        assert_eq!(paste("a\r\nb\n", &Modes::default()), b"a\rb\r");
    }
}
