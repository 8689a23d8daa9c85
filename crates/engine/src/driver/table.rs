//! The sandboxes of an engine.
//!
//! Those that are awake have a driver. A stopped one that nobody uses is dormant: it has its row in the
//! store, and here what lists, quotas and names need ([`Dormant`]). It is woken by the next use.

use super::Handle;
use super::order::{Age, Order};
use crate::dormant::{Counted, Dormant};
use crate::quota::{self, Claim};
use motu_core::config::QuotaConfig;
use motu_core::hint;
use motu_core::hint::{setting, verb};
use motu_core::page::Stretch;
use motu_core::sandbox::State;
use motu_core::{Error, Result, SandboxId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// The sandboxes, by id.
#[derive(Debug, Default)]
pub struct Table {
    live: Mutex<Live>,
}

#[derive(Debug, Default)]
struct Live {
    awake: BTreeMap<SandboxId, Place>,
    dormant: BTreeMap<SandboxId, Dormant>,
    /// Dormant ones, counted by what they have in common.
    counted: Counted,
    order: Order,
}

impl Live {
    fn has(&self, id: &SandboxId) -> bool {
        self.awake.contains_key(id) || self.dormant.contains_key(id)
    }

    fn insert(&mut self, id: &SandboxId, place: Place) {
        self.order.insert(&place.claim.owner, place.age.clone());
        self.awake.insert(id.clone(), place);
    }

    fn remove(&mut self, id: &SandboxId) {
        if let Some(place) = self.awake.remove(id) {
            self.order.remove(&place.claim.owner, &place.age);
        }
    }

    fn insert_dormant(&mut self, id: SandboxId, dormant: Dormant) {
        let dormant = self.counted.add(dormant);
        let age = (dormant.created_at, id.clone());
        self.order.insert(&dormant.kind.owner, age);
        self.dormant.insert(id, dormant);
    }

    fn remove_dormant(&mut self, id: &SandboxId) {
        if let Some(dormant) = self.dormant.remove(id) {
            let age = (dormant.created_at, id.clone());
            self.order.remove(&dormant.kind.owner, &age);
            self.counted.remove(&dormant);
        }
    }

    fn full(&self, max: usize) -> Result<()> {
        match self.awake.len() + self.dormant.len() < max {
            true => Ok(()),
            false => Err(
                Error::limit(format!("{max} sandboxes are alive; that is max_sandboxes")).hint(
                    hint![
                        "destroy some (",
                        verb("list_sandboxes"),
                        ", ",
                        verb("destroy_sandbox"),
                        "), or raise ",
                        setting("max_sandboxes")
                    ],
                ),
            ),
        }
    }

    /// Checks a claim against the quota of its owner.
    fn within(&self, claim: &Claim, quota: &QuotaConfig) -> Result<()> {
        let mut used = self.counted.used_by(&claim.owner);
        let theirs = self.awake.values();
        for place in theirs.filter(|place| place.claim.owner == claim.owner) {
            used.add(&place.claim, place.has_machine());
        }
        used.add(claim, true);
        quota::check(quota, &claim.owner, &used)
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

/// Where something with an id is, and what it is while it is awake.
#[derive(Clone, Debug)]
pub(crate) enum Whereabouts<T> {
    Awake(Arc<T>),
    Dormant,
    Nowhere,
}

/// One sandbox of a list.
#[derive(Clone, Debug)]
pub(crate) enum Listed {
    Awake(Arc<Handle>),
    Dormant(SandboxId),
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
        if let Some(place) = self.table.live().awake.get_mut(&self.id) {
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

    /// Enters a new sandbox, unless its name is taken, the table is full, or its owner's quota is
    /// used up.
    pub(crate) fn enter(
        &self,
        id: &SandboxId,
        handle: Arc<Handle>,
        claim: Claim,
        bounds: Bounds<'_>,
    ) -> Result<()> {
        let mut live = self.live();
        if live.has(id) {
            return Err(exists(id));
        }
        live.full(bounds.sandboxes)?;
        live.within(&claim, bounds.quota)?;
        live.insert(id, Place::new(id, handle, claim));
        Ok(())
    }

    /// Enters a sandbox that a former daemon had, or that was dormant. It is there already, so limits that
    /// were lowered since do not keep it out.
    pub(crate) fn enter_again(
        &self,
        id: &SandboxId,
        handle: Arc<Handle>,
        claim: Claim,
    ) -> Result<()> {
        let mut live = self.live();
        if live.awake.contains_key(id) {
            return Err(exists(id));
        }
        live.remove_dormant(id);
        live.insert(id, Place::new(id, handle, claim));
        Ok(())
    }

    /// Enters sandboxes that are dormant.
    pub(crate) fn lay_down(&self, all: impl IntoIterator<Item = (SandboxId, Dormant)>) {
        let mut live = self.live();
        for (id, dormant) in all {
            if !live.has(&id) {
                live.insert_dormant(id, dormant);
            }
        }
    }

    /// Makes a stopped sandbox dormant, if nobody holds its handle. Its driver asks, and ends then.
    pub(crate) fn make_dormant(
        &self,
        id: &SandboxId,
        handle: &Weak<Handle>,
        dormant: Dormant,
        unused: &dyn Fn() -> bool,
    ) -> bool {
        let mut live = self.live();
        let Some(place) = live.awake.get(id) else {
            return false;
        };
        let own = std::ptr::eq(Arc::as_ptr(&place.handle), handle.as_ptr());
        let held = Arc::strong_count(&place.handle) > 1 || place.starting > 0;
        if !own || held || !unused() {
            return false;
        }
        live.remove(id);
        live.insert_dormant(id.clone(), dormant);
        true
    }

    /// Forgets a dormant one that turned out not to be there.
    pub(crate) fn forget_dormant(&self, id: &SandboxId) {
        self.live().remove_dormant(id);
    }

    /// Whether one more sandbox of this owner could be entered now.
    pub(crate) fn could_enter(&self, claim: &Claim, bounds: Bounds<'_>) -> Result<()> {
        let live = self.live();
        live.full(bounds.sandboxes)?;
        live.within(claim, bounds.quota)
    }

    /// Reserves quota for the machine of a stopped sandbox. The reservation ends when the result is
    /// dropped; from then on the sandbox's state tells whether it has a machine.
    pub(crate) fn starts(
        self: &Arc<Self>,
        id: &SandboxId,
        quota: &QuotaConfig,
    ) -> Result<Starting> {
        let mut live = self.live();
        if let Some(place) = live.awake.get(id)
            && !place.has_machine()
        {
            // A stopped sandbox's disk is counted already.
            let claim = Claim {
                disk_mib: 0,
                ..place.claim.clone()
            };
            live.within(&claim, quota)?;
        }
        if let Some(place) = live.awake.get_mut(id) {
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
            .awake
            .get(id)
            .is_some_and(|found| std::ptr::eq(Arc::as_ptr(&found.handle), handle.as_ptr()))
        {
            live.remove(id);
        }
    }

    /// Where a sandbox is. A dormant one is woken by [`crate::sandbox::Sandboxes::get`].
    pub(crate) fn find(&self, id: &SandboxId) -> Whereabouts<Handle> {
        let live = self.live();
        match live.awake.get(id) {
            Some(place) => Whereabouts::Awake(place.handle.clone()),
            None if live.dormant.contains_key(id) => Whereabouts::Dormant,
            None => Whereabouts::Nowhere,
        }
    }

    pub(crate) fn has(&self, id: &SandboxId) -> bool {
        self.live().has(id)
    }

    /// What is known of a dormant one.
    pub(crate) fn dormant(&self, id: &SandboxId) -> Option<Dormant> {
        self.live().dormant.get(id).cloned()
    }

    pub(crate) fn owner(&self, id: &SandboxId) -> Option<String> {
        let live = self.live();
        match live.awake.get(id) {
            Some(place) => Some(place.claim.owner.clone()),
            None => Some(live.dormant.get(id)?.kind.owner.clone()),
        }
    }

    /// How many there are, by runtime.
    pub(crate) fn census(&self) -> BTreeMap<String, u64> {
        let mut census = self.live().counted.by_runtime();
        for handle in self.awake() {
            *census.entry(handle.sandbox().runtime).or_default() += 1;
        }
        census
    }

    /// Those with a driver: all that have a machine, and stopped ones that were used lately.
    pub(crate) fn awake(&self) -> Vec<Arc<Handle>> {
        let live = self.live();
        let awake = live.awake.values();
        awake.map(|place| place.handle.clone()).collect()
    }

    /// Everything that is there.
    pub(crate) fn all(&self) -> Vec<Listed> {
        let live = self.live();
        let awake = live.awake.values();
        let awake = awake.map(|place| Listed::Awake(place.handle.clone()));
        let dormant = live.dormant.keys().cloned().map(Listed::Dormant);
        awake.chain(dormant).collect()
    }

    /// Ids that begin with a text, of one owner or of everybody.
    pub(crate) fn beginning(&self, text: &str, owner: Option<&str>) -> Vec<SandboxId> {
        let Ok(from) = SandboxId::parse(text.trim_end_matches('-')) else {
            return Vec::new();
        };
        let live = self.live();
        let begins = |id: &SandboxId| id.as_str().starts_with(text);
        let ours = |whose: &str| owner.is_none_or(|owner| owner == whose);
        let awake = live.awake.range(from.clone()..);
        let awake = awake.take_while(|(id, _)| id.as_str().starts_with(from.as_str()));
        let awake = awake.filter(|(id, place)| begins(id) && ours(&place.claim.owner));
        let dormant = live.dormant.range(from.clone()..);
        let dormant = dormant.take_while(|(id, _)| id.as_str().starts_with(from.as_str()));
        let dormant = dormant.filter(|(id, found)| begins(id) && ours(&found.kind.owner));
        let awake = awake.map(|(id, _)| id.clone());
        awake.chain(dormant.map(|(id, _)| id.clone())).collect()
    }

    /// Digests of environments that dormant ones were made from.
    pub(crate) fn dormant_digests(&self) -> Vec<String> {
        self.live().counted.digests()
    }

    /// A dormant one that came from a template, if there is one.
    pub(crate) fn dormant_user_of(&self, template: &str) -> Option<SandboxId> {
        let live = self.live();
        let mut users = live.dormant.iter().filter(|(_, found)| {
            let from = found.kind.template.as_deref();
            from == Some(template)
        });
        users.next().map(|(id, _)| id.clone())
    }

    /// Those of a page, the oldest first; of one owner, or of everybody.
    pub(crate) fn page(&self, owner: Option<&str>, stretch: &Stretch<Age>) -> Vec<Listed> {
        let live = self.live();
        let ids = live.order.stretch(owner, stretch);
        let listed = ids.filter_map(|id| match live.awake.get(id) {
            Some(place) => Some(Listed::Awake(place.handle.clone())),
            None => live
                .dormant
                .contains_key(id)
                .then(|| Listed::Dormant(id.clone())),
        });
        listed.collect()
    }
}

impl Place {
    fn new(id: &SandboxId, handle: Arc<Handle>, claim: Claim) -> Place {
        Place {
            age: (handle.created_at(), id.clone()),
            handle,
            claim,
            starting: 0,
        }
    }
}

fn exists(id: &SandboxId) -> Error {
    Error::conflict(format!("sandbox {id} exists already"))
        .hint("choose another sandbox_id, or leave it out")
}
