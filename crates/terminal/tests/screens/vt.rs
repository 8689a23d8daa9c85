//! Sequences as the original terminals handle them; one line per rule.

use motu_terminal::{Screen, Size};

fn screen(bytes: &str) -> Screen {
    let mut screen = Screen::new(Size::new(10, 6));
    screen.write(bytes.as_bytes());
    screen
}

/// Column and row of the cursor, from one, as the sequences count.
fn cursor(bytes: &str) -> (u16, u16) {
    let cursor = screen(bytes).cursor();
    (cursor.col + 1, cursor.row + 1)
}

fn text(bytes: &str) -> String {
    screen(bytes).view().text()
}

fn replies(bytes: &str) -> String {
    String::from_utf8(screen(bytes).take_replies()).expect("replies are text")
}

#[test]
fn movement_stops_at_the_margins_it_is_inside_of() {
    for (name, bytes, at) in [
        ("CUU", "\x1b[2;4r\x1b[3;5H\x1b[99A", (5, 2)),
        (
            "CUU above the margins",
            "\x1b[3;4r\x1b[2;5H\x1b[99A",
            (5, 1),
        ),
        ("CUU from below them", "\x1b[2;4r\x1b[6;5H\x1b[99A", (5, 2)),
        ("CUD", "\x1b[2;4r\x1b[3;5H\x1b[99B", (5, 4)),
        (
            "CUD below the margins",
            "\x1b[2;3r\x1b[5;5H\x1b[99B",
            (5, 6),
        ),
        ("CUD from above them", "\x1b[3;4r\x1b[1;5H\x1b[99B", (5, 4)),
        ("CNL", "\x1b[2;4r\x1b[3;5H\x1b[99E", (1, 4)),
        ("CPL", "\x1b[2;4r\x1b[3;5H\x1b[99F", (1, 2)),
        ("CUU by nothing is by one", "\x1b[3;5H\x1b[0A", (5, 2)),
        ("CUF", "\x1b[1;5H\x1b[99C", (10, 1)),
        ("CUB", "\x1b[1;5H\x1b[99D", (1, 1)),
        ("HPR", "\x1b[1;5H\x1b[2a", (7, 1)),
        (
            "VPR goes past margins",
            "\x1b[2;3r\x1b[3;5H\x1b[99e",
            (5, 6),
        ),
        ("CHA", "\x1b[3;5H\x1b[99G", (10, 3)),
        ("HPA", "\x1b[3;5H\x1b[2`", (2, 3)),
        ("VPA", "\x1b[3;5H\x1b[99d", (5, 6)),
        ("VPA in origin mode", "\x1b[2;4r\x1b[?6h\x1b[2d", (1, 3)),
        (
            "VPA stops at the margin in origin mode",
            "\x1b[2;4r\x1b[?6h\x1b[99d",
            (1, 4),
        ),
        ("CUP in origin mode", "\x1b[2;4r\x1b[?6h\x1b[99;3H", (3, 4)),
        (
            "margins of one row are none",
            "\x1b[2;4r\x1b[3;3H\x1b[3;3r\x1b[99A",
            (3, 2),
        ),
    ] {
        assert_eq!(cursor(bytes), at, "{name}");
    }
}

#[test]
fn a_sequence_may_come_in_any_pieces() {
    let bytes = b"\x1b[2;4r\x1b[3;5H\x1b[99A\x1b[?1047hx\x1b[?1047l\x1bP$qr\x1b\\y";
    let mut whole = Screen::new(Size::new(10, 6));
    whole.write(bytes);
    let replies = whole.take_replies();
    for cut in 0..bytes.len() {
        let mut screen = Screen::new(Size::new(10, 6));
        screen.write(&bytes[..cut]);
        screen.write(&bytes[cut..]);
        assert_eq!(screen.view().text(), whole.view().text(), "{cut}");
        assert_eq!(screen.cursor(), whole.cursor(), "{cut}");
        assert_eq!(screen.take_replies(), replies, "{cut}");
    }
}

#[test]
fn cursors_are_saved_with_origin_mode_and_colours() {
    for (save, restore) in [
        ("\x1b7", "\x1b8"),
        ("\x1b[s", "\x1b[u"),
        ("\x1b[?1048h", "\x1b[?1048l"),
    ] {
        let bytes = format!("\x1b[2;4r\x1b[?6h\x1b[2;2H{save}\x1b[?6l\x1b[6;6H{restore}");
        assert_eq!(cursor(&bytes), (2, 3), "{save:?}");
        // Origin mode is set again: row one is the margin's.
        assert_eq!(cursor(&format!("{bytes}\x1b[1;1H")), (1, 2), "{save:?}");
    }
    // A pending wrap is restored: the next character goes to the next line.
    assert_eq!(text("0123456789\x1b7\x1b[H\x1b8x"), "0123456789\nx");
    assert_eq!(cursor("\x1b[3;3H\x1b8"), (1, 1), "nothing was saved");
}

#[test]
fn old_alternate_screens() {
    for mode in ["47", "1047"] {
        let there = format!("main\x1b[?{mode}hother");
        assert!(screen(&there).modes().alternate_screen, "{mode}");
        assert_eq!(
            text(&there),
            "    other",
            "{mode}: the cursor stays where it was"
        );
        let back = format!("{there}\x1b[?{mode}l!");
        assert_eq!(text(&back), "main     !", "{mode}");
        assert!(!screen(&back).modes().alternate_screen, "{mode}");
    }
    assert_eq!(replies("\x1b[?1047h\x1b[?1047$p"), "\x1b[?1047;1$y");
    assert_eq!(
        replies("\x1b[?1047$p\x1b[?9$p"),
        "\x1b[?1047;2$y\x1b[?9;2$y"
    );
}

#[test]
fn alignment_homes_and_takes_the_margins_away() {
    let aligned = "\x1b[2;4r\x1b[3;3H\x1b#8";
    assert_eq!(cursor(aligned), (1, 1));
    assert_eq!(text(aligned).lines().next(), Some("EEEEEEEEEE"));
    assert_eq!(cursor(&format!("{aligned}\x1b[99B")), (1, 6));
}

#[test]
fn a_soft_reset_resets_modes_and_leaves_the_screen() {
    let reset = "kept\x1b[2;4r\x1b[?6h\x1b[4h\x1b[?25l\x1b[?1h\x1b[1;31m\x1b[2;3H\x1b7\x1b[!p";
    let after = screen(reset);
    assert_eq!(after.view().text(), "kept");
    assert_eq!((after.cursor().col, after.cursor().row), (2, 2));
    assert!(after.cursor().visible && !after.modes().app_cursor);
    assert_eq!(cursor(&format!("{reset}\x1b[1;1H")), (1, 1), "origin mode");
    assert_eq!(cursor(&format!("{reset}\x1b[99B")), (3, 6), "margins");
    assert_eq!(cursor(&format!("{reset}\x1b8")), (1, 1), "the saved cursor");
    assert_eq!(text(&format!("{reset}\x1b[1;1HX")), "Xept", "insert mode");
    assert_eq!(
        replies(&format!("{reset}\x1bP$qm\x1b\\")),
        "\x1bP1$r0m\x1b\\"
    );
}

#[test]
fn what_is_asked_is_answered() {
    for (asked, answer) in [
        ("\x1b[5n", "\x1b[0n"),
        ("\x1b[3;4H\x1b[6n", "\x1b[3;4R"),
        ("\x1b[2;4r\x1b[?6h\x1b[2;4H\x1b[6n", "\x1b[2;4R"),
        ("\x1b[3;4H\x1b[?6n", "\x1b[?3;4;1R"),
        ("\x1b[?15n", "\x1b[?13n"),
        ("\x1b[c", "\x1b[?64;6;21;22;28c"),
        ("\x1b[=c", "\x1bP!|00000000\x1b\\"),
        ("\x1b[2;4r\x1bP$qr\x1b\\", "\x1bP1$r2;4r\x1b\\"),
        (
            "\x1b[1;7;38;5;200m\x1bP$qm\x1b\\",
            "\x1bP1$r0;1;7;38;5;200m\x1b\\",
        ),
        ("\x1b[4 q\x1bP$q q\x1b\\", "\x1bP1$r4 q\x1b\\"),
        ("\x1bP$qz\x1b\\", "\x1bP0$r\x1b\\"),
        ("\x1b[?25$p", "\x1b[?25;1$y"),
        ("\x1b[?6h\x1b[?6$p", "\x1b[?6;1$y"),
        ("AB\x1b[1;0;1;1;1;2*y", "\x1bP1!~FF7D\x1b\\"),
    ] {
        assert_eq!(replies(asked), answer, "{asked:?}");
    }
}

#[test]
fn characters_and_lines_within_the_margins() {
    let rows = "1\r\n2\r\n3\r\n4\r\n5\r\n6";
    for (name, bytes, expected) in [
        ("IL", "\x1b[2;4r\x1b[3;1H\x1b[L", "1\n2\n\n3\n5\n6"),
        (
            "IL outside",
            "\x1b[2;4r\x1b[5;1H\x1b[L",
            rows.replace("\r", "").as_str(),
        ),
        ("DL", "\x1b[2;4r\x1b[2;1H\x1b[2M", "1\n4\n\n\n5\n6"),
        (
            "DL outside",
            "\x1b[2;4r\x1b[1;1H\x1b[M",
            rows.replace("\r", "").as_str(),
        ),
        ("SU", "\x1b[2;4r\x1b[S", "1\n3\n4\n\n5\n6"),
        ("SD", "\x1b[2;4r\x1b[T", "1\n\n2\n3\n5\n6"),
        (
            "RI at the top margin",
            "\x1b[2;4r\x1b[2;1H\x1bM",
            "1\n\n2\n3\n5\n6",
        ),
        (
            "IND at the bottom margin",
            "\x1b[2;4r\x1b[4;1H\x1bD",
            "1\n3\n4\n\n5\n6",
        ),
    ] {
        assert_eq!(text(&format!("{rows}{bytes}")), expected, "{name}");
    }
    assert_eq!(
        cursor("\x1b[2;4H\x1b[L"),
        (1, 2),
        "IL goes to the first column"
    );
    for (name, bytes, expected) in [
        ("ICH", "abcdef\x1b[1;3H\x1b[2@", "ab  cdef"),
        ("DCH", "abcdef\x1b[1;3H\x1b[2P", "abef"),
        ("ECH", "abcdef\x1b[1;3H\x1b[2X", "ab  ef"),
        ("REP", "ab\x1b[3b", "abbbb"),
        ("tabs", "a\tb", "a       b"),
        ("HTS", "\x1b[1;4H\x1bH\r\tx", "   x"),
        ("TBC", "\x1b[3g\r\tx", "         x"),
        ("CBT", "\x1b[1;9H\x1b[Zx", "x"),
    ] {
        assert_eq!(text(bytes), expected, "{name}");
    }
}

#[test]
fn rectangles() {
    let rows = "abcde\r\nfghij\r\nklmno";
    for (name, bytes, expected) in [
        ("DECERA", "\x1b[1;2;2;3$z", "a  de\nf  ij\nklmno"),
        ("DECFRA", "\x1b[88;2;2;3;3$x", "abcde\nfXXij\nkXXno"),
        ("DECCRA", "\x1b[1;1;2;2;1;2;4;1$v", "abcde\nfghab\nklmfg"),
        (
            "nothing of a control",
            "\x1b[7;1;1;2;2$x",
            "abcde\nfghij\nklmno",
        ),
        (
            "nor of a wrong one",
            "\x1b[3;3;2;2$z",
            "abcde\nfghij\nklmno",
        ),
    ] {
        assert_eq!(text(&format!("{rows}{bytes}")), expected, "{name}");
    }
}

#[test]
fn looks_of_rectangles_are_set_and_turned() {
    let looks = |bytes: &str, row: usize| {
        let view = screen(&format!("abcd\r\nefgh\r\nijkl{bytes}")).view();
        let pieces = view.lines[row].pieces();
        pieces
            .map(|(text, style)| format!("{text}:{}", style.describe()))
            .collect::<Vec<_>>()
            .join(" ")
    };
    // The stream between two corners; DECSACE makes it a rectangle.
    assert_eq!(looks("\x1b[1;2;3;3;1$r", 0), "a: bcd:bold");
    assert_eq!(looks("\x1b[2*x\x1b[1;2;3;3;1$r", 0), "a: bc:bold d:");
    assert_eq!(
        looks("\x1b[2*x\x1b[1;2;3;3;1;4$r", 1),
        "e: fg:bold, underline h:"
    );
    let bold = "\x1b[2*x\x1b[1;1;3;4;1;7$r";
    assert_eq!(
        looks(&format!("{bold}\x1b[1;1;1;2;22$r"), 0),
        "ab:inverse cd:bold, inverse"
    );
    assert_eq!(
        looks(&format!("{bold}\x1b[1;1;1;2;0$r"), 0),
        "ab: cd:bold, inverse"
    );
    assert_eq!(
        looks(&format!("{bold}\x1b[1;1;1;2;7$t"), 0),
        "ab:bold cd:bold, inverse"
    );
    assert_eq!(looks("\x1b[2*x\x1b[1;1;1;2;7$t", 0), "ab:inverse cd:");
}

#[test]
fn erased_cells_take_the_background_and_lose_the_rest() {
    for erase in ["\x1b[K", "\x1b[?K", "\x1b[3X", "\x1b[1;1;1;3$z", "\x1b[3P"] {
        let view = screen(&format!("abc\x1b[1;41m\r{erase}")).view();
        let looks: Vec<String> = view.lines[0]
            .pieces()
            .map(|(_, style)| style.describe())
            .collect();
        assert_eq!(
            looks.last().map(String::as_str),
            Some("default on red"),
            "{erase:?}"
        );
        assert!(!looks.iter().any(|look| look.contains("bold")), "{erase:?}");
    }
}

#[test]
fn the_version_is_told_and_nothing_else() {
    let told = replies("\x1b[>q");
    assert!(
        told.starts_with("\x1bP>|motu(") && told.ends_with(")\x1b\\"),
        "{told:?}"
    );
}
