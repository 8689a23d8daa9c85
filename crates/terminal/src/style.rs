//! The look of a character.

use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::vte::ansi::{Color, NamedColor};
use serde::{Deserialize, Serialize};

/// A colour as the program asked for it; the renderer decides how it looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ink {
    #[default]
    Default,
    /// One of the 256: 0 to 7 normal, 8 to 15 bright, then the cube and the greys.
    Indexed(u8),
    Rgb(u8, u8, u8),
}

/// Attributes, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attrs(pub u8);

impl Attrs {
    pub const BOLD: Attrs = Attrs(1);
    pub const DIM: Attrs = Attrs(2);
    pub const ITALIC: Attrs = Attrs(4);
    pub const UNDERLINE: Attrs = Attrs(8);
    pub const INVERSE: Attrs = Attrs(16);
    pub const HIDDEN: Attrs = Attrs(32);
    pub const STRIKE: Attrs = Attrs(64);

    const NAMES: [(Attrs, &'static str); 7] = [
        (Attrs::BOLD, "bold"),
        (Attrs::DIM, "dim"),
        (Attrs::ITALIC, "italic"),
        (Attrs::UNDERLINE, "underline"),
        (Attrs::INVERSE, "inverse"),
        (Attrs::HIDDEN, "hidden"),
        (Attrs::STRIKE, "strike"),
    ];

    pub fn has(self, other: Attrs) -> bool {
        self.0 & other.0 != 0
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Attrs::NAMES
            .into_iter()
            .filter(move |(attr, _)| self.has(*attr))
            .map(|(_, name)| name)
    }
}

/// Colours and attributes of a run of characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Style {
    pub fg: Ink,
    pub bg: Ink,
    pub attrs: Attrs,
}

impl Style {
    pub fn is_plain(&self) -> bool {
        *self == Style::default()
    }

    /// `red on 236, bold`: for people and models.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        match (self.fg, self.bg) {
            (Ink::Default, Ink::Default) => {}
            (fg, Ink::Default) => parts.push(ink_name(fg)),
            (fg, bg) => parts.push(format!("{} on {}", ink_name(fg), ink_name(bg))),
        }
        parts.extend(self.attrs.names().map(String::from));
        parts.join(", ")
    }
}

fn ink_name(ink: Ink) -> String {
    const NAMES: [&str; 8] = [
        "black", "red", "green", "yellow", "blue", "magenta", "cyan", "white",
    ];
    match ink {
        Ink::Default => "default".into(),
        Ink::Indexed(index @ 0..=7) => NAMES[usize::from(index)].into(),
        Ink::Indexed(index @ 8..=15) => format!("bright {}", NAMES[usize::from(index) - 8]),
        Ink::Indexed(index) => index.to_string(),
        Ink::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
    }
}

fn ink(color: Color) -> Ink {
    match color {
        Color::Spec(rgb) => Ink::Rgb(rgb.r, rgb.g, rgb.b),
        Color::Indexed(index) => Ink::Indexed(index),
        Color::Named(named) => match named as usize {
            index @ 0..=15 => Ink::Indexed(index as u8),
            index
                if index >= NamedColor::DimBlack as usize
                    && index <= NamedColor::DimWhite as usize =>
            {
                Ink::Indexed((index - NamedColor::DimBlack as usize) as u8)
            }
            _ => Ink::Default,
        },
    }
}

pub(crate) fn of(cell: &Cell) -> Style {
    const PAIRS: [(Flags, Attrs); 7] = [
        (Flags::BOLD, Attrs::BOLD),
        (Flags::DIM, Attrs::DIM),
        (Flags::ITALIC, Attrs::ITALIC),
        (Flags::ALL_UNDERLINES, Attrs::UNDERLINE),
        (Flags::INVERSE, Attrs::INVERSE),
        (Flags::HIDDEN, Attrs::HIDDEN),
        (Flags::STRIKEOUT, Attrs::STRIKE),
    ];
    let bits = PAIRS
        .iter()
        .filter(|(flag, _)| cell.flags.intersects(*flag))
        .fold(0, |bits, (_, attr)| bits | attr.0);
    Style {
        fg: ink(cell.fg),
        bg: ink(cell.bg),
        attrs: Attrs(bits),
    }
}
