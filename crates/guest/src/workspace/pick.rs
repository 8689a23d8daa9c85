//! Packs named files exactly as they are, one bounded piece at a time.
//!
//! A file that changes while it is read is read again, if it is small enough to be buffered; files
//! that keep changing are named at the end.

use super::facts::{fill, modified_ns, stamp_ns};
use super::inside::Inside;
use super::{MAX_LIST, Workspace, parse_all, parse_list, too_long, workspace};
use crate::answer::{Failed, Quoted, note};
use crate::blocking;
use crate::files::attributes::{MAX_ATTRIBUTES, Which, read_bounded};
use crate::state::Guest;
use bytes::Bytes;
use motu_archive::{Attributes, BLOCK, Header, PIPE, Part, Type, holes, padding, sparse};
use motu_link::Event;
use motu_link::frame::CHANNEL_IN;
use motu_link::message::{Failure, Pick, Picked, Said};
use motu_link::mux::{Receiver, Sender};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Approximate size of one piece.
const PIECE: usize = 512 * 1024;
/// Files up to this size are buffered until they were read without a concurrent change.
const SETTLE_BYTES: u64 = 1024 * 1024;
/// Attempts to read such a file.
const SETTLE_TRIES: usize = 5;
/// Paths named in the note at the end.
const MAX_NAMED: usize = 1000;

pub async fn pick(
    guest: &Arc<Guest>,
    request: Pick,
    tx: &Sender,
    mut rx: Receiver,
) -> Result<(), Failed> {
    let workspace = workspace(guest)?;
    let mut paths = parse_all(&request.paths)?;
    if request.more {
        paths.extend(read_list(&mut rx).await?);
    }
    let mut picker = Picker::new(workspace, paths);
    let work = async {
        loop {
            let (back, piece) = blocking::run(move || {
                let piece = picker.next_piece()?;
                Ok((picker, piece))
            })
            .await?;
            picker = back;
            match piece {
                Some(piece) => tx.data(CHANNEL_IN, Bytes::from(piece)).await?,
                None => return Ok(picker.picked),
            }
        }
    };
    let picked = blocking::unless_gone(tx, work).await?;
    Ok(note(tx, Said::Picked(picked)).await?)
}

async fn read_list(rx: &mut Receiver) -> Result<Vec<Inside>, Failed> {
    let mut list = Vec::new();
    loop {
        match rx.recv().await? {
            Event::Data { bytes, .. } => {
                if list.len() + bytes.len() > MAX_LIST {
                    return Err(too_long());
                }
                list.extend_from_slice(&bytes);
            }
            Event::Eof => return parse_list(&list),
            Event::Message(_) => {}
            Event::End(_) | Event::Reset => return Err(Failed::cancelled()),
        }
    }
}

/// The state of packing.
struct Picker {
    workspace: Arc<Workspace>,
    paths: VecDeque<Inside>,
    body: Option<Body>,
    linked: HashMap<(u64, u64), Vec<u8>>,
    out: Vec<u8>,
    over: bool,
    picked: Picked,
}

/// A file that is too large to be buffered, or has holes.
struct Body {
    path: Inside,
    file: OwnedFd,
    stat: Stat,
    parts: VecDeque<Part>,
    /// Bytes of the entry's body so far, for the padding at its end.
    sent: u64,
    short: bool,
}

impl Picker {
    fn new(workspace: Arc<Workspace>, paths: Vec<Inside>) -> Picker {
        Picker {
            workspace,
            paths: paths.into(),
            body: None,
            linked: HashMap::new(),
            out: Vec::new(),
            over: false,
            picked: Picked::default(),
        }
    }

    /// The next piece of the archive; `None` after the last.
    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, Failed> {
        while self.out.len() < PIECE && !self.over {
            if self.body.is_some() {
                self.more_body()?;
                continue;
            }
            let Some(path) = self.paths.pop_front() else {
                self.out.resize(self.out.len() + 2 * BLOCK, 0);
                self.over = true;
                break;
            };
            match self.add(&path) {
                // Removed or replaced concurrently.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => self.leave_out(&path),
                Err(Errno::TOOBIG) => {
                    return Err(Failed::new(
                        Failure::Limit,
                        format!(
                            "{} has more than {MAX_ATTRIBUTES} bytes of attributes",
                            Quoted(path.as_bytes())
                        ),
                    ));
                }
                other => other.map_err(|errno| path.failed(errno))?,
            }
        }
        match self.out.is_empty() {
            true => Ok(None),
            false => Ok(Some(std::mem::take(&mut self.out))),
        }
    }

    fn leave_out(&mut self, path: &Inside) {
        self.picked.left_out_count += 1;
        if self.picked.left_out.len() < MAX_NAMED {
            self.picked.left_out.push(path.to_bytes());
        }
    }

    fn unsettled(&mut self, path: &Inside) {
        self.picked.unsettled_count += 1;
        if self.picked.unsettled.len() < MAX_NAMED {
            self.picked.unsettled.push(path.to_bytes());
        }
    }

    fn add(&mut self, path: &Inside) -> Result<(), Errno> {
        if path.is_top() {
            let fd = path.open(&self.workspace.top, OFlags::RDONLY | OFlags::DIRECTORY)?;
            return self.add_directory(b"./".to_vec(), fd);
        }
        let (directory, name) = path.entry(&self.workspace.top)?;
        let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let open = |flags: OFlags| {
            let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&directory, name, flags, Mode::empty())
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.add_file(path, open(OFlags::NONBLOCK | OFlags::NOCTTY)?),
            FileType::Directory => {
                let fd = open(OFlags::DIRECTORY)?;
                self.add_directory([path.as_bytes(), b"/"].concat(), fd)
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&directory, name, Vec::new())?;
                self.header(Header {
                    link: target.into_bytes(),
                    ..Header::of(path.as_bytes(), &stat, Type::Symlink)
                });
                Ok(())
            }
            FileType::Fifo => {
                self.header(Header::of(path.as_bytes(), &stat, Type::Other(PIPE)));
                Ok(())
            }
            _ => {
                self.leave_out(path);
                Ok(())
            }
        }
    }

    fn add_directory(&mut self, path: Vec<u8>, fd: OwnedFd) -> Result<(), Errno> {
        let stat = rustix::fs::fstat(&fd)?;
        self.header(Header {
            attributes: read_bounded(fd, Which::All)?,
            ..Header::of(&path, &stat, Type::Directory)
        });
        Ok(())
    }

    fn add_file(&mut self, path: &Inside, file: OwnedFd) -> Result<(), Errno> {
        let mut stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::NOENT);
        }
        if stat.st_nlink > 1 {
            let key = (stat.st_dev, stat.st_ino);
            if let Some(first) = self.linked.get(&key).cloned() {
                self.header(Header {
                    link: first,
                    ..Header::of(path.as_bytes(), &stat, Type::HardLink)
                });
                return Ok(());
            }
            self.linked.insert(key, path.as_bytes().to_vec());
        }
        let attributes = read_bounded(&file, Which::All)?;
        let size = size(&stat);
        if (stat.st_blocks as u64).saturating_mul(512) < size
            && let Some(parts) = holes::parts(&file, size)?
        {
            self.begin_sparse(path, file, stat, attributes, parts);
            return Ok(());
        }
        if size <= SETTLE_BYTES {
            let body = self.settle(path, &file, &mut stat)?;
            self.header(Header {
                attributes,
                size: body.len() as u64,
                ..Header::of(path.as_bytes(), &stat, Type::File)
            });
            self.picked.bytes += body.len() as u64;
            self.out.extend_from_slice(&body);
            self.out
                .resize(self.out.len() + padding(body.len() as u64), 0);
            return Ok(());
        }
        self.header(Header {
            attributes,
            size,
            ..Header::of(path.as_bytes(), &stat, Type::File)
        });
        self.body = Some(Body {
            path: path.clone(),
            file,
            stat,
            parts: VecDeque::from([(0, size)]),
            sent: 0,
            short: false,
        });
        Ok(())
    }

    fn begin_sparse(
        &mut self,
        path: &Inside,
        file: OwnedFd,
        stat: Stat,
        attributes: Attributes,
        parts: Vec<Part>,
    ) {
        let map = sparse::write_map(&parts);
        let stored: u64 = parts.iter().map(|(_, length)| length).sum();
        self.header(Header {
            attributes,
            size: map.len() as u64 + stored,
            real_size: Some(size(&stat)),
            ..Header::of(path.as_bytes(), &stat, Type::File)
        });
        self.out.extend_from_slice(&map);
        self.body = Some(Body {
            path: path.clone(),
            file,
            stat,
            parts: parts.into(),
            sent: map.len() as u64,
            short: false,
        });
    }

    /// Reads a small file until it did not change meanwhile.
    fn settle(&mut self, path: &Inside, file: &OwnedFd, stat: &mut Stat) -> Result<Vec<u8>, Errno> {
        let mut body = Vec::new();
        for _ in 0..SETTLE_TRIES {
            // One extra byte shows whether the file has grown.
            let room = size(stat).min(2 * SETTLE_BYTES) as usize;
            body.clear();
            body.resize(room + 1, 0);
            let got = fill(file, &mut body, 0)?;
            body.truncate(got.min(room));
            let after = rustix::fs::fstat(file)?;
            if got == room && unchanged(stat, &after) {
                return Ok(body);
            }
            *stat = after;
        }
        self.unsettled(path);
        Ok(body)
    }

    fn header(&mut self, header: Header) {
        self.picked.entries += 1;
        header.write(&mut self.out);
    }

    fn more_body(&mut self) -> Result<(), Failed> {
        let Some(body) = &mut self.body else {
            return Ok(());
        };
        let Some((start, length)) = body.parts.front_mut() else {
            return self.end_body();
        };
        let most = (*length).min(PIECE as u64) as usize;
        let before = self.out.len();
        self.out.resize(before + most, 0);
        let target = self.out.get_mut(before..).unwrap_or_default();
        let got = fill(&body.file, target, *start).map_err(|errno| body.path.failed(errno))?;
        // The file has shrunk below its header's size: the rest is zeros.
        body.short |= got < most;
        body.sent += most as u64;
        self.picked.bytes += most as u64;
        *start += most as u64;
        *length -= most as u64;
        if *length == 0 {
            body.parts.pop_front();
        }
        Ok(())
    }

    fn end_body(&mut self) -> Result<(), Failed> {
        let Some(body) = self.body.take() else {
            return Ok(());
        };
        let pad = padding(body.sent);
        self.out.resize(self.out.len() + pad, 0);
        let after = rustix::fs::fstat(&body.file).map_err(|errno| body.path.failed(errno))?;
        if body.short || !unchanged(&body.stat, &after) {
            self.unsettled(&body.path);
        }
        Ok(())
    }
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Whether the content is unchanged. New hard links change the ctime too, so it alone is not
/// enough.
fn unchanged(before: &Stat, after: &Stat) -> bool {
    before.st_size == after.st_size
        && modified_ns(before) == modified_ns(after)
        && (stamp_ns(before) == stamp_ns(after) || before.st_nlink != after.st_nlink)
}
