//! What is given on the command line, as the service wants it.

use crate::show;
use crate::wording::Commands;
use motu_core::exec::TtySize;
use motu_core::terminal::TerminalId;
use motu_core::{Error, Result};
use motu_workspaces::output::{self, Replace};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// A session's name.
pub fn session(text: &str) -> std::result::Result<TerminalId, String> {
    TerminalId::parse(text).map_err(|error| match &error.clone().worded(&Commands).hint {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    })
}

/// `120x40`.
pub fn size(text: &str) -> std::result::Result<TtySize, String> {
    let size = text.split_once(['x', 'X']).and_then(|(cols, rows)| {
        Some(TtySize {
            cols: cols.trim().parse().ok()?,
            rows: rows.trim().parse().ok()?,
        })
    });
    size.ok_or_else(|| "columns and rows, such as 120x40".to_string())
}

/// `30`, `1.5`, `500ms`, `2m`: seconds unless it says otherwise.
pub fn time(text: &str) -> std::result::Result<Duration, String> {
    let (number, unit) = match text {
        _ if text.ends_with("ms") => (&text[..text.len() - 2], 0.001),
        _ if text.ends_with('s') => (&text[..text.len() - 1], 1.0),
        _ if text.ends_with('m') => (&text[..text.len() - 1], 60.0),
        _ => (text, 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "seconds, such as 30 or 0.5, or with a unit: 500ms, 30s, 2m".to_string())
}

/// How many times as fast.
pub fn speed(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (0.01..=1000.0).contains(&speed) => Ok(speed),
        _ => Err("a number from 0.01 to 1000".to_string()),
    }
}

/// Where output goes that may not be text.
#[derive(Debug)]
pub enum Out {
    Stdout,
    File(std::fs::File, String),
}

impl Out {
    /// A new file, or a plain one that may be replaced. It grows in its place: what was written
    /// before an interruption stays.
    pub fn create(path: Option<&Path>, replace: Replace) -> Result<Out> {
        match path {
            None => Ok(Out::Stdout),
            Some(path) => {
                let name = path.display().to_string();
                Ok(Out::File(output::grow(path, replace)?, name))
            }
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            // A reader that has gone away is no error.
            Out::Stdout => show::stream(bytes).map(drop),
            Out::File(file, name) => file.write_all(bytes).map_err(|error| failed(name, &error)),
        }
    }
}

fn failed(name: &str, error: &std::io::Error) -> Error {
    Error::with_file(format!("write {name}"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read() {
        assert_eq!(
            size("120x40").map(|size| (size.cols, size.rows)),
            Ok((120, 40))
        );
        for text in ["", "80", "80x", "x24", "80x24x1", "-1x24", "99999x1"] {
            assert!(size(text).is_err(), "{text}");
        }
        for (text, millis) in [
            ("2", 2000),
            ("0.5", 500),
            ("1s", 1000),
            ("250ms", 250),
            ("2m", 120_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1", "nan", "inf", "1h", "1e99"] {
            assert!(time(text).is_err(), "{text}");
        }
        assert!(speed("0").is_err());
        assert!(speed("nan").is_err());
        assert_eq!(speed("2"), Ok(2.0));
    }
}
