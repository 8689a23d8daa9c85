//! What a tool answers: short text for the model, and the facts as a value.

use motu_core::Error;
use serde::Serialize;
use serde_json::{Value, json};

/// An answer, before it is put into the protocol's words.
#[derive(Debug)]
pub struct Answer {
    pub text: String,
    pub structured: Value,
    /// A picture (PNG), as base64.
    pub image: Option<String>,
    pub is_error: bool,
}

impl Answer {
    /// Text, and all that is known as a value.
    pub fn new(text: impl Into<String>, known: &impl Serialize) -> Answer {
        Answer {
            text: text.into(),
            structured: value(known),
            image: None,
            is_error: false,
        }
    }
}

/// A value without what is not there: a model pays for every null.
pub fn value(known: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(known).unwrap_or(Value::Null);
    without_nulls(&mut value);
    value
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

impl From<Error> for Answer {
    /// `code: message — hint`, so that a model knows what to do next.
    fn from(error: Error) -> Answer {
        let code = error.kind.as_str();
        let mut text = format!("{code}: {}", error.message);
        let mut structured = json!({"code": code, "message": error.message});
        if let Some(hint) = error.hint {
            text.push_str(" — ");
            text.push_str(&hint);
            structured["hint"] = hint.into();
        }
        if !error.details.is_null() {
            structured["details"] = error.details;
        }
        Answer {
            text,
            structured,
            image: None,
            is_error: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_to_do_next() {
        let answer = Answer::from(Error::not_found("no such thing").hint("make one"));
        assert!(answer.is_error);
        assert_eq!(answer.text, "not_found: no such thing — make one");
        assert_eq!(
            answer.structured,
            json!({"code": "not_found", "message": "no such thing", "hint": "make one"})
        );
    }

    #[test]
    fn what_is_not_there_is_not_said() {
        assert_eq!(
            value(&json!({"a": null, "b": [{"c": null}]})),
            json!({"b": [{}]})
        );
    }
}
