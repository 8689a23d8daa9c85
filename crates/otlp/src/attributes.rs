//! Attributes in the JSON encoding of OTLP.

use serde_json::{Value, json};

#[derive(Debug, Default)]
pub struct Attributes(Vec<Value>);

impl Attributes {
    pub fn text(mut self, key: &str, value: &str) -> Attributes {
        self.0
            .push(json!({"key": key, "value": {"stringValue": value}}));
        self
    }

    /// Like `text`, where there is one.
    pub fn maybe(self, key: &str, value: Option<&str>) -> Attributes {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    /// A whole number, where there is one. They are texts: JSON numbers do not hold 64 bits.
    pub fn number(mut self, key: &str, value: Option<impl Into<i128>>) -> Attributes {
        if let Some(value) = value {
            let value: i128 = value.into();
            self.0
                .push(json!({"key": key, "value": {"intValue": value.to_string()}}));
        }
        self
    }

    pub fn list(self) -> Vec<Value> {
        self.0
    }
}
