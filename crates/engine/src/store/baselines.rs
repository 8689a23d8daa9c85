//! References from sandboxes to baselines.
//!
//! A baseline is leased to a sandbox before it is published, and the transaction that inserts the
//! sandbox's row turns the lease into a reference: it fails if no lease or reference exists.
//! Removing the last reference leaves a mark, which stays until the baseline's directory is gone.
//! So no baseline is removed while a row needs it, and none is leaked.

use super::Store;
use super::reading::misunderstood;
use motu_core::{Result, SandboxId};
use rusqlite::{Transaction, params};

/// The sandbox id that marks a baseline without references.
const NOBODY: &str = "";

/// One reference to a baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineRef {
    pub baseline: String,
    /// `None`: the baseline is being removed.
    pub sandbox: Option<SandboxId>,
}

/// Adds a reference, if the baseline has a lease or reference already.
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
    /// Leases a baseline to a sandbox that has no row yet, or whose row predates references.
    pub async fn lease_baseline(&self, baseline: &str, id: &SandboxId) -> Result<()> {
        let (baseline, id) = (baseline.to_string(), id.to_string());
        self.with("lease", move |transaction| {
            transaction.execute(
                "INSERT OR IGNORE INTO baseline_refs VALUES (?1, ?2)",
                params![baseline, id],
            )?;
            // The baseline is in use again: remove the mark for removal.
            transaction.execute(
                "DELETE FROM baseline_refs WHERE baseline = ?1 AND sandbox_id = ?2",
                params![baseline, NOBODY],
            )?;
            Ok(())
        })
        .await
    }

    /// Drops a reference; true if it was the last one and the baseline is to be removed.
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

    /// Removes the mark of a baseline whose directory is gone.
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
            let mut query = transaction
                .prepare("SELECT baseline, sandbox_id, rowid AS rowid_of_it FROM baseline_refs")?;
            transaction.each("baseline_refs", query.query([])?, |row| {
                let sandbox: String = row.get(1)?;
                // An id that is none is no mark: what it referred to is not to be removed.
                let sandbox = match sandbox.as_str() {
                    NOBODY => None,
                    id => Some(SandboxId::parse(id).map_err(|error| misunderstood(1, error))?),
                };
                Ok(BaselineRef {
                    baseline: row.get(0)?,
                    sandbox,
                })
            })
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
        // Releasing twice has no further effect.
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
