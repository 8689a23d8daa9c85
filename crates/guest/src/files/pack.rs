//! Packing a tree into a tar stream, one bounded piece at a time.
//!
//! Symlinks are packed as symlinks and never followed. Sockets, pipes and
//! devices are left out. Times are to the nanosecond, attributes of users go
//! along, and holes stay holes. A file that shrinks while it is read is filled
//! up with zeros, one that grows is cut: its header has been sent already.

use super::attributes::{MAX_ATTRIBUTES, Which, read_bounded};
use crate::answer::{Failed, Quoted};
use crate::place::{Place, Root};
use motu_archive::{BLOCK, Header, Part, Type, holes, padding, sparse};
use motu_link::message::Failure;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;

/// About how much one piece holds.
const PIECE: usize = 512 * 1024;
/// The deepest tree.
const MAX_DEPTH: usize = 256;
/// Files with several names that are remembered; more are packed as copies.
const MAX_LINKED: usize = 100_000;

/// A tree on its way into an archive.
#[derive(Debug)]
pub struct Packer {
    stack: Vec<Level>,
    body: Option<Body>,
    linked: HashMap<(u64, u64), Vec<u8>>,
    out: Vec<u8>,
    over: bool,
}

#[derive(Debug)]
struct Level {
    fd: OwnedFd,
    names: Dir,
    /// The path inside the archive, with a slash at its end unless empty.
    prefix: Vec<u8>,
}

#[derive(Debug)]
struct Body {
    file: OwnedFd,
    /// What is left to read: where, and how long.
    parts: VecDeque<Part>,
    /// Bytes of the entry's body, for the padding at its end.
    size: u64,
}

impl Packer {
    /// A directory's contents, or one file under its own name.
    pub fn tree(root: &Root, place: &Place, within: &[u8]) -> Result<Packer, Failed> {
        let failed = |errno| place.failed(errno);
        let fd = root
            .open_at(place, OFlags::PATH, Mode::empty())
            .map_err(failed)?;
        root.check_within(&fd, within, place)?;
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            let (directory, target) = root.final_entry(place)?;
            // Links may lead elsewhere since.
            root.check_within(&directory, within, place)?;
            return Packer::entry(&directory, target.split()?.1);
        }
        let mut packer = Packer::new();
        let open = root
            .open_at(place, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .map_err(failed)?;
        root.check_within(&open, within, place)?;
        packer
            .add_directory(open, b"./", Vec::new())
            .map_err(|errno| too_large(b".", errno).unwrap_or_else(|| failed(errno)))?;
        Ok(packer)
    }

    /// One entry of a directory, with everything below it.
    pub fn entry(directory: &OwnedFd, name: &[u8]) -> Result<Packer, Failed> {
        let mut packer = Packer::new();
        packer
            .add(directory, name, name.to_vec())
            .map_err(|errno| {
                too_large(name, errno).unwrap_or_else(|| Failed::errno(Quoted(name), errno))
            })?;
        Ok(packer)
    }

    fn new() -> Packer {
        Packer {
            stack: Vec::new(),
            body: None,
            linked: HashMap::new(),
            out: Vec::new(),
            over: false,
        }
    }

    /// The next piece of the archive; `None` after the last.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, Failed> {
        while self.out.len() < PIECE && !self.over {
            if self.body.is_some() {
                self.more_body()?;
            } else {
                self.next_entry()?;
            }
        }
        match self.out.is_empty() {
            true => Ok(None),
            false => Ok(Some(std::mem::take(&mut self.out))),
        }
    }

    fn next_entry(&mut self) -> Result<(), Failed> {
        let Some(level) = self.stack.last_mut() else {
            self.out.resize(self.out.len() + 2 * BLOCK, 0);
            self.over = true;
            return Ok(());
        };
        let name = match level.names.next() {
            None => {
                self.stack.pop();
                return Ok(());
            }
            Some(Err(errno)) => return Err(Failed::errno(Quoted(&level.prefix), errno)),
            Some(Ok(found)) => found.file_name().to_bytes().to_vec(),
        };
        if name == b"." || name == b".." {
            return Ok(());
        }
        let path = [&level.prefix[..], &name[..]].concat();
        if self.stack.len() > MAX_DEPTH {
            return Err(Failed::new(
                Failure::Limit,
                format!("{} is deeper than {MAX_DEPTH} directories", Quoted(&path)),
            ));
        }
        let Some(level) = self.stack.pop() else {
            return Ok(());
        };
        let depth = self.stack.len();
        let added = self.add(&level.fd, &name, path.clone());
        // The new directory, if there is one, is worked on first.
        self.stack.insert(depth, level);
        match added {
            // Removed meanwhile.
            Err(Errno::NOENT) => Ok(()),
            other => other.map_err(|errno| {
                too_large(&path, errno).unwrap_or_else(|| Failed::errno(Quoted(&path), errno))
            }),
        }
    }

    fn add(&mut self, directory: &OwnedFd, name: &[u8], path: Vec<u8>) -> Result<(), Errno> {
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.add_file(directory, name, path),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(directory, name, Vec::new())?.into_bytes();
                self.header(Header {
                    link: target,
                    ..Header::of(&path, &stat, Type::Symlink)
                });
                Ok(())
            }
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(directory, name, flags, Mode::empty())?;
                let prefix = [&path[..], b"/"].concat();
                self.add_directory(fd, &prefix, prefix.clone())
            }
            _ => Ok(()),
        }
    }

    /// A directory under a name of its own, whose entries get a prefix.
    fn add_directory(&mut self, fd: OwnedFd, name: &[u8], prefix: Vec<u8>) -> Result<(), Errno> {
        let stat = rustix::fs::fstat(&fd)?;
        self.header(Header {
            attributes: read_bounded(&fd, Which::Users)?,
            ..Header::of(name, &stat, Type::Directory)
        });
        let names = Dir::read_from(&fd)?;
        self.stack.push(Level { fd, names, prefix });
        Ok(())
    }

    fn add_file(&mut self, directory: &OwnedFd, name: &[u8], path: Vec<u8>) -> Result<(), Errno> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        if stat.st_nlink > 1 {
            let key = (stat.st_dev, stat.st_ino);
            if let Some(first) = self.linked.get(&key).cloned() {
                self.header(Header {
                    link: first,
                    ..Header::of(&path, &stat, Type::HardLink)
                });
                return Ok(());
            }
            if self.linked.len() < MAX_LINKED {
                self.linked.insert(key, path.clone());
            }
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let holes = match (stat.st_blocks as u64).saturating_mul(512) < size {
            true => holes::parts(&file, size)?,
            false => None,
        };
        let mut header = Header {
            attributes: read_bounded(&file, Which::Users)?,
            size,
            ..Header::of(&path, &stat, Type::File)
        };
        let (map, parts) = match holes {
            None => (Vec::new(), VecDeque::from([(0, size)])),
            Some(parts) => {
                let map = sparse::write_map(&parts);
                let stored: u64 = parts.iter().map(|(_, length)| length).sum();
                header.real_size = Some(size);
                header.size = map.len() as u64 + stored;
                (map, parts.into())
            }
        };
        let size = header.size;
        self.header(header);
        self.out.extend_from_slice(&map);
        if size > 0 {
            self.body = Some(Body { file, parts, size });
        }
        Ok(())
    }

    fn header(&mut self, header: Header) {
        header.write(&mut self.out);
    }

    fn more_body(&mut self) -> Result<(), Failed> {
        let Some(body) = &mut self.body else {
            return Ok(());
        };
        let Some((start, length)) = body.parts.front_mut() else {
            let pad = padding(body.size);
            self.body = None;
            self.out.resize(self.out.len() + pad, 0);
            return Ok(());
        };
        let most = (*length).min(PIECE as u64) as usize;
        let before = self.out.len();
        self.out.resize(before + most, 0);
        let target = self.out.get_mut(before..).unwrap_or_default();
        let passed = match rustix::io::pread(&body.file, target, *start) {
            // Shorter than its header says: the rest of this piece stays zero.
            Ok(0) => most,
            Ok(got) => got,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(Failed::errno("cannot read a file of the tree", errno)),
        };
        self.out.truncate(before + passed);
        *start += passed as u64;
        *length -= passed as u64;
        if *length == 0 {
            body.parts.pop_front();
        }
        Ok(())
    }
}

/// What is said of attributes that no archive holds.
fn too_large(path: &[u8], errno: Errno) -> Option<Failed> {
    let message = format!(
        "{} has more than {MAX_ATTRIBUTES} bytes of attributes",
        Quoted(path)
    );
    (errno == Errno::TOOBIG).then(|| Failed::new(Failure::Limit, message))
}
