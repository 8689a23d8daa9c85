//! Reading rows that may be damaged.
//!
//! One byte of one row must cost that row alone. Where a column is no text, or is not of its type,
//! no build of any version wrote it: the row is set aside in `lost/` as it lies there, and leaves
//! its table. A row that is whole but says something that this build does not understand may be a
//! newer one's: it is passed over and stays.

use super::Work;
use crate::lost::{Lost, LostKind};
use motu_core::id::random_name;
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Row, Rows};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::path::Path;

/// The alias that queries give to the rowid: what is damaged is found again by it.
pub(super) const ROWID: &str = "rowid_of_it";

/// A column of JSON.
pub(super) fn parsed<T: DeserializeOwned>(row: &Row<'_>, at: usize) -> rusqlite::Result<T> {
    let text: String = row.get(at)?;
    serde_json::from_str(&text).map_err(|error| misunderstood(at, error))
}

/// The error of a row that is whole and is not understood.
pub(super) fn misunderstood(
    at: usize,
    error: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(at, Type::Text, Box::new(error))
}

/// Text as it lies in the row, with marks in the place of what is none.
pub(super) fn lossy(row: &Row<'_>, at: usize) -> String {
    match row.get_ref(at) {
        Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        Ok(ValueRef::Integer(number)) => number.to_string(),
        Ok(ValueRef::Real(number)) => number.to_string(),
        Ok(ValueRef::Null) | Err(_) => String::new(),
    }
}

/// Whether nobody can have written what was read.
fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
    )
}

/// A damaged row that is kept in `lost/`.
pub(super) struct Spoiled {
    rowid: i64,
    why: String,
}

impl Work<'_> {
    /// Reads the rows of one table. One that cannot be read costs itself.
    pub(super) fn each<T>(
        &self,
        table: &'static str,
        rows: Rows<'_>,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        self.stretch(table, rows, usize::MAX, read)
    }

    /// Like [`Work::each`], until so many were read.
    pub(super) fn stretch<T>(
        &self,
        table: &'static str,
        mut rows: Rows<'_>,
        most: usize,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        let mut found = Vec::new();
        let mut spoiled = Vec::new();
        while found.len() < most
            && let Some(row) = rows.next()?
        {
            match read(row) {
                Ok(one) => found.push(one),
                Err(error) => spoiled.extend(self.set_aside(table, row, &error)),
            }
        }
        drop(rows);
        self.drop_rows(table, spoiled)?;
        Ok(found)
    }

    /// Reads the first row of a query, if there is one that can be read.
    pub(super) fn one<T>(
        &self,
        table: &'static str,
        rows: Rows<'_>,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        Ok(self.each(table, rows, read)?.into_iter().next())
    }

    /// Keeps a damaged row in `lost/`; says what can leave its table.
    pub(super) fn set_aside(
        &self,
        table: &'static str,
        row: &Row<'_>,
        error: &rusqlite::Error,
    ) -> Option<Spoiled> {
        let key = lossy(row, 0).chars().take(80).collect::<String>();
        tracing::error!(table, key, %error, "a row of the store cannot be read; going on without it");
        let rowid = row.get(ROWID).ok().filter(|_| is_damage(error))?;
        let why = format!("a row of {table} cannot be read: {error}");
        match keep(self.lost, table, row, &why) {
            Ok(()) => Some(Spoiled { rowid, why }),
            Err(error) => {
                tracing::error!(table, %error, "a damaged row could not be set aside; it stays");
                None
            }
        }
    }

    pub(super) fn drop_rows(&self, table: &str, spoiled: Vec<Spoiled>) -> rusqlite::Result<()> {
        for one in spoiled {
            let delete = format!("DELETE FROM {table} WHERE rowid = ?1");
            // What is damaged around it is found where it matters; the copy is in `lost/`.
            if let Err(error) = self.execute(&delete, [one.rowid]) {
                tracing::error!(why = one.why, %error, "a damaged row stays in its table");
            }
        }
        Ok(())
    }
}

/// Writes a row down as it is: texts as texts, bytes in hexadecimal digits.
fn keep(lost: &Lost, table: &str, row: &Row<'_>, why: &str) -> motu_core::Result<()> {
    let mut fields = Map::new();
    for (at, name) in row.as_ref().column_names().enumerate() {
        let value = match row.get_ref(at) {
            Ok(ValueRef::Null) | Err(_) => Value::Null,
            Ok(ValueRef::Integer(number)) => number.into(),
            Ok(ValueRef::Real(number)) => number.into(),
            Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => match std::str::from_utf8(bytes) {
                Ok(text) => text.into(),
                Err(_) => json!({"hex": hex(bytes), "text": String::from_utf8_lossy(bytes)}),
            },
        };
        fields.insert(name.to_string(), value);
    }
    let text = serde_json::to_vec_pretty(&json!({"table": table, "row": fields}))
        .map_err(|error| motu_core::Error::internal(error.to_string()))?;
    let name = format!("{table}-{}", random_name(6));
    let was_at = Path::new("motu.db").join(name);
    lost.put_bytes(LostKind::Row, &was_at, &text, why).map(drop)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
