//! Renders a screen as PNG, for vision models.
//!
//! Letters come from a table made from a free font (`assets/GLYPHS.md`); missing ones, such as
//! ideographs and emoji, from the host's fonts. A character that no font has is drawn as an empty
//! frame, and reported.

use super::canvas::Canvas;
use super::fonts::{Face, Pen};
use super::layout::{self, Spot};
use crate::palette::{self, CELL_HEIGHT, CELL_WIDTH, Rgb};
use crate::screen::{Attrs, View};
use flate2::{Compression, Crc, read::ZlibDecoder, write::ZlibEncoder};
use std::io::{Read as _, Write as _};
use std::sync::OnceLock;

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

/// A picture, and the characters that could not be drawn.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    pub png: Vec<u8>,
    /// Characters without a glyph, drawn as frames; each once, up to a limit.
    pub missing: Vec<char>,
}

/// Number of missing characters that are reported.
const NAMED: usize = 8;

/// Draws the picture; one cell is 9 by 18 pixels.
pub fn picture(view: &View) -> Picture {
    let width = usize::from(view.size.cols()) * CELL_WIDTH;
    let height = usize::from(view.size.rows()) * CELL_HEIGHT;
    let mut drawing = Drawing {
        canvas: Canvas {
            width,
            pixels: palette::BACKGROUND.repeat(width * height),
        },
        pen: Pen::default(),
        missing: Vec::new(),
    };
    for (row, line) in view.lines.iter().enumerate() {
        drawing.row(&layout::spots(line), row * CELL_HEIGHT);
    }
    let Drawing {
        mut canvas,
        missing,
        ..
    } = drawing;
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
    Picture {
        png: encode(width, height, &canvas.pixels),
        missing,
    }
}

/// The picture alone.
pub fn png(view: &View) -> Vec<u8> {
    picture(view).png
}

struct Drawing {
    canvas: Canvas,
    pen: Pen,
    missing: Vec<char>,
}

impl Drawing {
    fn row(&mut self, spots: &[Spot], y: usize) {
        for spot in spots {
            let (_, bg) = palette::seen(&spot.style);
            if bg != palette::BACKGROUND {
                let size = (spot.cells * CELL_WIDTH, CELL_HEIGHT);
                self.canvas.fill((spot.column * CELL_WIDTH, y), size, bg);
            }
        }
        let mut rest = spots;
        while let Some(first) = rest.first() {
            let alike = |spot: &&Spot| spot.joins() && spot.style == first.style;
            let word = rest.iter().take_while(alike).count();
            let taken = word.max(1);
            if !(word > 1 && self.word(&rest[..word], y)) {
                rest[..taken].iter().for_each(|spot| self.spot(spot, y));
            }
            rest = &rest[taken..];
        }
        for spot in spots {
            self.lines(spot, y);
        }
    }

    /// Draws joining letters together; false if no font has all of them.
    fn word(&mut self, spots: &[Spot], y: usize) -> bool {
        let text: String = spots.iter().map(|spot| spot.letter).collect();
        let Some(parts) = self.pen.word(&text, face(&spots[0])) else {
            return false;
        };
        let (fg, _) = palette::seen(&spots[0].style);
        for (covered, letter) in parts {
            let columns = covered.iter().filter_map(|at| spots.get(*at));
            if let Some(column) = columns.map(|spot| spot.column).min() {
                let box_of = (column * CELL_WIDTH, covered.len());
                self.canvas.font_letter(box_of, y, &letter, fg);
            }
        }
        true
    }

    fn spot(&mut self, spot: &Spot, y: usize) {
        let char = spot.letter;
        let (fg, _) = palette::seen(&spot.style);
        let x = spot.column * CELL_WIDTH;
        if !spot.emoji && self.table_letter(spot, (x, y), fg) {
            return;
        }
        if char.is_whitespace() {
            return;
        }
        if ('\u{2800}'..='\u{28ff}').contains(&char) {
            return self.canvas.braille((x, y), u32::from(char) - 0x2800, fg);
        }
        if let Some(letter) = self.pen.letter(char, face(spot)) {
            self.canvas.font_letter((x, spot.cells), y, &letter, fg);
        } else if !self.table_letter(spot, (x, y), fg) {
            self.canvas.frame((x, y), spot.cells, fg);
            if self.missing.len() < NAMED && !self.missing.contains(&char) {
                self.missing.push(char);
            }
        }
    }

    fn table_letter(&mut self, spot: &Spot, place: (usize, usize), fg: Rgb) -> bool {
        match glyphs().get(spot.letter) {
            Some(glyph) => self.canvas.letter(place, glyph, fg, face(spot)),
            None => return false,
        }
        true
    }

    fn lines(&mut self, spot: &Spot, y: usize) {
        let (fg, _) = palette::seen(&spot.style);
        let (x, width) = (spot.column * CELL_WIDTH, spot.cells * CELL_WIDTH);
        if spot.style.attrs.has(Attrs::UNDERLINE) {
            self.canvas.fill((x, y + CELL_HEIGHT - 3), (width, 1), fg);
        }
        if spot.style.attrs.has(Attrs::STRIKE) {
            self.canvas.fill((x, y + CELL_HEIGHT / 2), (width, 1), fg);
        }
    }
}

fn face(spot: &Spot) -> Face {
    Face {
        bold: spot.style.attrs.has(Attrs::BOLD),
        italic: spot.style.attrs.has(Attrs::ITALIC),
        emoji: spot.emoji,
    }
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
    // 8 bits per channel, RGB, not interlaced.
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
