//! Several file changes in one transaction.
//!
//! New contents are staged in a directory at the top of the workspace, then every operation is a
//! rename, and a replaced file gets a name in the same directory. Undo renames back; commit removes
//! the stage. [`undo`] describes what holds if the machine ends in between.
//!
//! [`undo`]: super::undo

use super::facts::{fill, kind, look, modified_ns};
use super::inside::Inside;
use super::refusal::{Refusal, absent, differs, kernel, not_a_file, present};
use super::undo::{self, Change, Record, replaced, staged};
use super::{Workspace, workspace};
use crate::answer::{Failed, note};
use crate::blocking::{self, Cancel};
use crate::files::{Owner, remove_entry, rename};
use crate::flush::{Flush, SEVERAL};
use crate::place::fresh_name;
use crate::state::Guest;
use motu_link::Event;
use motu_link::message::{Applied, Apply, Failure, Operation, OperationKind, Refused, Said};
use motu_link::mux::{Receiver, Sender};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Operations of one request.
const MAX_OPERATIONS: usize = 10_000;
/// All contents of one request.
const MAX_BYTES: u64 = 1 << 30;
/// Bytes hashed at a time.
const STEP: usize = 256 * 1024;
/// Default permission bits of new files and directories.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

pub async fn apply(
    guest: &Arc<Guest>,
    request: Apply,
    tx: &Sender,
    mut rx: Receiver,
) -> Result<(), Failed> {
    let workspace = workspace(guest)?;
    let owner = Owner::find(guest, &request.user)?;
    let steps = parse(&request.operations)?;
    let mut stage = blocking::run(move || Stage::open(workspace, steps, owner)).await?;
    loop {
        match rx.recv().await? {
            Event::Data { bytes, .. } => {
                stage = blocking::run(move || {
                    stage.feed(&bytes)?;
                    Ok(stage)
                })
                .await?;
            }
            Event::Eof => break,
            Event::Message(_) => {}
            Event::End(_) | Event::Reset => return Err(Failed::cancelled()),
        }
    }
    let done = blocking::run(move || stage.commit()).await?;
    let (applied, result) = match done {
        Ok(done) => (
            Applied {
                done,
                refused: None,
            },
            Ok(()),
        ),
        Err((refused, failed)) => (
            Applied {
                done: 0,
                refused: Some(refused),
            },
            Err(failed),
        ),
    };
    note(tx, Said::Applied(applied)).await?;
    result
}

#[derive(Debug)]
struct Step {
    kind: OperationKind,
    path: Inside,
    to: Inside,
    size: u64,
    mode: u32,
    absent: bool,
    content: Option<[u8; 32]>,
}

fn parse(operations: &[Operation]) -> Result<Vec<Step>, Failed> {
    if operations.len() > MAX_OPERATIONS {
        let message = format!("more than {MAX_OPERATIONS} operations");
        return Err(Failed::new(Failure::Limit, message));
    }
    let steps: Vec<Step> = operations.iter().map(parse_one).collect::<Result<_, _>>()?;
    let bytes = steps
        .iter()
        .try_fold(0u64, |all, step| all.checked_add(step.size));
    match bytes {
        Some(bytes) if bytes <= MAX_BYTES => Ok(steps),
        _ => Err(Failed::new(
            Failure::Limit,
            format!("more than {MAX_BYTES} bytes"),
        )),
    }
}

fn parse_one(operation: &Operation) -> Result<Step, Failed> {
    let kind = OperationKind::try_from(operation.kind)
        .map_err(|_| Failed::invalid("an operation of an unknown kind"))?;
    let path = Inside::parse(&operation.path)?;
    let to = Inside::parse(&operation.to)?;
    if path.is_top() || (kind == OperationKind::Rename && to.is_top()) {
        return Err(Failed::invalid("an operation needs the path of a file"));
    }
    let content = match &operation.expect_sha256[..] {
        b"" => None,
        bytes => Some(
            <[u8; 32]>::try_from(bytes)
                .map_err(|_| Failed::invalid("an expected digest is not of 32 bytes"))?,
        ),
    };
    Ok(Step {
        kind,
        path,
        to,
        size: match kind {
            OperationKind::Write => operation.size,
            _ => 0,
        },
        mode: operation.mode & 0o7777,
        absent: operation.expect_absent,
        content,
    })
}

/// A request being staged. Dropping it removes the stage.
#[derive(Debug)]
struct Stage {
    workspace: Arc<Workspace>,
    steps: Vec<Step>,
    owner: Owner,
    name: Vec<u8>,
    directory: OwnedFd,
    /// The write that receives data now, and the bytes it has received.
    at: usize,
    got: u64,
    file: Option<OwnedFd>,
    flush: Flush,
    /// The record for undoing.
    record: Record,
    /// Keep the stage for the next start.
    keep: bool,
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        // The stage contains only replaced files and unused contents.
        let _ = remove_entry(&self.workspace.top, &self.name, true, &Cancel::default());
    }
}

impl Stage {
    fn open(workspace: Arc<Workspace>, steps: Vec<Step>, owner: Owner) -> Result<Stage, Failed> {
        let failed = |errno| Failed::errno("cannot stage the changes", errno);
        let name = fresh_name().map_err(failed)?;
        let directory = undo::make_stage(&workspace.top, &name).map_err(failed)?;
        let mut stage = Stage {
            flush: Flush::new(Some(workspace.clone())),
            workspace,
            steps,
            owner,
            name,
            directory,
            at: 0,
            got: 0,
            file: None,
            record: Record::default(),
            keep: false,
        };
        stage.advance()?;
        Ok(stage)
    }

    /// Whether there are so many writes that one `syncfs` is cheaper than many `fsync`.
    fn at_once(&self) -> bool {
        let writes = self.steps.iter();
        let writes = writes.filter(|step| step.kind == OperationKind::Write);
        !self.flush.each() && writes.count() > SEVERAL
    }

    /// Advances to the next write that still needs data.
    fn advance(&mut self) -> Result<(), Failed> {
        let at_once = self.at_once();
        while let Some(step) = self.steps.get(self.at) {
            if step.kind == OperationKind::Write {
                if self.file.is_none() {
                    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                    let name = staged(self.at);
                    let mode = Mode::from_raw_mode(0o600);
                    let made = rustix::fs::openat(&self.directory, &name[..], flags, mode);
                    self.file = Some(made.map_err(|errno| step.path.failed(errno))?);
                    self.got = 0;
                }
                if self.got < step.size {
                    return Ok(());
                }
            }
            if let Some(file) = self.file.take().filter(|_| !at_once) {
                let flushed = self.flush.file(file);
                flushed.map_err(|errno| step.path.failed(errno))?;
            }
            self.at += 1;
        }
        Ok(())
    }

    fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Failed> {
        while !bytes.is_empty() {
            let (Some(step), Some(file)) = (self.steps.get(self.at), &self.file) else {
                return Err(Failed::invalid("more data than the operations have"));
            };
            let most = usize::try_from(step.size - self.got).unwrap_or(usize::MAX);
            let now = bytes.get(..bytes.len().min(most)).unwrap_or_default();
            match rustix::io::write(file, now) {
                Ok(written) => {
                    self.got += written as u64;
                    bytes = bytes.get(written..).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(step.path.failed(errno)),
            }
            self.advance()?;
        }
        Ok(())
    }

    /// Executes every step, or none.
    fn commit(mut self) -> Result<Result<u32, (Refused, Failed)>, Failed> {
        let failed = |errno| Failed::errno("the changes are not on the disk", errno);
        if self.at < self.steps.len() {
            return Err(Failed::invalid("less data than the operations have"));
        }
        let at_once = self.at_once();
        let steps = std::mem::take(&mut self.steps);
        self.record = plan(&self.workspace.top, &steps);
        // A single rename is atomic by itself and needs no record.
        let recorded = steps.len() > 1;
        if recorded {
            self.record.store(&self.directory).map_err(failed)?;
        }
        if at_once {
            self.flush.all(&self.directory).map_err(failed)?;
        } else if recorded {
            // The record and the stage must be on disk before anything changes.
            let named = self.flush.directory(&self.directory);
            let named = named.and_then(|()| self.flush.directory(&self.workspace.top));
            named.map_err(failed)?;
        }
        for (index, step) in steps.iter().enumerate() {
            if let Err((why, failed)) = self.step(index, step) {
                let refused = Refused {
                    index: index as u32,
                    path: step.path.to_bytes(),
                    why: why as i32,
                };
                return Ok(Err((refused, self.undo(failed))));
            }
        }
        if recorded {
            Record::forget(&self.directory).map_err(failed)?;
        }
        self.settle(&steps, recorded).map_err(failed)?;
        Ok(Ok(steps.len() as u32))
    }

    /// Flushes the new names, and then removes the record.
    fn settle(&self, steps: &[Step], recorded: bool) -> Result<(), Errno> {
        let changed = steps.iter().flat_map(|step| [&step.path, &step.to]);
        let parents: BTreeSet<Inside> = changed
            .filter_map(|path| path.split().map(|(parent, _)| parent))
            .collect();
        if parents.len() > SEVERAL && !self.flush.each() {
            self.flush.all(&self.directory)?;
        } else {
            for parent in &parents {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                match parent.open(&self.workspace.top, flags) {
                    Ok(dir) => self.flush.directory(dir)?,
                    // Moved or removed concurrently.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(errno) => return Err(errno),
                }
            }
            if recorded {
                self.flush.directory(&self.directory)?;
            }
        }
        self.flush.prove()
    }

    fn step(&mut self, index: usize, step: &Step) -> Result<(), Refusal> {
        match step.kind {
            OperationKind::Write => self.write(index, step),
            OperationKind::Delete => self.delete(index, step),
            OperationKind::Rename => self.rename(step),
        }
    }

    fn write(&mut self, index: usize, step: &Step) -> Result<(), Refusal> {
        let (directory, name) = self.directory_for(&step.path)?;
        let found = expect(step, &directory, &name)?;
        if let Some(stat) = &found
            && kind(stat) != FileType::RegularFile
        {
            return Err(not_a_file(&step.path));
        }
        let staged = staged(index);
        let failed = |errno| kernel(&step.path, errno);
        self.expected(index, step, found.is_some())?;
        let (owner, bits) = match &found {
            Some(stat) => (
                Owner {
                    uid: stat.st_uid,
                    gid: stat.st_gid,
                },
                stat.st_mode & 0o7777,
            ),
            None => (self.owner, FILE_MODE),
        };
        let mode = match step.mode {
            0 => bits,
            mode => mode,
        };
        owner.give_at(&self.directory, &staged).map_err(failed)?;
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::chmodat(&self.directory, &staged[..], mode, AtFlags::empty())
            .map_err(failed)?;
        let Some(before) = found else {
            return match rename(&self.directory, &staged, &directory, &name, false) {
                Err(Errno::EXIST) => Err(present(&step.path)),
                other => other.map_err(failed),
            };
        };
        let old = replaced(index);
        let none = AtFlags::empty();
        match rustix::fs::linkat(&directory, &name[..], &self.directory, &old[..], none) {
            Ok(()) => {}
            Err(errno @ (Errno::NOENT | Errno::NOSPC | Errno::IO | Errno::ROFS)) => {
                return Err(failed(errno));
            }
            // No hard link possible: the name is missing for a moment.
            Err(_) => rustix::fs::renameat(&directory, &name[..], &self.directory, &old[..])
                .map_err(failed)?,
        }
        rustix::fs::renameat(&self.directory, &staged[..], &directory, &name[..])
            .map_err(failed)?;
        self.still(step, &old, &before)
    }

    /// Checks a write against its record (create or replace); a request of one step has no stored
    /// record and is adjusted instead.
    fn expected(&mut self, index: usize, step: &Step, found: bool) -> Result<(), Refusal> {
        let alone = self.record.changes.len() == 1;
        match self.record.changes.get_mut(index) {
            Some(change) if alone => {
                *change = match found {
                    true => Change::Replace(step.path.clone()),
                    false => Change::Create(step.path.clone()),
                };
                Ok(())
            }
            Some(Change::Create(_)) if found => Err(present(&step.path)),
            Some(Change::Replace(_)) if !found => Err(absent(&step.path)),
            _ => Ok(()),
        }
    }

    fn delete(&mut self, index: usize, step: &Step) -> Result<(), Refusal> {
        let failed = |errno| kernel(&step.path, errno);
        let (directory, name) = step.path.entry(&self.workspace.top).map_err(failed)?;
        let name = name.to_vec();
        let before = expect(step, &directory, &name)?.ok_or_else(|| absent(&step.path))?;
        movable(&before, &step.path)?;
        let backup = staged(index);
        rustix::fs::renameat(&directory, &name[..], &self.directory, &backup[..])
            .map_err(failed)?;
        self.still(step, &backup, &before)
    }

    fn rename(&mut self, step: &Step) -> Result<(), Refusal> {
        let failed = |errno| kernel(&step.path, errno);
        let (from, name) = step.path.entry(&self.workspace.top).map_err(failed)?;
        let name = name.to_vec();
        let before = expect(step, &from, &name)?.ok_or_else(|| absent(&step.path))?;
        movable(&before, &step.path)?;
        let (to, target) = self.directory_for(&step.to)?;
        match rename(&from, &name, &to, &target, false) {
            Err(Errno::EXIST) => Err(present(&step.to)),
            other => other.map_err(failed),
        }
    }

    /// Whether the replaced file is still the one that was checked before.
    fn still(&self, step: &Step, moved: &[u8], before: &Stat) -> Result<(), Refusal> {
        if step.content.is_none() {
            return Ok(());
        }
        let now = look(&self.directory, moved).map_err(|errno| kernel(&step.path, errno))?;
        match now {
            Some(now)
                if now.st_size == before.st_size && modified_ns(&now) == modified_ns(before) =>
            {
                Ok(())
            }
            _ => Err(differs(&step.path)),
        }
    }

    /// Opens the directory of a path, creating missing ones.
    fn directory_for(&mut self, path: &Inside) -> Result<(OwnedFd, Vec<u8>), Refusal> {
        let failed = |errno| kernel(path, errno);
        let (parent, name) = path.split().ok_or_else(|| not_a_file(path))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at =
            rustix::fs::openat(&self.workspace.top, c".", flags, Mode::empty()).map_err(failed)?;
        for part in parent.parts() {
            let next = match rustix::fs::openat(&at, part, flags, Mode::empty()) {
                Err(Errno::NOENT) => {
                    let mode = Mode::from_raw_mode(DIRECTORY_MODE);
                    rustix::fs::mkdirat(&at, part, mode).map_err(failed)?;
                    rustix::fs::chmodat(&at, part, mode, AtFlags::empty()).map_err(failed)?;
                    self.owner.give_at(&at, part).map_err(failed)?;
                    rustix::fs::openat(&at, part, flags, Mode::empty())
                }
                other => other,
            };
            at = next.map_err(failed)?;
        }
        Ok((at, name.to_vec()))
    }

    /// Undoes the executed steps, the last first.
    fn undo(&mut self, failed: Failed) -> Failed {
        let undone = self.record.take_back(&self.workspace.top, &self.directory);
        let undone = undone.and_then(|()| match self.record.changes.len() {
            0 | 1 => Ok(()),
            _ => Record::forget(&self.directory),
        });
        match undone {
            Ok(()) => failed,
            Err(errno) => {
                // The stage has the only copy of some file.
                self.keep = true;
                let message = format!(
                    "{}; and what was done before could not be undone",
                    failed.message
                );
                Failed::errno(message, errno)
            }
        }
    }
}

/// Predicts what each step does to which name, and the directories it will make.
fn plan(top: &OwnedFd, steps: &[Step]) -> Record {
    let mut record = Record::default();
    // Whether a name exists after the previous steps.
    let mut known: BTreeMap<&Inside, bool> = BTreeMap::new();
    for step in steps {
        let there = known.get(&step.path).copied();
        let there = there.unwrap_or_else(|| is_there(top, &step.path));
        let path = step.path.clone();
        record.changes.push(match step.kind {
            OperationKind::Write if there => Change::Replace(path),
            OperationKind::Write => Change::Create(path),
            OperationKind::Delete => Change::Delete(path),
            OperationKind::Rename => Change::Rename {
                from: path,
                to: step.to.clone(),
            },
        });
        known.insert(&step.path, step.kind == OperationKind::Write);
        let target = match step.kind {
            OperationKind::Write => &step.path,
            OperationKind::Delete => continue,
            OperationKind::Rename => {
                known.insert(&step.to, true);
                &step.to
            }
        };
        for parent in target.parents() {
            if !record.made.contains(&parent) && !is_there(top, &parent) {
                record.made.push(parent);
            }
        }
    }
    record
}

/// An entry that cannot be examined counts as missing; the step itself will report the error.
fn is_there(top: &OwnedFd, path: &Inside) -> bool {
    let found = path.entry(top).and_then(|(dir, name)| look(&dir, name));
    found.is_ok_and(|found| found.is_some())
}

/// Checks the current entry against the step's expectation.
fn expect(step: &Step, directory: &OwnedFd, name: &[u8]) -> Result<Option<Stat>, Refusal> {
    let failed = |errno| kernel(&step.path, errno);
    let found = look(directory, name).map_err(failed)?;
    match (&found, step.content) {
        (Some(_), _) if step.absent => Err(present(&step.path)),
        (None, Some(_)) => Err(absent(&step.path)),
        (Some(_), Some(wanted)) => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
                Err(Errno::LOOP) => return Err(not_a_file(&step.path)),
                other => other.map_err(failed)?,
            };
            let stat = rustix::fs::fstat(&file).map_err(failed)?;
            if kind(&stat) != FileType::RegularFile {
                return Err(not_a_file(&step.path));
            }
            match digest(&file).map_err(failed)? == wanted {
                true => Ok(Some(stat)),
                false => Err(differs(&step.path)),
            }
        }
        _ => Ok(found),
    }
}

fn digest(file: &OwnedFd) -> Result<[u8; 32], Errno> {
    let mut state = Sha256::new();
    let mut buffer = vec![0; STEP];
    let mut at = 0;
    loop {
        let got = fill(file, &mut buffer, at)?;
        state.update(buffer.get(..got).unwrap_or_default());
        at += got as u64;
        if got < STEP {
            return Ok(state.finalize().into());
        }
    }
}

fn movable(stat: &Stat, path: &Inside) -> Result<(), Refusal> {
    match kind(stat) {
        FileType::RegularFile | FileType::Symlink => Ok(()),
        _ => Err(not_a_file(path)),
    }
}
