//! Ranges of host ids: every machine has its own 65 536 ids.
//!
//! A slot is a file in `run/uids`, created exclusively, that contains the machine's directory.
//! Files outlive the daemon, so two machines of one state directory never share ids, even after a
//! crash. Another state directory starts its search elsewhere; sharing ids with it would affect
//! accounting, not isolation.

use motu_core::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The first host id of the first slot, above the ranges that distributions assign.
const BASE: u32 = 0x2000_0000;
/// Ids per machine.
pub(crate) const SIZE: u32 = 65_536;
/// How many slots there are.
const COUNT: u32 = 24_576;

/// The slots of one state directory.
#[derive(Debug)]
pub(crate) struct Slots {
    dir: PathBuf,
    start: u32,
}

impl Slots {
    /// `seed` differs between state directories.
    pub(crate) fn new(dir: PathBuf, seed: u32) -> Slots {
        Slots {
            dir,
            start: seed % COUNT,
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
        let mut made_dir = false;
        let mut step = 0;
        while step < COUNT {
            let slot = (self.start + step) % COUNT;
            let file = self.dir.join(slot.to_string());
            match std::fs::File::options()
                .write(true)
                .create_new(true)
                .open(&file)
            {
                Ok(mut file) => {
                    let path = machine.as_os_str().as_encoded_bytes();
                    file.write_all(path).map_err(failed)?;
                    return Ok(slot);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => step += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound && !made_dir => {
                    std::fs::create_dir_all(&self.dir).map_err(failed)?;
                    made_dir = true;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Error::limit("every range of host ids is in use"))
    }

    /// Frees a slot, if it still belongs to this machine.
    pub(crate) fn free(&self, slot: u32, machine: &Path) {
        let file = self.dir.join(slot.to_string());
        let owner = std::fs::read(&file).unwrap_or_default();
        if owner == machine.as_os_str().as_encoded_bytes() {
            let _ = std::fs::remove_file(file);
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

    /// Frees the slots of machines whose directory is gone.
    pub(crate) fn sweep(&self) {
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let owner = std::fs::read(entry.path()).unwrap_or_default();
            let owner = PathBuf::from(String::from_utf8_lossy(&owner).into_owned());
            if !owner.exists() {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
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
