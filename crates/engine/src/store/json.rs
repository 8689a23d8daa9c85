//! Rows as JSON text.

use motu_core::hint;
use motu_core::hint::host;
use motu_core::{Error, Result};

pub(super) fn to_json<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::internal(format!("store: {error}")))
}

/// One row that was asked for cannot be read; the others are as they were.
pub(super) fn damaged(error: &rusqlite::Error) -> Error {
    Error::internal(format!("store: a row is damaged: {error}"))
        .hint(hint![host("motu recover"), " lists what was set aside"])
}

pub(super) fn damaged_json(error: &serde_json::Error) -> Error {
    Error::internal(format!("store: a row is damaged: {error}"))
}
