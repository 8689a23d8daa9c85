//! A pixel buffer, and drawing of letters.

use super::fonts::{Face, Letter};
use crate::palette::{self, CELL_HEIGHT, CELL_WIDTH, Rgb};

/// The baseline of a cell.
const BASELINE: usize = 14;
/// Horizontal shift of an italic letter per row.
const LEAN: f32 = 0.21;

/// Three bytes per pixel.
pub struct Canvas {
    pub width: usize,
    pub pixels: Vec<u8>,
}

impl Canvas {
    fn at(&mut self, x: usize, y: usize) -> Option<&mut [u8]> {
        if x >= self.width {
            return None;
        }
        let at = (y * self.width + x) * 3;
        self.pixels.get_mut(at..at + 3)
    }

    pub fn cover(&mut self, x: usize, y: usize, color: Rgb, cover: u8) {
        if let Some(pixel) = self.at(x, y) {
            let under = [pixel[0], pixel[1], pixel[2]];
            pixel.copy_from_slice(&palette::blend(color, under, cover));
        }
    }

    pub fn fill(&mut self, (x, y): (usize, usize), (width, height): (usize, usize), color: Rgb) {
        for row in y..y + height {
            for col in x..x + width {
                self.cover(col, row, color, 255);
            }
        }
    }

    /// Draws a letter of the built-in table.
    pub fn letter(&mut self, (x, y): (usize, usize), glyph: &[u8], color: Rgb, face: Face) {
        for (at, pair) in glyph.iter().enumerate() {
            for (half, value) in [pair >> 4, pair & 15].into_iter().enumerate() {
                if value == 0 {
                    continue;
                }
                let pixel = at * 2 + half;
                let (col, row) = (x + pixel % CELL_WIDTH, pixel / CELL_WIDTH);
                // An italic letter leans around the baseline: right above it, left below.
                let lean = match face.italic {
                    true => (BASELINE as f32 - row as f32) * LEAN,
                    false => 0.0,
                };
                let cover = f32::from(value) * 17.0;
                self.between(col as f32 + lean, y + row, color, cover);
                if face.bold {
                    self.between(col as f32 + 1.0 + lean, y + row, color, cover * 0.7);
                }
            }
        }
    }

    /// Distributes a pixel between two columns.
    fn between(&mut self, x: f32, y: usize, color: Rgb, cover: f32) {
        let (left, part) = (x.floor(), x - x.floor());
        for (column, share) in [(left, 1.0 - part), (left + 1.0, part)] {
            if column >= 0.0 && share > 0.0 {
                self.cover(column as usize, y, color, (cover * share) as u8);
            }
        }
    }

    /// Draws a font's letter centred in its cells; one that is too large is scaled down.
    pub fn font_letter(
        &mut self,
        (x, cells): (usize, usize),
        y: usize,
        letter: &Letter,
        color: Rgb,
    ) {
        let room = (cells * CELL_WIDTH) as f32;
        let (width, height) = (letter.width as f32, letter.height as f32);
        if width < 1.0 || height < 1.0 {
            return;
        }
        // Emoji fill their cells; letters are only narrowed, to stay on the baseline.
        let (across, down) = match letter.colours {
            true => {
                let scale = (room / width).min(CELL_HEIGHT as f32 / height);
                (scale, scale)
            }
            false => ((room / letter.advance.max(width)).min(1.0), 1.0),
        };
        let (wide, high) = (width * across, height * down);
        let (left, top) = match letter.colours {
            true => ((room - wide) / 2.0, (CELL_HEIGHT as f32 - high) / 2.0),
            false => (
                (room - letter.advance * across) / 2.0 + letter.left as f32 * across,
                BASELINE as f32 - letter.top as f32,
            ),
        };
        let (left, top) = (x as f32 + left.round(), y as f32 + top.round());
        for row in 0..high.ceil() as usize {
            for col in 0..wide.ceil() as usize {
                let (color, cover) = letter.sample(col, row, (across, down), color);
                let (px, py) = (left + col as f32, top + row as f32);
                if px >= 0.0 && py >= 0.0 && cover > 0 {
                    self.cover(px as usize, py as usize, color, cover);
                }
            }
        }
    }

    /// Draws a braille pattern (spinners, charts): two columns of four dots, one bit each.
    pub fn braille(&mut self, (x, y): (usize, usize), dots: u32, color: Rgb) {
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

    pub fn frame(&mut self, (x, y): (usize, usize), cells: usize, color: Rgb) {
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

impl Letter {
    /// The mean of the source pixels for this one: its colour and coverage.
    fn sample(&self, col: usize, row: usize, scale: (f32, f32), color: Rgb) -> (Rgb, u8) {
        let span = |at: usize, scale: f32, most: usize| {
            let from = (at as f32 / scale) as usize;
            let to = ((at + 1) as f32 / scale).ceil() as usize;
            from.min(most - 1)..to.clamp(from + 1, most).max(from.min(most - 1) + 1)
        };
        let (rows, cols) = (
            span(row, scale.1, self.height),
            span(col, scale.0, self.width),
        );
        let (mut sums, mut cover, mut count) = ([0u32; 3], 0u32, 0u32);
        for y in rows {
            for x in cols.clone() {
                let at = y * self.width + x;
                count += 1;
                match self.colours {
                    false => cover += u32::from(self.pixels.get(at).copied().unwrap_or(0)),
                    true => {
                        let Some(pixel) = self.pixels.get(at * 4..at * 4 + 4) else {
                            continue;
                        };
                        let alpha = u32::from(pixel[3]);
                        cover += alpha;
                        for (sum, part) in sums.iter_mut().zip(pixel) {
                            *sum += u32::from(*part) * alpha;
                        }
                    }
                }
            }
        }
        let seen = match self.colours && cover > 0 {
            true => sums.map(|sum| (sum / cover) as u8),
            false => color,
        };
        (seen, (cover / count.max(1)) as u8)
    }
}
