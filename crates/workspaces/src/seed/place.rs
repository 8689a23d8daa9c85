//! Creates files and directories below a root, never through a symbolic link.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::tarball::{Attributes, Meta};

/// The longest list of a file's attributes and the longest value, as in the kernel.
const MAX_ATTRIBUTE: usize = 64 << 10;
/// Total size of attributes per file; the guest accepts no more.
const MAX_ATTRIBUTES: usize = 48 << 10;
/// Prefix of overlayfs's own attributes, which are not part of a file.
const OVERLAY: &str = "user.overlay.";

/// Runs of zeros of this size become holes.
const HOLE_BYTES: usize = 64 << 10;
const NANOSECONDS: i64 = 1_000_000_000;

/// Opens a directory at or below `root` without following any link.
pub(crate) fn open_directory(root: impl AsFd, path: &[u8]) -> io::Result<OwnedFd> {
    let path: &[u8] = match path {
        b"" => b".",
        path => path,
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(
        root,
        path,
        flags,
        Mode::empty(),
        resolve,
    )?)
}

/// The directory that holds `path`, and its name in there.
pub(super) fn parent(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<(OwnedFd, Vec<u8>)> {
    let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b""[..], path),
    };
    Ok((open_directory(root, above)?, name.to_vec()))
}

/// Creates an empty file that must not exist.
pub(super) fn create_file(directory: impl AsFd, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(File::from(file))
}

/// Gives an open file or directory its owner, attributes, permissions and time.
pub(crate) fn dress(
    file: impl AsFd,
    (meta, attributes): (Meta, &Attributes),
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let file = file.as_fd();
    set_attributes(file, attributes)?;
    // Set the owner first: changing it clears permission bits.
    if let Some((uid, gid)) = owner {
        rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(meta.mode & 0o777))?;
    Ok(rustix::fs::futimens(file, &times(meta))?)
}

pub(super) fn symlink(
    directory: impl AsFd,
    name: &[u8],
    target: &[u8],
    meta: Meta,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let directory = directory.as_fd();
    let target = Path::new(OsStr::from_bytes(target));
    rustix::fs::symlinkat(target, directory, name)?;
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    if let Some((uid, gid)) = owner {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::fs::chownat(directory, name, Some(uid), Some(gid), flags)?;
    }
    Ok(rustix::fs::utimensat(directory, name, &times(meta), flags)?)
}

/// Sets `user.*` attributes; ignored on file systems without them.
fn set_attributes(file: BorrowedFd<'_>, attributes: &Attributes) -> io::Result<()> {
    for (name, value) in attributes {
        match rustix::fs::fsetxattr(file, name.as_str(), value, XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => return Ok(()),
            Err(errno) => {
                let error = io::Error::from(errno);
                return Err(io::Error::new(
                    error.kind(),
                    format!("the attribute {name:?}: {error}"),
                ));
            }
            Ok(()) => {}
        }
    }
    Ok(())
}

/// The `user.*` attributes of an open file, within an archive's limits.
pub(crate) fn attributes(file: impl AsFd) -> io::Result<Attributes> {
    let file = file.as_fd();
    let mut found = Attributes::new();
    // Most files have none: one system call.
    let mut names = vec![0; 256];
    let length = loop {
        match rustix::fs::flistxattr(file, &mut names[..]) {
            Ok(length) => break length,
            Err(Errno::RANGE) if names.len() < MAX_ATTRIBUTE => names.resize(MAX_ATTRIBUTE, 0),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(found),
            Err(errno) => return Err(errno.into()),
        }
    };
    let mut bytes = 0;
    for name in names[..length].split(|byte| *byte == 0) {
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        if !name.starts_with("user.") || name.starts_with(OVERLAY) {
            continue;
        }
        let mut value = vec![0; MAX_ATTRIBUTE];
        let length = match rustix::fs::fgetxattr(file, name, &mut value[..]) {
            Err(Errno::NODATA) => continue,
            other => other?,
        };
        value.truncate(length);
        bytes += 3 * name.len() + length + 32;
        if bytes > MAX_ATTRIBUTES {
            return Err(io::Error::other(format!(
                "it has more than {MAX_ATTRIBUTES} bytes of attributes"
            )));
        }
        found.insert(name.to_owned(), value);
    }
    Ok(found)
}

fn times(meta: Meta) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: meta.modified_unix_ns.div_euclid(NANOSECONDS),
            tv_nsec: meta.modified_unix_ns.rem_euclid(NANOSECONDS),
        },
    }
}

/// Writes contents with runs of zeros as holes: an archive may claim any size.
pub(super) fn write_sparse(file: &mut File, size: u64, contents: &mut dyn Read) -> io::Result<()> {
    let mut buffer = vec![0; HOLE_BYTES.min(usize::try_from(size).unwrap_or(HOLE_BYTES))];
    let mut at = 0;
    while at < size {
        let wanted = buffer
            .len()
            .min(usize::try_from(size - at).unwrap_or(usize::MAX));
        contents.read_exact(&mut buffer[..wanted])?;
        if wanted == HOLE_BYTES && buffer.iter().all(|byte| *byte == 0) {
            io::Seek::seek(file, io::SeekFrom::Current(wanted as i64))?;
        } else {
            file.write_all(&buffer[..wanted])?;
        }
        at += wanted as u64;
    }
    if size >= HOLE_BYTES as u64 {
        file.set_len(size)?;
    }
    Ok(())
}
