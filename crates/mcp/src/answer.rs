//! What a tool answers: short text for the model, and the facts as a value.

use motu_core::Error;
use serde::Serialize;
use serde_json::Value;

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
    /// With something that the call knew and what was answered does not say: names of contracts
    /// beside ours.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Answer {
        self.structured[name] = value.into();
        self
    }

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

/// What is known as a value: the same one that the other faces give.
pub fn value(known: &impl Serialize) -> Value {
    serde_json::to_value(known).unwrap_or(Value::Null)
}

impl From<Error> for Answer {
    /// `kind: message — hint`, so that a model knows what to do next.
    fn from(error: Error) -> Answer {
        let mut text = format!("{}: {}", error.kind.as_str(), error.message);
        if let Some(hint) = &error.hint {
            text.push_str(" — ");
            text.push_str(hint);
        }
        Answer {
            text,
            structured: value(&error),
            image: None,
            is_error: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_error_says_what_to_do_next() {
        let answer = Answer::from(Error::not_found("no such thing").hint("make one"));
        assert!(answer.is_error);
        assert_eq!(answer.text, "not_found: no such thing — make one");
        assert_eq!(
            answer.structured,
            json!({"kind": "not_found", "message": "no such thing", "hint": "make one"})
        );
    }
}
