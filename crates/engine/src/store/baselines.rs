//! Who needs which baseline.
//!
//! A baseline is leased to a sandbox before it has its name, and the transaction that inserts
//! the sandbox's row turns the lease into a reference: it is refused when nobody holds the
//! baseline any more. The last reference to go leaves a mark, which stays until the baseline's
//! directory is gone. So no baseline is removed that a row needs, and none is forgotten.

use super::Store;
use motu_core::{Result, SandboxId};
use rusqlite::{Transaction, params};

/// The sandbox of a baseline that nobody needs.
const NOBODY: &str = "";

/// What is known of references to baselines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineRef {
    pub baseline: String,
    /// `None`: it is being removed.
    pub sandbox: Option<SandboxId>,
}

/// Adds a reference, if somebody holds the baseline already.
pub(super) fn refer(
    transaction: &Transaction<'_>,
    baseline: &str,
    sandbox: &str,
) -> rusqlite::Result<bool> {
    let held: bool = transaction.query_row(
        "SELECT EXISTS (SELECT 1 FROM baseline_refs WHERE baseline = ?1 AND sandbox_id <> '')",
        params![baseline],
        |row| row.get(0),
    )?;
    if held {
        transaction.execute(
            "INSERT OR IGNORE INTO baseline_refs VALUES (?1, ?2)",
            params![baseline, sandbox],
        )?;
    }
    Ok(held)
}

impl Store {
    /// Holds a baseline for a sandbox that has no row yet, or whose row is older than references.
    pub async fn lease_baseline(&self, baseline: &str, id: &SandboxId) -> Result<()> {
        let (baseline, id) = (baseline.to_string(), id.to_string());
        self.with("lease", move |transaction| {
            transaction.execute(
                "INSERT OR IGNORE INTO baseline_refs VALUES (?1, ?2)",
                params![baseline, id],
            )?;
            // It is needed again.
            transaction.execute(
                "DELETE FROM baseline_refs WHERE baseline = ?1 AND sandbox_id = ?2",
                params![baseline, NOBODY],
            )?;
            Ok(())
        })
        .await
    }

    /// Lets go of a baseline; true when nobody needs it any more and it is to be removed.
    pub async fn release_baseline(&self, baseline: &str, id: &SandboxId) -> Result<bool> {
        let (baseline, id) = (baseline.to_string(), id.to_string());
        self.with_durable("release", move |transaction| {
            let held = transaction.execute(
                "DELETE FROM baseline_refs WHERE baseline = ?1 AND sandbox_id = ?2",
                params![baseline, id],
            )?;
            let needed: bool = transaction.query_row(
                "SELECT EXISTS (SELECT 1 FROM baseline_refs WHERE baseline = ?1)",
                params![baseline],
                |row| row.get(0),
            )?;
            if held == 0 || needed {
                return Ok(false);
            }
            transaction.execute(
                "INSERT INTO baseline_refs VALUES (?1, ?2)",
                params![baseline, NOBODY],
            )?;
            Ok(true)
        })
        .await
    }

    /// Forgets a baseline whose directory is gone.
    pub async fn baseline_removed(&self, baseline: &str) -> Result<()> {
        let baseline = baseline.to_string();
        self.with("release", move |transaction| {
            transaction.execute(
                "DELETE FROM baseline_refs WHERE baseline = ?1 AND sandbox_id = ?2",
                params![baseline, NOBODY],
            )?;
            Ok(())
        })
        .await
    }

    pub async fn baseline_refs(&self) -> Result<Vec<BaselineRef>> {
        self.with("list", |transaction| {
            let mut query =
                transaction.prepare("SELECT baseline, sandbox_id FROM baseline_refs")?;
            let rows = query.query_map([], |row| {
                let sandbox: String = row.get(1)?;
                Ok(BaselineRef {
                    baseline: row.get(0)?,
                    sandbox: SandboxId::parse(&sandbox).ok(),
                })
            })?;
            rows.collect()
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SandboxId {
        SandboxId::parse(text).unwrap()
    }

    #[tokio::test]
    async fn the_last_to_let_go_has_it_removed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("motu.db")).unwrap();
        store.lease_baseline("base-a", &id("one")).await.unwrap();
        store.lease_baseline("base-a", &id("two")).await.unwrap();
        assert!(!store.release_baseline("base-a", &id("one")).await.unwrap());
        // Twice is once.
        assert!(!store.release_baseline("base-a", &id("one")).await.unwrap());
        assert!(store.release_baseline("base-a", &id("two")).await.unwrap());
        let left = store.baseline_refs().await.unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].sandbox, None);
        store.baseline_removed("base-a").await.unwrap();
        assert!(store.baseline_refs().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_nobody_holds_cannot_be_referred_to() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("motu.db")).unwrap();
        let refer = |name: &'static str| {
            store.with("test", move |transaction| refer(transaction, name, "new"))
        };
        assert!(!refer("base-b").await.unwrap());
        store.lease_baseline("base-b", &id("one")).await.unwrap();
        assert!(refer("base-b").await.unwrap());
        assert!(!store.release_baseline("base-b", &id("one")).await.unwrap());
        assert!(store.release_baseline("base-b", &id("new")).await.unwrap());
        // It is being removed.
        assert!(!refer("base-b").await.unwrap());
    }
}
