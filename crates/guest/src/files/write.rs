//! Writing files: atomically through a temporary file beside the target, or by
//! appending. A write that does not finish leaves nothing behind.

use super::entry::{self, Owner};
use super::mkdir::make_parents;
use crate::answer::{Failed, Quoted, note};
use crate::blocking;
use crate::credentials::{self, own};
use crate::flush::Flush;
use crate::lock::locked;
use crate::place::{Place, Root, fresh_name};
use crate::state::Guest;
use bytes::Bytes;
use motu_link::Event;
use motu_link::message::{Entry, Failure, Said, Version, Write};
use motu_link::mux::{Receiver, Sender};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// Permission bits of a new file when the host does not say.
const DEFAULT_MODE: u32 = 0o644;

/// Held while a file is compared with what its writer expects, and replaced: of two writers who
/// expect the same, one is too late.
static REPLACING: Mutex<()> = Mutex::new(());

pub async fn write(
    guest: &Arc<Guest>,
    request: Write,
    tx: &Sender,
    mut rx: Receiver,
) -> Result<(), Failed> {
    let mut sink = open(guest, request).await?;
    loop {
        match rx.recv().await? {
            Event::Data { bytes, .. } => {
                sink = blocking::run(move || sink.write(&bytes)).await?;
            }
            Event::Eof => break,
            Event::Message(_) => {}
            Event::End(_) | Event::Reset => return Err(Failed::cancelled()),
        }
    }
    put(guest, sink, tx).await
}

/// Opens the file of a request, beside the place where it is to be.
pub async fn open(guest: &Arc<Guest>, request: Write) -> Result<Sink, Failed> {
    let place = Place::parse(&request.path)?;
    let root = guest.settings().root.clone();
    let owner = Owner::find(guest, &request.user)?;
    let flush = match request.sync {
        true => Flush::always(guest.workspace.clone()),
        false => guest.flush(),
    };
    blocking::run(move || Sink::open(&root, place, request, owner, flush)).await
}

/// Puts a written file in its place, and says what is there now.
pub async fn put(guest: &Arc<Guest>, sink: Sink, tx: &Sender) -> Result<(), Failed> {
    let guest = guest.clone();
    let entry = blocking::run(move || sink.finish(&guest)).await?;
    Ok(note(tx, Said::Entries(entry::one(entry))).await?)
}

/// A file being written.
pub struct Sink {
    pub place: Place,
    pub fd: OwnedFd,
    flush: Flush,
    /// The directory of the file.
    directory: OwnedFd,
    /// `None` when appending.
    temporary: Option<Temporary>,
    create_new: bool,
    expected: Option<Version>,
    modified: Option<Timespec>,
}

impl Sink {
    fn open(
        root: &Root,
        place: Place,
        request: Write,
        owner: Owner,
        flush: Flush,
    ) -> Result<Sink, Failed> {
        let modified = modified(request.modified_unix_ns);
        if request.parents {
            make_parents(root, &place, owner)?;
        }
        let failed = |errno| place.failed(errno);
        let mode = if request.mode == 0 {
            DEFAULT_MODE
        } else {
            request.mode & 0o7777
        };
        if request.append {
            let (directory, fd) = open_for_append(root, &place, &request, mode, owner)?;
            // What is added is there at once: it is compared here or never.
            let stat = rustix::fs::fstat(&fd).map_err(failed)?;
            check(&place, request.expected, Some(&stat))?;
            return Ok(Sink {
                place,
                fd,
                flush,
                directory,
                temporary: None,
                create_new: false,
                expected: None,
                modified,
            });
        }
        let (directory, target) = root.final_entry(&place)?;
        let (_, name) = target.split()?;
        let existing = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) if request.create_new => return Err(failed(Errno::EXIST)),
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Some(writable(&directory, name, stat).map_err(failed)?),
                FileType::Directory => return Err(failed(Errno::ISDIR)),
                _ => return Err(not_regular(&place)),
            },
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed(errno)),
        };
        // Who is late is told before the contents are sent, too.
        check(&place, request.expected, existing.as_ref())?;
        // A replaced file keeps its owner and bits: only its contents change.
        let (owner, mode) = match existing {
            Some(stat) => (
                Owner {
                    uid: stat.st_uid,
                    gid: stat.st_gid,
                },
                stat.st_mode & 0o7777,
            ),
            None => (owner, mode),
        };
        let staged = fresh_name().map_err(failed)?;
        let holder = directory.try_clone().map_err(|_| failed(Errno::MFILE))?;
        let create = || {
            let (temporary, fd) = Temporary::create(holder, staged, name)?;
            owner.give(&fd)?;
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
            Ok((temporary, fd))
        };
        // Who may write a file need not be able to write its directory, or own it.
        let created: Result<(Temporary, OwnedFd), Errno> = match existing {
            Some(_) => own(create),
            None => create(),
        };
        let (temporary, fd) = created.map_err(failed)?;
        Ok(Sink {
            place,
            fd,
            flush,
            directory,
            temporary: Some(temporary),
            create_new: request.create_new,
            expected: request.expected,
            modified,
        })
    }

    fn write(self, bytes: &Bytes) -> Result<Sink, Failed> {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match rustix::io::write(&self.fd, rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.place.failed(errno)),
            }
        }
        Ok(self)
    }

    /// The right to it was proven when the file was opened.
    fn finish(self, guest: &Guest) -> Result<Entry, Failed> {
        own(|| self.finish_as_guest(guest))
    }

    fn finish_as_guest(mut self, guest: &Guest) -> Result<Entry, Failed> {
        let failed = |errno| self.place.failed(errno);
        if let Some(modified) = self.modified {
            let times = Timestamps {
                last_access: modified,
                last_modification: modified,
            };
            rustix::fs::futimens(&self.fd, &times).map_err(failed)?;
        }
        self.flush.file(&self.fd).map_err(failed)?;
        if let Some(temporary) = self.temporary.take() {
            let _replacing = locked(&REPLACING);
            if self.expected.is_some() {
                let found = temporary.replaces().map_err(failed)?;
                check(&self.place, self.expected, found.as_ref())?;
            }
            temporary.commit(self.create_new).map_err(failed)?;
        }
        let named = self.flush.directory(&self.directory);
        named.and_then(|()| self.flush.prove()).map_err(failed)?;
        entry::describe_fd(&guest.users.names(), &self.fd, &self.place)
    }
}

/// The state of a file that is to be replaced, if a user may write it. The guest itself may.
fn writable(directory: &OwnedFd, name: &[u8], found: Stat) -> Result<Stat, Errno> {
    if !credentials::is_acting() {
        return Ok(found);
    }
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&opened)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        // Another one has the name by now.
        _ => Err(Errno::STALE),
    }
}

/// The time that a file is to have, if its writer says one.
fn modified(unix_ns: i64) -> Option<Timespec> {
    const SECOND: i64 = 1_000_000_000;
    (unix_ns != 0).then(|| Timespec {
        tv_sec: unix_ns.div_euclid(SECOND),
        tv_nsec: unix_ns.rem_euclid(SECOND),
    })
}

/// Refuses a write whose file is not in the state that its writer expects.
fn check(place: &Place, expected: Option<Version>, found: Option<&Stat>) -> Result<(), Failed> {
    let found = found.map(entry::version);
    if expected.is_none() || expected == found {
        return Ok(());
    }
    let message = format!("{} is not the file it was", Quoted(place.as_bytes()));
    Err(Failed::new(Failure::Exists, message))
}

fn not_regular(place: &Place) -> Failed {
    Failed::invalid(format!(
        "{} is not a regular file",
        Quoted(place.as_bytes())
    ))
}

fn open_for_append(
    root: &Root,
    place: &Place,
    request: &Write,
    mode: u32,
    owner: Owner,
) -> Result<(OwnedFd, OwnedFd), Failed> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK;
    let fresh = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let failed = |errno| place.failed(errno);
    let (directory, target) = root.final_entry(place)?;
    let (_, name) = target.split()?;
    match rustix::fs::openat(
        &directory,
        name,
        fresh | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o600),
    ) {
        Ok(fd) => {
            owner.give(&fd).map_err(failed)?;
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode)).map_err(failed)?;
            return Ok((directory, fd));
        }
        Err(Errno::EXIST) if !request.create_new => {}
        Err(errno) => return Err(failed(errno)),
    }
    let again = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&directory, name, again, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&fd).map_err(failed)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((directory, fd)),
        _ => Err(not_regular(place)),
    }
}

/// A temporary file or directory beside its target; removed unless committed.
#[derive(Debug)]
pub struct Temporary {
    directory: OwnedFd,
    name: Vec<u8>,
    target: Vec<u8>,
    committed: bool,
}

impl Temporary {
    /// Makes a file under `name` that is to become `target`.
    pub fn create(
        directory: OwnedFd,
        name: Vec<u8>,
        target: &[u8],
    ) -> Result<(Temporary, OwnedFd), Errno> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&directory, &name[..], flags, Mode::from_raw_mode(0o600))?;
        let temporary = Temporary {
            directory,
            name,
            target: target.to_vec(),
            committed: false,
        };
        Ok((temporary, fd))
    }

    /// What is under the name that it is to have.
    fn replaces(&self) -> Result<Option<Stat>, Errno> {
        match rustix::fs::statat(&self.directory, &self.target[..], AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    pub fn commit(mut self, create_new: bool) -> Result<(), Errno> {
        rename(
            &self.directory,
            &self.name,
            &self.directory,
            &self.target,
            !create_new,
        )?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.committed {
            // Already gone is as good.
            let _ = own(|| rustix::fs::unlinkat(&self.directory, &self.name[..], AtFlags::empty()));
        }
    }
}

/// Renames; without `replace` an existing target is an error.
pub fn rename(
    from: &OwnedFd,
    name: &[u8],
    to: &OwnedFd,
    target: &[u8],
    replace: bool,
) -> Result<(), Errno> {
    if replace {
        return rustix::fs::renameat(from, name, to, target);
    }
    match rustix::fs::renameat_with(from, name, to, target, RenameFlags::NOREPLACE) {
        // A filesystem that does not know the flag: look first.
        Err(Errno::INVAL | Errno::NOSYS) => {
            match rustix::fs::statat(to, target, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => rustix::fs::renameat(from, name, to, target),
                Err(errno) => Err(errno),
            }
        }
        other => other,
    }
}
