//! The throughput of the redactor, with many secrets and all patterns.

use crate::report::Report;
use crate::{Bench, Outcome};
use motu_redaction::{Forms, Known, Patterns, Redactor};
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

const SECRETS: usize = 100;
/// The size of a chunk: a frame of a machine's link.
const PIECE: usize = 32 * 1024;
const TEXT: usize = 2 * 1024 * 1024;
/// Many short rounds, because other processes use the same CPU.
const ROUNDS: usize = 60;

/// The required throughput in MB/s.
const MARK: f64 = 500.0;

pub fn measure(bench: &mut Bench) -> Outcome {
    figures(&mut bench.report);
    Ok(())
}

pub fn figures(report: &mut Report) {
    report.group("redaction");
    for (what, speed) in speeds() {
        report.at_least(what, speed, MARK, "MB/s");
    }
}

/// The measured throughput in MB/s: the best round.
pub fn speeds() -> Vec<(&'static str, f64)> {
    let values: Vec<String> = (0..SECRETS).map(secret).collect();
    let known = |value| Known {
        name: Some("SECRET"),
        value: str::as_bytes(value),
        forms: Forms::All,
    };
    let values = values.iter().map(|value| known(value.as_str()));
    let all = Redactor::new(values, &Patterns::all());
    let kinds = Redactor::new([], &Patterns::all());
    let (log, binary) = (log(), binary());
    vec![
        ("log text, 100 secrets and all patterns", speed(&all, &log)),
        ("binary, 100 secrets and all patterns", speed(&all, &binary)),
        ("log text, all patterns and no secret", speed(&kinds, &log)),
        ("binary, all patterns and no secret", speed(&kinds, &binary)),
    ]
}

fn speed(redactor: &Redactor, text: &[u8]) -> f64 {
    let round = |_| {
        let began = Instant::now();
        let mut stream = redactor.stream();
        let mut shown = 0;
        let mut sink = |piece: &[u8]| shown += black_box(piece).len();
        for piece in text.chunks(PIECE) {
            stream.push(piece, &mut sink);
        }
        stream.finish(&mut sink);
        text.len() as f64 / 1e6 / began.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(round).fold(0.0, f64::max)
}

/// Deterministic pseudorandom numbers.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn secret(number: usize) -> String {
    let mut state = 0x9E37_79B9_7F4A_7C15 ^ (number as u64 + 1);
    let letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    let letter = |_| char::from(letters[(random(&mut state) % 64) as usize]);
    (0..32).map(letter).collect()
}

fn log() -> Vec<u8> {
    let mut state = 42;
    let mut text = String::new();
    while text.len() < TEXT {
        let number = random(&mut state);
        let line = match number % 4 {
            0 => format!(
                "GET https://api.example.com:443/v1/items/{number} 200 {}ms",
                number % 97
            ),
            1 => format!(
                "worker-{} finished task {number:x}: disk usage is ok, skipping",
                number % 16
            ),
            2 => format!(
                "{{\"level\":\"info\",\"request\":\"{number:016x}\",\"path\":\"/srv/app/{number}\"}}"
            ),
            _ => format!(
                "    at Object.<anonymous> (/workspace/src/handlers/session.ts:{}:17)",
                number % 900
            ),
        };
        let _ = writeln!(
            text,
            "2026-08-21T10:{:02}:{:02}Z INFO {line}",
            number % 60,
            number % 59
        );
    }
    text.into_bytes()
}

fn binary() -> Vec<u8> {
    let mut state = 7;
    let mut bytes = Vec::with_capacity(TEXT + 8);
    while bytes.len() < TEXT {
        bytes.extend_from_slice(&random(&mut state).to_le_bytes());
    }
    bytes
}
