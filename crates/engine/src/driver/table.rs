//! The live sandboxes of an engine.

use super::Handle;
use super::order::{Age, Order};
use crate::quota::{self, Claim, Used};
use motu_core::config::QuotaConfig;
use motu_core::hint;
use motu_core::hint::{setting, verb};
use motu_core::page::Stretch;
use motu_core::sandbox::State;
use motu_core::{Error, Result, SandboxId};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// The live sandboxes, by id.
#[derive(Debug, Default)]
pub struct Table {
    live: Mutex<Live>,
}

#[derive(Debug, Default)]
struct Live {
    places: HashMap<SandboxId, Place>,
    order: Order,
}

impl Live {
    fn insert(&mut self, id: &SandboxId, place: Place) {
        self.order.insert(&place.claim.owner, place.age.clone());
        self.places.insert(id.clone(), place);
    }

    fn remove(&mut self, id: &SandboxId) {
        if let Some(place) = self.places.remove(id) {
            self.order.remove(&place.claim.owner, &place.age);
        }
    }
}

#[derive(Debug)]
struct Place {
    handle: Arc<Handle>,
    claim: Claim,
    age: Age,
    /// Requests that are giving it a machine right now.
    starting: u32,
}

impl Place {
    fn has_machine(&self) -> bool {
        self.starting > 0 || !matches!(self.handle.state(), State::Stopped | State::Failed)
    }
}

/// Limits on entries: in total, and per owner.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    pub sandboxes: usize,
    pub quota: &'a QuotaConfig,
}

/// A stopped sandbox that is being started: it counts against quotas as if it had a machine.
#[derive(Debug)]
pub struct Starting {
    table: Arc<Table>,
    id: SandboxId,
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(place) = self.table.live().places.get_mut(&self.id) {
            place.starting = place.starting.saturating_sub(1);
        }
    }
}

impl Table {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Enters a sandbox, unless its name is taken, the table is full, or its owner's quota is used
    /// up.
    pub(crate) fn enter(
        &self,
        id: &SandboxId,
        handle: Arc<Handle>,
        claim: Claim,
        bounds: Option<Bounds<'_>>,
    ) -> Result<()> {
        let mut live = self.live();
        if live.places.contains_key(id) {
            return Err(Error::conflict(format!("sandbox {id} exists already"))
                .hint("choose another sandbox_id, or leave it out"));
        }
        if let Some(bounds) = bounds {
            full(&live.places, bounds.sandboxes)?;
            within(&live.places, &claim, bounds.quota)?;
        }
        let place = Place {
            age: (handle.created_at(), id.clone()),
            handle,
            claim,
            starting: 0,
        };
        live.insert(id, place);
        Ok(())
    }

    /// Whether one more sandbox of this owner could be entered now.
    pub(crate) fn could_enter(&self, claim: &Claim, bounds: Bounds<'_>) -> Result<()> {
        let live = self.live();
        full(&live.places, bounds.sandboxes)?;
        within(&live.places, claim, bounds.quota)
    }

    /// Reserves quota for the machine of a stopped sandbox. The reservation ends when the result is
    /// dropped; from then on the sandbox's state tells whether it has a machine.
    pub(crate) fn starts(
        self: &Arc<Self>,
        id: &SandboxId,
        quota: &QuotaConfig,
    ) -> Result<Starting> {
        let mut live = self.live();
        if let Some(place) = live.places.get(id)
            && !place.has_machine()
        {
            // A stopped sandbox's disk is counted already.
            let claim = Claim {
                disk_mib: 0,
                ..place.claim.clone()
            };
            within(&live.places, &claim, quota)?;
        }
        if let Some(place) = live.places.get_mut(id) {
            place.starting += 1;
        }
        Ok(Starting {
            table: self.clone(),
            id: id.clone(),
        })
    }

    /// Removes a sandbox, unless another one has taken its name.
    pub(crate) fn remove(&self, id: &SandboxId, handle: &Weak<Handle>) {
        let mut live = self.live();
        if live
            .places
            .get(id)
            .is_some_and(|found| std::ptr::eq(Arc::as_ptr(&found.handle), handle.as_ptr()))
        {
            live.remove(id);
        }
    }

    pub(crate) fn get(&self, id: &SandboxId) -> Option<Arc<Handle>> {
        let live = self.live();
        live.places.get(id).map(|place| place.handle.clone())
    }

    /// How many there are, by runtime.
    pub(crate) fn census(&self) -> BTreeMap<String, u64> {
        let mut census = BTreeMap::new();
        for handle in self.all() {
            *census.entry(handle.sandbox().runtime).or_default() += 1;
        }
        census
    }

    pub(crate) fn all(&self) -> Vec<Arc<Handle>> {
        let live = self.live();
        let all = live.places.values();
        all.map(|place| place.handle.clone()).collect()
    }

    /// Those of a page, the oldest first; of one owner, or of everybody.
    pub(crate) fn page(&self, owner: Option<&str>, stretch: &Stretch<Age>) -> Vec<Arc<Handle>> {
        let live = self.live();
        let ids = live.order.stretch(owner, stretch);
        let places = ids.filter_map(|id| live.places.get(id));
        places.map(|place| place.handle.clone()).collect()
    }
}

fn full(live: &HashMap<SandboxId, Place>, max: usize) -> Result<()> {
    match live.len() < max {
        true => Ok(()),
        false => Err(
            Error::limit(format!("{max} sandboxes are alive; that is max_sandboxes")).hint(hint![
                "destroy some (",
                verb("list_sandboxes"),
                ", ",
                verb("destroy_sandbox"),
                "), or raise ",
                setting("max_sandboxes")
            ]),
        ),
    }
}

/// Checks a claim against the quota of its owner.
fn within(live: &HashMap<SandboxId, Place>, claim: &Claim, quota: &QuotaConfig) -> Result<()> {
    let mut used = Used::default();
    let theirs = live
        .values()
        .filter(|place| place.claim.owner == claim.owner);
    for place in theirs {
        used.add(&place.claim, place.has_machine());
    }
    used.add(claim, true);
    quota::check(quota, &claim.owner, &used)
}
