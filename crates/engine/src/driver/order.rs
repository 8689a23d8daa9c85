//! The order in which sandboxes are listed: by age, of everybody and of each owner.

use jiff::Timestamp;
use motu_core::SandboxId;
use motu_core::page::Stretch;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

/// Where a sandbox stands in lists.
pub type Age = (Timestamp, SandboxId);

/// The ids of a table, by age. A page takes what it needs and looks at nothing else.
#[derive(Debug, Default)]
pub struct Order {
    all: BTreeSet<Age>,
    /// The same, by owner.
    theirs: HashMap<String, BTreeSet<Age>>,
}

impl Order {
    pub fn insert(&mut self, owner: &str, age: Age) {
        let theirs = self.theirs.entry(owner.to_string()).or_default();
        theirs.insert(age.clone());
        self.all.insert(age);
    }

    pub fn remove(&mut self, owner: &str, age: &Age) {
        self.all.remove(age);
        if let Some(theirs) = self.theirs.get_mut(owner) {
            theirs.remove(age);
            if theirs.is_empty() {
                self.theirs.remove(owner);
            }
        }
    }

    /// The ids of a stretch, of one owner or of everybody.
    pub fn stretch<'a>(
        &'a self,
        owner: Option<&str>,
        stretch: &Stretch<Age>,
    ) -> impl Iterator<Item = &'a SandboxId> {
        let after = match &stretch.after {
            Some(after) => Bound::Excluded(after.clone()),
            None => Bound::Unbounded,
        };
        let listed = match owner {
            Some(owner) => self.theirs.get(owner),
            None => Some(&self.all),
        };
        let listed = listed.map(|listed| listed.range((after, Bound::Unbounded)));
        let listed = listed.into_iter().flatten();
        listed.take(stretch.most).map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(second: i64, id: &str) -> Age {
        let at = Timestamp::from_second(second).unwrap();
        (at, SandboxId::parse(id).unwrap())
    }

    fn ids(order: &Order, owner: Option<&str>, after: Option<Age>, most: usize) -> Vec<String> {
        let stretch = Stretch { after, most };
        let found = order.stretch(owner, &stretch);
        found.map(ToString::to_string).collect()
    }

    #[test]
    fn a_stretch_is_by_age_and_of_its_owner() {
        let mut order = Order::default();
        for (second, id, owner) in [
            (3, "sb-c", "project:a"),
            (1, "sb-b", "uid:0"),
            (1, "sb-a", "project:a"),
            (2, "sb-z", "project:a"),
        ] {
            order.insert(owner, age(second, id));
        }
        assert_eq!(ids(&order, None, None, 3), ["sb-a", "sb-b", "sb-z"]);
        let after = Some(age(1, "sb-a"));
        assert_eq!(ids(&order, Some("project:a"), after, 9), ["sb-z", "sb-c"]);
        assert_eq!(ids(&order, Some("nobody"), None, 9), [""; 0]);
        // A place that nobody has any more is as good as any other.
        let gone = Some(age(1, "sb-aa"));
        assert_eq!(ids(&order, None, gone, 1), ["sb-b"]);
        order.remove("project:a", &age(2, "sb-z"));
        assert_eq!(ids(&order, None, None, 9), ["sb-a", "sb-b", "sb-c"]);
        order.remove("uid:0", &age(1, "sb-b"));
        assert_eq!(order.theirs.len(), 1);
    }
}
