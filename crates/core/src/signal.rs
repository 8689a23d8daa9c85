//! Signals by name or number.

use crate::Error;
use serde::{Deserialize, Serialize};

const NAMES: [(&str, i32); 15] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ABRT", 6),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("WINCH", 28),
];

/// A signal, written as its name (`TERM`, `SIGTERM`) or as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "TERM")]
pub struct Signal(i32);

impl Signal {
    pub const KILL: Signal = Signal(9);
    pub const TERM: Signal = Signal(15);

    pub fn number(self) -> i32 {
        self.0
    }
}

impl TryFrom<String> for Signal {
    type Error = Error;

    fn try_from(text: String) -> Result<Signal, Error> {
        parse(&text).map(Signal)
    }
}

impl TryFrom<i32> for Signal {
    type Error = Error;

    fn try_from(number: i32) -> Result<Signal, Error> {
        parse(&number.to_string()).map(Signal)
    }
}

impl From<Signal> for String {
    fn from(signal: Signal) -> String {
        signal.0.to_string()
    }
}

/// The form of a signal's text, for documents.
pub fn form() -> String {
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    format!("^((SIG)?({})|[1-9]|[1-5][0-9]|6[0-4])$", names.join("|"))
}

/// Reads `TERM`, `SIGTERM`, `term` or `15`.
pub fn parse(text: &str) -> Result<i32, Error> {
    let upper = text.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = NAMES.iter().find(|(name, _)| *name == bare);
    named
        .map(|(_, number)| *number)
        .or_else(|| bare.parse().ok().filter(|number| (1..=64).contains(number)))
        .ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            Error::invalid("unknown signal").hint(format!(
                "a number from 1 to 64, or one of {}",
                names.join(", ")
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for text in ["TERM", "SIGTERM", "term", "15"] {
            assert_eq!(parse(text), Ok(15));
        }
        for text in ["", "0", "65", "-1", "NOPE", "SIG"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
