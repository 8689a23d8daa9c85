//! The workspaces by id: of dormant ones only what they are called.

use super::Workspaces;
use super::room::Room;
use crate::dormant::Dormant;
use crate::driver::{Dormancy, Handle, Whereabouts};
use motu_core::SandboxId;
use motu_core::workspace::WorkspaceId;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// All workspaces, by id.
#[derive(Debug, Default)]
pub struct Rooms {
    rooms: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    awake: BTreeMap<WorkspaceId, Arc<Room>>,
    /// Names of dormant ones.
    dormant: BTreeMap<WorkspaceId, Option<Arc<str>>>,
    /// Dormant ones by name. Names are not unique.
    named: HashMap<Arc<str>, Vec<WorkspaceId>>,
}

impl All {
    fn forget_dormant(&mut self, id: &WorkspaceId) {
        let Some(Some(name)) = self.dormant.remove(id) else {
            return;
        };
        if let Some(those) = self.named.get_mut(&name) {
            those.retain(|one| one != id);
            if those.is_empty() {
                self.named.remove(&name);
            }
        }
    }

    fn add_dormant(&mut self, id: WorkspaceId, name: Option<&str>) {
        let name = name.map(|name| match self.named.get_key_value(name) {
            Some((known, _)) => known.clone(),
            None => Arc::from(name),
        });
        if let Some(name) = &name {
            self.named.entry(name.clone()).or_default().push(id.clone());
        }
        self.dormant.insert(id, name);
    }
}

impl Rooms {
    fn rooms(&self) -> MutexGuard<'_, All> {
        self.rooms
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn enter(&self, room: Arc<Room>) {
        let mut rooms = self.rooms();
        rooms.forget_dormant(&room.id);
        rooms.awake.insert(room.id.clone(), room);
    }

    pub(super) fn leave(&self, id: &WorkspaceId) {
        let mut rooms = self.rooms();
        rooms.forget_dormant(id);
        rooms.awake.remove(id);
    }

    /// Enters a dormant workspace, with its name.
    pub(super) fn lay_down(&self, id: WorkspaceId, name: Option<&str>) {
        self.rooms().add_dormant(id, name);
    }

    pub(crate) fn has(&self, id: &WorkspaceId) -> bool {
        let rooms = self.rooms();
        rooms.awake.contains_key(id) || rooms.dormant.contains_key(id)
    }

    pub(super) fn find(&self, id: &WorkspaceId) -> Whereabouts<Room> {
        let rooms = self.rooms();
        match rooms.awake.get(id) {
            Some(room) => Whereabouts::Awake(room.clone()),
            None if rooms.dormant.contains_key(id) => Whereabouts::Dormant,
            None => Whereabouts::Nowhere,
        }
    }

    /// Workspaces with this name.
    pub(crate) fn named(&self, name: &str) -> Vec<WorkspaceId> {
        let rooms = self.rooms();
        let awake = rooms.awake.values();
        let awake = awake.filter(|room| room.row().name.as_deref() == Some(name));
        let awake = awake.map(|room| room.id.clone());
        let dormant = rooms.named.get(name).into_iter().flatten().cloned();
        awake.chain(dormant).collect()
    }

    /// At most so many ids after one, in order, of those that are wanted.
    pub(super) fn stretch(
        &self,
        after: Option<&WorkspaceId>,
        most: usize,
        wanted: impl Fn(&WorkspaceId) -> bool,
    ) -> Vec<WorkspaceId> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let beyond = (from, Bound::Unbounded);
        let rooms = self.rooms();
        let awake = rooms.awake.range::<WorkspaceId, _>(beyond);
        let awake = awake.map(|(id, _)| id);
        let dormant = rooms.dormant.range::<WorkspaceId, _>(beyond);
        let dormant = dormant.map(|(id, _)| id);
        let mut ids: Vec<&WorkspaceId> = awake.filter(|id| wanted(id)).take(most).collect();
        ids.extend(dormant.filter(|id| wanted(id)).take(most));
        ids.sort_unstable();
        ids.into_iter().take(most).cloned().collect()
    }

    /// Forgets a workspace but for its name, if nobody holds it and its machine agrees.
    fn make_dormant(&self, id: &WorkspaceId, machine: impl FnOnce() -> bool) -> bool {
        let mut rooms = self.rooms();
        let Some(room) = rooms.awake.get(id) else {
            // A sandbox that is no workspace.
            return machine();
        };
        let held = Arc::strong_count(room) > 1 || room.is_busy();
        if held || !machine() {
            return false;
        }
        if let Some(room) = rooms.awake.remove(id) {
            rooms.add_dormant(id.clone(), room.row().name.as_deref());
        }
        true
    }
}

impl Dormancy for Workspaces {
    /// The workspace goes first: it knows secrets that its machine's gateway shares.
    fn make_dormant(
        &self,
        id: &SandboxId,
        handle: &Weak<Handle>,
        dormant: Dormant,
        unused: &dyn Fn() -> bool,
    ) -> bool {
        let table = &self.sandboxes.table;
        self.rooms
            .make_dormant(id, || table.make_dormant(id, handle, dormant, unused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> WorkspaceId {
        WorkspaceId::parse(text).unwrap()
    }

    #[test]
    fn dormant_workspaces_are_found_by_name_and_in_order() {
        let rooms = Rooms::default();
        rooms.lay_down(id("ws-c"), Some("mine"));
        rooms.lay_down(id("ws-a"), Some("mine"));
        rooms.lay_down(id("ws-b"), None);
        assert_eq!(rooms.named("mine"), [id("ws-c"), id("ws-a")]);
        assert!(rooms.named("other").is_empty());
        assert_eq!(rooms.stretch(None, 2, |_| true), [id("ws-a"), id("ws-b")]);
        let after = Some(&id("ws-a"));
        assert_eq!(rooms.stretch(after, 9, |_| true), [id("ws-b"), id("ws-c")]);
        let wanted = |one: &WorkspaceId| *one != id("ws-b");
        assert_eq!(rooms.stretch(None, 2, wanted), [id("ws-a"), id("ws-c")]);
        rooms.leave(&id("ws-c"));
        rooms.leave(&id("ws-a"));
        assert!(!rooms.has(&id("ws-c")) && rooms.has(&id("ws-b")));
        assert!(rooms.rooms().named.is_empty());
    }
}
