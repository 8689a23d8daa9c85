//! Waking dormant sandboxes: their row is compared with the record beside their disks, as those of
//! all others are when a daemon starts, and they get a driver again.

use super::Sandboxes;
use super::reconcile::Known;
use crate::driver::{Handle, Listed, Whereabouts};
use crate::found::Witness;
use crate::record;
use motu_core::sandbox::Sandbox;
use motu_core::{Result, SandboxId};
use std::sync::Arc;

impl Sandboxes {
    /// The sandbox with this id; a dormant one is woken.
    pub(crate) async fn get(&self, id: &SandboxId) -> Result<Option<Arc<Handle>>> {
        match self.table.find(id) {
            Whereabouts::Awake(handle) => Ok(Some(handle)),
            Whereabouts::Nowhere => Ok(None),
            Whereabouts::Dormant => self.wake(id).await,
        }
    }

    /// The sandbox with this id if it is awake, as every one with a machine is.
    pub(crate) fn awake(&self, id: &SandboxId) -> Option<Arc<Handle>> {
        match self.table.find(id) {
            Whereabouts::Awake(handle) => Some(handle),
            Whereabouts::Dormant | Whereabouts::Nowhere => None,
        }
    }

    async fn wake(&self, id: &SandboxId) -> Result<Option<Arc<Handle>>> {
        // One after the other: two wakers of one sandbox would make two drivers.
        let _one_at_a_time = self.waking.lock().await;
        if let Whereabouts::Dormant = self.table.find(id) {
            tracing::info!(%id, "reading a dormant sandbox again");
            self.read_again(id).await?;
        }
        let woken = self.awake(id);
        if woken.is_none() {
            // Its disks are gone, or set aside.
            self.table.forget_dormant(id);
        }
        Ok(woken)
    }

    async fn read_again(&self, id: &SandboxId) -> Result<()> {
        let (known, witness) = match self.shared.store.get(id).await {
            Ok(Some(row)) => {
                let witness = Witness::Says(record::says(&row));
                let recorded = false;
                (Some(Known { row, recorded }), witness)
            }
            Ok(None) => (None, Witness::Silent),
            Err(error) => {
                tracing::error!(%id, %error, "a row of the store is unreadable");
                (None, Witness::Unreadable)
            }
        };
        let dir = self.shared.home.kept(id);
        let known = match dir.exists() {
            true => self.reconcile_kept(id, &dir, known, witness).await?,
            false => known,
        };
        match known {
            Some(known) => self.adopt_one(known).await,
            None => Ok(()),
        }
    }

    /// What a list shows: dormant ones as they are stored.
    pub(crate) async fn described(&self, listed: Vec<Listed>) -> Result<Vec<Sandbox>> {
        let mut dormant = Vec::new();
        let mut all = Vec::with_capacity(listed.len());
        for one in listed {
            match one {
                Listed::Awake(handle) => all.push(handle.sandbox()),
                Listed::Dormant(id) => dormant.push(id),
            }
        }
        if !dormant.is_empty() {
            all.extend(self.shared.store.sandboxes_of(dormant).await?);
        }
        Ok(all)
    }
}
