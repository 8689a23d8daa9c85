//! Things that are built once and shared: kernels, images, templates.
//!
//! Whoever builds something holds a lock file; others wait for it and then find
//! the thing. It is built in a staging directory and renamed when it is whole,
//! so what has its final name is complete. A staging directory whose lock is
//! free is a leftover of a crash.

use crate::error::QemuError;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const STAGING: &str = ".staging-";
const LOCK: &str = ".lock-";

/// One directory of built things.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    dir: PathBuf,
}

/// The right to build one thing.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) staging: PathBuf,
    shelf: PathBuf,
    _lock: File,
}

impl Shelf {
    pub(crate) fn open(home: &Path, name: &str) -> Result<Shelf, QemuError> {
        let dir = home.join("cache").join(name);
        std::fs::create_dir_all(&dir).map_err(QemuError::io("cannot make the cache"))?;
        Ok(Shelf { dir })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Waits for the right to build `name`; `None` if it is there (by then).
    pub(crate) fn claim(&self, name: &str) -> Result<Option<Claim>, QemuError> {
        let lock = self.lock_file(name)?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(QemuError::errno("cannot lock the cache"))?;
        if self.path(name).exists() {
            return Ok(None);
        }
        let staging = self.dir.join(format!("{STAGING}{name}"));
        remove(&staging)?;
        std::fs::create_dir(&staging).map_err(QemuError::io("cannot stage"))?;
        Ok(Some(Claim {
            staging,
            shelf: self.dir.clone(),
            _lock: lock,
        }))
    }

    /// Staging directories nobody works in any more.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names
            .filter_map(|name| {
                let thing = name.strip_prefix(STAGING)?;
                let lock = self.lock_file(thing).ok()?;
                flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
                Some(self.dir.join(name))
            })
            .collect()
    }

    /// Everything there is.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| !name.starts_with('.')).collect()
    }

    /// Takes a thing away that turned out to be damaged.
    pub(crate) fn discard(&self, name: &str) -> Result<(), QemuError> {
        let lock = self.lock_file(name)?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(QemuError::errno("cannot lock the cache"))?;
        remove(&self.path(name))
    }

    fn lock_file(&self, name: &str) -> Result<File, QemuError> {
        std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.dir.join(format!("{LOCK}{name}")))
            .map_err(QemuError::io("cannot open a lock of the cache"))
    }
}

impl Claim {
    /// Gives what was staged its name.
    pub(crate) fn publish(self, name: &str) -> Result<(), QemuError> {
        publish(&self.staging, &self.shelf.join(name))
    }

    /// Gives a single staged file its name.
    pub(crate) fn publish_file(self, file: &str, name: &str) -> Result<(), QemuError> {
        publish(&self.staging.join(file), &self.shelf.join(name))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.staging) {
            tracing::warn!(%error, "a staging directory was left behind");
        }
    }
}

fn publish(from: &Path, to: &Path) -> Result<(), QemuError> {
    match std::fs::rename(from, to) {
        // Somebody else published this content first.
        Err(_) if to.exists() => Ok(()),
        done => done.map_err(QemuError::io("cannot publish to the cache")),
    }
}

pub(crate) fn remove(path: &Path) -> Result<(), QemuError> {
    let gone = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match gone {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(QemuError::io("cannot remove from the cache")(error))
        }
        _ => Ok(()),
    }
}

/// Lets everybody who may come here read a file and nobody change it.
pub(crate) fn freeze(path: &Path) -> Result<(), QemuError> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o444))
        .map_err(QemuError::io("cannot protect a file of the cache"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_built_once_and_leftovers_are_known() {
        let home = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(home.path(), "things").unwrap();
        let claim = shelf.claim("a").unwrap().unwrap();
        std::fs::write(claim.staging.join("x"), "1").unwrap();
        assert_eq!(shelf.leftovers(), Vec::<PathBuf>::new());
        claim.publish("a").unwrap();
        assert!(shelf.claim("a").unwrap().is_none());
        assert!(shelf.path("a").join("x").exists());

        let abandoned = shelf.claim("b").unwrap().unwrap();
        let staging = abandoned.staging.clone();
        drop(abandoned);
        assert!(!staging.exists());
        std::fs::create_dir(&staging).unwrap();
        assert_eq!(shelf.leftovers(), [staging]);
        shelf.discard("a").unwrap();
        assert!(shelf.claim("a").unwrap().is_some());
    }
}
