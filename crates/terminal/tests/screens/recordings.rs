//! Bytes in, grid out: recordings of real programs (`examples/capture.rs`) and sequences that real
//! programs use. A new recording is one file; the first run makes its snapshot.
use motu_terminal::Size;
use motu_terminal::screen::{Screen, joined};
use std::fmt::Write as _;
use std::path::PathBuf;

fn recordings() -> Vec<(String, Size, Vec<u8>)> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/screens/recordings");
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "bytes"))
        .map(|path| {
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let (name, size) = stem.rsplit_once('.').unwrap();
            let (cols, rows) = size.split_once('x').unwrap();
            let size = Size::new(cols.parse().unwrap(), rows.parse().unwrap());
            (name.to_owned(), size, std::fs::read(&path).unwrap())
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Everything about a screen, as text.
fn described(screen: &Screen) -> String {
    let view = screen.view();
    let mut out = String::new();
    let cursor = view.cursor;
    writeln!(
        out,
        "{}x{}, cursor {},{} {}",
        view.size.cols(),
        view.size.rows(),
        cursor.col,
        cursor.row,
        if cursor.visible { "shown" } else { "hidden" }
    )
    .unwrap();
    writeln!(
        out,
        "title {:?}, {} rows of scrollback, {:?}",
        view.title,
        screen.scrollback_rows(),
        view.modes
    )
    .unwrap();
    for (row, line) in view.lines.iter().enumerate() {
        let wrap = if line.wrapped { "\\" } else { "" };
        writeln!(out, "{row:3}|{}{wrap}", line.text()).unwrap();
        let styled: Vec<String> = line
            .runs()
            .iter()
            .filter(|run| !run.style.is_plain())
            .map(|run| format!("{:?} {}", run.text, run.style.describe()))
            .collect();
        if !styled.is_empty() {
            writeln!(out, "    {}", styled.join("; ")).unwrap();
        }
    }
    out
}

fn played(size: Size, bytes: &[u8], chunk: usize) -> Screen {
    let mut screen = Screen::new(size);
    for part in bytes.chunks(chunk) {
        screen.write(part);
    }
    screen
}

#[test]
fn recordings_end_as_they_did() {
    let found = recordings();
    assert!(found.len() >= 8, "only {} recordings", found.len());
    for (name, size, bytes) in found {
        let screen = played(size, &bytes, usize::MAX);
        assert_eq!(screen.rebuilt(), 0, "{name}");
        insta::assert_snapshot!(name, described(&screen));
    }
}

#[test]
fn how_the_bytes_are_cut_does_not_matter() {
    for (name, size, bytes) in recordings() {
        let whole = described(&played(size, &bytes, usize::MAX));
        for chunk in [1, 2, 3, 7, 61, 1024] {
            assert_eq!(
                described(&played(size, &bytes, chunk)),
                whole,
                "{name} in chunks of {chunk}"
            );
        }
    }
}

#[test]
fn text_survives_a_narrow_screen_and_back() {
    for (name, size, bytes) in recordings() {
        let mut screen = played(size, &bytes, 4096);
        if screen.modes().alternate_screen {
            continue;
        }
        let before = screen.full_text();
        for cols in [2, 13, 200, size.cols()] {
            screen.resize(Size::new(cols, size.rows()));
        }
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(squeezed(&screen.full_text()), squeezed(&before), "{name}");
    }
}

#[test]
fn hostile_sizes_are_brought_within_bounds() {
    let mut screen = Screen::new(Size::new(0, 0));
    screen.write("漢字漢字\r\n".as_bytes());
    for (cols, rows) in [(1, 1), (0, 24), (u16::MAX, u16::MAX), (2, 1), (80, 24)] {
        screen.resize(Size::new(cols, rows));
        screen.write("漢 wide \u{1f600}\r\n".as_bytes());
    }
    assert_eq!(screen.rebuilt(), 0);
}

#[test]
fn scrollback_keeps_ten_thousand_rows_in_order() {
    let mut screen = Screen::new(Size::default());
    for number in 0..25_000 {
        screen.write(format!("line {number}\r\n").as_bytes());
    }
    let lines = screen.scrollback(0);
    let text = joined(&lines);
    assert!(text.ends_with("line 24999"));
    let numbers: Vec<u32> = text
        .lines()
        .map(|line| line[5..].parse().unwrap())
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    assert!(
        (10_000..10_200).contains(&screen.scrollback_rows()),
        "{}",
        screen.scrollback_rows()
    );
    assert_eq!(
        joined(&screen.scrollback(27)).lines().next(),
        Some("line 24974")
    );
    screen.clear_scrollback();
    assert_eq!(screen.scrollback_rows(), 0);
    assert!(screen.view().text().ends_with("line 24999"));
    // A program can clear it too.
    screen.write(b"x\r\n\x1b[3J");
    assert_eq!(screen.scrollback_rows(), 0);
}

#[test]
fn combining_characters_are_bounded() {
    let mut screen = Screen::new(Size::default());
    screen.write(b"e");
    for _ in 0..1000 {
        screen.write("\u{301}".repeat(1000).as_bytes());
    }
    assert!(screen.view().text().chars().count() <= 9);
}

/// Sequences, and what a screen of 10 by 4 shows after them.
#[test]
fn sequences_that_programs_use() {
    let cases: &[(&str, &str, &str)] = &[
        ("cursor position", "\x1b[2;3Hx", "\n  x"),
        (
            "cursor moves",
            "abc\x1b[2D\x1b[1BX\x1b[1AY\x1b[1CZ",
            "abY Z\n X",
        ),
        ("column and row", "\x1b[3d\x1b[5Gx", "\n\n    x"),
        ("erase to the end of the line", "abcdef\x1b[3D\x1b[K", "abc"),
        (
            "erase from the start of the line",
            "abcdef\x1b[3D\x1b[1K",
            "    ef",
        ),
        ("erase the line", "abc\x1b[2K\rx", "x"),
        ("erase below", "a\r\nb\r\nc\x1b[2;1H\x1b[J", "a"),
        ("erase above", "a\r\nb\r\nc\r\nd\x1b[3;1H\x1b[1J", "\n\n\nd"),
        (
            "insert and delete characters",
            "abcd\x1b[1;2H\x1b[2@XY\x1b[1P",
            "aXYcd",
        ),
        ("erase characters", "abcd\x1b[1;2H\x1b[2X", "a  d"),
        (
            "insert and delete lines",
            "a\r\nb\r\nc\x1b[2;1H\x1b[Lx\x1b[3;1H\x1b[M",
            "a\nx\nc",
        ),
        (
            "scroll region",
            "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\nX",
            "1\n3\nX\n4",
        ),
        ("reverse index", "a\r\nb\x1b[1;1H\x1bMx", "x\na\nb"),
        (
            "scroll up and down",
            "a\r\nb\r\nc\x1b[1S\x1b[2T",
            "\n\nb\nc",
        ),
        (
            "save and restore",
            "ab\x1b7\x1b[4;4Hz\x1b8c",
            "abc\n\n\n   z",
        ),
        ("wrapping", "0123456789ab", "0123456789\nab"),
        ("no wrapping", "\x1b[?7l0123456789ab", "012345678b"),
        (
            "backspace after the last column",
            "0123456789\x08X",
            "01234567X9",
        ),
        ("insert mode", "abc\x1b[1;1H\x1b[4hX\x1b[4l", "Xabc"),
        ("tabs", "a\tb", "a       b"),
        ("line drawing", "\x1b(0lqk\x1b(B", "┌─┐"),
        ("repeat", "ab\x1b[3b", "abbbb"),
        (
            "the other screen",
            "main\x1b[?1049hother\x1b[?1049l",
            "main",
        ),
        ("origin mode", "\x1b[2;3r\x1b[?6h\x1b[1;1Hx", "\nx"),
        (
            "alignment pattern",
            "\x1b#8",
            "EEEEEEEEEE\nEEEEEEEEEE\nEEEEEEEEEE\nEEEEEEEEEE",
        ),
        ("reset", "junk\x1b[31m\x1b[?7l\x1bcx", "x"),
        ("wide characters", "漢字x", "漢字x"),
        (
            "a wide character does not split",
            "012345678漢",
            "012345678\n漢",
        ),
        ("combining", "e\u{301}x", "e\u{301}x"),
        (
            "unknown sequences are silent",
            "a\x1b[>4;2m\x1b[?1;2;3$y\x1bP+q544e\x1b\\\x1b_x\x1b\\b",
            "ab",
        ),
        ("broken text", "a\u{fffd}b", "a\u{fffd}b"),
    ];
    for (name, bytes, expected) in cases {
        let mut screen = Screen::new(Size::new(10, 4));
        screen.write(bytes.as_bytes());
        assert_eq!(screen.view().text(), *expected, "{name}");
    }
}

#[test]
fn queries_are_answered() {
    let mut screen = Screen::new(Size::default());
    screen.write(b"\x1b[3;5H\x1b[6n\x1b[c\x1b[5n\x1b]11;?\x07\x1b[18t");
    let replies = String::from_utf8(screen.take_replies()).unwrap();
    for part in [
        "\x1b[3;5R",
        "\x1b[?64;6;21;22;28c",
        "\x1b[0n",
        "\x1b]11;rgb:1616/1818/1d1d",
        "\x1b[8;24;80t",
    ] {
        assert!(replies.contains(part), "{part:?} in {replies:?}");
    }
    // Replies that are never taken stay bounded.
    for _ in 0..10_000 {
        screen.write(b"\x1b[6n");
    }
    assert!(screen.take_replies().len() <= 4096);
}

#[test]
fn modes_and_title_are_told() {
    let mut screen = Screen::new(Size::default());
    screen
        .write("\x1b]0;a title é\x07\x1b[?1h\x1b[?2004h\x1b[?1000h\x1b[?1006h\x1b[?25l".as_bytes());
    let view = screen.view();
    assert_eq!(view.title.as_deref(), Some("a title é"));
    assert!(
        view.modes.app_cursor
            && view.modes.bracketed_paste
            && view.modes.mouse
            && view.modes.sgr_mouse
    );
    assert!(!view.cursor.visible);
}

#[test]
fn pictures() {
    let mut screen = Screen::new(Size::new(30, 4));
    screen.write("plain \x1b[1;31mbold <red>\x1b[0m\r\n\x1b[7minverse\x1b[0m \x1b[4munder\x1b[0m 漢 é\r\n\x1b[38;2;1;2;3;48;5;236mrgb\x1b[0m".as_bytes());
    let view = screen.view();
    insta::assert_snapshot!("html", motu_terminal::render::html(&view));
    insta::assert_snapshot!("svg", motu_terminal::render::svg(&view));
    let png = motu_terminal::render::png(&view);
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
    assert_eq!(&png[16..24], [0, 0, 1, 14, 0, 0, 0, 72], "270 by 72");
}
