//! Colours that a program sets, asks for and resets.
//!
//! ```text
//!   4;N;COLOUR …    one of 256; from 256 on a special one             104;N …
//!   5;N;COLOUR …    a special one: bold, underlined, blinking,        105;N …
//!                   reversed, italic
//!   10;COLOUR …     the text, then the background, the cursor, …      110 to 119
//! ```
//!
//! A `?` for a colour asks for it. Only the answers follow what was set: text keeps the number of
//! its colour, and pictures have colours of their own.

use crate::palette::{self, Rgb};
use std::collections::BTreeMap;

/// The first special colour, counted behind the 256.
const SPECIAL: u16 = 256;
/// How many special colours there are.
const SPECIALS: u16 = 5;
/// Where the dynamic colours are kept: 10 is the text, 11 the background.
const DYNAMIC: u16 = 1000;

/// The colours that differ from the palette. Only known numbers are kept, so it stays small.
#[derive(Debug, Default)]
pub(super) struct Colours {
    set: BTreeMap<u16, Rgb>,
}

impl Colours {
    /// Does what an operating system command says; returns the answers, without introducer and
    /// terminator.
    pub fn obey(&mut self, payload: &[u8]) -> Vec<String> {
        let Ok(text) = std::str::from_utf8(payload) else {
            return Vec::new();
        };
        let (command, rest) = text.split_once(';').unwrap_or((text, ""));
        let Ok(command) = command.parse::<u16>() else {
            return Vec::new();
        };
        match command {
            4 => self.numbered(4, 0, SPECIAL + SPECIALS, rest),
            5 => self.numbered(5, SPECIAL, SPECIALS, rest),
            10..=19 => self.dynamic(command, rest),
            104 => self.reset(0, SPECIAL, rest),
            105 => self.reset(SPECIAL, SPECIALS, rest),
            110..=119 => {
                self.set.remove(&(DYNAMIC + command - 100));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Pairs of a number and a colour; `first` is where number 0 is kept.
    fn numbered(&mut self, command: u16, first: u16, count: u16, rest: &str) -> Vec<String> {
        let words: Vec<&str> = rest.split(';').collect();
        let mut answers = Vec::new();
        for pair in words.chunks_exact(2) {
            let number = pair[0].parse::<u16>().ok().filter(|number| *number < count);
            let Some(number) = number else { continue };
            match pair[1] {
                "?" => answers.push(format!("{command};{number};{}", self.told(first + number))),
                colour => self.change(first + number, colour),
            }
        }
        answers
    }

    /// Colours of consecutive commands, from this one on.
    fn dynamic(&mut self, first: u16, rest: &str) -> Vec<String> {
        let mut answers = Vec::new();
        for (command, word) in (first..=19).zip(rest.split(';')) {
            // 15, 16 and 18 are those of a Tektronix terminal, which this is not.
            match word {
                _ if matches!(command, 15 | 16 | 18) => {}
                "?" => answers.push(format!("{command};{}", self.told(DYNAMIC + command))),
                colour => self.change(DYNAMIC + command, colour),
            }
        }
        answers
    }

    /// Resets the listed ones; all of them if none is listed.
    fn reset(&mut self, first: u16, count: u16, rest: &str) -> Vec<String> {
        if rest.is_empty() {
            self.set
                .retain(|place, _| !(first..first + count).contains(place));
        }
        for number in rest.split(';').filter_map(|word| word.parse::<u16>().ok()) {
            if number < count {
                self.set.remove(&(first + number));
            }
        }
        Vec::new()
    }

    fn change(&mut self, place: u16, colour: &str) {
        if let Some(colour) = parse(colour) {
            self.set.insert(place, colour);
        }
    }

    /// A colour as an X server writes it, with 16 bits for each part.
    fn told(&self, place: u16) -> String {
        let [r, g, b] = match self.set.get(&place) {
            Some(colour) => *colour,
            None => preset(place),
        };
        format!("rgb:{r:02x}{r:02x}/{g:02x}{g:02x}/{b:02x}{b:02x}")
    }
}

/// The colour that nobody has set.
fn preset(place: u16) -> Rgb {
    match u8::try_from(place) {
        Ok(index) => palette::indexed(index),
        Err(_) => match place.wrapping_sub(DYNAMIC) {
            // The background, that of the mouse pointer, and the text of a selection.
            11 | 14 | 19 => palette::BACKGROUND,
            12 => palette::CURSOR,
            _ => palette::FOREGROUND,
        },
    }
}

/// `rgb:R/G/B` with one to four digits each, which are fractions, or `#RGB` with as many, which
/// are the first digits of each part. The eight highest bits are kept.
fn parse(text: &str) -> Option<Rgb> {
    if let Some(digits) = text.strip_prefix('#') {
        let each = digits.len() / 3;
        if digits.len() % 3 != 0 || !digits.is_ascii() {
            return None;
        }
        let part = |at: usize| {
            let value = hex(digits.get(at * each..(at + 1) * each)?)?;
            u8::try_from((value << (16 - 4 * each)) >> 8).ok()
        };
        return Some([part(0)?, part(1)?, part(2)?]);
    }
    let mut parts = text.strip_prefix("rgb:")?.split('/');
    let mut part = || {
        let digits = parts.next()?;
        let most = (1 << (4 * digits.len().min(4))) - 1;
        u8::try_from((hex(digits)? * 0xffff / most) >> 8).ok()
    };
    let colour = [part()?, part()?, part()?];
    parts.next().is_none().then_some(colour)
}

/// One to four hexadecimal digits.
fn hex(digits: &str) -> Option<u32> {
    let whole = (1..=4).contains(&digits.len());
    // The parser of numbers also takes a sign.
    let digits = Some(digits)
        .filter(|digits| whole && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colour_is_read_in_each_of_its_forms() {
        for (text, colour) in [
            ("rgb:f/8/0", Some([0xff, 0x88, 0])),
            ("rgb:ff/80/00", Some([0xff, 0x80, 0])),
            ("rgb:f0f0/8080/0000", Some([0xf0, 0x80, 0])),
            ("#f80", Some([0xf0, 0x80, 0])),
            ("#ff8000", Some([0xff, 0x80, 0])),
            ("#fff800000", Some([0xff, 0x80, 0])),
            ("#ffff80000000", Some([0xff, 0x80, 0])),
            ("#ff80", None),
            ("#", None),
            ("#+f+f+f", None),
            ("#ffffffffffffffff", None),
            ("#é0", None),
            ("rgb:ff/80", None),
            ("rgb:ff/80/00/00", None),
            ("rgb:fffff/0/0", None),
            ("rgb:/0/0", None),
            ("red", None),
            ("", None),
        ] {
            assert_eq!(parse(text), colour, "{text}");
        }
    }
}
