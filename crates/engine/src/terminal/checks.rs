//! Validates callers' input.

use motu_core::exec::TtySize;
use motu_core::terminal::{OpenTerminal, SendToTerminal, Wait};
use motu_core::{Error, Result, limits};
use motu_terminal::limits as terminal;
use motu_terminal::output::MAX_BUDGET;
use motu_terminal::session::{Input, Shape};
use regex::{Regex, RegexBuilder};
use std::time::Duration;

const COLS: u16 = limits::TERMINAL_COLS.default as u16;
const ROWS: u16 = limits::TERMINAL_ROWS.default as u16;
/// The longest description.
const DESCRIPTION_CHARS: usize = limits::TERMINAL_DESCRIPTION_CHARS.max as usize;

pub fn size(size: Option<TtySize>) -> Result<TtySize> {
    let size = size.unwrap_or(TtySize {
        cols: COLS,
        rows: ROWS,
    });
    let fits = (terminal::MIN_COLS..=terminal::MAX_COLS).contains(&size.cols)
        && (terminal::MIN_ROWS..=terminal::MAX_ROWS).contains(&size.rows);
    if fits {
        return Ok(size);
    }
    Err(Error::invalid(format!(
        "a terminal of {} columns and {} rows is not possible",
        size.cols, size.rows
    ))
    .hint(format!(
        "columns are {} to {}, rows {} to {}",
        terminal::MIN_COLS,
        terminal::MAX_COLS,
        terminal::MIN_ROWS,
        terminal::MAX_ROWS
    )))
}

/// An empty text means no description.
pub fn description(text: Option<String>) -> Result<Option<String>> {
    let chars = text.as_deref().map_or(0, |text| text.chars().count());
    if chars > DESCRIPTION_CHARS {
        return Err(Error::limit(format!(
            "the description has {chars} characters; the limit is {DESCRIPTION_CHARS}"
        )));
    }
    Ok(text.filter(|text| !text.is_empty()))
}

/// An empty pattern means none.
pub fn prompt_regex(text: Option<&str>) -> Result<Option<Regex>> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    if text.len() > terminal::PATTERN_BYTES {
        return Err(Error::limit(format!(
            "prompt_regex has {} bytes; the limit is {}",
            text.len(),
            terminal::PATTERN_BYTES
        )));
    }
    RegexBuilder::new(text)
        .size_limit(terminal::PATTERN_PROGRAM_BYTES)
        .dfa_size_limit(terminal::PATTERN_PROGRAM_BYTES)
        .build()
        .map(Some)
        .map_err(|error| {
            let short: String = error.to_string().chars().take(500).collect();
            Error::invalid(format!("prompt_regex: {short}"))
        })
}

pub fn quiescence(asked: Option<u64>) -> Result<u64> {
    limits::TERMINAL_QUIESCENCE_MS.resolve(asked)
}

/// The settings of an open request for the session itself.
#[derive(Debug)]
pub struct Wanted {
    pub size: TtySize,
    pub description: Option<String>,
    pub prompt_regex: Option<Regex>,
    pub quiescence_ms: u64,
}

pub fn wanted(request: &OpenTerminal) -> Result<Wanted> {
    Ok(Wanted {
        size: size(request.size)?,
        description: description(request.description.clone())?,
        prompt_regex: prompt_regex(request.prompt_regex.as_deref())?,
        quiescence_ms: quiescence(request.quiescence_ms)?,
    })
}

/// The timeout and the output format of a wait.
pub fn wait(wait: &Wait, default: f64) -> Result<(Duration, Shape)> {
    let budget = limits::TERMINAL_OUTPUT_BYTES.resolve(wait.max_output_bytes)?;
    let shape = Shape {
        budget: usize::try_from(budget).unwrap_or(MAX_BUDGET),
        raw: !wait.strip_ansi.unwrap_or(true),
    };
    Ok((wait.timeout(default)?, shape))
}

/// Exactly one kind of input must be given.
pub fn input(send: &SendToTerminal) -> Result<Input> {
    let mut given = Vec::new();
    given.extend(send.text.clone().map(Input::Text));
    given.extend(send.paste.clone().map(Input::Paste));
    given.extend(send.keys.clone().map(Input::Keys));
    given.extend(send.control.clone().map(Input::Control));
    match (given.pop(), given.is_empty()) {
        (Some(input), true) => Ok(input),
        (None, _) => Err(Error::invalid("there is nothing to type")
            .hint("give one of text, paste, keys and control")),
        (Some(_), false) => Err(Error::invalid(
            "more than one of text, paste, keys and control is given",
        )),
    }
}

/// A signal and its name.
pub fn signal(name: &str) -> Result<(i32, String)> {
    let number = signal_number(name)?;
    Ok((number, name.chars().take(16).collect()))
}

/// A signal by name, with or without SIG, or by number.
pub fn signal_number(name: &str) -> Result<i32> {
    motu_core::signal::parse(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_several_spellings() {
        assert_eq!(signal_number("INT").unwrap(), libc::SIGINT);
        assert_eq!(signal_number("sigterm").unwrap(), libc::SIGTERM);
        assert_eq!(signal_number("9").unwrap(), 9);
        assert!(signal_number("NOPE").is_err());
        assert!(signal_number("0").is_err());
        assert!(signal_number("65").is_err());
    }

    #[test]
    fn sizes_patterns_and_inputs_are_bounded() {
        assert_eq!(size(None).unwrap().cols, 80);
        let tiny = TtySize { cols: 1, rows: 24 };
        assert!(size(Some(tiny)).is_err());
        assert!(prompt_regex(Some("(")).is_err());
        assert!(prompt_regex(Some("")).unwrap().is_none());
        assert!(prompt_regex(Some(&"a".repeat(5000))).is_err());
        assert!(prompt_regex(Some("(?:(?:a{1000}){1000}){1000}")).is_err());
        assert!(description(Some("x".repeat(2000))).is_err());
        assert!(quiescence(Some(1)).is_err());
        let mut send = SendToTerminal::default();
        assert!(input(&send).is_err());
        send.text = Some("a".to_string());
        assert_eq!(input(&send).unwrap(), Input::Text("a".to_string()));
        send.control = Some("c".to_string());
        assert!(input(&send).is_err());
    }
}
