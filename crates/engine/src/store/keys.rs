//! Rows of keys. They outlive the host's restarts.

use super::json::{from_json, to_json};
use super::{Store, Work};
use motu_core::event::{EventKind, Happened};
use motu_core::key::{Key, KeyId};
use motu_core::{Error, Result};
use rusqlite::params;

/// The SHA-256 of a whole key.
pub type KeyHash = [u8; 32];

impl Store {
    /// Writes a new key down.
    pub async fn insert_key(&self, key: &Key, hash: KeyHash) -> Result<()> {
        let (id, json) = (key.key_id.to_string(), to_json(key)?);
        let owner = key.project.owner();
        self.with_durable("key", move |transaction| {
            let event = Happened::now(EventKind::KeyCreated, &owner).about(&id);
            super::events::add(transaction, &event)?;
            transaction.execute(
                "INSERT INTO keys VALUES (?1, ?2, ?3)",
                params![id, hash.as_slice(), json],
            )?;
            Ok(())
        })
        .await
    }

    /// Writes down what has changed of keys: that they are revoked, when they were used.
    pub async fn update_keys(&self, keys: Vec<Key>) -> Result<()> {
        let rows = keys
            .iter()
            .map(|key| {
                let revoked = key.revoked_at.map(|_| key.project.owner());
                Ok((key.key_id.to_string(), to_json(key)?, revoked))
            })
            .collect::<Result<Vec<_>>>()?;
        self.with_durable("keys", move |transaction| {
            for (id, json, revoked) in rows {
                if let Some(owner) = revoked
                    && !is_revoked(transaction, &id)?
                {
                    let event = Happened::now(EventKind::KeyRevoked, &owner).about(&id);
                    super::events::add(transaction, &event)?;
                }
                transaction.execute(
                    "UPDATE keys SET key = ?2 WHERE key_id = ?1",
                    params![id, json],
                )?;
            }
            Ok(())
        })
        .await
    }

    pub async fn delete_key(&self, id: &KeyId) -> Result<()> {
        let id = id.to_string();
        self.with_durable("key", move |transaction| {
            transaction.execute("DELETE FROM keys WHERE key_id = ?1", params![id])?;
            Ok(())
        })
        .await
    }

    /// Every key. One that cannot be read is good for nothing, and the log says so.
    pub async fn keys(&self) -> Result<Vec<(Key, KeyHash)>> {
        let rows: Vec<(Vec<u8>, String)> = self
            .with("keys", |transaction| {
                let mut query = transaction.prepare("SELECT hash, key FROM keys")?;
                let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
                rows.collect()
            })
            .await?;
        let read = |(hash, json): (Vec<u8>, String)| {
            let hash = KeyHash::try_from(hash)
                .map_err(|_| Error::internal("store: the hash of a key is damaged"))?;
            Ok::<_, Error>((from_json(&json)?, hash))
        };
        let readable = |row| match read(row) {
            Ok(key) => Some(key),
            Err(error) => {
                tracing::error!(%error, "a key of the store was passed over");
                None
            }
        };
        Ok(rows.into_iter().filter_map(readable).collect())
    }
}

/// Whether the key's row says that it is revoked.
fn is_revoked(transaction: &Work<'_>, id: &str) -> rusqlite::Result<bool> {
    let mut query = transaction.prepare_cached("SELECT key FROM keys WHERE key_id = ?1")?;
    let mut rows = query.query(params![id])?;
    let json: Option<String> = rows.next()?.map(|row| row.get(0)).transpose()?;
    let key = json.and_then(|json| from_json::<Key>(&json).ok());
    Ok(key.is_some_and(|key| key.revoked_at.is_some()))
}
