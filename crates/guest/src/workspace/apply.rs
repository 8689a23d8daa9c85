//! Several changes of files, all or none.
//!
//! New contents are staged in a directory of ours at the top of the workspace,
//! then every operation is a rename, and what it replaces is moved into the same
//! directory. So undoing is renaming back, and done is throwing the stage away.

use super::facts::{fill, kind, look, modified_ns};
use super::inside::Inside;
use super::{Workspace, workspace};
use crate::answer::{Failed, Quoted, note};
use crate::blocking::{self, Cancel};
use crate::files::{Owner, fresh_name, remove_entry, rename};
use crate::state::Guest;
use motu_link::Event;
use motu_link::message::{
    Applied, Apply, Failure, Operation, OperationKind, Refused, RefusedWhy, Said,
};
use motu_link::mux::{Receiver, Sender};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Operations of one request.
const MAX_OPERATIONS: usize = 10_000;
/// All contents of one request.
const MAX_BYTES: u64 = 1 << 30;
/// Bytes hashed at a time.
const STEP: usize = 256 * 1024;
/// Permission bits of new files and directories when the host does not say.
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

/// How a done step is undone.
#[derive(Debug)]
enum Undo {
    /// Moves what was staged back out and, if there was something, the old file back in.
    Swap {
        at: (OwnedFd, Vec<u8>),
        staged: Vec<u8>,
    },
    /// Takes a new file away.
    Remove { at: (OwnedFd, Vec<u8>) },
    /// Moves something back to where it was.
    Back {
        now: (OwnedFd, Vec<u8>),
        before: (OwnedFd, Vec<u8>),
    },
    /// A directory that was made.
    Directory { at: (OwnedFd, Vec<u8>) },
}

/// Why a step cannot be done, beside the failure itself.
type Refusal = (RefusedWhy, Failed);

/// A request in the making. Dropped, it leaves nothing.
#[derive(Debug)]
struct Stage {
    workspace: Arc<Workspace>,
    steps: Vec<Step>,
    owner: Owner,
    name: Vec<u8>,
    directory: OwnedFd,
    /// The write that receives data, and how much it has.
    at: usize,
    got: u64,
    file: Option<OwnedFd>,
    undo: Vec<Undo>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What is left here was replaced, or never came to be.
        let _ = remove_entry(&self.workspace.top, &self.name, true, &Cancel::default());
    }
}

impl Stage {
    fn open(workspace: Arc<Workspace>, steps: Vec<Step>, owner: Owner) -> Result<Stage, Failed> {
        let failed = |errno| Failed::errno("cannot stage the changes", errno);
        let name = fresh_name().map_err(failed)?;
        rustix::fs::mkdirat(&workspace.top, &name[..], Mode::from_raw_mode(0o700))
            .map_err(failed)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&workspace.top, &name[..], flags, Mode::empty());
        let directory = opened.map_err(failed)?;
        let mut stage = Stage {
            workspace,
            steps,
            owner,
            name,
            directory,
            at: 0,
            got: 0,
            file: None,
            undo: Vec::new(),
        };
        stage.advance()?;
        Ok(stage)
    }

    /// The name of a step's new content, and then of its old one.
    fn staged(index: usize) -> Vec<u8> {
        index.to_string().into_bytes()
    }

    /// Goes on to the next write that still needs data.
    fn advance(&mut self) -> Result<(), Failed> {
        while let Some(step) = self.steps.get(self.at) {
            if step.kind == OperationKind::Write {
                if self.file.is_none() {
                    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                    let name = Stage::staged(self.at);
                    let mode = Mode::from_raw_mode(0o600);
                    let made = rustix::fs::openat(&self.directory, &name[..], flags, mode);
                    self.file = Some(made.map_err(|errno| step.path.failed(errno))?);
                    self.got = 0;
                }
                if self.got < step.size {
                    return Ok(());
                }
            }
            self.file = None;
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

    /// Does every step, or none.
    fn commit(mut self) -> Result<Result<u32, (Refused, Failed)>, Failed> {
        if self.at < self.steps.len() {
            return Err(Failed::invalid("less data than the operations have"));
        }
        let steps = std::mem::take(&mut self.steps);
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
        self.undo.clear();
        Ok(Ok(steps.len() as u32))
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
        let staged = Stage::staged(index);
        let failed = |errno| kernel(&step.path, errno);
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
                Ok(()) => {
                    let at = (directory, name);
                    self.undo.push(Undo::Remove { at });
                    Ok(())
                }
                Err(Errno::EXIST) => Err(present(&step.path)),
                Err(errno) => Err(failed(errno)),
            };
        };
        exchange(&self.directory, &staged, &directory, &name).map_err(failed)?;
        let at = (directory, name);
        let old = staged.clone();
        self.undo.push(Undo::Swap { at, staged });
        self.still(step, &old, &before)
    }

    fn delete(&mut self, index: usize, step: &Step) -> Result<(), Refusal> {
        let failed = |errno| kernel(&step.path, errno);
        let (directory, name) = step.path.entry(&self.workspace.top).map_err(failed)?;
        let name = name.to_vec();
        let before = expect(step, &directory, &name)?.ok_or_else(|| absent(&step.path))?;
        movable(&before, &step.path)?;
        let backup = Stage::staged(index);
        rustix::fs::renameat(&directory, &name[..], &self.directory, &backup[..])
            .map_err(failed)?;
        let holder = self
            .directory
            .try_clone()
            .map_err(|_| failed(Errno::MFILE))?;
        self.undo.push(Undo::Back {
            now: (holder, backup.clone()),
            before: (directory, name),
        });
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
            Ok(()) => {
                self.undo.push(Undo::Back {
                    now: (to, target),
                    before: (from, name),
                });
                Ok(())
            }
            Err(Errno::EXIST) => Err(present(&step.to)),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Whether a file that was just moved away is still the one that was looked at.
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

    /// Opens the directory of a path, making what is missing.
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
                    let holder = at.try_clone().map_err(|_| failed(Errno::MFILE))?;
                    let made = (holder, part.to_vec());
                    self.undo.push(Undo::Directory { at: made });
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

    /// Undoes what was done, the last first.
    fn undo(&mut self, failed: Failed) -> Failed {
        let mut left = None;
        while let Some(undo) = self.undo.pop() {
            if let Err(errno) = self.undo_one(&undo) {
                left = Some(errno);
            }
        }
        match left {
            None => failed,
            Some(errno) => Failed::errno(
                format!(
                    "{}; and what was done before could not be undone",
                    failed.message
                ),
                errno,
            ),
        }
    }

    fn undo_one(&self, undo: &Undo) -> Result<(), Errno> {
        match undo {
            Undo::Swap { at, staged } => exchange(&self.directory, staged, &at.0, &at.1),
            Undo::Remove { at } => rustix::fs::unlinkat(&at.0, &at.1[..], AtFlags::empty()),
            Undo::Back { now, before } => rename(&now.0, &now.1, &before.0, &before.1, false),
            Undo::Directory { at } => {
                match rustix::fs::unlinkat(&at.0, &at.1[..], AtFlags::REMOVEDIR) {
                    // Somebody has found a use for it.
                    Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
                    other => other,
                }
            }
        }
    }
}

/// Swaps two names; where the file system cannot, one after the other.
fn exchange(stage: &OwnedFd, staged: &[u8], at: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::renameat_with(stage, staged, at, name, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            let aside = [staged, b".old"].concat();
            rustix::fs::renameat(at, name, stage, &aside[..])?;
            if let Err(errno) = rustix::fs::renameat(stage, staged, at, name) {
                rustix::fs::renameat(stage, &aside[..], at, name)?;
                return Err(errno);
            }
            rustix::fs::renameat(stage, &aside[..], stage, staged)
        }
        other => other,
    }
}

/// Looks at what is there and refuses what was not expected.
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

fn kernel(path: &Inside, errno: Errno) -> Refusal {
    let why = match errno {
        Errno::NOENT => RefusedWhy::Absent,
        Errno::NOTDIR | Errno::LOOP | Errno::ISDIR => RefusedWhy::NotAFile,
        _ => RefusedWhy::Failed,
    };
    (why, path.failed(errno))
}

fn refuse(path: &Inside, kind: Failure, why: RefusedWhy, text: &str) -> Refusal {
    let message = format!("{} {text}", Quoted(path.as_bytes()));
    (why, Failed::new(kind, message))
}

fn present(path: &Inside) -> Refusal {
    refuse(
        path,
        Failure::Exists,
        RefusedWhy::Present,
        "is there already",
    )
}

fn absent(path: &Inside) -> Refusal {
    refuse(path, Failure::NotFound, RefusedWhy::Absent, "is not there")
}

fn differs(path: &Inside) -> Refusal {
    let text = "does not have the expected content";
    refuse(path, Failure::Exists, RefusedWhy::Differs, text)
}

fn not_a_file(path: &Inside) -> Refusal {
    let text = "is not a regular file";
    refuse(path, Failure::Invalid, RefusedWhy::NotAFile, text)
}
