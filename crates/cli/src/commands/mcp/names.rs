//! The word that is part of the names of a server's terminal sessions.
//!
//! Servers that run at the same time have a word each, so that the `build` of one is not the `build`
//! of another. A server that starts later, in the same place and with the same terminals, takes the
//! word of one that has left, and so finds its sessions under their names.
//!
//! ```text
//!   names/PLACE-0   kept locked by a server as long as it runs; its text is the word
//!   names/PLACE-1   of a second one beside it
//! ```

use crate::home::Place;
use motu_core::id::random_name;
use motu_core::{Error, Result};
use motu_engine::OwnDirectory;
use rustix::fs::{FlockOperation, OFlags, flock};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

const DIR: &str = "names";
/// Letters of a word.
const CHARS: usize = 8;
/// Servers in one place at the same time that find their sessions again later.
const SERVERS: usize = 64;
/// How long a word is kept after the start of the last server that had it.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Old words that one start forgets at most.
const FORGOTTEN: usize = 256;

/// A word that no other server has while this is held.
#[derive(Debug)]
pub struct Word {
    pub text: String,
    /// The kernel lets go of the lock when this process ends, however it does.
    _lock: Option<File>,
}

impl Word {
    /// A word of this server alone, which none finds again.
    pub fn alone() -> Word {
        Word {
            text: random_name(CHARS),
            _lock: None,
        }
    }

    /// The word of the last server of this place that has left, or a new one.
    pub fn of(home: &Place, place: &str) -> Result<Word> {
        home.open()?;
        let dir = OwnDirectory::open(&home.path().join(DIR))?;
        let failed = |error| Error::io(format_args!("use {}", dir.path().display()), &error);
        forget_old(&dir);
        let digest = Sha256::digest(place);
        let digest: String = digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        for number in 0..SERVERS {
            let name = format!("{digest}-{number}");
            let Some(lock) = lock(&dir, &name).map_err(failed)? else {
                continue;
            };
            let text = keep(&dir.path().join(name), &lock).map_err(failed)?;
            return Ok(Word {
                text,
                _lock: Some(lock),
            });
        }
        Ok(Word::alone())
    }
}

/// A file of this name, which stays locked as long as it is open; `None` if another server has it.
fn lock(dir: &OwnDirectory, name: &str) -> std::io::Result<Option<File>> {
    loop {
        let file = dir.file(name, OFlags::empty())?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        // Between the two it may have been forgotten, and is then another file.
        if is_at(&file, &dir.path().join(name)) {
            return Ok(Some(file));
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let of = |found: std::fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(file), Ok(path)) => of(file) == of(path),
        _ => false,
    }
}

/// The word of a locked file; one without a word gets a new one.
fn keep(path: &Path, mut file: &File) -> std::io::Result<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let text = text.trim_end();
    let is_word = text.len() == CHARS && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_word {
        let made = random_name(CHARS);
        file.set_len(0)?;
        file.write_all(format!("{made}\n").as_bytes())?;
        return Ok(made);
    }
    file.set_modified(SystemTime::now())?;
    Ok(text.to_string())
}

/// Forgets words that nobody has used for long. What cannot be forgotten now is forgotten later.
fn forget_old(dir: &OwnDirectory) {
    let Ok(entries) = std::fs::read_dir(dir.path()) else {
        return;
    };
    let is_old = |entry: &std::fs::DirEntry| {
        let used = entry.metadata().and_then(|found| found.modified());
        let age = used.map(|used| SystemTime::now().duration_since(used).unwrap_or_default());
        age.is_ok_and(|age| age > KEPT)
    };
    for entry in entries.flatten().filter(is_old).take(FORGOTTEN) {
        let name = entry.file_name();
        // The lock keeps a server from taking the word meanwhile.
        if let Some(Ok(Some(_lock))) = name.to_str().map(|name| lock(dir, name)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dir: &Path) -> Place {
        Place::find(Some(&dir.join("home"))).unwrap()
    }

    #[test]
    fn a_word_is_taken_over_and_never_shared() {
        let dir = tempfile::tempdir().unwrap();
        let home = place(dir.path());
        let first = Word::of(&home, "/project").unwrap();
        let beside = Word::of(&home, "/project").unwrap();
        let elsewhere = Word::of(&home, "/other").unwrap();
        assert_ne!(first.text, beside.text);
        assert_ne!(first.text, elsewhere.text);
        let text = first.text.clone();
        drop(first);
        let later = Word::of(&home, "/project").unwrap();
        assert_eq!(later.text, text);
        assert_ne!(Word::alone().text, Word::alone().text);
    }

    #[test]
    fn words_that_nobody_uses_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let home = place(dir.path());
        let old = Word::of(&home, "/old").unwrap();
        let used = Word::of(&home, "/used").unwrap();
        let long_ago = SystemTime::now() - KEPT * 2;
        for entry in std::fs::read_dir(home.path().join(DIR)).unwrap() {
            let file = File::options()
                .write(true)
                .open(entry.unwrap().path())
                .unwrap();
            file.set_modified(long_ago).unwrap();
        }
        let text = old.text.clone();
        drop(old);
        let now = Word::of(&home, "/new").unwrap();
        assert_eq!(std::fs::read_dir(home.path().join(DIR)).unwrap().count(), 2);
        assert_ne!(Word::of(&home, "/old").unwrap().text, text);
        drop((used, now));
    }

    #[test]
    fn a_file_that_says_no_word_gets_one() {
        let dir = tempfile::tempdir().unwrap();
        let home = place(dir.path());
        let text = Word::of(&home, "/project").unwrap().text;
        let files = std::fs::read_dir(home.path().join(DIR)).unwrap();
        for entry in files {
            std::fs::write(entry.unwrap().path(), "\u{1b}[31m@../x").unwrap();
        }
        let again = Word::of(&home, "/project").unwrap();
        assert_ne!(again.text, text);
        assert_eq!(again.text.len(), CHARS);
    }
}
