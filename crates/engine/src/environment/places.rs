//! Names of environments that are being made: they count for their project's quota before they are
//! there, so that two who make one at the same time cannot both take the last place.

use super::Environments;
use crate::quota::Named;
use motu_core::Result;
use motu_core::config::QuotaConfig;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Names that are being made, and by how many.
#[derive(Clone, Debug, Default)]
pub struct Places {
    taken: Arc<Mutex<BTreeMap<String, u32>>>,
    /// Held while names are counted.
    counting: Arc<tokio::sync::Mutex<()>>,
}

impl Places {
    fn taken(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        let taken = self.taken.lock();
        taken.unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A place that a name has until it is there, or until this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    name: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(count) = taken.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.name);
            }
        }
    }
}

impl Environments {
    /// Takes a place for a name, unless the quota of its project is used up.
    pub(crate) async fn place(&self, name: &str) -> Result<Place> {
        let quota = &self.sandboxes.config.quota;
        let _counting = self.places.counting.lock().await;
        let counts = |one: &QuotaConfig| one.environments > 0;
        if counts(quota) || quota.projects.values().any(counts) {
            // In this order: one that is made meanwhile is in the first or in the second.
            let mut there: Vec<String> = self.places.taken().keys().cloned().collect();
            let installed = self.list().await?.into_iter();
            there.extend(installed.filter(|one| one.installed).map(|one| one.name));
            there.sort_unstable();
            there.dedup();
            Named::Environments.check(quota, name, there.iter().map(String::as_str))?;
        }
        *self.places.taken().entry(name.to_string()).or_default() += 1;
        Ok(Place {
            places: self.places.clone(),
            name: name.to_string(),
        })
    }
}
