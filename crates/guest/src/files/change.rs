//! Moving and removing names. Removal goes by open directories, so a
//! directory that becomes a symlink meanwhile is never followed.

use super::entry::{self, Owner};
use super::pack::Packer;
use super::unpack::{Limits, Ownership, Unpacker};
use super::write::rename;
use crate::answer::{Failed, Quoted};
use crate::blocking::Cancel;
use crate::credentials;
use crate::flush::Flush;
use crate::place::{Place, Root, fresh_name};
use crate::users::Names;
use motu_link::message::{Chmod, Entry, Failure, Symlink};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Open directories on the way down while removing; deeper ones are moved up first.
const MAX_OPEN: usize = 128;

pub fn chmod(root: &Root, names: &Names, request: &Chmod) -> Result<Entry, Failed> {
    let place = Place::parse(&request.path)?;
    let failed = |errno| place.failed(errno);
    let mode = Mode::from_raw_mode(request.mode & 0o7777);
    let fd = root
        .open_at(&place, OFlags::PATH, Mode::empty())
        .map_err(failed)?;
    // A handle cannot be changed directly, but the kernel's own link to it leads nowhere else.
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match rustix::fs::chmodat(CWD, link, mode, AtFlags::empty()) {
        Err(Errno::NOENT) => {
            let opened = root
                .open_at(&place, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
                .map_err(failed)?;
            rustix::fs::fchmod(opened, mode).map_err(failed)?;
        }
        other => other.map_err(failed)?,
    }
    entry::describe_fd(names, &fd, &place)
}

pub fn symlink(
    root: &Root,
    names: &Names,
    request: &Symlink,
    owner: Owner,
) -> Result<Entry, Failed> {
    let place = Place::parse(&request.path)?;
    if request.target.is_empty() || request.target.contains(&0) {
        return Err(Failed::invalid(format!(
            "{} is not a symlink's target",
            Quoted(&request.target)
        )));
    }
    let failed = |errno| place.failed(errno);
    let (directory, name) = root.entry(&place)?;
    rustix::fs::symlinkat(&request.target[..], &directory, &name[..]).map_err(failed)?;
    owner.give_at(&directory, &name).map_err(failed)?;
    entry::describe_at(names, &directory, &name, &place).map_err(failed)
}

/// How something is moved.
#[derive(Clone, Copy, Debug)]
pub struct Moving<'a> {
    pub replace: bool,
    pub flush: &'a Flush,
    pub cancel: &'a Cancel,
}

/// Moves a name; between filesystems it copies, then removes.
pub fn move_to(
    root: &Root,
    names: &Names,
    from: &Place,
    to: &Place,
    how: Moving<'_>,
) -> Result<Entry, Failed> {
    let (from_directory, from_name) = root.entry(from)?;
    let (to_directory, to_name) = root.entry(to)?;
    // The source is named when it is the one that is missing.
    rustix::fs::statat(&from_directory, &from_name[..], AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| from.failed(errno))?;
    match rename(
        &from_directory,
        &from_name,
        &to_directory,
        &to_name,
        how.replace,
    ) {
        Err(Errno::XDEV) => {
            let (source, target) = (
                (&from_directory, &from_name[..]),
                (&to_directory, &to_name[..]),
            );
            copy_over(source, target, how).map_err(|failed| Failed {
                message: format!("cannot move to {}: {failed}", Quoted(to.as_bytes())),
                ..failed
            })?;
            remove_entry(&from_directory, &from_name, true, how.cancel)
                .map_err(|errno| from.failed(errno))?;
        }
        other => other.map_err(|errno| to.failed(errno))?,
    }
    entry::describe_at(names, &to_directory, &to_name, to).map_err(|errno| to.failed(errno))
}

/// Copies through a temporary directory beside the target, so that the target appears at once.
fn copy_over(
    (from, from_name): (&OwnedFd, &[u8]),
    (to, to_name): (&OwnedFd, &[u8]),
    how: Moving<'_>,
) -> Result<(), Failed> {
    let failed = |errno| Failed::errno(Quoted(to_name), errno);
    let temporary = fresh_name().map_err(failed)?;
    rustix::fs::mkdirat(to, &temporary[..], Mode::from_raw_mode(0o700)).map_err(failed)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let copied = rustix::fs::openat(to, &temporary[..], flags, Mode::empty())
        .map_err(failed)
        .and_then(|holder| {
            let mut unpacker = Unpacker::new(
                holder.try_clone().map_err(|_| failed(Errno::MFILE))?,
                // A user gives files to nobody else.
                match credentials::is_acting() {
                    true => Ownership::One(Owner::current()),
                    false => Ownership::Archive,
                },
                Limits::none(),
            )
            .exactly()
            .flushed(how.flush.clone());
            let mut packer = Packer::entry(from, from_name)?;
            while let Some(piece) = packer.next_piece()? {
                if how.cancel.is_set() {
                    return Err(Failed::cancelled());
                }
                unpacker.feed(&piece)?;
            }
            unpacker.finish()?;
            rename(&holder, from_name, to, to_name, how.replace).map_err(failed)?;
            // The copy has its name on the disk before the original goes.
            how.flush.directory(to).map_err(failed)
        });
    // Whatever happened, nothing temporary stays.
    let _ = remove_entry(to, &temporary, true, &Cancel::default());
    copied
}

pub fn remove(root: &Root, place: &Place, recursive: bool, cancel: &Cancel) -> Result<(), Failed> {
    if place.is_root() {
        return Err(Failed::new(
            Failure::Denied,
            "the root directory cannot be removed",
        ));
    }
    let (directory, name) = root.entry(place)?;
    remove_entry(&directory, &name, recursive, cancel).map_err(|errno| match errno {
        Errno::CANCELED => Failed::cancelled(),
        errno => place.failed(errno),
    })
}

/// Removes a name and, if asked, everything below it.
pub fn remove_entry(
    directory: &OwnedFd,
    name: &[u8],
    recursive: bool,
    cancel: &Cancel,
) -> Result<(), Errno> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return rustix::fs::unlinkat(directory, name, AtFlags::empty());
    }
    match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) if recursive => {}
        other => return other,
    }
    empty(open_directory(directory, name)?, cancel)?;
    rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)
}

fn open_directory(directory: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// Removes everything in a directory with a bounded number of open descriptors.
fn empty(top: OwnedFd, cancel: &Cancel) -> Result<(), Errno> {
    let mut stack: Vec<(OwnedFd, Vec<u8>)> = vec![(top, Vec::new())];
    loop {
        if cancel.is_set() {
            return Err(Errno::CANCELED);
        }
        let depth = stack.len();
        let Some((directory, _)) = stack.last() else {
            return Ok(());
        };
        let Some(child) = unlink_files(directory)? else {
            let Some((_, name)) = stack.pop() else {
                return Ok(());
            };
            if let Some((parent, _)) = stack.last() {
                ignore_missing(rustix::fs::unlinkat(parent, &name[..], AtFlags::REMOVEDIR))?;
            }
            continue;
        };
        if depth >= MAX_OPEN {
            // Too deep to hold open: bring it up, where a later pass finds it.
            let Some((top, _)) = stack.first() else {
                return Ok(());
            };
            ignore_missing(rustix::fs::renameat(
                directory,
                &child[..],
                top,
                &fresh_name()?[..],
            ))?;
            continue;
        }
        match open_directory(directory, &child) {
            Ok(fd) => stack.push((fd, child)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn ignore_missing(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Removes what can be removed right here; returns a directory that is not empty, if there is one.
fn unlink_files(directory: &OwnedFd) -> Result<Option<Vec<u8>>, Errno> {
    for found in Dir::read_from(directory)? {
        let found = found?;
        let name = found.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
        match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(Some(name.to_vec())),
            // It was no directory: the first refusal was about permission.
            Err(Errno::NOTDIR) => return Err(Errno::PERM),
            Err(errno) => return Err(errno),
        }
    }
    Ok(None)
}
