//! A layer that is a directory of this host.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::File,
    io::{self, Read as _, Write},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use crate::{
    Attributes, DiskError, Kind, Layer,
    layer::{goes_along, plain},
};

/// Both have the same meaning; which one is used depends on the mounter.
const OPAQUE: [&str; 2] = ["trusted.overlay.opaque", "user.overlay.opaque"];

/// Largest list of names, and largest value, as in the kernel.
const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;

/// A directory as a layer.
#[derive(Debug)]
pub struct DirectoryLayer {
    root: OwnedFd,
}

impl DirectoryLayer {
    pub fn open(root: &Path) -> Result<DirectoryLayer, DiskError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_fd = rustix::fs::open(root, flags, Mode::empty());
        match root_fd {
            Ok(root) => Ok(DirectoryLayer { root }),
            Err(error) => Err(DiskError::io("opening", root)(error.into())),
        }
    }

    fn at(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path: &[u8] = if path.is_empty() { b"." } else { path };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)
    }
}

fn failed(path: &[u8]) -> impl Fn(Errno) -> DiskError {
    let path = Path::new(OsStr::from_bytes(path)).to_owned();
    move |error| DiskError::io("reading", &path)(io::Error::from(error))
}

impl Layer for DirectoryLayer {
    fn stat(&mut self, path: &[u8]) -> Result<Option<Attributes>, DiskError> {
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        let name: &[u8] = if name.is_empty() { b"." } else { name };
        let parent = match self.at(above, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(parent) => parent,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(failed(path)(error)),
        };
        let stat = match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed(path)(error)),
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::CharacterDevice if stat.st_rdev == 0 => Kind::Whiteout,
            _ => Kind::Other,
        };
        let symlink_target = match kind {
            Kind::Symlink => rustix::fs::readlinkat(&parent, name, Vec::new())
                .map_err(failed(path))?
                .into_bytes(),
            _ => Vec::new(),
        };
        let opaque = kind == Kind::Directory && self.is_opaque(path)?;
        let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
        Ok(Some(Attributes {
            kind,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified_unix_ns: stat
                .st_mtime
                .saturating_mul(1_000_000_000)
                .saturating_add(nanoseconds),
            symlink_target,
            opaque,
        }))
    }

    fn names(&mut self, path: &[u8], limit: usize) -> Result<Vec<Vec<u8>>, DiskError> {
        let directory = self
            .at(path, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(failed(path))?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory).map_err(failed(path))? {
            let entry = entry.map_err(failed(path))?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(name.to_vec());
            }
            if names.len() > limit {
                return Err(DiskError::Limit {
                    what: "the number of entries",
                    limit: limit as u64,
                });
            }
        }
        Ok(names)
    }

    fn read(&mut self, path: &[u8], limit: u64, out: &mut dyn Write) -> Result<u64, DiskError> {
        let file = self
            .at(path, OFlags::RDONLY | OFlags::NONBLOCK)
            .map_err(failed(path))?;
        io::copy(&mut File::from(file).take(limit), out).map_err(|source| DiskError::Io {
            context: "copying a file".to_owned(),
            source,
        })
    }

    fn attributes(&mut self, path: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, DiskError> {
        let file = self
            .at(path, OFlags::RDONLY | OFlags::NONBLOCK)
            .map_err(failed(path))?;
        let mut names = vec![0_u8; MAX_ATTRIBUTE_BYTES];
        let length = match rustix::fs::flistxattr(&file, &mut names) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => 0,
            Err(error) => return Err(failed(path)(error)),
        };
        let mut found = BTreeMap::new();
        for name in names[..length].split(|byte| *byte == 0) {
            let Ok(name) = std::str::from_utf8(name) else {
                continue;
            };
            if goes_along(name) {
                let mut value = vec![0_u8; MAX_ATTRIBUTE_BYTES];
                let length =
                    rustix::fs::fgetxattr(&file, name, &mut value).map_err(failed(path))?;
                value.truncate(length);
                found.insert(name.to_owned(), plain(name, value));
            }
        }
        Ok(found)
    }

    fn knows_opaque(&self) -> bool {
        true
    }
}

impl DirectoryLayer {
    fn is_opaque(&self, path: &[u8]) -> Result<bool, DiskError> {
        let directory = self
            .at(path, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(failed(path))?;
        for name in OPAQUE {
            let mut value = [0_u8; 1];
            if matches!(rustix::fs::fgetxattr(&directory, name, &mut value), Ok(1))
                && value == *b"y"
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
