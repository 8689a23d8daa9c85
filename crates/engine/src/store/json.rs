//! Rows as JSON text.

use motu_core::{Error, Result};

pub(super) fn to_json<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::internal(format!("store: {error}")))
}

pub(super) fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| damaged(&error))
}

/// The rows that can be parsed; the others are logged and skipped.
pub(super) fn readable<T: serde::de::DeserializeOwned>(what: &str, rows: &[String]) -> Vec<T> {
    let read = |text: &String| match from_json(text) {
        Ok(row) => Some(row),
        Err(error) => {
            tracing::error!(what, %error, "skipping a row of the store that cannot be parsed");
            None
        }
    };
    rows.iter().filter_map(read).collect()
}

pub(super) fn damaged(error: &serde_json::Error) -> Error {
    Error::internal(format!("store: a row is damaged: {error}"))
}
