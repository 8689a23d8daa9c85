//! Unpacking a tar stream below one directory, from pieces of any size.
//!
//! The archive is hostile: a name may not be absolute or contain `..`; no parent
//! of an entry may be a symlink, whoever made it; links go only to files that are
//! below the directory already; devices and pipes are refused. Times, attributes of
//! users and holes are kept, set-user-id bits are not. A file that takes the place of
//! another keeps that one's owner and permissions.
//!
//! A tree that comes back to where it was is unpacked exactly: special bits,
//! capabilities, owners and pipes included. Where somebody looks meanwhile, each
//! file takes its name only when all of it is there.

mod exact;
mod limits;
mod names;
mod sink;

use super::attributes::Which;
use super::entry::Owner;
use super::write::Temporary;
use crate::answer::Failed;
use crate::flush::Flush;
use crate::place::fresh_name_after;
pub use limits::Limits;
use motu_archive::{BLOCK, Header, PIPE, Records, Type, padding};
use motu_link::message::{Failure, RESTORING, TreeDone};
use names::{clean, failed, make_file, make_way, refused, set_mode};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use sink::{Sink, take_place};
use std::os::fd::OwnedFd;

/// The largest extended header or long name.
const MAX_META: u64 = 64 * 1024;
/// The deepest entry.
const MAX_DEPTH: usize = 256;
/// Directories whose final mode has to wait because it would lock us out, or
/// whose time has to wait because what is made in them changes it.
const MAX_LATE: usize = 200_000;

/// Who gets the entries.
#[derive(Clone, Copy, Debug)]
pub enum Ownership {
    One(Owner),
    /// The archive's own numbers.
    Archive,
}

/// An archive being unpacked.
#[derive(Debug)]
pub struct Unpacker {
    dest: OwnedFd,
    ownership: Ownership,
    limits: Limits,
    exact: bool,
    /// Nothing is to be seen half made.
    whole: bool,
    flush: Flush,
    state: State,
    block: Vec<u8>,
    pax: Option<Vec<u8>>,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    /// The directory of the last entry: most entries share it with the one before.
    parent: Option<(Vec<u8>, OwnedFd)>,
    late: Vec<Late>,
    done: TreeDone,
}

/// What a directory gets when everything is in it.
#[derive(Debug)]
struct Late {
    path: Vec<u8>,
    mode: u32,
    /// Seconds and nanoseconds.
    time: (i64, u32),
}

#[derive(Debug)]
enum State {
    Header,
    Body { sink: Sink, left: u64, pad: usize },
    Pad(usize),
    Over,
}

impl Unpacker {
    pub fn new(dest: OwnedFd, ownership: Ownership, limits: Limits) -> Unpacker {
        Unpacker {
            dest,
            ownership,
            limits,
            exact: false,
            whole: false,
            flush: Flush::new(None),
            state: State::Header,
            block: Vec::with_capacity(BLOCK),
            pax: None,
            long_name: None,
            long_link: None,
            parent: None,
            late: Vec::new(),
            done: TreeDone::default(),
        }
    }

    /// Makes everything as it was, set-user-id bits included: only for trees that are moved or
    /// brought back, not received.
    pub fn exactly(mut self) -> Unpacker {
        self.exact = true;
        self
    }

    /// Makes everything beside its place and moves it there when it is complete, so that
    /// whoever looks, or comes after the end of this machine, finds the old or the new.
    pub fn whole(mut self) -> Unpacker {
        self.whole = true;
        self
    }

    /// Brings everything to the disk before it is said to be there.
    pub fn flushed(mut self, flush: Flush) -> Unpacker {
        self.flush = flush;
        self
    }

    /// Takes the next piece of the archive.
    pub fn feed(&mut self, mut piece: &[u8]) -> Result<(), Failed> {
        while !piece.is_empty() {
            match &mut self.state {
                State::Over => return Ok(()),
                State::Header => {
                    let (now, rest) = piece.split_at(piece.len().min(BLOCK - self.block.len()));
                    self.block.extend_from_slice(now);
                    piece = rest;
                    if let Ok(block) = <[u8; BLOCK]>::try_from(&self.block[..]) {
                        self.block.clear();
                        self.header(&block)?;
                    }
                }
                State::Body { sink, left, .. } => {
                    let most = usize::try_from(*left).unwrap_or(usize::MAX);
                    let (now, rest) = piece.split_at(piece.len().min(most));
                    sink.take(now)?;
                    *left -= now.len() as u64;
                    piece = rest;
                    if *left == 0 {
                        self.end_body()?;
                    }
                }
                State::Pad(left) => {
                    let skipped = piece.len().min(*left);
                    piece = piece.get(skipped..).unwrap_or_default();
                    *left -= skipped;
                    if *left == 0 {
                        self.state = State::Header;
                    }
                }
            }
        }
        Ok(())
    }

    /// The archive has ended.
    pub fn finish(mut self) -> Result<TreeDone, Failed> {
        match self.state {
            State::Over => {}
            // Some writers leave the final blocks out.
            State::Header if self.block.is_empty() => {}
            _ => {
                return Err(Failed::invalid(
                    "the archive ends in the middle of an entry",
                ));
            }
        }
        // Deepest first, so that a locked directory does not hide the ones in it.
        while let Some(Late { path, mode, time }) = self.late.pop() {
            let (parent, name) = self.locate(&path)?;
            let done =
                set_mode(&parent, &name, mode).and_then(|()| exact::set_time(&parent, &name, time));
            done.map_err(|errno| failed(&path, errno))?;
        }
        let flushed = self.flush.all(&self.dest);
        let flushed = flushed.and_then(|()| self.flush.prove());
        flushed.map_err(|errno| Failed::errno("the files are not on the disk", errno))?;
        Ok(self.done)
    }

    /// Flushes one file, where all of them cannot be at the end.
    fn flush_each(&self, fd: &OwnedFd) -> Result<(), Errno> {
        match self.flush.each() {
            true => self.flush.file(fd),
            false => Ok(()),
        }
    }

    fn header(&mut self, block: &[u8; BLOCK]) -> Result<(), Failed> {
        let header = Header::parse(block)
            .map_err(|error| Failed::invalid(format!("not a tar archive: {error}")))?;
        let Some(mut header) = header else {
            self.state = State::Over;
            return Ok(());
        };
        let sink = match header.kind {
            Type::Pax | Type::LongName | Type::LongLink => {
                if header.size > MAX_META {
                    return Err(Failed::new(
                        Failure::Limit,
                        "an extended header is larger than 64 KiB",
                    ));
                }
                Sink::Meta {
                    kind: header.kind,
                    bytes: Vec::new(),
                }
            }
            Type::PaxGlobal => Sink::Nothing,
            _ => {
                self.complete(&mut header)?;
                self.create(header.clone())?
            }
        };
        let size = header.size;
        self.state = State::Body {
            sink,
            left: size,
            pad: padding(size),
        };
        if size == 0 {
            self.end_body()?;
        }
        Ok(())
    }

    /// Applies what came before the entry.
    fn complete(&mut self, header: &mut Header) -> Result<(), Failed> {
        if let Some(name) = self.long_name.take() {
            header.path = name;
        }
        if let Some(link) = self.long_link.take() {
            header.link = link;
        }
        if let Some(records) = self.pax.take() {
            Records::parse(&records)
                .and_then(|records| header.extend(records))
                .map_err(|error| Failed::invalid(error.to_string()))?;
        }
        // Only files have bodies, whatever the header says.
        if header.kind != Type::File {
            header.size = 0;
        }
        self.done.entries += 1;
        self.done.bytes = self.done.bytes.saturating_add(header.size);
        if self.done.entries > self.limits.entries {
            return Err(Failed::new(
                Failure::Limit,
                format!("more than {} entries", self.limits.entries),
            ));
        }
        if self.done.bytes > self.limits.bytes {
            return Err(Failed::new(
                Failure::Limit,
                format!("more than {} bytes", self.limits.bytes),
            ));
        }
        Ok(())
    }

    fn create(&mut self, header: Header) -> Result<Sink, Failed> {
        let path = clean(&header.path)?;
        if path.is_empty() {
            // The directory itself, which exists.
            return match header.kind {
                Type::Directory if self.exact => {
                    let set = exact::attributes_of(&self.dest, &header, self.which());
                    set.map_err(|errno| failed(b".", errno))?;
                    Ok(Sink::Nothing)
                }
                Type::Directory => Ok(Sink::Nothing),
                _ => Err(refused(&header.path, "has no name")),
            };
        }
        let (parent, name) = self.locate(&path)?;
        let result = match header.kind {
            Type::File => {
                let header = Header {
                    path: path.clone(),
                    ..self.dressed(header, &parent, &name)
                };
                let made = self.make_file(&parent, &name);
                made.map(|(fd, staged)| Sink::file(fd, header, staged))
            }
            Type::Other(PIPE) if self.exact => self
                .put(&parent, &name, |at| exact::make_pipe(&parent, at, &header))
                .map(|()| Sink::Nothing),
            Type::Directory => self
                .make_directory(&parent, &name, &path, &header)
                .map(|()| Sink::Nothing),
            Type::Symlink => self
                .make_symlink(&parent, &name, &header)
                .map(|()| Sink::Nothing),
            Type::HardLink => {
                return self
                    .make_link(&parent, &name, &header)
                    .map(|()| Sink::Nothing);
            }
            Type::Sparse => {
                return Err(refused(
                    &header.path,
                    "is sparse in a way that is not supported",
                ));
            }
            _ => {
                return Err(refused(
                    &header.path,
                    "is a device, a pipe or of an unknown type",
                ));
            }
        };
        let sink = result.map_err(|errno| failed(&path, errno))?;
        self.parent = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .map(|at| (path.get(..at).unwrap_or_default().to_vec(), parent));
        Ok(sink)
    }

    fn owner(&self, header: &Header) -> Owner {
        match self.ownership {
            Ownership::One(owner) => owner,
            Ownership::Archive => Owner {
                uid: header.uid,
                gid: header.gid,
            },
        }
    }

    /// What a file is to be: what the archive says, or who was there before.
    fn dressed(&self, header: Header, parent: &OwnedFd, name: &[u8]) -> Header {
        if self.exact {
            return header;
        }
        let before = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
        let before = before.ok().filter(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                && matches!(self.ownership, Ownership::One(_))
        });
        let (owner, mode) = match before {
            Some(stat) => {
                let (uid, gid) = (stat.st_uid, stat.st_gid);
                (Owner { uid, gid }, stat.st_mode & 0o7777)
            }
            None => (self.owner(&header), self.mode(&header, 0o777)),
        };
        Header {
            mode,
            uid: owner.uid,
            gid: owner.gid,
            ..header
        }
    }

    fn mode(&self, header: &Header, kept: u32) -> u32 {
        header.mode & if self.exact { 0o7777 } else { kept }
    }

    /// Opens the directory of a clean path, making what is missing, following nothing.
    fn locate(&mut self, path: &[u8]) -> Result<(OwnedFd, Vec<u8>), Failed> {
        let (directories, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (
                path.get(..at).unwrap_or_default(),
                path.get(at + 1..).unwrap_or_default(),
            ),
            None => (&b""[..], path),
        };
        if let Some((known, fd)) = self.parent.take()
            && known == directories
        {
            return Ok((fd, name.to_vec()));
        }
        let mut at = self
            .dest
            .try_clone()
            .map_err(|_| failed(path, Errno::MFILE))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for part in directories
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
        {
            let opened = match rustix::fs::openat(&at, part, flags, Mode::empty()) {
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o755))
                        .map_err(|errno| failed(path, errno))?;
                    if let Ownership::One(owner) = self.ownership {
                        owner
                            .give_at(&at, part)
                            .map_err(|errno| failed(path, errno))?;
                    }
                    rustix::fs::openat(&at, part, flags, Mode::empty())
                }
                other => other,
            };
            at = opened.map_err(|errno| match errno {
                Errno::NOTDIR | Errno::LOOP => {
                    refused(path, "leads through something that is not a directory")
                }
                errno => failed(path, errno),
            })?;
        }
        Ok((at, name.to_vec()))
    }

    fn make_directory(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: &[u8],
        header: &Header,
    ) -> Result<(), Errno> {
        let mode = self.mode(header, 0o1777);
        match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
            Err(Errno::EXIST) => {
                let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                    return Err(Errno::EXIST);
                }
            }
            other => other?,
        }
        if self.late.len() < MAX_LATE {
            let (path, time) = (path.to_vec(), (header.mtime, header.nanos));
            self.late.push(Late { path, mode, time });
        }
        let owner = self.owner(header);
        let header = &Header {
            uid: owner.uid,
            gid: owner.gid,
            ..header.clone()
        };
        exact::make_directory(parent, name, header, (mode | 0o700, self.which()))
    }

    fn make_file(
        &self,
        parent: &OwnedFd,
        name: &[u8],
    ) -> Result<(OwnedFd, Option<Temporary>), Errno> {
        if !self.whole {
            return Ok((make_file(parent, name)?, None));
        }
        let directory = parent.try_clone().map_err(|_| Errno::MFILE)?;
        let staged = fresh_name_after(RESTORING)?;
        let (staged, fd) = Temporary::create(directory, staged, name)?;
        Ok((fd, Some(staged)))
    }

    /// Puts what `make` makes under a name in the place of what has this name.
    fn put(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        make: impl FnOnce(&[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if !self.whole {
            make_way(parent, name)?;
            return make(name);
        }
        let staged = fresh_name_after(RESTORING)?;
        let put =
            make(&staged).and_then(|()| rustix::fs::renameat(parent, &staged[..], parent, name));
        // Also when all went well: between two names of one file a rename does nothing.
        let _ = rustix::fs::unlinkat(parent, &staged[..], AtFlags::empty());
        put
    }

    fn make_symlink(&self, parent: &OwnedFd, name: &[u8], header: &Header) -> Result<(), Errno> {
        if header.link.is_empty() || header.link.contains(&0) {
            return Err(Errno::INVAL);
        }
        self.put(parent, name, |at| {
            rustix::fs::symlinkat(&header.link[..], parent, at)?;
            let owner = self.owner(header);
            let header = Header {
                uid: owner.uid,
                gid: owner.gid,
                ..header.clone()
            };
            exact::name(parent, at, &header)
        })
    }

    fn make_link(&mut self, parent: &OwnedFd, name: &[u8], header: &Header) -> Result<(), Failed> {
        let target = clean(&header.link)?;
        if target.is_empty() {
            return Err(refused(&header.path, "links to nothing"));
        }
        let (directory, target_name) = self.locate(&target)?;
        let oops = |errno| failed(&header.path, errno);
        let stat = rustix::fs::statat(&directory, &target_name[..], AtFlags::SYMLINK_NOFOLLOW)
            .map_err(oops)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused(
                &header.path,
                "links to something that is not a file",
            ));
        }
        self.put(parent, name, |at| {
            rustix::fs::linkat(&directory, &target_name[..], parent, at, AtFlags::empty())
        })
        .map_err(oops)
    }

    fn end_body(&mut self) -> Result<(), Failed> {
        let State::Body { sink, pad, .. } = std::mem::replace(&mut self.state, State::Header)
        else {
            return Ok(());
        };
        if pad > 0 {
            self.state = State::Pad(pad);
        }
        match sink {
            Sink::Nothing => {}
            Sink::Sparse {
                sink,
                header,
                staged,
            } => {
                let fd = sink.finish(&header.path)?;
                self.finish_file(&fd, &header, staged)?;
            }
            Sink::File { fd, header, staged } => {
                // Zeros at the end were left out.
                rustix::fs::ftruncate(&fd, header.size)
                    .map_err(|errno| failed(&header.path, errno))?;
                self.finish_file(&fd, &header, staged)?;
            }
            Sink::Meta { kind, mut bytes } => {
                if kind != Type::Pax {
                    while bytes.last() == Some(&0) {
                        bytes.pop();
                    }
                }
                match kind {
                    Type::LongName => self.long_name = Some(bytes),
                    Type::LongLink => self.long_link = Some(bytes),
                    _ => self.pax = Some(bytes),
                }
            }
        }
        Ok(())
    }

    /// A file with all of its content gets everything else, and its name.
    fn finish_file(
        &self,
        fd: &OwnedFd,
        header: &Header,
        staged: Option<Temporary>,
    ) -> Result<(), Failed> {
        exact::file(fd, header, self.which())
            .and_then(|()| self.flush_each(fd))
            .and_then(|()| take_place(staged))
            .map_err(|errno| failed(&header.path, errno))
    }

    fn which(&self) -> Which {
        match self.exact {
            true => Which::All,
            false => Which::Users,
        }
    }
}
