//! The behaviour of xterm, as a table of facts in `xterm/*.txt`: input, and the expected screen.
//!
//! ```text
//!   size 8x6                         the screen of the facts below
//!   before \e[1;1Habc                what is written before each of them
//!   name: INPUT => at 3,2 ; rows abc|_b ; row 2 _b ; says \e[0n
//! ```
//!
//! `at` is column and row of the cursor, from one; `_` is a blank; trailing blanks and trailing
//! empty rows are not written down. Every fact is also tried with its input split at every
//! position.

use motu_terminal::{Screen, Size};
use std::path::{Path, PathBuf};

/// Fewer facts mean that a file was lost or not read.
const FEWEST: usize = 300;

struct Fact {
    place: String,
    size: Size,
    input: Vec<u8>,
    expected: Vec<String>,
}

fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.extend(char.to_string().into_bytes());
            continue;
        }
        match chars.next() {
            Some('e') => out.push(0x1b),
            Some('n') => out.push(b'\n'),
            Some('r') => out.push(b'\r'),
            Some('t') => out.push(b'\t'),
            Some('b') => out.push(8),
            Some('s') => out.push(b' '),
            Some('\\') => out.push(b'\\'),
            Some('x') => {
                let digits: String = chars.by_ref().take(2).collect();
                out.push(u8::from_str_radix(&digits, 16).expect("two digits"));
            }
            other => panic!("no such escape: {other:?} in {text}"),
        }
    }
    out
}

fn facts_of(file: &Path) -> Vec<Fact> {
    let name = file
        .file_stem()
        .and_then(|stem| stem.to_str())
        .expect("a name");
    let text = std::fs::read_to_string(file).expect("a file of facts");
    let (mut size, mut before) = (Size::new(8, 6), Vec::new());
    let mut facts = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = format!("{name}.txt:{}", number + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(asked) = line.strip_prefix("size ") {
            let (cols, rows) = asked.split_once('x').expect("columns and rows");
            size = Size::new(cols.parse().expect("columns"), rows.parse().expect("rows"));
            continue;
        }
        if line == "before" || line.starts_with("before ") {
            before = bytes(line.strip_prefix("before ").unwrap_or_default());
            continue;
        }
        let (title, rest) = line
            .split_once(": ")
            .unwrap_or_else(|| panic!("{place}: no name"));
        let (input, expected) = rest
            .split_once(" => ")
            .unwrap_or_else(|| panic!("{place}: no =>"));
        facts.push(Fact {
            place: format!("{place} ({title})"),
            size,
            input: [before.as_slice(), &bytes(input)].concat(),
            expected: expected.split(" ; ").map(str::to_owned).collect(),
        });
    }
    facts
}

fn facts() -> Vec<Fact> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/screens/xterm");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder of facts")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files.iter().flat_map(|file| facts_of(file)).collect()
}

fn row(text: &str) -> String {
    text.replace(' ', "_").trim_end_matches('_').to_owned()
}

/// The actual state, in the syntax of the expectation.
fn seen(screen: &mut Screen, replies: &[u8], expected: &str) -> String {
    let view = screen.view();
    let rows: Vec<String> = view.lines.iter().map(|line| row(line.text())).collect();
    match expected.split_once(' ').map_or(expected, |(word, _)| word) {
        "at" => format!("at {},{}", view.cursor.col + 1, view.cursor.row + 1),
        "rows" => format!("rows {}", rows.join("|").trim_end_matches('|')),
        "row" => {
            let number = expected.split(' ').nth(1).expect("the number of a row");
            let at: usize = number.parse().expect("a number");
            format!("row {number} {}", rows[at - 1])
        }
        "says" => format!("says {}", String::from_utf8_lossy(replies).escape_debug())
            .replace("\\u{1b}", "\\e")
            .replace("\\\\", "\\")
            .replace("\\\"", "\"")
            .replace("\\'", "'"),
        other => panic!("nothing is known of {other:?}"),
    }
}

/// What an expectation says once blanks at its end are gone.
fn wanted(expected: &str) -> String {
    expected.trim_end().to_owned()
}

fn differences(fact: &Fact, screen: &mut Screen) -> Vec<String> {
    let replies = screen.take_replies();
    let mut out = Vec::new();
    for expected in &fact.expected {
        let found = wanted(&seen(screen, &replies, expected));
        if found != wanted(expected) {
            out.push(format!("{}: {expected}, but {found}", fact.place));
        }
    }
    if screen.rebuilt() > 0 {
        out.push(format!("{}: the screen had to be made anew", fact.place));
    }
    out
}

#[test]
fn the_screen_is_that_of_an_xterm() {
    let facts = facts();
    let mut wrong = Vec::new();
    for fact in &facts {
        let mut screen = Screen::new(fact.size);
        screen.write(&fact.input);
        wrong.extend(differences(fact, &mut screen));
    }
    println!("{} of {} facts", facts.len() - wrong.len(), facts.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(facts.len() >= FEWEST, "{} facts", facts.len());
}

#[test]
fn it_is_so_in_whatever_pieces_the_bytes_come() {
    for fact in facts() {
        for cut in 0..fact.input.len() {
            let mut screen = Screen::new(fact.size);
            screen.write(&fact.input[..cut]);
            screen.write(&fact.input[cut..]);
            let wrong = differences(&fact, &mut screen);
            assert!(wrong.is_empty(), "cut at {cut}: {wrong:?}");
        }
    }
}

/// Any mixture of sequences: the grid is never lost, the cursor stays on the screen, and no half of
/// a wide character makes a row wider than the screen.
#[test]
fn no_mixture_breaks_the_screen() {
    use proptest::prelude::*;
    let facts = facts();
    let pieces: Vec<&[u8]> = facts.iter().map(|fact| fact.input.as_slice()).collect();
    let wide = "漢\u{301}x😀".as_bytes();
    let mixture = proptest::collection::vec((0..pieces.len(), 0u8..12, 2u16..12, 1u16..8), 1..40);
    let mut runner = proptest::test_runner::TestRunner::default();
    let outcome = runner.run(&mixture, |steps| {
        let mut screen = Screen::new(Size::new(8, 6));
        for (piece, what, cols, rows) in steps {
            match what {
                0 => screen.resize(Size::new(cols, rows)),
                1..=3 => screen.write(wide),
                _ => screen.write(pieces[piece]),
            }
            let view = screen.view();
            prop_assert_eq!(screen.rebuilt(), 0);
            prop_assert!(view.cursor.row < view.size.rows() && view.cursor.col < view.size.cols());
            for line in &view.lines {
                let width: usize = line.text().chars().map(width).sum();
                prop_assert!(width <= usize::from(view.size.cols()), "{:?}", line.text());
            }
        }
        Ok(())
    });
    outcome.expect("every mixture");
}

fn width(char: char) -> usize {
    unicode_width::UnicodeWidthChar::width(char).unwrap_or(0)
}
