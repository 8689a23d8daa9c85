//! Taking over what can still be read of a damaged store.
//!
//! What has a record of its own is made again from that. Histories, events, terminal sessions and
//! sandboxes that are not kept were in the store alone: their rows are read from both ends of their
//! tables, as far as the damage lets them be.

use super::{Store, only_look};
use motu_core::Result;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use std::path::Path;

/// Tables, and which of their rows are taken over.
const TABLES: [(&str, &str); 9] = [
    ("commands", ""),
    ("services", ""),
    ("shells", ""),
    ("terminals", ""),
    ("events", ""),
    ("keys", ""),
    ("templates", ""),
    (
        "meta",
        "WHERE key LIKE 'events_forgotten%' OR key LIKE 'register_%'",
    ),
    (
        "sandboxes",
        "WHERE json_valid(sandbox) AND NOT coalesce(json_extract(sandbox, '$.keep'), 0)",
    ),
];

/// How many rows of a table were taken over, and whether all of it could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    pub table: &'static str,
    pub rows: u64,
    pub whole: bool,
}

impl Store {
    /// Takes over what can be read of another database. Rows that are here already stay.
    pub async fn salvage(&self, from: &Path) -> Result<Vec<Salvaged>> {
        let Ok(old) = only_look(from) else {
            return Ok(Vec::new());
        };
        let mut all = Vec::new();
        for (table, which) in TABLES {
            let (rows, whole) = read(&old, table, which);
            let mut taken = 0;
            // In pieces: a transaction of everything would be as large as the store.
            for piece in rows.chunks(500) {
                taken += self.take_over(table, piece.to_vec()).await?;
            }
            all.push(Salvaged {
                table,
                rows: taken,
                whole,
            });
        }
        Ok(all)
    }

    async fn take_over(&self, table: &'static str, rows: Vec<Vec<Value>>) -> Result<u64> {
        self.with("salvage", move |transaction| {
            let mut taken = 0;
            for row in rows {
                let places = vec!["?"; row.len()].join(", ");
                let insert = format!("INSERT OR IGNORE INTO {table} VALUES ({places})");
                // A row of another schema, or one that is no row of this table, is left behind.
                let done = transaction
                    .prepare_cached(&insert)
                    .and_then(|mut insert| insert.execute(params_from_iter(row)));
                taken += done.unwrap_or(0) as u64;
            }
            Ok(taken)
        })
        .await
    }
}

/// The rows of a table that can be read, from both ends, and whether that is all of them.
fn read(old: &Connection, table: &str, which: &str) -> (Vec<Vec<Value>>, bool) {
    let (mut rows, mut last) = (Vec::new(), i64::MIN);
    if direction(old, table, which, "ASC", |rowid, row| {
        last = rowid;
        rows.push(row);
        true
    }) {
        return (rows, true);
    }
    let mut rest = Vec::new();
    direction(old, table, which, "DESC", |rowid, row| {
        let more = rowid > last;
        if more {
            rest.push(row);
        }
        more
    });
    rows.extend(rest.into_iter().rev());
    (rows, false)
}

/// Reads rows in one direction; says whether it came to the end.
fn direction(
    old: &Connection,
    table: &str,
    which: &str,
    order: &str,
    mut see: impl FnMut(i64, Vec<Value>) -> bool,
) -> bool {
    let query = format!("SELECT rowid, * FROM {table} {which} ORDER BY rowid {order}");
    let mut walk = || -> rusqlite::Result<()> {
        let mut query = old.prepare(&query)?;
        let columns = query.column_count();
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            // Text that is none is no row's of ours.
            let value = |at| row.get::<_, Value>(at);
            let values: rusqlite::Result<Vec<Value>> = (1..columns).map(value).collect();
            let Ok(values) = values else { continue };
            if !see(row.get(0)?, values) {
                return Ok(());
            }
        }
        Ok(())
    };
    walk().is_ok()
}
