//! Removing directories off the hot path.
//!
//! A directory is renamed into the trash at once and deleted by a thread of its own: deleting a
//! disk image can take the file system far longer than ending the machine. What a crash leaves in
//! the trash is deleted at the next start.

use motu_core::{Error, ErrorKind, Result, id};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

/// The trash of one state directory.
#[derive(Debug)]
pub struct Trash {
    dir: PathBuf,
    full: mpsc::Sender<PathBuf>,
}

impl Trash {
    /// Opens the trash and begins to empty it.
    pub fn open(home: &Path) -> Result<Trash> {
        let dir = home.join("trash");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|error| Error::io("cannot make the trash", &error))?;
        let (full, queue) = mpsc::channel::<PathBuf>();
        let left =
            fs::read_dir(&dir).map_err(|error| Error::io("cannot open the trash", &error))?;
        for entry in left.flatten() {
            let _ = full.send(entry.path());
        }
        std::thread::Builder::new()
            .name("trash".to_string())
            .spawn(move || {
                for path in queue {
                    if let Err(error) = fs::remove_dir_all(&path) {
                        tracing::warn!(path = %path.display(), %error, "cannot empty the trash");
                    }
                }
            })
            .map_err(|error| Error::io("cannot start the trash thread", &error))?;
        Ok(Trash { dir, full })
    }

    /// Moves a directory to the trash; no error if it is gone already.
    pub fn discard(&self, dir: &Path) -> Result<()> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let place = self.dir.join(format!("{name}.{}", id::random_name(6)));
        match fs::rename(dir, &place) {
            Ok(()) => {
                let _ = self.full.send(place);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::new(
                ErrorKind::Cleanup,
                format!("cannot remove {}: {error}", dir.display()),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn eventually_empty(dir: &Path) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while fs::read_dir(dir).unwrap().next().is_some() {
            assert!(Instant::now() < deadline, "the trash is never emptied");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_discarded_is_out_of_sight_at_once_and_gone_soon() {
        let home = tempfile::tempdir().unwrap();
        let trash = Trash::open(home.path()).unwrap();
        let dir = home.path().join("machine");
        fs::create_dir_all(dir.join("deep")).unwrap();
        fs::write(dir.join("deep/file"), "x").unwrap();
        trash.discard(&dir).unwrap();
        assert!(!dir.exists());
        trash.discard(&dir).unwrap();
        eventually_empty(&home.path().join("trash"));
    }

    #[test]
    fn what_a_crash_left_is_removed_at_the_start() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("trash/old/deep")).unwrap();
        let _trash = Trash::open(home.path()).unwrap();
        eventually_empty(&home.path().join("trash"));
    }
}
