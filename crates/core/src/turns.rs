//! Locks by name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{Mutex as Waiting, OwnedMutexGuard};

/// Released when it is dropped.
pub type Turn = OwnedMutexGuard<()>;

/// Names whose lock is held or waited for.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<String, Weak<Waiting<()>>>>);

impl Turns {
    /// Waits for the lock of a name.
    pub async fn take(&self, name: &str) -> Turn {
        self.of(name).lock_owned().await
    }

    /// The lock of a name, if it is free.
    pub fn try_take(&self, name: &str) -> Option<Turn> {
        self.of(name).try_lock_owned().ok()
    }

    fn of(&self, name: &str) -> Arc<Waiting<()>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, waiting| waiting.strong_count() > 0);
        if let Some(known) = all.get(name).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(Waiting::new(()));
        all.insert(name.to_string(), Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_has_one_turn_at_a_time_and_names_are_apart() {
        let turns = Turns::default();
        let first = turns.take("one").await;
        assert!(turns.try_take("one").is_none());
        assert!(turns.try_take("two").is_some());
        drop(first);
        assert!(turns.try_take("one").is_some());
    }
}
