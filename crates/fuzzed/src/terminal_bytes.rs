//! Whatever a guest writes: the screen, the marks, the watches and the session take it, in bounds.

use motu_terminal::classify::Ended;
use motu_terminal::expect::Pattern;
use motu_terminal::session::{Config, Expect, Run, Session, Shape};
use motu_terminal::{Nonce, Size, render};
use std::time::Duration;

pub fn terminal_bytes(data: &[u8]) {
    let Some((&[cols, rows, cut, width], bytes)) = data.split_first_chunk::<4>() else {
        return;
    };
    let mut session = Session::new(Config {
        size: Size::new(u16::from(cols), u16::from(rows % 64)),
        nonce: Nonce::new("0123456789abcdef"),
        ring_bytes: 4096,
        ..Config::default()
    });
    let at = Duration::from_millis;
    let long = Duration::from_secs(30);
    let _ = session.run(Run::new("echo a\necho b", long), at(1));
    let expect = Expect {
        patterns: vec![Pattern::Regex("(b+)c$".into())],
        timeout: long,
        from: None,
        raw: cut % 2 == 0,
        echo: false,
        shape: Shape::default(),
    };
    let _ = session.expect(&expect, at(1));
    for (turn, chunk) in bytes.chunks(usize::from(cut).max(1)).enumerate() {
        let now = at(2 + turn as u64 * 40);
        session.output(chunk, now);
        session.tick(now + at(20));
        session.take_records();
        session.take_input();
        if turn == 3 {
            session.resize(Size::new(u16::from(width), u16::from(cols % 50)), now);
        }
    }
    let view = session.view();
    assert_eq!(view.lines.len(), usize::from(view.size.rows()));
    assert!(view.cursor.row < view.size.rows() && view.cursor.col <= view.size.cols());
    assert_eq!(session.screen().rebuilt(), 0, "the screen model panicked");
    let _ = (
        render::html(&view),
        render::svg(&view),
        session.screen().full_text(),
    );
    if bytes.len() < 512 {
        let _ = render::png(&view);
    }
    session.ended(Ended::Eof, Duration::from_secs(60));
    session.take_outcomes();
}
