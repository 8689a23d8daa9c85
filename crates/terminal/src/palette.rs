//! Colours and sizes of a picture.

use crate::style::{Attrs, Ink, Style};

/// Pixels of one cell.
pub const CELL_WIDTH: usize = 9;
pub const CELL_HEIGHT: usize = 18;

/// Red, green, blue.
pub type Rgb = [u8; 3];

/// Colours of default text.
pub const FOREGROUND: Rgb = [0xd8, 0xd8, 0xd8];
pub const BACKGROUND: Rgb = [0x16, 0x18, 0x1d];
/// The cursor's block.
pub const CURSOR: Rgb = [0xff, 0xc8, 0x57];

const BASE: [Rgb; 16] = [
    [0x2b, 0x2e, 0x36],
    [0xe0, 0x5a, 0x5a],
    [0x7c, 0xb3, 0x5c],
    [0xd9, 0xa4, 0x4a],
    [0x5b, 0x9b, 0xd9],
    [0xb5, 0x7e, 0xd0],
    [0x4f, 0xb3, 0xb0],
    [0xc8, 0xc8, 0xc8],
    [0x6c, 0x72, 0x80],
    [0xff, 0x7b, 0x72],
    [0x9f, 0xd6, 0x7a],
    [0xf5, 0xc9, 0x6b],
    [0x82, 0xb8, 0xf0],
    [0xd2, 0xa0, 0xe8],
    [0x77, 0xd4, 0xd0],
    [0xff, 0xff, 0xff],
];

/// One of the 256 colours.
pub fn indexed(index: u8) -> Rgb {
    let level = |step: u8| if step == 0 { 0 } else { 55 + step * 40 };
    match index {
        0..=15 => BASE[usize::from(index)],
        16..=231 => {
            let cube = index - 16;
            [level(cube / 36), level(cube / 6 % 6), level(cube % 6)]
        }
        232.. => [8 + (index - 232) * 10; 3],
    }
}

fn resolve(ink: Ink, default: Rgb) -> Rgb {
    match ink {
        Ink::Default => default,
        Ink::Indexed(index) => indexed(index),
        Ink::Rgb(r, g, b) => [r, g, b],
    }
}

/// Foreground and background as displayed.
pub fn seen(style: &Style) -> (Rgb, Rgb) {
    let (mut fg, mut bg) = (resolve(style.fg, FOREGROUND), resolve(style.bg, BACKGROUND));
    if style.attrs.has(Attrs::INVERSE) {
        std::mem::swap(&mut fg, &mut bg);
    }
    if style.attrs.has(Attrs::DIM) {
        fg = blend(fg, bg, 150);
    }
    if style.attrs.has(Attrs::HIDDEN) {
        fg = bg;
    }
    (fg, bg)
}

/// `cover` of 255 parts of `over`, the rest of `under`.
pub fn blend(over: Rgb, under: Rgb, cover: u8) -> Rgb {
    let cover = u32::from(cover);
    std::array::from_fn(|at| {
        ((u32::from(over[at]) * cover + u32::from(under[at]) * (255 - cover)) / 255) as u8
    })
}
