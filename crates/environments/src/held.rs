//! What work in progress needs: nothing collects it meanwhile.
//!
//! A collector looks here under the same lock under which it removes (of the store for trees, of
//! this list for caches), so what is held is there until it is let go.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What is held, and how often: digests of trees and directories of caches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holds(Arc<Mutex<HashMap<String, usize>>>);

/// Something that is not collected for as long as this lives.
#[derive(Debug)]
pub struct Hold {
    holds: Holds,
    what: String,
}

impl Hold {
    /// The digest that is held.
    pub fn digest(&self) -> &str {
        &self.what
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        self.holds.take(&self.what)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.holds.held();
        if let Some(count) = held.get_mut(&self.what) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.what);
            }
        }
    }
}

impl Holds {
    fn held(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a digest. Whoever must be sure that it is there has the store's lock.
    pub fn take(&self, what: &str) -> Hold {
        *self.held().entry(what.to_owned()).or_default() += 1;
        Hold {
            holds: self.clone(),
            what: what.to_owned(),
        }
    }

    /// Holds the directory of a cache, and prepares it before anything can remove it.
    pub fn take_cache<T>(&self, dir: &Path, prepare: impl FnOnce() -> T) -> (Hold, T) {
        let mut held = self.held();
        let what = dir.display().to_string();
        *held.entry(what.clone()).or_default() += 1;
        let prepared = prepare();
        drop(held);
        let holds = self.clone();
        (Hold { holds, what }, prepared)
    }

    /// Everything that is held.
    pub fn all(&self) -> Vec<String> {
        self.held().keys().cloned().collect()
    }

    /// Does something while nobody holds any of these directories, or anything below them, and
    /// nobody begins to; `None` if somebody does.
    pub fn unless_held<T>(&self, dir: &Path, work: impl FnOnce() -> T) -> Option<T> {
        let held = self.held();
        let below = held.keys().any(|what| PathBuf::from(what).starts_with(dir));
        (!below).then(work)
    }

    /// Does something while this hold is the only one of what it holds.
    pub fn if_alone<T>(&self, hold: &Hold, work: impl FnOnce() -> T) -> Option<T> {
        let held = self.held();
        (held.get(&hold.what) == Some(&1)).then(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_left_alone_until_the_last_lets_go() {
        let holds = Holds::default();
        let (one, ()) = holds.take_cache(Path::new("/cache/build"), || ());
        assert_eq!(holds.if_alone(&one, || 1), Some(1));
        let two = one.clone();
        assert_eq!(holds.if_alone(&one, || 1), None);
        drop(one);
        for dir in ["/cache/build", "/cache"] {
            assert_eq!(holds.unless_held(Path::new(dir), || 1), None, "{dir}");
        }
        assert_eq!(holds.unless_held(Path::new("/cache/bu"), || 1), Some(1));
        drop(two);
        assert_eq!(holds.unless_held(Path::new("/cache"), || 1), Some(1));
        assert!(holds.all().is_empty());
        let held = holds.take("sha256:00");
        assert_eq!(
            (held.digest(), holds.all()),
            ("sha256:00", vec!["sha256:00".to_owned()])
        );
    }
}
