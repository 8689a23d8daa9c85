//! What people see: tables, sizes, ages, colours.
//!
//! Text that came from elsewhere goes through [`safe`] before it reaches a
//! terminal. Nothing here fails: a reader that has gone away is not an error, and output that
//! could not be written for another reason is told at the end ([`finish`]).

use crate::table;
use anstyle::{AnsiColor, Color, Style};
use jiff::Timestamp;
use motu_core::{Error, Isolation, Result};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::ops::ControlFlow;
use std::sync::OnceLock;

pub const RED: AnsiColor = AnsiColor::Red;
pub const GREEN: AnsiColor = AnsiColor::Green;
pub const YELLOW: AnsiColor = AnsiColor::Yellow;
pub const CYAN: AnsiColor = AnsiColor::Cyan;

/// A bold colour; taken out again where colours are not wanted.
pub fn style(colour: AnsiColor) -> Style {
    Style::new().bold().fg_color(Some(Color::Ansi(colour)))
}

/// A colour alone, for long texts.
pub fn plain(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(colour)))
}

/// The colour of what happened to a file.
pub fn status(status: &str) -> Style {
    plain(match status {
        "added" => GREEN,
        "deleted" => RED,
        _ => YELLOW,
    })
}

pub fn bold() -> Style {
    Style::new().bold()
}

pub fn dim() -> Style {
    Style::new().dimmed()
}

/// Shows an answer: as JSON to a program, as text to a person.
pub fn answer<T: Serialize>(as_json: bool, value: &T, text: impl FnOnce(&T) -> String) {
    if as_json {
        json(value);
    } else {
        print(&text(value));
    }
}

/// Why output was lost, if some was.
static LOST: OnceLock<std::io::Error> = OnceLock::new();

/// Keeps the first failure of our output that is not a reader's leaving.
fn keep(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = LOST.set(error);
    }
}

/// Writes what still waits, and says why output was lost, if some was.
pub fn finish() -> Option<Error> {
    keep(std::io::stdout().flush());
    let lost = LOST.get()?;
    Some(unwritten(lost).hint("what the command did is done; only its answer was lost"))
}

/// The error of output that could not be written. Its device need not be the one of our state, so
/// freeing space there is no advice.
fn unwritten(error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::StorageFull => {
            Error::limit("the output could not be written: its device is full")
        }
        _ => Error::unavailable(format!("the output could not be written: {error}")),
    }
}

/// The error of output that was cut in the middle.
pub fn cut(error: &std::io::Error) -> Error {
    unwritten(error).hint("make room where the output goes, or send it somewhere else")
}

/// Writes a piece of a stream to standard output. Breaks off when nobody reads it any more.
pub fn stream(bytes: &[u8]) -> Result<ControlFlow<()>> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(cut(&error)),
    }
}

/// Writes to standard output.
pub fn print(text: &str) {
    keep(anstream::stdout().write_all(text.as_bytes()));
}

/// Writes to standard error.
pub fn note(text: &str) {
    let _ = anstream::stderr().write_all(text.as_bytes());
}

/// Writes to standard output, byte for byte.
pub fn exact(text: &str) {
    keep(std::io::stdout().write_all(text.as_bytes()));
}

/// Writes to standard error, byte for byte.
pub fn exact_error(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes foreign text to standard output: exactly to a program, made safe to a terminal.
pub fn foreign(text: &str) {
    match std::io::stdout().is_terminal() {
        true => exact(&readable(text)),
        false => exact(text),
    }
}

/// The same to standard error.
pub fn foreign_error(text: &str) {
    match std::io::stderr().is_terminal() {
        true => exact_error(&readable(text)),
        false => exact_error(text),
    }
}

/// Foreign text for a terminal: safe, and with lines that end as lines end here.
fn readable(text: &str) -> String {
    safe(&text.replace("\r\n", "\n"))
}

/// Writes one JSON value to standard output.
pub fn json(value: &impl Serialize) {
    let mut out = std::io::stdout().lock();
    if out.is_terminal() {
        // All our values can be serialized as JSON.
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        keep(out.write_all(escaped(&text).as_bytes()));
    } else {
        keep(serde_json::to_writer_pretty(&mut out, value).map_err(Into::into));
    }
    keep(out.write_all(b"\n"));
}

/// JSON in which even those controls are escaped that JSON itself allows: a terminal obeys them.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' => text.push(c),
            c if c.is_control() => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text
}

/// Says that a sandbox is none.
pub fn warn_if_open(runtime: &str, isolation: Isolation) {
    if isolation == Isolation::None {
        let yellow = style(YELLOW);
        note(&format!(
            "{yellow}motu:{yellow:#} not isolated: {runtime} runs on the host itself, with its files and its network\n"
        ));
    }
}

/// Foreign text without anything a terminal would obey.
pub fn safe(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// What is known of something, a line each; what is not known is left out.
pub fn facts(facts: &[(&str, Option<String>)]) -> String {
    let known = facts
        .iter()
        .filter_map(|(name, fact)| Some((name, fact.as_ref()?)));
    known
        .map(|(name, fact)| format!("{name:14}{}\n", safe(fact)))
        .collect()
}

/// What made a machine, and what that gives: `qemu (vm, tcg)`.
pub fn made_by(runtime: &str, isolation: Isolation, accelerator: Option<&str>) -> String {
    match accelerator {
        Some(accelerator) => format!("{runtime} ({isolation}, {accelerator})"),
        None => format!("{runtime} ({isolation})"),
    }
}

/// Columns under headings, no wider than the terminal they are shown on.
pub fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let safely = |row: &Vec<String>| row.iter().map(|cell| safe(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(safely).collect();
    table::fitted(headings, &rows, table::room())
}

/// How long ago something was, for people.
pub fn ago(at: Timestamp, now: Timestamp) -> String {
    let passed = now.duration_since(at).as_secs().max(0);
    format!("{} ago", seconds(passed))
}

/// `1 entry`, `2 entries`.
pub fn entries(number: u64) -> String {
    count(number, "entry", "entries")
}

/// A number of things.
pub fn count(number: u64, one: &str, more: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{number} {more}"),
    }
}

/// A command as a person would type it.
pub fn words(command: &[String]) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./=:,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Bytes in units a person reads.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{count} B"),
        _ if value < 10.0 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// Seconds in the largest unit that fits.
pub fn seconds(count: i64) -> String {
    match count {
        ..60 => format!("{count}s"),
        60..3600 => format!("{}m", count / 60),
        3600..86_400 => format!("{}h", count / 3600),
        _ => format!("{}d", count / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_short() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(2048), "2.0 KiB");
        assert_eq!(bytes(300_000_000), "286 MiB");
        assert_eq!(seconds(59), "59s");
        assert_eq!(seconds(3600), "1h");
    }

    #[test]
    fn words_can_be_typed_again() {
        assert_eq!(words(&["a-b=c".to_string(), String::new()]), "a-b=c ''");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn nothing_foreign_reaches_the_terminal() {
        assert_eq!(safe("a\x1b[31mb\n"), "a\u{fffd}[31mb\n");
        assert_eq!(readable("a\r\nb\r"), "a\nb\u{fffd}");
        assert_eq!(escaped("\"\u{9b}31m\u{7f}\"\n"), "\"\\u009b31m\\u007f\"\n");
    }
}
