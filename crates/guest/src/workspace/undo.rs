//! Undoes a transaction that was interrupted.
//!
//! A request with more than one change writes a record into its stage before the first change, and
//! removes it after the last: that removal commits the request. A machine that ends in between
//! leaves the record, and the next one undoes the changes before it serves anyone.
//!
//! ```text
//!   .motu-0123456789abcdef.tmp/     the stage, at the top of the workspace
//!     0 1 2 …      new contents, by the number of the change; of a deletion, the old file
//!     0.old …      what a change replaces, as a second name of the same file
//!     undo         the record; without it there is nothing to take back
//! ```
//!
//! The names in the stage tell whether a change was executed, and undoing it leaves names that say
//! so: undo may itself be interrupted and started again. The file system's journal keeps the order
//! of renames, so a power cut leaves a state that existed at some moment before it.

use super::facts::look;
use super::inside::Inside;
use crate::blocking::Cancel;
use crate::files::{remove_entry, rename};
use prost::Message;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

const RECORD: &str = "undo";
const STAGED_RECORD: &str = "undo.new";
const BEGINNING: &[u8] = b".motu-";
const ENDING: &[u8] = b".tmp";
/// Hexadecimal digits between the two.
const DIGITS: usize = 16;
/// Mode of a stage, which programs of other users cannot enter.
const STAGE_MODE: u32 = 0o700;
/// A record is never longer than a request.
const MAX_RECORD: usize = 64 << 20;

/// One change, with what undoing it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Create(Inside),
    Replace(Inside),
    Delete(Inside),
    Rename { from: Inside, to: Inside },
}

/// All changes of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Directories that were not there before, parents first.
    pub made: Vec<Inside>,
    pub changes: Vec<Change>,
}

#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(bytes = "vec", repeated, tag = "2")]
    made: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "3")]
    changes: Vec<StoredChange>,
}

#[derive(Clone, PartialEq, Message)]
struct StoredChange {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(bytes = "vec", tag = "2")]
    path: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    to: Vec<u8>,
}

const VERSION: u32 = 1;

impl Record {
    /// Writes the record atomically.
    pub fn store(&self, stage: &OwnedFd) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let file = rustix::fs::openat(stage, STAGED_RECORD, flags, mode)?;
        let bytes = self.stored().encode_to_vec();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        rustix::fs::fsync(&file)?;
        rustix::fs::renameat(stage, STAGED_RECORD, stage, RECORD)
    }

    /// Removes the record: the changes are final.
    pub fn forget(stage: &OwnedFd) -> Result<(), Errno> {
        rustix::fs::unlinkat(stage, RECORD, AtFlags::empty())
    }

    /// The record of a stage, if it has one.
    fn load(stage: &OwnedFd) -> Result<Option<Record>, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(stage, RECORD, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match rustix::io::read(&file, &mut buffer)? {
                0 => break,
                got => bytes.extend_from_slice(buffer.get(..got).unwrap_or_default()),
            }
            if bytes.len() > MAX_RECORD {
                return Err(Errno::FBIG);
            }
        }
        let stored = Stored::decode(&bytes[..]).map_err(|_| Errno::BADMSG)?;
        Record::read(stored).map(Some).ok_or(Errno::BADMSG)
    }

    fn stored(&self) -> Stored {
        let changes = self.changes.iter().map(|change| {
            let (kind, path, to) = match change {
                Change::Create(path) => (1, path, None),
                Change::Replace(path) => (2, path, None),
                Change::Delete(path) => (3, path, None),
                Change::Rename { from, to } => (4, from, Some(to)),
            };
            StoredChange {
                kind,
                path: path.as_bytes().to_vec(),
                to: to.map_or_else(Vec::new, |to| to.as_bytes().to_vec()),
            }
        });
        Stored {
            version: VERSION,
            made: self
                .made
                .iter()
                .map(|dir| dir.as_bytes().to_vec())
                .collect(),
            changes: changes.collect(),
        }
    }

    fn read(stored: Stored) -> Option<Record> {
        let path = |bytes: &[u8]| Inside::parse(bytes).ok();
        let change = |stored: &StoredChange| {
            let at = path(&stored.path)?;
            Some(match stored.kind {
                1 => Change::Create(at),
                2 => Change::Replace(at),
                3 => Change::Delete(at),
                4 => Change::Rename {
                    from: at,
                    to: path(&stored.to)?,
                },
                _ => return None,
            })
        };
        if stored.version != VERSION {
            return None;
        }
        let made = stored.made.iter().map(|dir| path(dir));
        Some(Record {
            made: made.collect::<Option<_>>()?,
            changes: stored.changes.iter().map(change).collect::<Option<_>>()?,
        })
    }

    /// Undoes the changes, the last first. A failure does not stop the rest.
    pub fn take_back(&self, top: &OwnedFd, stage: &OwnedFd) -> Result<(), Errno> {
        let mut result = Ok(());
        for (index, change) in self.changes.iter().enumerate().rev() {
            result = result.and(change.take_back(index, top, stage));
        }
        for dir in self.made.iter().rev() {
            let gone = dir
                .entry(top)
                .and_then(|(parent, name)| rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR));
            match gone {
                // The directory has other entries now, or was never made.
                Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => result = result.and(Err(errno)),
            }
        }
        result
    }
}

impl Change {
    fn take_back(&self, index: usize, top: &OwnedFd, stage: &OwnedFd) -> Result<(), Errno> {
        let new = staged(index);
        match self {
            Change::Create(path) => match at(path, top)? {
                Some((dir, name)) if look(stage, &new)?.is_none() && is_there(&dir, &name)? => {
                    // Renamed, not removed: its presence in the stage marks the change as undone.
                    rustix::fs::renameat(dir, &name[..], stage, &new[..])
                }
                _ => Ok(()),
            },
            Change::Replace(path) => {
                let old = replaced(index);
                let Some((dir, name)) = at(path, top)? else {
                    return Ok(());
                };
                let undone = look(stage, &new)?.is_some() && is_there(&dir, &name)?;
                match look(stage, &old)? {
                    Some(_) if !undone => rustix::fs::renameat(stage, &old[..], dir, &name[..]),
                    _ => Ok(()),
                }
            }
            Change::Delete(path) => match (look(stage, &new)?, at(path, top)?) {
                (Some(_), Some((dir, name))) => rename(stage, &new, &dir, &name, false),
                _ => Ok(()),
            },
            Change::Rename { from, to } => match (at(from, top)?, at(to, top)?) {
                (Some((dir, name)), Some((now, target)))
                    if !is_there(&dir, &name)? && is_there(&now, &target)? =>
                {
                    rename(&now, &target, &dir, &name, false)
                }
                _ => Ok(()),
            },
        }
    }
}

/// The name of a change's new content in the stage.
pub fn staged(index: usize) -> Vec<u8> {
    index.to_string().into_bytes()
}

/// The name of a replaced file in the stage.
pub fn replaced(index: usize) -> Vec<u8> {
    format!("{index}.old").into_bytes()
}

fn is_there(dir: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    Ok(look(dir, name)?.is_some())
}

/// The directory of a path and the name in it; `None` if the directory does not exist.
fn at(path: &Inside, top: &OwnedFd) -> Result<Option<(OwnedFd, Vec<u8>)>, Errno> {
    match path.entry(top) {
        Ok((dir, name)) => Ok(Some((dir, name.to_vec()))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Whether a name at the top of the workspace is a stage of ours.
pub fn is_stage(top: &OwnedFd, name: &[u8]) -> bool {
    let digits = name
        .strip_prefix(BEGINNING)
        .and_then(|rest| rest.strip_suffix(ENDING));
    let named =
        digits.is_some_and(|rest| rest.len() == DIGITS && rest.iter().all(u8::is_ascii_hexdigit));
    named
        && rustix::fs::statat(top, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
            // A setgid bit may have been inherited from the parent.
            stat.st_mode & 0o170_777 == 0o040_000 | STAGE_MODE
                && stat.st_uid == rustix::process::geteuid().as_raw()
        })
}

/// Makes a stage.
pub fn make_stage(top: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(top, name, Mode::from_raw_mode(STAGE_MODE))?;
    open(top, name)
}

fn open(top: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(top, name, flags, Mode::empty())
}

/// Undoes interrupted requests of an earlier machine, and removes their stages. Failures are
/// returned, and stay for the next start.
pub fn recover(top: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = rustix::fs::openat(top, c".", flags, Mode::empty())?;
    let mut stages = Vec::new();
    for entry in Dir::read_from(&listed)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if is_stage(top, name) {
            stages.push(name.to_vec());
        }
    }
    let mut result = Ok(());
    for name in &stages {
        result = result.and(recover_one(top, name));
    }
    if !stages.is_empty() {
        rustix::fs::syncfs(listed)?;
    }
    result
}

fn recover_one(top: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let stage = open(top, name)?;
    if let Some(record) = Record::load(&stage)? {
        record.take_back(top, &stage)?;
        // Before the names that mark what was undone.
        Record::forget(&stage)?;
    }
    remove_entry(top, name, true, &Cancel::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A step of a request, or of taking it back: cut before each.
    type Cut<'a> = &'a dyn Fn(&Path, &Path);

    const STAGE: &str = ".motu-0123456789abcdef.tmp";

    fn path(text: &str) -> Inside {
        Inside::parse(text.as_bytes()).unwrap()
    }

    fn record() -> Record {
        Record {
            made: vec![path("new"), path("new/deep")],
            changes: vec![
                Change::Replace(path("a")),
                Change::Create(path("new/deep/file")),
                Change::Delete(path("c")),
                Change::Rename {
                    from: path("d/b"),
                    to: path("new/b"),
                },
                Change::Replace(path("d/e")),
                Change::Create(path("d/b")),
            ],
        }
    }

    type Step = Box<dyn Fn(&Path, &Path)>;

    /// What a request does after its record is written, one system call each.
    fn steps() -> Vec<Step> {
        use std::fs::{create_dir, hard_link, rename};
        vec![
            Box::new(|top, stage| hard_link(top.join("a"), stage.join("0.old")).unwrap()),
            Box::new(|top, stage| rename(stage.join("0"), top.join("a")).unwrap()),
            Box::new(|top, _| create_dir(top.join("new")).unwrap()),
            Box::new(|top, _| create_dir(top.join("new/deep")).unwrap()),
            Box::new(|top, stage| rename(stage.join("1"), top.join("new/deep/file")).unwrap()),
            Box::new(|top, stage| rename(top.join("c"), stage.join("2")).unwrap()),
            Box::new(|top, _| rename(top.join("d/b"), top.join("new/b")).unwrap()),
            // Where there are no second names.
            Box::new(|top, stage| rename(top.join("d/e"), stage.join("4.old")).unwrap()),
            Box::new(|top, stage| rename(stage.join("4"), top.join("d/e")).unwrap()),
            Box::new(|top, stage| rename(stage.join("5"), top.join("d/b")).unwrap()),
        ]
    }

    fn world() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("a", "A"), ("c", "C"), ("d/b", "B"), ("d/e", "E")] {
            let file = dir.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let top: OwnedFd = std::fs::File::open(dir.path()).unwrap().into();
        let stage = make_stage(&top, STAGE.as_bytes()).unwrap();
        for number in [0, 1, 4, 5] {
            std::fs::write(dir.path().join(STAGE).join(number.to_string()), "new").unwrap();
        }
        record().store(&stage).unwrap();
        (dir, top)
    }

    fn tree(dir: &Path) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut rest = vec![dir.to_path_buf()];
        while let Some(at) = rest.pop() {
            for entry in std::fs::read_dir(at).unwrap().flatten() {
                let name = entry
                    .path()
                    .strip_prefix(dir)
                    .unwrap()
                    .display()
                    .to_string();
                let is_dir = entry.file_type().unwrap().is_dir();
                let text = match is_dir {
                    true => String::new(),
                    false => std::fs::read_to_string(entry.path()).unwrap(),
                };
                if is_dir {
                    rest.push(entry.path());
                }
                found.push((name, text));
            }
        }
        found.sort();
        found
    }

    fn before() -> Vec<(String, String)> {
        [
            ("a", "A"),
            ("c", "C"),
            ("d", ""),
            ("d/b", "B"),
            ("d/e", "E"),
        ]
        .map(|(name, text)| (name.to_string(), text.to_string()))
        .to_vec()
    }

    #[test]
    fn whatever_was_done_is_taken_back() {
        for done in 0..=steps().len() {
            let (dir, top) = world();
            let stage = dir.path().join(STAGE);
            let cut: Vec<_> = steps().into_iter().take(done).collect();
            cut.iter().for_each(|step: &Box<_>| {
                let step: Cut<'_> = step;
                step(dir.path(), &stage);
            });
            recover(&top).unwrap();
            assert_eq!(tree(dir.path()), before(), "after {done} steps");
        }
    }

    /// Taking back is itself cut between any two changes, and begun again from the end.
    #[test]
    fn taking_back_may_be_cut_too() {
        for done in 0..=steps().len() {
            for taken in 0..=record().changes.len() {
                let (dir, top) = world();
                let stage = dir.path().join(STAGE);
                for step in steps().iter().take(done) {
                    step(dir.path(), &stage);
                }
                let handle = open(&top, STAGE.as_bytes()).unwrap();
                let record = record();
                let last = record.changes.iter().enumerate().rev().take(taken);
                for (index, change) in last {
                    change.take_back(index, &top, &handle).unwrap();
                }
                recover(&top).unwrap();
                assert_eq!(tree(dir.path()), before(), "{done} done, {taken} taken");
            }
        }
    }

    #[test]
    fn a_request_that_is_done_stays_done() {
        let (dir, top) = world();
        let stage = dir.path().join(STAGE);
        steps().iter().for_each(|step| step(dir.path(), &stage));
        Record::forget(&open(&top, STAGE.as_bytes()).unwrap()).unwrap();
        let mut done = tree(dir.path());
        done.retain(|(name, _)| !name.starts_with(".motu"));
        recover(&top).unwrap();
        assert_eq!(tree(dir.path()), done);
        assert!(done.contains(&("new/deep/file".to_string(), "new".to_string())));
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let top: OwnedFd = std::fs::File::open(dir.path()).unwrap().into();
        std::fs::write(dir.path().join(STAGE), "a file").unwrap();
        std::fs::create_dir(dir.path().join(".motu-0000000000000000.tmp")).unwrap();
        std::fs::create_dir(dir.path().join(".motu-short.tmp")).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path().join(".motu-0000000000000000.tmp"), open).unwrap();
        let found = tree(dir.path());
        recover(&top).unwrap();
        assert_eq!(tree(dir.path()), found);
        // A record that cannot be read is kept with everything beside it.
        let stage = make_stage(&top, b".motu-00000000000000ff.tmp").unwrap();
        drop(stage);
        let stage = dir.path().join(".motu-00000000000000ff.tmp");
        std::fs::write(stage.join("undo"), "nonsense").unwrap();
        recover(&top).unwrap_err();
        assert!(stage.join("undo").exists());
    }

    #[test]
    fn records_survive() {
        let stored = record().stored().encode_to_vec();
        let read = Record::read(Stored::decode(&stored[..]).unwrap());
        assert_eq!(read.unwrap(), record());
    }
}
