//! Environments that are being made: they count for their project's quota before they are there, so
//! that two who make one at the same time cannot both take the last place.

use super::Environments;
use crate::admission::environment_error;
use crate::quota;
use motu_core::Result;
use motu_core::config::QuotaConfig;
use motu_environments::Title;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// What is being made, and by how many.
#[derive(Clone, Debug, Default)]
pub struct Places {
    taken: Arc<Mutex<BTreeMap<Title, u32>>>,
    /// Held while names are counted.
    counting: Arc<tokio::sync::Mutex<()>>,
}

impl Places {
    fn taken(&self) -> MutexGuard<'_, BTreeMap<Title, u32>> {
        let taken = self.taken.lock();
        taken.unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A place that a name has until it is there, or until this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    title: Title,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(count) = taken.get_mut(&self.title) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.title);
            }
        }
    }
}

impl Environments {
    /// Takes a place for an environment, unless the quota of its owner is used up.
    pub(crate) async fn place(&self, title: &Title) -> Result<Place> {
        let quota = &self.sandboxes.config.quota;
        let _counting = self.places.counting.lock().await;
        let counts = |one: &QuotaConfig| one.environments > 0;
        let counted = counts_for_quota(&title.owner, title.made_for.is_some());
        if counted && (counts(quota) || quota.projects.values().any(counts)) {
            // In this order: one that is made meanwhile is in the first or in the second.
            let taken: Vec<Title> = self.places.taken().keys().cloned().collect();
            let there = self.store().list().await.map_err(environment_error)?;
            let there = there.into_iter().filter(|one| one.installed);
            let there = there.map(|one| (one.name, one.owner, one.made_for.is_some()));
            let taken = taken
                .into_iter()
                .map(|one| (one.name, one.owner, one.made_for.is_some()));
            let own = |(_, owner, made_for): &(String, String, bool)| {
                *owner == title.owner && counts_for_quota(owner, *made_for)
            };
            let own: BTreeSet<String> = taken
                .chain(there)
                .filter(own)
                .map(|(name, ..)| name)
                .collect();
            quota::check_environments(quota, &title.owner, own.contains(&title.name), own.len())?;
        }
        *self.places.taken().entry(title.clone()).or_default() += 1;
        Ok(Place {
            places: self.places.clone(),
            title: title.clone(),
        })
    }
}

/// What is the host's does not count, and what a template's setup made goes with the template.
fn counts_for_quota(owner: &str, made_for_a_template: bool) -> bool {
    !owner.is_empty() && !made_for_a_template
}
