//! Ranges of host ids: every machine has its own 65 536 ids.
//!
//! A slot is a file in `run/uids`, placed there exclusively, that contains the machine's directory.
//! Files outlive the daemon, so two machines of one state directory never share ids, even after a
//! crash. Another state directory starts its search elsewhere; sharing ids with it would affect
//! accounting, not isolation.
//!
//! The file of a slot that was freed becomes that of the next one that is taken: without a journal,
//! ext4 looks at every inode that was deleted within the last minutes before it gives out one.

use motu_core::{Error, id};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first host id of the first slot, above the ranges that distributions assign.
const BASE: u32 = 0x2000_0000;
/// Ids per machine.
pub(crate) const SIZE: u32 = 65_536;
/// How many slots there are.
const COUNT: u32 = 24_576;
/// The most files that wait for the next slots.
const BLANKS: usize = 128;
/// How their names begin.
const BLANK: &str = "blank-";

/// The slots of one state directory.
#[derive(Debug)]
pub(crate) struct Slots {
    dir: PathBuf,
    start: u32,
    /// Files of slots that were freed.
    blanks: Mutex<Vec<PathBuf>>,
}

impl Slots {
    /// `seed` differs between state directories.
    pub(crate) fn new(dir: PathBuf, seed: u32) -> Slots {
        Slots {
            dir,
            start: seed % COUNT,
            blanks: Mutex::default(),
        }
    }

    /// The first host id of a slot.
    pub(crate) fn first_id(slot: u32) -> u32 {
        BASE + slot * SIZE
    }

    /// The slot a dry run shows.
    pub(crate) fn example(&self) -> u32 {
        self.start
    }

    /// Takes a free slot for the machine in `machine`.
    pub(crate) fn take(&self, machine: &Path) -> Result<u32, Error> {
        let failed = |error: io::Error| Error::io("id range", &error);
        let blank = self.blank(machine).map_err(failed)?;
        for step in 0..COUNT {
            let slot = (self.start + step) % COUNT;
            let file = self.dir.join(slot.to_string());
            match rename_to_new(&blank, &file) {
                Ok(()) => return Ok(slot),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    self.keep(blank);
                    return Err(failed(error));
                }
            }
        }
        self.keep(blank);
        Err(Error::limit("every range of host ids is in use"))
    }

    /// A file that is no slot yet, with the machine's directory in it.
    fn blank(&self, machine: &Path) -> io::Result<PathBuf> {
        let waiting = self.blanks().pop();
        let path =
            waiting.unwrap_or_else(|| self.dir.join(format!("{BLANK}{}", id::random_name(8))));
        let mut file = match std::fs::File::create(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&self.dir)?;
                std::fs::File::create(&path)?
            }
            other => other?,
        };
        file.write_all(machine.as_os_str().as_encoded_bytes())?;
        Ok(path)
    }

    /// Keeps a file for a later slot.
    fn keep(&self, blank: PathBuf) {
        let mut blanks = self.blanks();
        if blanks.len() < BLANKS {
            blanks.push(blank);
        } else {
            let _ = std::fs::remove_file(blank);
        }
    }

    fn blanks(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.blanks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees a slot, if it still belongs to this machine.
    pub(crate) fn free(&self, slot: u32, machine: &Path) {
        let file = self.dir.join(slot.to_string());
        let owner = std::fs::read(&file).unwrap_or_default();
        if owner == machine.as_os_str().as_encoded_bytes() {
            let blank = self.dir.join(format!("{BLANK}{}", id::random_name(8)));
            if std::fs::rename(file, &blank).is_ok() {
                self.keep(blank);
            }
        }
    }

    /// Frees all slots of a machine whose record is lost.
    pub(crate) fn free_all_of(&self, machine: &Path) {
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let slot = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let Some(slot) = slot {
                self.free(slot, machine);
            }
        }
    }

    /// Frees the slots of machines whose directory is gone, and removes the files that a former
    /// daemon kept for later slots.
    pub(crate) fn sweep(&self) {
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let owner = std::fs::read(entry.path()).unwrap_or_default();
            let owner = PathBuf::from(OsString::from_vec(owner));
            let is_blank = entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(BLANK.as_bytes());
            if is_blank || matches!(owner.try_exists(), Ok(false)) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Renames a file, if nothing has the name.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system knows that flag.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_to_new(from, to),
        other => Ok(other?),
    }
}

fn link_to_new(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::hard_link(from, to)?;
    std::fs::remove_file(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_belongs_to_one_machine_until_it_is_freed() {
        let home = tempfile::tempdir().unwrap();
        let slots = Slots::new(home.path().join("run/uids"), COUNT - 1);
        let (a, b) = (home.path().join("a"), home.path().join("b"));
        let first = slots.take(&a).unwrap();
        let second = slots.take(&b).unwrap();
        assert_eq!((first, second), (COUNT - 1, 0));

        slots.free(first, &b);
        assert_ne!(slots.take(&b).unwrap(), first, "b cannot free a's slot");
        slots.free_all_of(&a);
        assert_eq!(slots.take(&b).unwrap(), first);
    }

    #[test]
    fn the_file_of_a_freed_slot_is_used_again() {
        use std::os::unix::fs::MetadataExt;
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("uids");
        let slots = Slots::new(dir.clone(), 7);
        let (a, b) = (home.path().join("a longer name"), home.path().join("b"));
        let inode = |slot: u32| dir.join(slot.to_string()).metadata().unwrap().ino();
        let first = slots.take(&a).unwrap();
        let was = inode(first);
        slots.free(first, &a);
        assert!(!dir.join(first.to_string()).exists(), "a free slot");
        let again = slots.take(&b).unwrap();
        assert_eq!((again, inode(again)), (first, was));
        let owner = std::fs::read(dir.join(again.to_string())).unwrap();
        assert_eq!(owner, b.as_os_str().as_encoded_bytes());
        // A daemon that died left one behind.
        slots.free(again, &b);
        Slots::new(dir.clone(), 7).sweep();
        assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0);
    }

    #[test]
    fn a_slot_is_taken_once_also_where_renames_cannot_be_exclusive() {
        let home = tempfile::tempdir().unwrap();
        let place = |name: &str| home.path().join(name);
        std::fs::write(place("one"), "a").unwrap();
        std::fs::write(place("two"), "b").unwrap();
        link_to_new(&place("one"), &place("7")).unwrap();
        assert!(!place("one").exists());
        let taken = link_to_new(&place("two"), &place("7")).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(place("7")).unwrap(), "a");
        assert_eq!(std::fs::read_to_string(place("two")).unwrap(), "b");
    }

    #[test]
    fn slots_of_directories_that_are_gone_are_free() {
        let home = tempfile::tempdir().unwrap();
        let slots = Slots::new(home.path().join("uids"), 5);
        let slot = slots.take(&home.path().join("gone")).unwrap();
        slots.sweep();
        assert_eq!(slots.take(home.path()).unwrap(), slot);
    }

    #[test]
    fn the_last_slot_fits_below_the_signed_half() {
        let last = u64::from(Slots::first_id(COUNT - 1)) + u64::from(SIZE);
        assert!(last <= 1 << 31);
    }
}
