//! Letters missing in the built-in table, from fonts installed on the host.
//!
//! Fonts are searched once, when the first such letter is drawn: files below the usual directories,
//! with limits on number and size. Their character sets are remembered; a file is kept in memory
//! only once something of it is drawn.

use crate::limits::{FONT_BYTES, FONT_FILES, FONTS_KEPT_BYTES, GLYPHS_PER_PICTURE};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use swash::scale::image::{Content, Image};
use swash::scale::{Render, ScaleContext, Source, StrikeWith};
use swash::shape::{Direction, ShapeContext};
use swash::text::Script;
use swash::zeno::{Angle, Transform};
use swash::{FontDataRef, FontRef, GlyphId};

const PLACES: [&str; 2] = ["/usr/share/fonts", "/usr/local/share/fonts"];
const OWN_PLACES: [&str; 2] = [".local/share/fonts", ".fonts"];
/// Depth of the search.
const DEPTH: usize = 4;
/// Pixels per em: the size of the table's letters.
const SIZE: f32 = 15.0;
/// Slant of italic letters in degrees, and extra weight of bold ones in pixels.
const SLANT: f32 = 12.0;
const WEIGHT: f32 = 0.5;

/// The style of a letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Face {
    pub bold: bool,
    pub italic: bool,
    /// In its own colours, if there is a font for that.
    pub emoji: bool,
}

/// One font of a file, and its characters.
struct Font {
    file: Arc<File>,
    index: usize,
    /// Sorted ranges of characters.
    letters: Vec<(u32, u32)>,
    colours: bool,
    /// Lower is better.
    rank: u8,
}

struct File {
    path: PathBuf,
    data: OnceLock<Option<Vec<u8>>>,
}

impl File {
    /// The file's contents, cached after the first read while there is room.
    fn data(&self) -> Option<&[u8]> {
        static KEPT: AtomicUsize = AtomicUsize::new(0);
        let read = || {
            let data = read(&self.path)?;
            let before = KEPT.fetch_add(data.len(), Ordering::Relaxed);
            if before + data.len() > FONTS_KEPT_BYTES {
                KEPT.fetch_sub(data.len(), Ordering::Relaxed);
                return None;
            }
            Some(data)
        };
        self.data.get_or_init(read).as_deref()
    }
}

impl Font {
    fn has(&self, letter: char) -> bool {
        let letter = u32::from(letter);
        let after = self.letters.partition_point(|(first, _)| *first <= letter);
        after > 0 && self.letters[after - 1].1 >= letter
    }

    fn open(&self) -> Option<FontRef<'_>> {
        FontRef::from_index(self.file.data()?, self.index)
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let known = std::fs::metadata(path).ok()?;
    if !known.is_file() || known.len() > FONT_BYTES {
        return None;
    }
    std::fs::read(path).ok()
}

/// All fonts of the host, best first.
fn installed() -> &'static [Font] {
    static FONTS: OnceLock<Vec<Font>> = OnceLock::new();
    FONTS.get_or_init(|| {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let own = home
            .iter()
            .flat_map(|home| OWN_PLACES.map(|place| home.join(place)));
        let mut files = Vec::new();
        for place in PLACES.map(PathBuf::from).into_iter().chain(own) {
            collect(&place, DEPTH, &mut files);
        }
        let mut fonts: Vec<Font> = files.iter().flat_map(|path| fonts_of(path)).collect();
        fonts.sort_by(|a, b| (a.rank, &a.file.path).cmp(&(b.rank, &b.file.path)));
        fonts
    })
}

/// Files of fonts, up to a number.
fn collect(place: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(place) else {
        return;
    };
    let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if files.len() >= FONT_FILES {
            return;
        }
        let ending = path.extension().and_then(|ending| ending.to_str());
        let ending = ending.unwrap_or_default().to_ascii_lowercase();
        if matches!(ending.as_str(), "ttf" | "otf" | "ttc" | "otc") {
            files.push(path);
        } else if depth > 0 && path.is_dir() && !path.is_symlink() {
            collect(&path, depth - 1, files);
        }
    }
}

fn fonts_of(path: &Path) -> Vec<Font> {
    let Some(data) = read(path) else {
        return Vec::new();
    };
    let Some(all) = FontDataRef::new(&data) else {
        return Vec::new();
    };
    let file = Arc::new(File {
        path: path.to_path_buf(),
        data: OnceLock::new(),
    });
    let describe = |index: usize| {
        let font = all.get(index)?;
        Some(Font {
            file: file.clone(),
            index,
            letters: letters(&font),
            colours: font.color_strikes().len() > 0 || font.table(COLR).is_some(),
            rank: rank(path),
        })
    };
    // The members of a collection have the same characters: use the first.
    (0..all.len().min(1)).filter_map(describe).collect()
}

const COLR: u32 = u32::from_be_bytes(*b"COLR");

/// Monospaced plain fonts first, then plain ones, then the others.
fn rank(path: &Path) -> u8 {
    let name = path.file_stem().and_then(|name| name.to_str());
    let name = name.unwrap_or_default().to_ascii_lowercase();
    let styled = [
        "bold",
        "italic",
        "oblique",
        "light",
        "condensed",
        "black",
        "thin",
    ];
    let mono = name.contains("mono");
    let serif = name.contains("serif") || name.contains("math");
    let style = styled.iter().any(|style| name.contains(style));
    u8::from(!mono) + 2 * u8::from(serif) + 4 * u8::from(style)
}

fn letters(font: &FontRef<'_>) -> Vec<(u32, u32)> {
    let mut all = Vec::new();
    font.charmap().enumerate(|letter, glyph| {
        if glyph != 0 {
            all.push(letter);
        }
    });
    all.sort_unstable();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for letter in all {
        match runs.last_mut() {
            Some(last) if last.1 + 1 >= letter => last.1 = letter,
            _ => runs.push((letter, letter)),
        }
    }
    runs
}

/// A rasterized letter, with its position relative to the origin.
#[derive(Clone, Debug)]
pub struct Letter {
    pub left: i32,
    pub top: i32,
    pub width: usize,
    pub height: usize,
    pub advance: f32,
    /// One byte per pixel, or four if it has colours.
    pub pixels: Vec<u8>,
    pub colours: bool,
}

/// Draws letters for one picture.
pub struct Pen {
    scale: ScaleContext,
    shape: ShapeContext,
    known: HashMap<(usize, GlyphId, Face), Option<Letter>>,
}

impl Default for Pen {
    fn default() -> Pen {
        Pen {
            scale: ScaleContext::new(),
            shape: ShapeContext::new(),
            known: HashMap::new(),
        }
    }
}

impl Pen {
    /// The font for a letter.
    fn font(letter: char, face: Face) -> Option<usize> {
        let fonts = installed();
        let preferred = |font: &Font| font.colours == face.emoji && font.has(letter);
        fonts
            .iter()
            .position(preferred)
            .or_else(|| fonts.iter().position(|font| font.has(letter)))
    }

    pub fn letter(&mut self, letter: char, face: Face) -> Option<Letter> {
        let at = Pen::font(letter, face)?;
        let glyph = installed()[at].open()?.charmap().map(letter);
        self.draw(at, glyph, face)
    }

    /// A word of a script with joining letters: for each glyph the indices of its letters, and its
    /// image. `None` if no font has all of them.
    pub fn word(&mut self, word: &str, face: Face) -> Option<Vec<(Vec<usize>, Letter)>> {
        let letters: Vec<(usize, char)> = word.char_indices().collect();
        let fonts = installed();
        let at = fonts
            .iter()
            .position(|font| letters.iter().all(|(_, letter)| font.has(*letter)))?;
        let font = fonts[at].open()?;
        let mut parts: Vec<(Vec<usize>, GlyphId)> = Vec::new();
        let mut shaper = self
            .shape
            .builder(font)
            .script(Script::Arabic)
            .direction(Direction::RightToLeft)
            .size(SIZE)
            .build();
        shaper.add_str(word);
        shaper.shape_with(|cluster| {
            let range = cluster.source.to_range();
            let covered = letters
                .iter()
                .enumerate()
                .filter(|(_, (byte, _))| range.contains(byte))
                .map(|(number, _)| number)
                .collect();
            if let Some(glyph) = cluster.glyphs.first() {
                parts.push((covered, glyph.id));
            }
        });
        parts
            .into_iter()
            .map(|(covered, glyph)| Some((covered, self.draw(at, glyph, face)?)))
            .collect()
    }

    fn draw(&mut self, at: usize, glyph: GlyphId, face: Face) -> Option<Letter> {
        if let Some(known) = self.known.get(&(at, glyph, face)) {
            return known.clone();
        }
        // Bounds the cost of a screen full of different letters.
        if self.known.len() >= GLYPHS_PER_PICTURE {
            return None;
        }
        let drawn = installed()[at]
            .open()
            .and_then(|font| drawn(&mut self.scale, font, glyph, face));
        self.known.insert((at, glyph, face), drawn.clone());
        drawn
    }
}

fn drawn(
    scale: &mut ScaleContext,
    font: FontRef<'_>,
    glyph: GlyphId,
    face: Face,
) -> Option<Letter> {
    let advance = font.glyph_metrics(&[]).scale(SIZE).advance_width(glyph);
    let mut scaler = scale.builder(font).size(SIZE).hint(true).build();
    let mut render = Render::new(&[
        Source::ColorOutline(0),
        Source::ColorBitmap(StrikeWith::BestFit),
        Source::Outline,
        Source::Bitmap(StrikeWith::BestFit),
    ]);
    if face.bold {
        render.embolden(WEIGHT);
    }
    if face.italic {
        let lean = Transform::skew(Angle::from_degrees(SLANT), Angle::ZERO);
        render.transform(Some(lean));
    }
    let image: Image = render.render(&mut scaler, glyph)?;
    Some(Letter {
        left: image.placement.left,
        top: image.placement.top,
        width: image.placement.width as usize,
        height: image.placement.height as usize,
        advance,
        pixels: image.data,
        colours: image.content == Content::Color,
    })
}
