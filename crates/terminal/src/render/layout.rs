//! Visual positions of the letters in a row: right-to-left text is reordered.

use crate::screen::{Line, Style};
use unicode_bidi::{BidiInfo, Level};
use unicode_width::UnicodeWidthChar as _;

/// A letter, in logical order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    pub letter: char,
    pub style: Style,
    /// Drawn as a colour emoji, not as text.
    pub emoji: bool,
    /// The number of columns, and the first one in visual order.
    pub cells: usize,
    pub column: usize,
}

impl Spot {
    /// Whether its shape depends on its neighbours.
    pub fn joins(&self) -> bool {
        matches!(self.letter, '\u{600}'..='\u{74f}' | '\u{750}'..='\u{77f}' | '\u{8a0}'..='\u{8ff}')
    }
}

/// The variation selector for emoji presentation.
const AS_PICTURE: char = '\u{fe0f}';

pub fn spots(line: &Line) -> Vec<Spot> {
    let mut spots: Vec<Spot> = Vec::new();
    let mut places = Vec::new();
    let mut byte = 0;
    for (text, style) in line.pieces() {
        for letter in text.chars() {
            let cells = letter.width().unwrap_or(0);
            if cells > 0 {
                places.push(byte);
                spots.push(Spot {
                    letter,
                    style,
                    emoji: cells == 2 && !('\u{2e80}'..'\u{1f000}').contains(&letter),
                    cells,
                    column: 0,
                });
            } else if letter == AS_PICTURE
                && let Some(last) = spots.last_mut()
            {
                last.emoji = true;
            }
            byte += letter.len_utf8();
        }
    }
    let order = match line.text().chars().any(from_the_right) {
        true => seen_order(line.text(), &places),
        false => (0..spots.len()).collect(),
    };
    let mut column = 0;
    for at in order {
        spots[at].column = column;
        column += spots[at].cells;
    }
    spots
}

/// Letters of right-to-left scripts.
fn from_the_right(letter: char) -> bool {
    matches!(letter, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}' | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}')
}

/// The visual order of a text. A terminal's rows are left-to-right paragraphs.
fn seen_order(text: &str, places: &[usize]) -> Vec<usize> {
    let known = BidiInfo::new(text, Some(Level::ltr()));
    let level = |byte: &usize| known.levels.get(*byte).copied().unwrap_or(Level::ltr());
    let levels: Vec<Level> = places.iter().map(level).collect();
    BidiInfo::reorder_visual(&levels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::{Screen, Size};

    /// The row in visual order.
    fn seen(text: &str) -> String {
        let mut screen = Screen::new(Size::new(40, 1));
        screen.write(text.as_bytes());
        let mut spots = spots(&screen.view().lines[0]);
        spots.sort_by_key(|spot| spot.column);
        spots.iter().map(|spot| spot.letter).collect()
    }

    #[test]
    fn words_from_the_right_are_turned_and_the_rest_stays() {
        assert_eq!(seen("ab cd"), "ab cd");
        assert_eq!(
            seen("a \u{5d0}\u{5d1}\u{5d2} z"),
            "a \u{5d2}\u{5d1}\u{5d0} z"
        );
        // Two words form one run; a number in it is left-to-right.
        assert_eq!(
            seen("\u{5d0}\u{5d1} \u{5d2}\u{5d3}"),
            "\u{5d3}\u{5d2} \u{5d1}\u{5d0}"
        );
        assert_eq!(seen("\u{5d0} 12 \u{5d1}"), "\u{5d1} 12 \u{5d0}");
    }

    #[test]
    fn columns_count_wide_letters_twice() {
        let mut screen = Screen::new(Size::new(40, 1));
        screen.write("漢a😀\u{2764}\u{fe0f}".as_bytes());
        let spots = spots(&screen.view().lines[0]);
        let columns: Vec<(usize, bool)> = spots.iter().map(|s| (s.column, s.emoji)).collect();
        assert_eq!(columns, [(0, false), (2, false), (3, true), (5, true)]);
    }
}
