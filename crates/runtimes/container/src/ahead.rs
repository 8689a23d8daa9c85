//! Disks for the next reset of workspaces that were reset before.
//!
//! A reset gives a workspace a new disk with a copy of its seed: a loop device, a mount with a
//! journal, every file of the seed, all of it flushed. A workspace that was reset once will probably
//! be reset again, so its next disk is made when the reset is over. It lies in the cache, mounted
//! nowhere, until the next reset moves its image to its place. What a daemon leaves there when it
//! dies, the next one removes.

use crate::kept::{self, Seeded};
use motu_core::SandboxId;
use motu_core::runtime::Kept;
use motu_local::disk::Disks;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most disks that wait; each may hold a copy of a seed of 256 MiB. The oldest is given up.
const MOST: usize = 2;

/// Gives a disk up.
fn give_up(disk: Seeded) {
    drop(disk.mount);
    if let Err(error) = std::fs::remove_file(&disk.image) {
        tracing::warn!(%error, image = %disk.image.display(), "could not remove a disk that was made ahead");
    }
}

/// What a disk is for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Purpose {
    /// The disks that its workspace has now: when they are thrown away, so is the workspace.
    current: PathBuf,
    baseline: PathBuf,
    mib: u64,
}

#[derive(Debug)]
struct Slot {
    purpose: Purpose,
    /// `None`: it is wanted.
    disk: Option<Seeded>,
}

/// The disks that were made ahead.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    slots: Mutex<VecDeque<Slot>>,
    filling: AtomicBool,
    /// Machines that were ended for a reset.
    ended: Mutex<HashMap<SandboxId, Former>>,
}

/// The disks of a machine that was ended for a reset, mounted until this is dropped: unmounting them
/// takes the processors, and locks of the kernel that the next machine needs.
#[derive(Debug)]
pub(crate) struct Former {
    disks: PathBuf,
    _mount: Option<OwnedFd>,
}

impl Former {
    pub(crate) fn hold(disks: PathBuf) -> Former {
        Former {
            _mount: motu_local::hold(&kept::image(&disks)),
            disks,
        }
    }
}

impl Ahead {
    /// A machine was ended because its disks are about to be replaced.
    pub(crate) fn ended(&self, id: &SandboxId, former: Former) {
        lock(&self.ended).insert(id.clone(), former);
    }

    /// The disks before the reset, if the machine that is about to be made replaces one that was
    /// ended for it.
    pub(crate) fn former(&self, id: &SandboxId) -> Option<Former> {
        lock(&self.ended).remove(id)
    }

    /// These disks are not replaced after all, or are thrown away.
    pub(crate) fn let_go(&self, disks: &Path) {
        lock(&self.ended).retain(|_, former| former.disks != disks);
    }

    /// Another disk like that of a machine that was just made is wanted. Slow if it takes the place
    /// of another.
    pub(crate) fn want(&self, kept: &Kept, mib: u64) {
        let purpose = Purpose {
            current: kept.dir.clone(),
            baseline: kept.baseline.clone(),
            mib,
        };
        let mut slots = self.slots();
        slots.push_back(Slot {
            purpose,
            disk: None,
        });
        let surplus = slots.len().saturating_sub(MOST);
        let given_up: Vec<Slot> = slots.drain(..surplus).collect();
        drop(slots);
        remove(given_up);
    }

    /// Makes the disks that are wanted, unless somebody does already. Slow.
    pub(crate) fn fill(&self, disks: &Disks) {
        while self.wanted().is_some() && !self.filling.swap(true, Ordering::AcqRel) {
            self.fill_alone(disks);
            self.filling.store(false, Ordering::Release);
        }
    }

    fn fill_alone(&self, disks: &Disks) {
        while let Some(purpose) = self.wanted() {
            let kept = Kept {
                dir: PathBuf::new(),
                baseline: purpose.baseline.clone(),
            };
            match kept::seeded(disks, &kept, purpose.mib) {
                Ok(disk) => self.keep(&purpose, disk),
                Err(error) => {
                    tracing::warn!(%error, "could not make a disk ahead");
                    self.slots().retain(|slot| slot.purpose != purpose);
                }
            }
        }
    }

    fn wanted(&self) -> Option<Purpose> {
        let slots = self.slots();
        let slot = slots.iter().find(|slot| slot.disk.is_none())?;
        Some(slot.purpose.clone())
    }

    /// Keeps a disk, unless nobody wants it any more.
    fn keep(&self, purpose: &Purpose, disk: Seeded) {
        let mut slots = self.slots();
        let slot = slots.iter_mut().find(|slot| slot.purpose == *purpose);
        match slot {
            Some(slot) if slot.disk.is_none() => slot.disk = Some(disk),
            _ => {
                drop(slots);
                give_up(disk);
            }
        }
    }

    /// A disk with this seed and size.
    pub(crate) fn take(&self, kept: &Kept, mib: u64) -> Option<Seeded> {
        let mut slots = self.slots();
        let at = slots.iter().position(|slot| {
            slot.disk.is_some() && slot.purpose.baseline == kept.baseline && slot.purpose.mib == mib
        })?;
        slots.remove(at)?.disk
    }

    /// Disks are thrown away: their workspace is gone, or has others.
    pub(crate) fn discarded(&self, disks: &Path) {
        self.let_go(disks);
        let mut slots = self.slots();
        let all = slots.drain(..);
        let (gone, left): (Vec<Slot>, Vec<Slot>) =
            all.partition(|slot| slot.purpose.current == disks);
        slots.extend(left);
        drop(slots);
        remove(gone);
    }

    fn slots(&self) -> MutexGuard<'_, VecDeque<Slot>> {
        lock(&self.slots)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        remove(self.slots().drain(..));
    }
}

fn remove(slots: impl IntoIterator<Item = Slot>) {
    for disk in slots.into_iter().filter_map(|slot| slot.disk) {
        give_up(disk);
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is in it is consistent between statements, so a panic elsewhere does not matter.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    const MIB: u64 = 64;

    struct Place {
        dir: tempfile::TempDir,
        disks: Disks,
        ahead: Ahead,
    }

    impl Place {
        /// A cache, a seed with one file, and the disks of a workspace; `None` where no disks can be
        /// made.
        fn new() -> Option<Place> {
            let dir = tempfile::tempdir().unwrap();
            let disks = Disks::new(dir.path().join("cache"), MIB);
            let missing = disks.missing().or_else(|| {
                let root = rustix::process::geteuid().is_root();
                (!root).then_some("only root mounts disks")
            });
            if let Some(reason) = missing {
                eprintln!("skipped: {reason}");
                return None;
            }
            for name in ["seed", "disks-1", "disks-2"] {
                std::fs::create_dir(dir.path().join(name)).unwrap();
            }
            std::fs::write(dir.path().join("seed/file"), "of the seed").unwrap();
            let ahead = Ahead::default();
            Some(Place { dir, disks, ahead })
        }

        fn kept(&self, name: &str) -> Kept {
            Kept {
                dir: self.dir.path().join(name),
                baseline: self.dir.path().join("seed"),
            }
        }

        fn staged(&self) -> usize {
            let names = std::fs::read_dir(self.dir.path().join("cache")).unwrap();
            let names = names.flatten().map(|entry| entry.file_name());
            let staged = names.filter(|name| name.to_string_lossy().starts_with("staged-"));
            staged.count()
        }
    }

    #[test]
    fn the_disk_that_was_made_ahead_has_the_seed_and_is_used_once() {
        let Some(place) = Place::new() else { return };
        place.ahead.want(&place.kept("disks-1"), MIB);
        assert!(place.ahead.take(&place.kept("disks-2"), MIB).is_none());
        place.ahead.fill(&place.disks);
        assert_eq!(place.staged(), 1);
        let other = place.ahead.take(&place.kept("disks-2"), 2 * MIB);
        assert!(other.is_none(), "another size");
        let next = place.kept("disks-2");
        let mounted =
            kept::mount(&place.disks, || place.ahead.take(&next, MIB), &next, MIB).unwrap();
        assert_eq!(place.staged(), 0, "its image was moved");
        assert!(kept::image(&next.dir).exists());
        let layers = motu_launch::WORKSPACE_LAYERS;
        let file = format!(
            "/proc/self/fd/{}/{layers}/upper/file",
            mounted.mount.as_raw_fd()
        );
        assert_eq!(std::fs::read_to_string(file).unwrap(), "of the seed");
        assert!(place.ahead.take(&place.kept("disks-2"), MIB).is_none());
        // Nobody else can mount it meanwhile, as with every disk that is in use.
        let again = kept::mount(&place.disks, || place.ahead.take(&next, MIB), &next, MIB);
        assert_eq!(again.map(drop).unwrap_err(), kept::in_use());
    }

    #[test]
    fn a_disk_that_was_made_ahead_goes_with_its_workspace() {
        let Some(place) = Place::new() else { return };
        place.ahead.want(&place.kept("disks-2"), MIB);
        place.ahead.fill(&place.disks);
        place.ahead.discarded(&place.kept("disks-1").dir);
        assert_eq!(place.staged(), 1, "its former disks are thrown away");
        place.ahead.discarded(&place.kept("disks-2").dir);
        assert_eq!(place.staged(), 0, "those it has are thrown away");
    }

    #[test]
    fn former_disks_stay_mounted_until_they_are_taken_or_let_go() {
        let ahead = Ahead::default();
        let id = |name: &str| SandboxId::parse(name).unwrap();
        let end = |name: &str, disks: &str| {
            let (mount, other) = rustix::pipe::pipe().unwrap();
            let former = Former {
                disks: disks.into(),
                _mount: Some(mount),
            };
            ahead.ended(&id(name), former);
            other
        };
        // Writing to a pipe fails once nobody has its other end.
        let is_held = |other: &OwnedFd| rustix::io::write(other, b"x").is_ok();
        let (one, two, three) = (end("sb-1", "/a"), end("sb-2", "/b"), end("sb-3", "/c"));
        let former = ahead.former(&id("sb-1"));
        assert!(ahead.former(&id("sb-1")).is_none());
        assert!(is_held(&one));
        drop(former);
        ahead.let_go(Path::new("/b"));
        assert!(!is_held(&one) && !is_held(&two) && is_held(&three));
        ahead.discarded(Path::new("/c"));
        assert!(!is_held(&three));
    }

    #[test]
    fn few_disks_wait_and_none_is_left() {
        let Some(place) = Place::new() else { return };
        for number in 0..MOST + 2 {
            place
                .ahead
                .want(&place.kept(&format!("disks-{number}")), MIB);
        }
        place.ahead.fill(&place.disks);
        assert_eq!(place.staged(), MOST);
        drop(place.ahead);
        let cache = place.dir.path().join("cache");
        let left = std::fs::read_dir(cache).unwrap().flatten();
        let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("staged-"));
        assert_eq!(left.count(), 0);
    }
}
