//! Making directories, also those above a place.

use super::entry::{self, Owner};
use crate::answer::Failed;
use crate::place::{Place, Root};
use crate::users::Names;
use motu_link::message::{Entry, Mkdir};
use rustix::fs::{Mode, OFlags};

/// Permission bits of a new directory when the host does not say.
const DEFAULT_MODE: u32 = 0o755;

fn make_one(root: &Root, place: &Place, mode: u32, owner: Owner) -> Result<(), Failed> {
    let failed = |errno| place.failed(errno);
    let (directory, name) = root.entry(place)?;
    rustix::fs::mkdirat(&directory, &name[..], Mode::from_raw_mode(mode)).map_err(failed)?;
    // The file mode mask of the guest must not decide.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&directory, &name[..], flags, Mode::empty()).map_err(failed)?;
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode)).map_err(failed)?;
    owner.give(&fd).map_err(failed)
}

pub fn mkdir(root: &Root, names: &Names, request: &Mkdir, owner: Owner) -> Result<Entry, Failed> {
    let place = Place::parse(&request.path)?;
    let mode = if request.mode == 0 {
        DEFAULT_MODE
    } else {
        request.mode & 0o7777
    };
    if request.parents {
        if root.directory(&place).is_ok() {
            return entry::stat(names, root, &place, true);
        }
        make_parents(root, &place, owner)?;
    }
    make_one(root, &place, mode, owner)?;
    entry::stat(names, root, &place, false)
}

/// Makes the directories above a place.
pub fn make_parents(root: &Root, place: &Place, owner: Owner) -> Result<(), Failed> {
    let (parent, _) = place.split()?;
    if root.directory(&parent).is_ok() {
        return Ok(());
    }
    for ancestor in parent.ancestry() {
        if !ancestor.is_root() && root.directory(&ancestor).is_err() {
            make_one(root, &ancestor, DEFAULT_MODE, owner)?;
        }
    }
    Ok(())
}
