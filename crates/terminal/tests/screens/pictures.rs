//! Pictures with letters that only the host's fonts have.
//!
//! The fonts are in `tools/needs`; the picture is left in `target/tmp`, to be looked at.

use motu_terminal::render::{Picture, picture};
use motu_terminal::{Screen, Size};
use std::io::Read as _;

/// Pixels of one cell.
const CELL: (usize, usize) = (9, 18);

fn drawn(text: &str) -> Picture {
    let mut screen = Screen::new(Size::new(44, 8));
    screen.write(b"\x1b[?25l");
    screen.write(text.as_bytes());
    picture(&screen.view())
}

/// The pixels of a cell, row by row.
fn cell(picture: &Picture, column: usize, row: usize) -> Vec<[u8; 3]> {
    let png = &picture.png;
    let width = u32::from_be_bytes(png[16..20].try_into().expect("a width")) as usize;
    let length = u32::from_be_bytes(png[33..37].try_into().expect("a length")) as usize;
    let mut pixels = Vec::new();
    flate2::read::ZlibDecoder::new(&png[41..41 + length])
        .read_to_end(&mut pixels)
        .expect("whole pixels");
    let mut found = Vec::new();
    for y in row * CELL.1..(row + 1) * CELL.1 {
        for x in column * CELL.0..(column + 1) * CELL.0 {
            // Every row begins with the number of its filter.
            let at = y * (width * 3 + 1) + 1 + x * 3;
            found.push([pixels[at], pixels[at + 1], pixels[at + 2]]);
        }
    }
    found
}

fn background(pixel: &[u8; 3]) -> bool {
    *pixel == [0x16, 0x18, 0x1d]
}

/// How many pixels have a colour rather than a grey.
fn colourful(pixels: &[[u8; 3]]) -> usize {
    let spread = |pixel: &&[u8; 3]| {
        let most = pixel.iter().max().copied().unwrap_or(0);
        let least = pixel.iter().min().copied().unwrap_or(0);
        most - least > 60
    };
    pixels.iter().filter(spread).count()
}

#[test]
fn fonts_of_the_host_have_what_the_table_has_not() {
    let picture = drawn(
        "CJK: 漢字 かな カナ 한국어 \x1b[1m漢字\x1b[m \x1b[3m漢字\x1b[m\r\n\
         emoji: 😀 🚀 🐧 \u{2764}\u{fe0f} ✅\r\n\
         Hebrew: \u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{5e2}\u{5d5}\u{5dc}\u{5dd} 123\r\n\
         Arabic: \u{645}\u{631}\u{62d}\u{628}\u{627} \u{628}\u{627}\u{644}\u{639}\u{627}\u{644}\u{645}\r\n\
         \x1b[3mitalic\x1b[m \x1b[1mbold\x1b[m \x1b[1;3mboth\x1b[m \x1b[4;9mlines\x1b[m \x1b[7m漢\x1b[m \x1b[31m漢\x1b[m\r\n\
         boxes: ┌─┬─┐ ▁▂▃▄▅▆▇█ ⠋⠙⠹",
    );
    let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("letters.png");
    std::fs::write(&place, &picture.png).expect("a picture");
    assert_eq!(picture.missing, [], "{}", place.display());
    assert!(
        colourful(&cell(&picture, 7, 1)) > 20,
        "an emoji has its colours"
    );
    assert_eq!(
        colourful(&cell(&picture, 5, 0)),
        0,
        "an ideograph has that of the text"
    );
    assert!(colourful(&cell(&picture, 26, 4)) > 5, "which may be red");
}

#[test]
fn text_from_the_right_is_seen_so() {
    let (shin, mem) = ("\u{5e9}", "\u{5dd}");
    let word = drawn(&format!("{shin}{mem}"));
    assert_eq!(cell(&word, 0, 0), cell(&drawn(mem), 0, 0));
    assert_eq!(cell(&word, 1, 0), cell(&drawn(&format!(" {shin}")), 1, 0));
}

#[test]
fn arabic_letters_join() {
    // The first letter of a word has another shape than the letter alone.
    let (beh, alone) = (drawn("\u{628}\u{628}\u{628}"), drawn("\u{628}"));
    assert_ne!(cell(&beh, 0, 0), cell(&alone, 0, 0));
    assert_ne!(cell(&beh, 1, 0), cell(&beh, 2, 0));
}

#[test]
fn italics_lean_and_bold_is_heavier() {
    let count = |text: &str| {
        let pixels = cell(&drawn(text), 0, 0);
        pixels.iter().filter(|pixel| !background(pixel)).count()
    };
    assert!(count("\x1b[1ml") > count("l"));
    let upright = cell(&drawn("l"), 0, 0);
    let leaning = cell(&drawn("\x1b[3ml"), 0, 0);
    // In italics the ink of the upper rows is further right than that of the lower ones.
    let middle = |pixels: &[[u8; 3]], rows: std::ops::Range<usize>| {
        let (mut sum, mut weight) = (0.0, 0.0);
        for row in rows {
            for x in 0..CELL.0 {
                let ink = f32::from(pixels[row * CELL.0 + x][0]) - f32::from(0x16u8);
                sum += ink * x as f32;
                weight += ink;
            }
        }
        sum / weight
    };
    let lean = |pixels: &[[u8; 3]]| middle(pixels, 3..7) - middle(pixels, 8..12);
    assert!(
        lean(&leaning) > lean(&upright) + 0.7,
        "{} {}",
        lean(&leaning),
        lean(&upright)
    );
}

#[test]
fn what_no_font_has_is_framed_and_named() {
    // A private-use character.
    let picture = drawn("a\u{f8a7}b\u{f8a7}");
    assert_eq!(picture.missing, ['\u{f8a7}']);
    assert!(cell(&picture, 1, 0).iter().any(|pixel| !background(pixel)));
}

#[test]
fn a_screen_full_of_letters_is_drawn_in_bounds() {
    let mut screen = Screen::new(Size::new(1000, 24));
    let letters: String = ('\u{4e00}'..='\u{9fa5}').collect();
    screen.write(letters.as_bytes());
    let drawn = picture(&screen.view());
    assert!(drawn.png.starts_with(b"\x89PNG"));
    assert!(!drawn.missing.is_empty(), "more letters than are drawn");
}
