//! Removing directories off the hot path.
//!
//! A directory is renamed into the trash at once and deleted by a thread of its own: deleting a
//! disk image can take the file system far longer than ending the machine. What a crash leaves in
//! the trash is deleted at the next start.
//!
//! Deleting waits while calls ask for it ([`Trash::rest`]): it would take their processors, and their
//! file system's locks.
//!
//! Empty directories are kept for the next machines: without a journal, ext4 looks at every inode
//! that was deleted within the last minutes before it gives out one.

use motu_core::{Error, ErrorKind, Result, id};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// The most empty directories that are kept.
const EMPTIES: usize = 128;
/// How long deleting waits at most.
const REST: Duration = Duration::from_secs(1);
/// How many directories wait to be deleted at most: calls that follow one another must not fill the
/// host's disk.
const WAITING: usize = 16;
/// File type and permissions of a private directory.
const PRIVATE: u32 = 0o040_700;

/// The trash of one state directory.
#[derive(Debug)]
pub struct Trash {
    dir: PathBuf,
    full: mpsc::Sender<PathBuf>,
    empties: Arc<Empties>,
    calm: Arc<Calm>,
}

/// When to delete.
#[derive(Debug, Default)]
struct Calm {
    state: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    /// Calls that want nothing to be deleted.
    calls: usize,
    /// Directories that are to be deleted.
    full: usize,
}

impl Calm {
    fn change(&self, change: impl FnOnce(&mut Asked)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits until no call wants quiet, for a while, or until there is much to delete.
    fn wait(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rests = |asked: &mut Asked| asked.calls > 0 && asked.full <= WAITING;
        drop(self.changed.wait_timeout_while(state, REST, rests));
    }
}

/// A call that wants nothing to be deleted, until this is dropped.
#[derive(Debug)]
pub struct Resting(Arc<Calm>);

impl Drop for Resting {
    fn drop(&mut self) {
        self.0.change(|asked| asked.calls -= 1);
    }
}

/// Empty, private directories.
#[derive(Debug, Default)]
struct Empties(Mutex<Vec<PathBuf>>);

impl Empties {
    /// Keeps a directory, unless something is in it, it is not private, or there are enough.
    fn keep(&self, path: &Path) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let keeps = kept.len() < EMPTIES && is_as_new(path).unwrap_or(false);
        if keeps {
            kept.push(path.to_path_buf());
        }
        keeps
    }

    fn take(&self) -> Option<PathBuf> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.pop()
    }
}

fn is_as_new(path: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    Ok(own && found.mode() == PRIVATE && fs::read_dir(path)?.next().is_none())
}

fn delete(path: &Path) {
    if let Err(error) = fs::remove_dir_all(path) {
        tracing::warn!(path = %path.display(), %error, "cannot empty the trash");
    }
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
        let calm = Arc::new(Calm::default());
        for entry in left.flatten() {
            calm.change(|asked| asked.full += 1);
            let _ = full.send(entry.path());
        }
        let empties = Arc::new(Empties::default());
        let (kept, quiet) = (empties.clone(), calm.clone());
        std::thread::Builder::new()
            .name("trash".to_string())
            .spawn(move || {
                for path in queue {
                    if !kept.keep(&path) {
                        quiet.wait();
                        delete(&path);
                    }
                    quiet.change(|asked| asked.full -= 1);
                }
            })
            .map_err(|error| Error::io("cannot start the trash thread", &error))?;
        Ok(Trash {
            dir,
            full,
            empties,
            calm,
        })
    }

    /// Lets the trash rest for a call, but no longer than a second.
    pub fn rest(&self) -> Resting {
        self.calm.change(|asked| asked.calls += 1);
        Resting(self.calm.clone())
    }

    /// Gives an empty, private directory this name, if there is one and nothing has the name.
    pub fn reuse(&self, name: &Path) -> bool {
        let Some(empty) = self.empties.take() else {
            return false;
        };
        let renamed = renameat_with(CWD, &empty, CWD, name, RenameFlags::NOREPLACE);
        if renamed.is_err() {
            self.empties.keep(&empty);
        }
        renamed.is_ok()
    }

    /// Moves a directory to the trash; no error if it is gone already.
    pub fn discard(&self, dir: &Path) -> Result<()> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let place = self.dir.join(format!("{name}.{}", id::random_name(6)));
        match fs::rename(dir, &place) {
            Ok(()) => {
                self.calm.change(|asked| asked.full += 1);
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

    fn eventually(what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !done() {
            assert!(Instant::now() < deadline, "never: {what}");
            std::thread::yield_now();
        }
    }

    fn eventually_empty(dir: &Path) {
        let is_empty = || fs::read_dir(dir).unwrap().next().is_none();
        eventually("the trash is emptied", is_empty);
    }

    #[test]
    fn only_what_is_as_new_is_used_again() {
        let home = tempfile::tempdir().unwrap();
        let trash = Trash::open(home.path()).unwrap();
        let make = |name: &str, mode: u32| {
            let dir = home.path().join(name);
            fs::DirBuilder::new().mode(mode).create(&dir).unwrap();
            dir
        };
        let (full, open, plain) = (make("a", 0o700), make("b", 0o755), make("c", 0o700));
        fs::write(full.join("file"), "x").unwrap();
        let inode = plain.metadata().unwrap().ino();
        for dir in [&full, &open, &plain] {
            trash.discard(dir).unwrap();
        }
        let next = home.path().join("next");
        eventually("the plain one is kept", || trash.reuse(&next));
        assert_eq!(next.metadata().unwrap().ino(), inode);
        assert!(!trash.reuse(&home.path().join("other")), "no other is");
        eventually_empty(&home.path().join("trash"));

        trash.discard(&next).unwrap();
        let taken = make("taken", 0o700);
        let kept = || !trash.empties.0.lock().unwrap().is_empty();
        eventually("it is kept again", kept);
        assert!(!trash.reuse(&taken), "somebody's");
        assert!(kept());
        // The next daemon begins without it.
        drop(trash);
        let _trash = Trash::open(home.path()).unwrap();
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
    fn nothing_is_deleted_while_a_call_wants_quiet_but_for_a_second_only() {
        let home = tempfile::tempdir().unwrap();
        let trash = Trash::open(home.path()).unwrap();
        let places = home.path().join("trash");
        let discard = |name: &str| {
            let dir = home.path().join(name);
            fs::create_dir_all(dir.join("deep")).unwrap();
            trash.discard(&dir).unwrap();
        };
        let (one, other) = (trash.rest(), trash.rest());
        let begun = Instant::now();
        discard("long");
        drop(other);
        eventually_empty(&places);
        assert!(begun.elapsed() >= REST, "one call still wanted quiet");
        drop(one);
        let begun = Instant::now();
        discard("short");
        eventually_empty(&places);
        assert!(begun.elapsed() < REST);
        let _quiet = trash.rest();
        let begun = Instant::now();
        for number in 0..3 * WAITING {
            discard(&number.to_string());
        }
        let many = || fs::read_dir(&places).unwrap().count() <= WAITING;
        eventually("not too many wait", many);
        assert!(begun.elapsed() < REST);
    }

    #[test]
    fn what_a_crash_left_is_removed_at_the_start() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("trash/old/deep")).unwrap();
        let _trash = Trash::open(home.path()).unwrap();
        eventually_empty(&home.path().join("trash"));
    }
}
