//! What was read of installed environments, for as long as their files are the same: every sandbox
//! asks for one.

use crate::describe::Environment;
use std::{
    collections::HashMap,
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Environments that are remembered; with one more, all are forgotten.
const MOST: usize = 64;

/// A record is replaced by another file, never changed; a digest's root is put in place whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(path: &Path) -> Option<Stamp> {
        let found: Metadata = std::fs::metadata(path).ok()?;
        Some(Stamp {
            device: found.dev(),
            inode: found.ino(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Remembered(Mutex<HashMap<String, (Stamp, Environment)>>);

impl Remembered {
    fn known(&self) -> MutexGuard<'_, HashMap<String, (Stamp, Environment)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was read from a record, if that is still the record and its root is there.
    pub(crate) fn find(&self, name: &str, record: &Path) -> Option<Environment> {
        let known = self.known().get(name).cloned();
        // Looked at without the lock: a disk may take its time.
        let (stamp, environment) = known?;
        let same = Stamp::of(record) == Some(stamp) && environment.root.is_dir();
        same.then_some(environment)
    }

    /// Remembers what was read after the stamp was taken.
    pub(crate) fn note(&self, name: String, stamp: Stamp, environment: Environment) {
        let mut known = self.known();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(name, (stamp, environment));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(root: &Path) -> Environment {
        Environment {
            name: "one".to_string(),
            owner: String::new(),
            digest: "sha256:0".to_string(),
            root: root.to_path_buf(),
            default_user: String::new(),
            default_workdir: String::new(),
            env: Default::default(),
            entrypoint: Vec::new(),
            cmd: Vec::new(),
            wants_sudo: false,
        }
    }

    #[test]
    fn it_is_forgotten_with_its_record_or_its_root() {
        let place = tempfile::tempdir().unwrap();
        let (record, root) = (place.path().join("record"), place.path().join("root"));
        std::fs::write(&record, "a").unwrap();
        std::fs::create_dir(&root).unwrap();
        let remembered = Remembered::default();
        let note = || {
            let stamp = Stamp::of(&record).unwrap();
            remembered.note("one".to_string(), stamp, environment(&root));
        };
        note();
        assert_eq!(remembered.find("one", &record), Some(environment(&root)));
        assert_eq!(remembered.find("two", &record), None);
        std::fs::write(place.path().join("next"), "a").unwrap();
        std::fs::rename(place.path().join("next"), &record).unwrap();
        assert_eq!(remembered.find("one", &record), None);
        note();
        std::fs::remove_dir(&root).unwrap();
        assert_eq!(remembered.find("one", &record), None);
        std::fs::create_dir(&root).unwrap();
        std::fs::remove_file(&record).unwrap();
        assert_eq!(remembered.find("one", &record), None);
    }

    #[test]
    fn it_has_a_bound() {
        let place = tempfile::tempdir().unwrap();
        let stamp = Stamp::of(place.path()).unwrap();
        let remembered = Remembered::default();
        for number in 0..=MOST {
            remembered.note(number.to_string(), stamp, environment(place.path()));
        }
        let last = MOST.to_string();
        assert!(remembered.find(&last, place.path()).is_some());
        assert!(remembered.find("0", place.path()).is_none());
    }
}
