//! Extended attributes on their way into archives and out of them.
//!
//! Those of users are a file's own. Capabilities say who may do what, like set-user-id bits:
//! they stay with trees that come back to where they were, and are never received.

use motu_archive::Attributes;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::os::fd::AsFd;

/// The longest list of a file's attributes and the longest value, as in the kernel.
const MAX_ATTRIBUTE: usize = 64 * 1024;
/// All attributes of one file in an archive; an extended header holds no more.
pub const MAX_ATTRIBUTES: usize = 48 * 1024;
/// Where overlayfs keeps notes of its own; they are no part of a file.
const OVERLAY: &[u8] = b"user.overlay.";
const CAPABILITY: &[u8] = b"security.capability";

/// Which attributes are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Users,
    /// What programs may do, too.
    All,
}

impl Which {
    fn has(self, name: &[u8]) -> bool {
        match name {
            CAPABILITY => self == Which::All,
            name => name.starts_with(b"user.") && !name.starts_with(OVERLAY),
        }
    }
}

/// The attributes of an open file, in the order of their names.
pub fn read(file: impl AsFd, which: Which) -> Result<Attributes, Errno> {
    let file = file.as_fd();
    let mut names = vec![0; 1024];
    let length = loop {
        match rustix::fs::flistxattr(file, &mut names[..]) {
            Ok(length) => break length,
            Err(Errno::RANGE) if names.len() < MAX_ATTRIBUTE => names.resize(MAX_ATTRIBUTE, 0),
            // A file system without attributes.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        }
    };
    let mut wanted: Vec<&[u8]> = names
        .get(..length)
        .unwrap_or_default()
        .split(|byte| *byte == 0)
        .filter(|name| which.has(name))
        .collect();
    wanted.sort_unstable();
    let mut found = Vec::with_capacity(wanted.len());
    for name in wanted {
        let mut value = vec![0; MAX_ATTRIBUTE];
        match rustix::fs::fgetxattr(file, name, &mut value[..]) {
            Ok(length) => value.truncate(length),
            // Listed, and not for us or not there any more.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => continue,
            Err(errno) => return Err(errno),
        }
        found.push((name.to_vec(), value));
    }
    Ok(found)
}

/// Reads the attributes of a file for an archive; `TOOBIG` when they do not fit into one record.
pub fn read_bounded(file: impl AsFd, which: Which) -> Result<Attributes, Errno> {
    let attributes = read(file, which)?;
    // A name may treble where it is escaped; a record has some bytes of its own.
    let size = |(name, value): &(Vec<u8>, Vec<u8>)| 3 * name.len() + value.len() + 32;
    match attributes.iter().map(size).sum::<usize>() {
        all if all > MAX_ATTRIBUTES => Err(Errno::TOOBIG),
        _ => Ok(attributes),
    }
}

/// Gives an open file the attributes an archive has for it.
pub fn set(file: impl AsFd, attributes: &Attributes, which: Which) -> Result<(), Errno> {
    let file = file.as_fd();
    for (name, value) in attributes {
        // Others say more than what is in a file, and are not an archive's to give.
        if !which.has(name) {
            continue;
        }
        match rustix::fs::fsetxattr(file, &name[..], value, XattrFlags::empty()) {
            // A file system without attributes keeps what it can.
            Err(Errno::OPNOTSUPP) => {}
            // A machine that may not give capabilities away has no use for them.
            Err(Errno::PERM) if name == CAPABILITY => {}
            other => other?,
        }
    }
    Ok(())
}
