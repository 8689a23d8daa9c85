//! Sandboxes that are gone, by age: lists of them are read a page at a time.

use super::Store;
use super::reading::parsed;
use jiff::Timestamp;
use motu_core::page::Stretch;
use motu_core::sandbox::Sandbox;
use motu_core::{Result, SandboxId};
use rusqlite::{Connection, params};
use serde::Deserialize;

/// Where a tombstone stands in a list. The indexes are by this; SQLite, which has no figures about
/// the table, would take the one by state and sort.
const BY_AGE: &str = "SELECT sandbox, rowid AS rowid_of_it FROM sandboxes INDEXED BY gone_by_age
    WHERE state = 'destroyed' AND (created_ns, sandbox_id) > (?1, ?2) ORDER BY created_ns, sandbox_id";
const BY_OWNER: &str =
    "SELECT sandbox, rowid AS rowid_of_it FROM sandboxes INDEXED BY gone_by_owner
    WHERE state = 'destroyed' AND owner = ?3 AND (created_ns, sandbox_id) > (?1, ?2)
    ORDER BY created_ns, sandbox_id";

/// An age as the store has it.
pub(super) fn nanoseconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

impl Store {
    /// Destroyed sandboxes that are still remembered, the oldest first: of one owner or of all, and
    /// all of them or a stretch. What comes after the stretch is not read.
    pub async fn tombstones(
        &self,
        owner: Option<String>,
        stretch: Option<Stretch<(Timestamp, SandboxId)>>,
    ) -> Result<Vec<Sandbox>> {
        let most = stretch.as_ref().map_or(usize::MAX, |stretch| stretch.most);
        let after = stretch.and_then(|stretch| stretch.after);
        let (age, id) = match after {
            Some((at, id)) => (nanoseconds(at), id.to_string()),
            None => (i64::MIN, String::new()),
        };
        self.with("list", move |transaction| {
            let mut query = match owner {
                Some(_) => transaction.prepare_cached(BY_OWNER)?,
                None => transaction.prepare_cached(BY_AGE)?,
            };
            let rows = match owner {
                Some(owner) => query.query(params![age, id, owner])?,
                None => query.query(params![age, id])?,
            };
            // One that cannot be read is passed over, and takes no place.
            transaction.stretch("sandboxes", rows, most, |row| parsed(row, 0))
        })
        .await
    }
}

/// What rows of earlier versions lack.
#[derive(Deserialize)]
struct Lacks {
    created_at: Timestamp,
    #[serde(default)]
    owner: String,
}

/// Gives rows of earlier versions their age and their owner. One that cannot be parsed is reported
/// where it is read.
pub(super) fn fill(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    let mut rows: Vec<(String, Lacks)> = Vec::new();
    {
        let query = "SELECT sandbox_id, sandbox FROM sandboxes WHERE created_ns IS NULL";
        let mut query = transaction.prepare(query)?;
        let found = query.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
        for (id, sandbox) in found.filter_map(rusqlite::Result::ok) {
            rows.extend(serde_json::from_str(&sandbox).ok().map(|lacks| (id, lacks)));
        }
    }
    let fill = "UPDATE sandboxes SET created_ns = ?2, owner = ?3 WHERE sandbox_id = ?1";
    for (id, Lacks { created_at, owner }) in rows {
        transaction.execute(fill, params![id, nanoseconds(created_at), owner])?;
    }
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn gone(number: i64, owner: &str) -> String {
        // Times of different length: as text they would be in another order.
        let at = Timestamp::from_nanosecond(i128::from(number) * 500_000_000).unwrap();
        json!({
            "sandbox_id": format!("sb-{number}"), "state": "destroyed", "environment": "busybox",
            "digest": "", "runtime": "container", "isolation": "container", "network": "off",
            "vcpu_count": 1, "mem_mib": 256, "limits": [], "user": "root", "workdir": "/",
            "created_at": at, "last_activity_at": at, "expires_at": null,
            "ttl_seconds": 600, "idle_seconds": 0, "owner": owner,
        })
        .to_string()
    }

    /// A store of an earlier version: rows without age and owner.
    fn earlier(rows: &[(i64, &str)]) -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("motu.db");
        drop(Store::open(&path).unwrap());
        let connection = Connection::open(&path).unwrap();
        for (number, owner) in rows {
            let insert = "INSERT INTO sandboxes (sandbox_id, state, runtime, sandbox, updated_unix)
                 VALUES (?1, 'destroyed', 'container', ?2, 0)";
            let row = params![format!("sb-{number}"), gone(*number, owner)];
            connection.execute(insert, row).unwrap();
        }
        drop(connection);
        super::super::not_upgraded(&path);
        let store = Store::open(&path).unwrap();
        (dir, store)
    }

    fn ids(list: &[Sandbox]) -> Vec<&str> {
        list.iter().map(|one| one.sandbox_id.as_str()).collect()
    }

    #[tokio::test]
    async fn tombstones_are_read_by_age_a_page_at_a_time() {
        let rows = [(4, "a"), (3, "b"), (11, "a"), (2, "a"), (5, "b")];
        let (_dir, store) = earlier(&rows);
        let all = store.tombstones(None, None).await.unwrap();
        assert_eq!(ids(&all), ["sb-2", "sb-3", "sb-4", "sb-5", "sb-11"]);
        let place = |one: &Sandbox| (one.created_at, one.sandbox_id.clone());
        let page = |after, most| Some(Stretch { after, most });
        let first = store.tombstones(None, page(None, 2)).await.unwrap();
        assert_eq!(ids(&first), ["sb-2", "sb-3"]);
        let after = Some(place(&first[1]));
        let next = store.tombstones(None, page(after.clone(), 2)).await;
        assert_eq!(ids(&next.unwrap()), ["sb-4", "sb-5"]);
        let theirs = store.tombstones(Some("a".to_string()), page(after, 9));
        assert_eq!(ids(&theirs.await.unwrap()), ["sb-4", "sb-11"]);
    }

    #[tokio::test]
    async fn a_tombstone_that_cannot_be_read_takes_no_place() {
        let (dir, store) = earlier(&[(1, "a"), (2, "a"), (3, "a")]);
        let connection = Connection::open(dir.path().join("motu.db")).unwrap();
        let damage = "UPDATE sandboxes SET sandbox = '{' WHERE sandbox_id = 'sb-1'";
        connection.execute(damage, []).unwrap();
        let stretch = Stretch {
            after: None,
            most: 2,
        };
        let found = store.tombstones(None, Some(stretch)).await.unwrap();
        assert_eq!(ids(&found), ["sb-2", "sb-3"]);
    }

    #[tokio::test]
    async fn a_page_of_tombstones_walks_an_index_and_sorts_nothing() {
        let (dir, _store) = earlier(&[(1, "a")]);
        let connection = Connection::open(dir.path().join("motu.db")).unwrap();
        for (query, index) in [(BY_AGE, "gone_by_age"), (BY_OWNER, "gone_by_owner")] {
            let explain = format!("EXPLAIN QUERY PLAN {query}");
            let mut plan = connection.prepare(&explain).unwrap();
            let values = vec!["1"; plan.parameter_count()];
            let steps = plan.query_map(rusqlite::params_from_iter(values), |row| row.get(3));
            let steps: Vec<String> = steps.unwrap().map(|step| step.unwrap()).collect();
            let steps = steps.join("; ");
            assert!(
                steps.contains(&format!("SEARCH sandboxes USING INDEX {index}")),
                "{steps}"
            );
            assert!(!steps.contains("TEMP B-TREE"), "{steps}");
        }
    }
}
