//! Data that neither store nor record describes: set aside, never deleted.
//!
//! ```text
//!   MOTU_HOME/lost/ENTRY/
//!     reason.json   what it is, where it was, why it is here
//!     content       the thing itself
//! ```

use crate::home::Home;
use jiff::Timestamp;
use motu_core::hint;
use motu_core::hint::host;
use motu_core::{Error, Result, id};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const REASON: &str = "reason.json";
const CONTENT: &str = "content";

/// What an entry was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostKind {
    /// The kept directory of a workspace or sandbox.
    Kept,
    /// Disks that their workspace does not use.
    Disks,
    Baseline,
    /// A store that could not be used.
    Store,
    /// Machines of another state directory, of which this one is a copy.
    Machines,
    /// One row of the store that could not be read.
    Row,
    /// Changes that a daemon had stored and the next one did not find.
    Changes,
}

/// One thing that was set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostEntry {
    /// Its name in `motu recover`.
    pub entry: String,
    pub kind: LostKind,
    /// Where it was, in the state directory.
    pub was_at: PathBuf,
    pub reason: String,
    pub at: Timestamp,
}

/// All that was set aside.
#[derive(Clone, Debug)]
pub struct Lost {
    home: PathBuf,
    dir: PathBuf,
}

impl Lost {
    pub fn of(home: &Home) -> Lost {
        Lost::at(home.path())
    }

    /// Of the state directory at this path.
    pub(crate) fn at(home: &Path) -> Lost {
        Lost {
            home: home.to_path_buf(),
            dir: home.join("lost"),
        }
    }

    /// Sets something aside. The reason is written first, so no content is ever without one.
    pub fn put(&self, kind: LostKind, path: &Path, reason: &str) -> Result<LostEntry> {
        let was_at = path.strip_prefix(&self.home).unwrap_or(path);
        self.enter(kind, was_at, reason, |content| {
            std::fs::rename(path, content)
        })
    }

    /// Sets something aside that is no file: its bytes.
    pub(crate) fn put_bytes(
        &self,
        kind: LostKind,
        was_at: &Path,
        bytes: &[u8],
        reason: &str,
    ) -> Result<LostEntry> {
        self.enter(kind, was_at, reason, |content| {
            let dir = content.parent().unwrap_or(Path::new("/"));
            write(dir, CONTENT, bytes)
        })
    }

    fn enter(
        &self,
        kind: LostKind,
        was_at: &Path,
        reason: &str,
        place: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<LostEntry> {
        let name = was_at.file_name().unwrap_or_default().to_string_lossy();
        let entry = LostEntry {
            entry: format!("{name}.{}", id::random_name(6)),
            kind,
            was_at: was_at.to_path_buf(),
            reason: reason.to_string(),
            at: Timestamp::now(),
        };
        let failed = |error| Error::io(format_args!("set {} aside", was_at.display()), &error);
        let dir = self.dir.join(&entry.entry);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(failed)?;
        let text = serde_json::to_vec_pretty(&entry)
            .map_err(|error| Error::internal(format!("set aside: {error}")))?;
        write(&dir, REASON, &text).map_err(failed)?;
        place(&dir.join(CONTENT)).map_err(failed)?;
        let _ = File::open(&dir).and_then(|dir| dir.sync_all());
        tracing::warn!(was_at = %entry.was_at.display(), reason, entry = entry.entry, "set aside");
        Ok(entry)
    }

    /// Everything that is there, oldest first.
    pub fn list(&self) -> Vec<LostEntry> {
        let found = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut all: Vec<LostEntry> = found.filter_map(|entry| read(&entry.path())).collect();
        all.sort_by(|a, b| (a.at, &a.entry).cmp(&(b.at, &b.entry)));
        all
    }

    /// Finds an entry by its name, or by the original name.
    pub fn find(&self, name: &str) -> Result<LostEntry> {
        let mut found = self.list();
        let was = |entry: &LostEntry| entry.was_at.file_name().is_some_and(|was| was == name);
        if let Some(at) = found.iter().position(|entry| entry.entry == name) {
            return Ok(found.swap_remove(at));
        }
        found.retain(was);
        match found.len() {
            0 => Err(
                Error::not_found(format!("nothing called {name:?} was set aside"))
                    .hint(hint![host("motu recover"), " lists what was"]),
            ),
            1 => Ok(found.swap_remove(0)),
            _ => Err(
                Error::conflict(format!("several things called {name:?} were set aside")).hint(
                    hint!["name one by its entry, as listed by ", host("motu recover")],
                ),
            ),
        }
    }

    /// The path of the content.
    pub fn content(&self, entry: &LostEntry) -> PathBuf {
        self.dir.join(&entry.entry).join(CONTENT)
    }

    /// Moves the content back to where it was.
    pub fn put_back(&self, entry: &LostEntry) -> Result<()> {
        let place = self.home.join(&entry.was_at);
        let failed = |error| Error::io(format_args!("put {} back", entry.entry), &error);
        if place.exists() {
            return Err(Error::conflict(format!(
                "{} exists: what was set aside cannot go there",
                place.display()
            )));
        }
        if let Some(parent) = place.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        std::fs::rename(self.content(entry), &place).map_err(failed)?;
        let dir = self.dir.join(&entry.entry);
        std::fs::remove_file(dir.join(REASON)).map_err(failed)?;
        std::fs::remove_dir(&dir).map_err(failed)
    }

    /// Deletes an entry for good.
    pub fn remove(&self, entry: &LostEntry) -> Result<()> {
        let failed = |error| Error::io(format_args!("remove {}", entry.entry), &error);
        std::fs::remove_dir_all(self.dir.join(&entry.entry)).map_err(failed)
    }
}

/// Reads an entry; `None` if it is incomplete.
fn read(dir: &Path) -> Option<LostEntry> {
    let text = std::fs::read(dir.join(REASON)).ok()?;
    let entry: LostEntry = serde_json::from_slice(&text).ok()?;
    let named = dir
        .file_name()
        .is_some_and(|name| name == entry.entry.as_str());
    (named && dir.join(CONTENT).symlink_metadata().is_ok()).then_some(entry)
}

/// Replaces a small file atomically and durably.
pub(crate) fn write(dir: &Path, name: &str, content: &[u8]) -> std::io::Result<()> {
    let staged = dir.join(format!(".{name}.{}", id::random_name(8)));
    let written = (|| {
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&staged)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&staged, dir.join(name))
    })();
    if let Err(error) = written {
        let _ = std::fs::remove_file(&staged);
        return Err(error);
    }
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_aside_is_listed_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path()).unwrap();
        let lost = Lost::of(&home);
        assert!(lost.list().is_empty());
        let kept = home.path().join("kept/ws-1");
        std::fs::create_dir_all(kept.join("disks-1")).unwrap();
        std::fs::write(kept.join("disks-1/disk.img"), "x").unwrap();
        let put = lost.put(LostKind::Kept, &kept, "a test").unwrap();
        assert!(!kept.exists());
        assert_eq!(lost.list(), std::slice::from_ref(&put));
        assert_eq!(lost.find("ws-1").unwrap(), put);
        assert_eq!(lost.find(&put.entry).unwrap(), put);
        assert!(lost.find("ws-2").is_err());

        lost.put_back(&put).unwrap();
        assert_eq!(std::fs::read(kept.join("disks-1/disk.img")).unwrap(), b"x");
        assert!(lost.list().is_empty());

        let again = lost.put(LostKind::Kept, &kept, "a test").unwrap();
        std::fs::create_dir(&kept).unwrap();
        lost.put_back(&again).unwrap_err();
        lost.remove(&again).unwrap();
        assert!(lost.list().is_empty());
    }
}
