//! Reading and hashing files. No thread waits for the host: each step reads one
//! piece and comes back.

use super::entry;
use crate::answer::{Failed, Quoted, note};
use crate::blocking;
use crate::place::{Place, Root};
use crate::state::Guest;
use bytes::Bytes;
use motu_link::frame::CHANNEL_IN;
use motu_link::message::{Digest, Hash, Read, Said};
use motu_link::mux::Sender;
use rustix::fs::{FileType, Mode, OFlags};
use sha2::{Digest as _, Sha256};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes per step: two frames.
const STEP: usize = 512 * 1024;

pub async fn read(guest: &Arc<Guest>, request: Read, tx: &Sender) -> Result<(), Failed> {
    let place = Place::parse(&request.path)?;
    let fd = open(guest, &request, &place, tx).await?;
    let length = if request.length == 0 {
        u64::MAX
    } else {
        request.length
    };
    blocking::unless_gone(tx, send(Arc::new(fd), place, request.offset, length, tx)).await
}

/// Opens the file of a request, and says what it is.
pub async fn open(
    guest: &Arc<Guest>,
    request: &Read,
    place: &Place,
    tx: &Sender,
) -> Result<OwnedFd, Failed> {
    let root = guest.settings().root.clone();
    let names = guest.users.names();
    let opened = place.clone();
    let within = request.within.clone();
    let (fd, described) = blocking::run(move || {
        let fd = open_regular(&root, &opened)?;
        root.check_within(&fd, &within, &opened)?;
        let described = entry::describe_fd(&names, &fd, &opened)?;
        Ok((fd, described))
    })
    .await?;
    note(tx, Said::Entries(entry::one(described))).await?;
    Ok(fd)
}

async fn send(
    fd: Arc<OwnedFd>,
    place: Place,
    from: u64,
    length: u64,
    tx: &Sender,
) -> Result<(), Failed> {
    let mut at = from;
    let end = from.saturating_add(length);
    while at < end {
        let (fd, place) = (fd.clone(), place.clone());
        let most = (end - at).min(STEP as u64) as usize;
        let piece = blocking::run(move || read_at(&fd, at, most, &place)).await?;
        if piece.is_empty() {
            break;
        }
        at += piece.len() as u64;
        tx.data(CHANNEL_IN, Bytes::from(piece)).await?;
    }
    Ok(())
}

/// Reads up to `most` bytes; fewer only at the end or when the kernel has no more right now.
pub fn read_at(fd: &OwnedFd, at: u64, most: usize, place: &Place) -> Result<Vec<u8>, Failed> {
    let mut piece = Vec::with_capacity(most);
    loop {
        match rustix::io::pread(fd, rustix::buffer::spare_capacity(&mut piece), at) {
            Ok(_) => return Ok(piece),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(place.failed(errno)),
        }
    }
}

/// Opens a regular file for reading. Opening anything else must neither wait nor succeed.
pub fn open_regular(root: &Root, place: &Place) -> Result<OwnedFd, Failed> {
    let opened = root.open_at(place, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
    let fd = opened.map_err(|errno| place.failed(errno))?;
    let stat = rustix::fs::fstat(&fd).map_err(|errno| place.failed(errno))?;
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(fd),
        FileType::Directory => return Err(place.failed(rustix::io::Errno::ISDIR)),
        _ => "is not a regular file",
    };
    Err(Failed::invalid(format!(
        "{} {what}",
        Quoted(place.as_bytes())
    )))
}

pub async fn hash(guest: &Arc<Guest>, request: Hash, tx: &Sender) -> Result<(), Failed> {
    let place = Place::parse(&request.path)?;
    let root = guest.settings().root.clone();
    let digest = blocking::unless_gone(tx, digest(root, place)).await?;
    Ok(note(tx, Said::Digest(digest)).await?)
}

async fn digest(root: Arc<Root>, place: Place) -> Result<Digest, Failed> {
    let opened = place.clone();
    let fd = Arc::new(blocking::run(move || open_regular(&root, &opened)).await?);
    let mut state = Sha256::new();
    let mut size = 0u64;
    loop {
        let (fd, place) = (fd.clone(), place.clone());
        let (next, got) = blocking::run(move || {
            let piece = read_at(&fd, size, 2 * STEP, &place)?;
            state.update(&piece);
            Ok((state, piece.len() as u64))
        })
        .await?;
        state = next;
        size += got;
        if got == 0 {
            return Ok(Digest {
                sha256: Bytes::copy_from_slice(&state.finalize()),
                size,
            });
        }
    }
}
