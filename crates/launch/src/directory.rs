//! A directory of the host, attached to a machine that runs, to be read.
//!
//! The mount is made detached, with all that restricts it, before the machine is entered: nothing
//! inside ever sees it otherwise. It is attached in the machine's mount namespace only, and so goes
//! with the machine.

use crate::sys;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::thread::ThreadNameSpaceType;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// What a lent directory is, besides having its ids mapped.
const RESTRICTED: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// How often a path is looked up that is renamed meanwhile.
const LOOKUPS: usize = 100;

/// A restricted, detached mount of a directory, without what is mounted in it. `map` is a user
/// namespace that maps the ids of its files.
pub(crate) fn take(directory: BorrowedFd<'_>, map: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(directory, "", flags)?;
    sys::mount_private(tree.as_fd())?;
    sys::mount_setattr(tree.as_fd(), RESTRICTED, Some(map))?;
    Ok(tree)
}

/// Enters the mount namespace of a process. The root and the working directory are the machine's
/// from now on.
pub(crate) fn enter(process: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::thread::move_into_thread_name_spaces(
        process,
        ThreadNameSpaceType::MOUNT,
    )?)
}

/// Attaches a detached mount at a directory of the machine that was entered. What runs in there may
/// change the path meanwhile: links are followed below the machine's root only, into none of its
/// kernel file systems, and what was found is what is covered.
pub(crate) fn attach(tree: &OwnedFd, at: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", flags, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let place = look_up(|| rustix::fs::openat2(&root, at, flags, Mode::empty(), resolve))?;
    let ids = |dir: &OwnedFd| rustix::fs::fstat(dir).map(|stat| (stat.st_dev, stat.st_ino));
    if ids(&place)? == ids(&root)? {
        return Err(Errno::BUSY.into());
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, "", &place, "", flags)?)
}

/// The kernel gives up on a path with `..` when anything is renamed on the host meanwhile.
fn look_up(mut open: impl FnMut() -> rustix::io::Result<OwnedFd>) -> rustix::io::Result<OwnedFd> {
    for _ in 1..LOOKUPS {
        match open() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    open()
}
