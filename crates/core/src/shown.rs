//! What callers are shown of what they sent.
//!
//! An error quotes its caller: a path, a name, a value of the wrong type. What was put in the wrong
//! place may be a credential, and an answer goes to logs and models that the request did not go to.
//! So every error is looked through once more when it is made for a face ([`crate::Error::worded`]).

use crate::hint::Next;
use motu_redaction::{Patterns, Redactor};
use serde_json::Value;
use std::fmt::Display;
use std::sync::LazyLock;

/// Looks for every kind of credential: an error is not output of a program, where some are wanted.
static REDACTOR: LazyLock<Redactor> = LazyLock::new(|| Redactor::new([], &Patterns::all()));

/// A text without what looks like a credential.
pub fn text(text: &str) -> String {
    REDACTOR.text(text)
}

/// Text of a caller as a message quotes it: without credentials, and only then cut to so many
/// characters. Half a credential is no longer known as one.
pub fn quoted(foreign: &str, most: usize) -> String {
    text(foreign).chars().take(most).collect()
}

/// All texts in a value, names of fields too.
pub(crate) fn value(value: &mut Value) {
    match value {
        Value::String(found) => *found = text(found),
        Value::Array(all) => all.iter_mut().for_each(self::value),
        Value::Object(fields) => {
            let shown = std::mem::take(fields).into_iter().map(|(name, mut one)| {
                self::value(&mut one);
                (text(&name), one)
            });
            fields.extend(shown);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// All texts in a step of a hint.
pub(crate) fn step(step: &mut Next) {
    match step {
        Next::Words { text: found } | Next::Host { command: found } => *found = text(found),
        Next::Verb(verb) => verb.arguments.values_mut().for_each(value),
        Next::Field(field) => field.value.iter_mut().for_each(value),
        Next::Setting { .. } | Next::Unknown => {}
    }
}

/// Why a request cannot be read, without the value that was wrong: no pattern knows a password that
/// was given as another type, or for another field.
pub fn misread(error: impl Display) -> String {
    let said = error.to_string();
    for lead in ["invalid type: ", "invalid value: "] {
        let Some(at) = said.find(lead).map(|at| at + lead.len()) else {
            continue;
        };
        let rest = &said[at..];
        let Some(quote) = rest.find(['"', '`']) else {
            continue;
        };
        // What is expected may be quoted.
        let kind = &rest[..quote];
        if kind.contains(", expected ") {
            continue;
        }
        let expected = rest.rfind(", expected ").filter(|found| *found > quote);
        let expected = expected.map_or("", |found| &rest[found..]);
        return format!("{}{}{expected}", &said[..at], kind.trim_end());
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::{host, verb};
    use crate::{Error, hint};
    use serde::Deserialize;
    use serde_json::json;
    use std::collections::BTreeMap;

    const GITHUB: &str = "ghp_0123456789abcdefABCDEF0123456789abcd";
    const OPENAI: &str = "sk-proj-0123456789abcdefABCDEF0123456789abcdefABCDEF";

    #[test]
    fn no_part_of_an_error_quotes_a_credential() {
        let error = Error::not_found(format!("there is no {GITHUB:?}"))
            .hint(hint![
                verb("set_secret").with("name", GITHUB),
                " or ",
                host(format!("echo {OPENAI}")),
            ])
            .details(json!({"name": [OPENAI], GITHUB: {"deep": GITHUB}, "max": 3}));
        let shown = error.shown();
        let written = serde_json::to_string(&shown).unwrap() + &shown.to_string();
        assert!(!written.contains("0123456789"), "{written}");
        assert!(written.contains("ghp_[redacted github-token]"), "{written}");
        assert_eq!(shown.details["max"], 3);
        // Again changes nothing: each face on the way may do it.
        assert_eq!(shown.clone().shown(), shown);
        assert_eq!(quoted(GITHUB, 12), "ghp_[redacte");
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Asked {
        password: Option<String>,
        secrets: Option<BTreeMap<String, BTreeMap<String, String>>>,
        count: Option<u8>,
    }

    #[test]
    fn what_cannot_be_read_is_not_quoted() {
        let said = |text: &str| {
            let said = misread(serde_json::from_str::<Asked>(text).unwrap_err());
            let (said, place) = said.split_once(" at ").unwrap();
            assert!(place.starts_with("line 1 column "), "{place}");
            said.to_string()
        };
        for (text, told) in [
            (
                r#"{"secrets": {"KEY": "hunter2"}}"#,
                "invalid type: string, expected a map",
            ),
            (
                r#"{"password": 123456}"#,
                "invalid type: integer, expected a string",
            ),
            (
                r#"{"secrets": "a\", expected `hunter2` no"}"#,
                "invalid type: string, expected a map",
            ),
            (
                r#"{"password": ["hunter2"]}"#,
                "invalid type: sequence, expected a string",
            ),
            (
                r#"{"count": 123456}"#,
                "invalid value: integer, expected u8",
            ),
        ] {
            assert_eq!(said(text), told);
        }
        assert_eq!(misread("missing field `id`"), "missing field `id`");
    }
}
