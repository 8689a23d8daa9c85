//! Random streams: splitting does not matter, nothing panics, memory is bounded.

use motu_terminal::classify::Ended;
use motu_terminal::record::Record;
use motu_terminal::screen::Screen;
use motu_terminal::session::{Config, Run, Session};
use motu_terminal::{Nonce, Size};
use proptest::prelude::*;
use std::time::Duration;

/// Fragments that programs write, in any order, cut anywhere.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "[ -~]{1,30}".prop_map(String::into_bytes),
        2 => Just(b"\r\n".to_vec()),
        1 => "[漢字é😀\u{301}\u{200d}]{1,6}".prop_map(String::into_bytes),
        3 => (proptest::collection::vec(0u16..300, 0..4), prop::sample::select(b"ABCDEFGHJKLMPSTXZ@bdfhlmnrsu".to_vec()))
            .prop_map(|(params, end)| {
                let params: Vec<String> = params.iter().map(u16::to_string).collect();
                format!("\x1b[{}{}", params.join(";"), char::from(end)).into_bytes()
            }),
        1 => prop::sample::select(vec![1u16, 3, 6, 7, 25, 45, 47, 69, 1000, 1015, 1047, 1048, 1049, 2004, 2026])
            .prop_flat_map(|mode| prop::sample::select(vec!['h', 'l']).prop_map(move |end| format!("\x1b[?{mode}{end}").into_bytes())),
        2 => (proptest::collection::vec(0u16..40, 0..9), prop::sample::select(vec!["$z", "$x", "$v", "${", "$r", "$t", "*y", "*x", " @", " A", "'}", "'~", "\"q", "!p", "s", "t"]))
            .prop_map(|(params, end)| {
                let params: Vec<String> = params.iter().map(u16::to_string).collect();
                format!("\x1b[{}{end}", params.join(";")).into_bytes()
            }),
        1 => "[0-9]{1,3};[ -~]{0,40}".prop_map(|text| format!("\x1b]{text}\x07").into_bytes()),
        1 => "[ABCD]".prop_map(|kind| format!("\x1b]133;{kind};k=0123456789abcdef;n=3\x1b\\").into_bytes()),
        1 => prop::sample::select(vec![&b"\x1bc"[..], b"\x1b[3J", b"\x1b7", b"\x1b8", b"\x1bM", b"\x1bD", b"\x1b6", b"\x1b9", b"\x1bV", b"\x1bW", b"\x1b#8", b"\x1b(0", b"\x1b(B", b"\x1bP1$r\x1b\\", b"\t", b"\x08"]).prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 1..12),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(fragment(), 1..80).prop_map(|parts| parts.concat())
}

/// A hundred, or what `PROPTEST_CASES` says.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(100)
}

fn shown(screen: &Screen) -> (String, Vec<String>, Option<String>) {
    let view = screen.view();
    let runs = view
        .lines
        .iter()
        .map(|line| format!("{:?}", line.runs()))
        .collect();
    (screen.full_text(), runs, view.title)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn cuts_do_not_matter(bytes in stream(), cols in 2u16..90, rows in 1u16..30, chunk in 1usize..50) {
        let size = Size::new(cols, rows);
        let mut whole = Screen::new(size);
        whole.write(&bytes);
        let mut parts = Screen::new(size);
        for part in bytes.chunks(chunk) {
            parts.write(part);
        }
        prop_assert_eq!(whole.rebuilt(), 0);
        prop_assert_eq!(shown(&whole), shown(&parts));
    }

    #[test]
    fn a_session_takes_anything(bytes in stream(), chunk in 1usize..200, cols in 0u16..200, rows in 0u16..60) {
        let mut session = Session::new(Config { nonce: Nonce::new("0123456789abcdef"), ..Config::default() });
        let at = Duration::from_millis;
        let _ = session.run(Run::new("echo", Duration::from_secs(9)), at(0));
        for (turn, part) in bytes.chunks(chunk).enumerate() {
            let now = at(turn as u64 * 70);
            session.output(part, now);
            session.tick(now + at(60));
            prop_assert!(session.wake_at().is_none_or(|wake| wake > now));
        }
        session.resize(Size::new(cols, rows), at(100_000));
        session.output(&bytes, at(100_000));
        let view = session.view();
        prop_assert_eq!(view.lines.len(), usize::from(view.size.rows()));
        prop_assert_eq!(session.screen().rebuilt(), 0);
        session.ended(Ended::Eof, at(100_001));
        // Every request is eventually answered.
        prop_assert_eq!(session.wake_at().is_some_and(|wake| wake < at(100_000)), false);
        for record in session.take_records() {
            if let Record::Output { bytes, .. } = record {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                prop_assert!(!text.contains(";k=0123456789abcdef"), "{}", text);
            }
        }
    }
}
