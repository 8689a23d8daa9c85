//! Prints the figures that are promised: ingestion, memory, time of a picture.
//!
//! Run in release: `cargo run --release -p motu-terminal --example figures`.

use motu_terminal::{Screen, Size, render};
use std::time::Instant;

/// A build log in colour, about 100 bytes a line.
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

fn ingestion(name: &str, size: Size, log: &[u8]) {
    let mut screen = Screen::new(size);
    let start = Instant::now();
    for chunk in log.chunks(65_536) {
        screen.write(chunk);
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{name}: {:.0} MB/s ({} MB, {} rows of scrollback)",
        log.len() as f64 / 1e6 / seconds,
        log.len() / 1_000_000,
        screen.scrollback_rows()
    );
}

fn memory(name: &str, count: usize, bytes: usize) {
    let log = coloured_log(bytes);
    let before = resident();
    let screens: Vec<Screen> = (0..count)
        .map(|_| {
            let mut screen = Screen::new(Size::default());
            screen.write(&log);
            screen.settle();
            screen
        })
        .collect();
    let each = (resident().saturating_sub(before)) / count;
    println!("{name}: {} KB each of {}", each / 1000, screens.len());
}

fn main() {
    let log = coloured_log(64_000_000);
    ingestion("screen, 80x24", Size::default(), &log);
    ingestion("screen, 200x50", Size::new(200, 50), &log);
    drop(log);
    memory("screen, idle", 200, 1_000);
    memory("screen, 100 lines of scrollback", 200, 12_500);
    memory("screen, full scrollback", 8, 1_400_000);

    let mut screen = Screen::new(Size::default());
    screen.write(&coloured_log(4000));
    let start = Instant::now();
    let rounds = 200;
    let mut bytes = 0;
    for _ in 0..rounds {
        bytes = render::png(&screen.view()).len();
    }
    println!(
        "png: {:.2} ms, {bytes} bytes",
        start.elapsed().as_secs_f64() * 1000.0 / f64::from(rounds)
    );
    let start = Instant::now();
    for _ in 0..rounds {
        bytes = screen.view().text().len();
    }
    println!(
        "text: {:.3} ms, {bytes} bytes",
        start.elapsed().as_secs_f64() * 1000.0 / f64::from(rounds)
    );
}
