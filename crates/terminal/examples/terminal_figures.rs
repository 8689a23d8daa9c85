//! Prints the promised figures: ingestion, memory, time of a run and of a picture.
//!
//! Run in release: `cargo run --release -p motu-terminal --example terminal_figures`.

use motu_terminal::session::{Config, Run, Session};
use motu_terminal::{Nonce, Screen, Size, render};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// A build log in colour, about 130 bytes a line.
fn coloured_log(bytes: usize) -> Vec<u8> {
    let mut log = Vec::with_capacity(bytes + 200);
    let mut line = 0u32;
    while log.len() < bytes {
        line += 1;
        log.extend_from_slice(
            format!(
                "\x1b[2m2026-11-15T05:{:02}:{:02}Z\x1b[0m \x1b[32m INFO\x1b[0m \x1b[1mbuild\x1b[0m: compiled \x1b[36mcrate-{line}\x1b[0m in {} ms, {} warnings\r\n",
                line / 60 % 60, line % 60, line % 977, line % 7
            )
            .as_bytes(),
        );
    }
    log
}

/// CPU time of this thread; independent of the machine's load.
fn computed() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Resident memory, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm
        .split(' ')
        .nth(1)
        .and_then(|field| field.parse().ok())
        .unwrap_or(0);
    pages * 4096
}

fn speed(name: &str, log: &[u8], mut take: impl FnMut(&[u8])) {
    let (wall, cpu) = (Instant::now(), computed());
    for chunk in log.chunks(65_536) {
        take(chunk);
    }
    let megabytes = log.len() as f64 / 1e6;
    println!(
        "{name}: {:.0} MB per CPU second, {:.0} MB/s by the clock",
        megabytes / (computed() - cpu).as_secs_f64(),
        megabytes / wall.elapsed().as_secs_f64()
    );
}

fn session() -> Session {
    Session::new(Config {
        nonce: Nonce::new("0123456789abcdef"),
        ..Config::default()
    })
}

fn memory(name: &str, count: usize, bytes: usize) {
    let log = coloured_log(bytes);
    let before = resident();
    let sessions: Vec<Session> = (0..count)
        .map(|_| {
            let mut session = session();
            session.output(&log, Duration::ZERO);
            session.take_records();
            session.tick(Duration::from_secs(10));
            session
        })
        .collect();
    let each = resident().saturating_sub(before) / count;
    println!("{name}: {} KB each of {}", each / 1000, sessions.len());
}

/// `echo hi` from request to answer, without the shell's part.
fn run_cost() -> Duration {
    let mut session = session();
    let mark = |kind: &str, turn: u32| format!("\x1b]133;{kind};k=0123456789abcdef;n={turn}\x07");
    session.output(
        format!("{}$ {}", mark("A", 1), mark("B", 1)).as_bytes(),
        Duration::ZERO,
    );
    let rounds = 2000;
    let start = Instant::now();
    for turn in 1..=rounds {
        let now = Duration::from_millis(u64::from(turn));
        let run = Run::new("echo hi", Duration::from_secs(30));
        session.run(run, now).expect("the session is at its prompt");
        session.take_input();
        let reply = format!(
            "echo hi\r\n{}hi\r\n{}{}$ {}",
            mark("C", turn),
            mark("D;0", turn),
            mark("A", turn + 1),
            mark("B", turn + 1)
        );
        session.output(reply.as_bytes(), now);
        let outcomes = session.take_outcomes();
        assert_eq!(outcomes[0].1.output.text, "hi\n");
        session.take_records();
    }
    start.elapsed() / rounds
}

/// Each kind of session in its own process: memory used before would hide what is used now.
const KINDS: [(&str, usize, usize); 3] = [
    ("session, idle", 200, 1_000),
    ("session, 100 lines of scrollback", 200, 12_500),
    ("session, full scrollback", 8, 1_400_000),
];

fn memory_of_each() {
    for (index, _) in KINDS.iter().enumerate() {
        let program = std::env::current_exe().expect("this program has a path");
        let status = std::process::Command::new(program)
            .arg(index.to_string())
            .status();
        assert!(status.is_ok_and(|status| status.success()));
    }
}

fn main() {
    if let Some(index) = std::env::args().nth(1) {
        let index: usize = index.parse().expect("the number of a kind");
        let (name, count, bytes) = KINDS[index];
        return memory(name, count, bytes);
    }
    memory_of_each();
    let log = coloured_log(64_000_000);
    let mut screen = Screen::new(Size::default());
    speed("screen, 80x24", &log, |chunk| screen.write(chunk));
    let mut wide = Screen::new(Size::new(200, 50));
    speed("screen, 200x50", &log, |chunk| wide.write(chunk));
    let mut whole = session();
    speed("session, 80x24", &log, |chunk| {
        whole.output(chunk, Duration::ZERO);
        whole.take_records();
    });
    drop((log, screen, wide, whole));
    println!("run, our part: {:.1} us", run_cost().as_secs_f64() * 1e6);

    let mut screen = Screen::new(Size::default());
    screen.write(&coloured_log(4000));
    let rounds = 200;
    let start = Instant::now();
    let bytes: usize = (0..rounds).map(|_| render::png(&screen.view()).len()).sum();
    println!(
        "png: {:.2} ms, {} bytes",
        start.elapsed().as_secs_f64() * 1e3 / f64::from(rounds),
        bytes / rounds as usize
    );
    let start = Instant::now();
    let bytes: usize = (0..rounds).map(|_| screen.view().text().len()).sum();
    println!(
        "text: {:.3} ms, {} bytes",
        start.elapsed().as_secs_f64() * 1e3 / f64::from(rounds),
        bytes / rounds as usize
    );
}
