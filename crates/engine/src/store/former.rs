//! Keys and templates of earlier versions, which had them in the store alone.
//!
//! They are read once, written down as records of their own ([`crate::register`]), and leave the
//! store. A store that goes back to an earlier state brings none of them back.

use super::Store;
use super::reading::{misunderstood, parsed};
use motu_core::key::Key;
use motu_core::template::Template;
use motu_core::{Error, Result};

impl Store {
    /// Keys that are in the store, with their hashes.
    pub async fn former_keys(&self) -> Result<Vec<(Key, [u8; 32])>> {
        self.with("keys", |transaction| {
            let query = "SELECT key_id, hash, key, rowid AS rowid_of_it FROM keys";
            let mut query = transaction.prepare(query)?;
            transaction.each("keys", query.query([])?, |row| {
                let hash: Vec<u8> = row.get(1)?;
                let hash = <[u8; 32]>::try_from(hash)
                    .map_err(|_| misunderstood(1, Error::internal("the hash is damaged")))?;
                Ok((parsed(row, 2)?, hash))
            })
        })
        .await
    }

    /// Templates that are in the store.
    pub async fn former_templates(&self) -> Result<Vec<Template>> {
        self.with("templates", |transaction| {
            let query = "SELECT name, template, rowid AS rowid_of_it FROM templates";
            let mut query = transaction.prepare(query)?;
            transaction.each("templates", query.query([])?, |row| parsed(row, 1))
        })
        .await
    }

    /// Removes what was written down elsewhere.
    pub async fn forget_former(&self, table: &'static str) -> Result<()> {
        self.with_durable("records", move |transaction| {
            transaction
                .execute(&format!("DELETE FROM {table}"), [])
                .map(drop)
        })
        .await
    }
}
