//! Columns under headings, as wide as the terminal they are shown on.

use std::fmt::Write as _;
use std::io::IsTerminal;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Between two columns.
const GAP: usize = 2;
/// No column is cut below this.
const LEAST: usize = 8;
/// Stands for what was cut.
const CUT: char = '…';

/// How wide a table may be: as its terminal, or as it likes for a program that reads it.
pub fn room() -> Option<usize> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(out).ok()?;
    // A terminal of unknown size reports 0.
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// The table, in no more than `room` columns where that is possible. The first column is what
/// people copy, and is never cut.
pub fn fitted(headings: &[&str], rows: &[Vec<String>], room: Option<usize>) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.width()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    if let Some(room) = room {
        shrink(&mut widths, headings, room);
    }
    let bold = anstyle::Style::new().bold();
    let mut text = String::new();
    for line in std::iter::once(None).chain(rows.iter().map(Some)) {
        for (column, width) in widths.iter().enumerate() {
            let cell = match line {
                Some(row) => row.get(column).map(String::as_str).unwrap_or_default(),
                None => headings[column],
            };
            let last = column + 1 == widths.len();
            let cell = cut(cell, *width);
            let padding = match last {
                true => 0,
                false => width.saturating_sub(cell.width()) + GAP,
            };
            let _ = match line {
                Some(_) => write!(text, "{cell}{:padding$}", ""),
                None => write!(text, "{bold}{cell}{bold:#}{:padding$}", ""),
            };
        }
        text.push('\n');
    }
    text
}

/// Takes from the widest column, one by one, until all fit. Headings stay whole.
fn shrink(widths: &mut [usize], headings: &[&str], room: usize) {
    let gaps = GAP * widths.len().saturating_sub(1);
    let least = |column: usize| headings[column].width().max(LEAST);
    while widths.iter().sum::<usize>() + gaps > room {
        let wide = (1..widths.len()).filter(|column| widths[*column] > least(*column));
        match wide.max_by_key(|column| widths[*column]) {
            Some(widest) => widths[widest] -= 1,
            None => return,
        }
    }
}

/// A text in so many columns; the end of a longer one is left out.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let mut used = 1;
    let mut kept: String = text
        .chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .collect();
    kept.push(CUT);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| cell.to_string()).collect()
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_table_fits_and_its_first_column_stays_whole() {
        let rows = [
            row(&[
                "sb-0123456789ab",
                "debian:12",
                "a command with many words in it",
            ]),
            row(&["x", "docker.io/library/python:3.12", "true"]),
        ];
        let headings = ["ID", "ENVIRONMENT", "COMMAND"];
        let wide = plain(&fitted(&headings, &rows, None));
        assert!(wide.contains("many words in it\n"), "{wide}");
        let narrow = plain(&fitted(&headings, &rows, Some(48)));
        assert!(narrow.lines().all(|line| line.width() <= 48), "{narrow}");
        assert!(narrow.contains("sb-0123456789ab  debian:12"), "{narrow}");
        assert!(narrow.contains('…'), "{narrow}");
        // If the table cannot fit, nothing is hidden.
        let hopeless = plain(&fitted(&headings, &rows, Some(10)));
        assert!(hopeless.contains("sb-0123456789ab"), "{hopeless}");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let rows = [row(&["日本", "x"]), row(&["abcd", "y"])];
        let text = plain(&fitted(&["A", "B"], &rows, None));
        assert_eq!(text, "A     B\n日本  x\nabcd  y\n");
        assert_eq!(cut("日本語", 4), "日…");
    }
}
