//! A screen as a PNG, for models that see.
//!
//! Letters come from a table made of a free font (`assets/GLYPHS.md`); a character
//! it does not have, such as an ideograph, is drawn as an empty frame of its width.

use crate::palette::{self, CELL_HEIGHT, CELL_WIDTH, Rgb};
use crate::screen::{Attrs, Style, View};
use flate2::{Compression, Crc, read::ZlibDecoder, write::ZlibEncoder};
use std::io::{Read as _, Write as _};
use std::sync::OnceLock;
use unicode_width::UnicodeWidthChar as _;

const GLYPH_BYTES: usize = CELL_WIDTH * CELL_HEIGHT / 2;

/// The table of letters.
struct Glyphs {
    points: Vec<u32>,
    pixels: Vec<u8>,
}

fn glyphs() -> &'static Glyphs {
    static GLYPHS: OnceLock<Glyphs> = OnceLock::new();
    GLYPHS.get_or_init(|| {
        let mut raw = Vec::new();
        ZlibDecoder::new(&include_bytes!("../../assets/glyphs.bin")[..])
            .read_to_end(&mut raw)
            .expect("the table of letters is whole");
        let word = |at: usize| {
            u32::from_le_bytes([
                raw[at * 4],
                raw[at * 4 + 1],
                raw[at * 4 + 2],
                raw[at * 4 + 3],
            ])
        };
        let count = word(0) as usize;
        Glyphs {
            points: (1..=count).map(word).collect(),
            pixels: raw[4 + count * 4..].to_vec(),
        }
    })
}

impl Glyphs {
    fn get(&self, char: char) -> Option<&[u8]> {
        let at = self.points.binary_search(&u32::from(char)).ok()?;
        self.pixels.get(at * GLYPH_BYTES..(at + 1) * GLYPH_BYTES)
    }
}

/// Three bytes per pixel.
struct Canvas {
    width: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    fn at(&mut self, x: usize, y: usize) -> Option<&mut [u8]> {
        if x >= self.width {
            return None;
        }
        let at = (y * self.width + x) * 3;
        self.pixels.get_mut(at..at + 3)
    }

    fn cover(&mut self, x: usize, y: usize, color: Rgb, cover: u8) {
        if let Some(pixel) = self.at(x, y) {
            let under = [pixel[0], pixel[1], pixel[2]];
            pixel.copy_from_slice(&palette::blend(color, under, cover));
        }
    }

    fn fill(&mut self, (x, y): (usize, usize), (width, height): (usize, usize), color: Rgb) {
        for row in y..y + height {
            for col in x..x + width {
                self.cover(col, row, color, 255);
            }
        }
    }

    fn letter(&mut self, (x, y): (usize, usize), glyph: &[u8], color: Rgb, bold: bool) {
        for (at, pair) in glyph.iter().enumerate() {
            for (half, value) in [pair >> 4, pair & 15].into_iter().enumerate() {
                if value == 0 {
                    continue;
                }
                let pixel = at * 2 + half;
                let (col, row) = (x + pixel % CELL_WIDTH, y + pixel / CELL_WIDTH);
                self.cover(col, row, color, value * 17);
                if bold {
                    self.cover(col + 1, row, color, value * 12);
                }
            }
        }
    }

    /// Braille patterns are what spinners and charts are made of: two columns of four dots, one bit each.
    fn braille(&mut self, (x, y): (usize, usize), dots: u32, color: Rgb) {
        const PLACES: [(usize, usize); 8] = [
            (0, 0),
            (0, 1),
            (0, 2),
            (1, 0),
            (1, 1),
            (1, 2),
            (0, 3),
            (1, 3),
        ];
        for (bit, (col, row)) in PLACES.into_iter().enumerate() {
            if dots & 1 << bit != 0 {
                self.fill((x + 2 + col * 4, y + 2 + row * 4), (2, 2), color);
            }
        }
    }

    fn frame(&mut self, (x, y): (usize, usize), cells: usize, color: Rgb) {
        let (width, height) = (cells * CELL_WIDTH - 2, CELL_HEIGHT - 5);
        for col in x + 1..x + 1 + width {
            self.cover(col, y + 3, color, 160);
            self.cover(col, y + 3 + height - 1, color, 160);
        }
        for row in y + 3..y + 3 + height {
            self.cover(x + 1, row, color, 160);
            self.cover(x + width, row, color, 160);
        }
    }
}

/// The picture, one cell 9 by 18 pixels.
pub fn png(view: &View) -> Vec<u8> {
    let width = usize::from(view.size.cols()) * CELL_WIDTH;
    let height = usize::from(view.size.rows()) * CELL_HEIGHT;
    let mut canvas = Canvas {
        width,
        pixels: palette::BACKGROUND.repeat(width * height),
    };
    for (row, line) in view.lines.iter().enumerate() {
        let mut col = 0;
        for (text, style) in line.pieces() {
            col = draw_run(&mut canvas, text, &style, (col, row));
        }
    }
    if view.cursor.visible {
        let (x, y) = (
            usize::from(view.cursor.col) * CELL_WIDTH,
            usize::from(view.cursor.row) * CELL_HEIGHT,
        );
        for row in y..y + CELL_HEIGHT {
            for col in x..x + CELL_WIDTH {
                canvas.cover(col, row, palette::CURSOR, 150);
            }
        }
    }
    encode(width, height, &canvas.pixels)
}

fn draw_run(canvas: &mut Canvas, text: &str, style: &Style, at: (usize, usize)) -> usize {
    let (mut col, row) = at;
    let (fg, bg) = palette::seen(style);
    let y = row * CELL_HEIGHT;
    for char in text.chars() {
        let cells = char.width().unwrap_or(0);
        if cells == 0 {
            continue;
        }
        let x = col * CELL_WIDTH;
        if bg != palette::BACKGROUND {
            canvas.fill((x, y), (cells * CELL_WIDTH, CELL_HEIGHT), bg);
        }
        match glyphs().get(char) {
            Some(glyph) => canvas.letter((x, y), glyph, fg, style.attrs.has(Attrs::BOLD)),
            None if char.is_whitespace() => {}
            None if ('\u{2800}'..='\u{28ff}').contains(&char) => {
                canvas.braille((x, y), u32::from(char) - 0x2800, fg);
            }
            None => canvas.frame((x, y), cells, fg),
        }
        if style.attrs.has(Attrs::UNDERLINE) {
            canvas.fill((x, y + CELL_HEIGHT - 3), (cells * CELL_WIDTH, 1), fg);
        }
        if style.attrs.has(Attrs::STRIKE) {
            canvas.fill((x, y + CELL_HEIGHT / 2), (cells * CELL_WIDTH, 1), fg);
        }
        col += cells;
    }
    col
}

fn encode(width: usize, height: usize, pixels: &[u8]) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    for row in pixels.chunks_exact(width * 3) {
        // Writing to memory does not fail.
        let _ = packed.write_all(&[0]);
        let _ = packed.write_all(row);
    }
    let data = packed.finish().unwrap_or_default();
    let mut header = Vec::with_capacity(13);
    header.extend_from_slice(&(width as u32).to_be_bytes());
    header.extend_from_slice(&(height as u32).to_be_bytes());
    // Eight bits per channel, red green blue, no interlacing.
    header.extend_from_slice(&[8, 2, 0, 0, 0]);

    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut out, b"IHDR", &header);
    chunk(&mut out, b"IDAT", &data);
    chunk(&mut out, b"IEND", &[]);
    out
}

fn chunk(out: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(name);
    out.extend_from_slice(data);
    let mut crc = Crc::new();
    crc.update(name);
    crc.update(data);
    out.extend_from_slice(&crc.sum().to_be_bytes());
}
