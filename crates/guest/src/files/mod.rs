//! Every file operation, below one root. This file answers the verbs; the parts
//! do the work. Nothing here runs on the thread that serves streams for longer
//! than a moment.

pub mod attributes;
mod change;
mod entry;
mod glob;
mod lend;
mod list;
mod mkdir;
mod pack;
mod read;
mod sparse;
mod unpack;
mod watch;
mod write;

pub use change::remove_entry;
pub use entry::Owner;
pub use lend::{lend_read, lend_write};
pub use read::{hash, read};
pub use unpack::{Limits, Ownership, Unpacker};
pub use watch::watch;
pub use write::{rename, write};

use crate::answer::{Failed, note};
use crate::blocking::{self, Cancel};
use crate::place::{Place, Root};
use crate::state::Guest;
use bytes::Bytes;
use motu_link::Event;
use motu_link::frame::CHANNEL_IN;
use motu_link::message::{Entries, Entry, Failure, List, Said, TreeIn, TreeOut, Verb};
use motu_link::mux::{Receiver, Sender};
use pack::Packer;
use prost::Message as _;
use rustix::fs::{Mode, OFlags};
use std::sync::Arc;

/// The owner of a received tree that means the archive's own numbers.
const ARCHIVE_OWNERS: &str = "archive";

/// Operations that are one piece of blocking work.
pub async fn simple(
    guest: &Arc<Guest>,
    verb: Verb,
    cancel: Cancel,
    tx: &Sender,
) -> Result<(), Failed> {
    let shared = guest.clone();
    let work = move || run_simple(&shared, verb, cancel);
    for entries in blocking::run(work).await? {
        note(tx, Said::Entries(entries)).await?;
    }
    Ok(())
}

fn run_simple(guest: &Guest, verb: Verb, cancel: Cancel) -> Result<Vec<Entries>, Failed> {
    let root = guest.settings().root.clone();
    let names = guest.users.names();
    let flush = guest.flush();
    let one = |entry| Ok(vec![entry::one(entry)]);
    // A change is answered when it is on the disk.
    let settled = |entry| {
        let proven = flush.prove();
        proven.map_err(|errno| Failed::errno("the change is not on the disk", errno))?;
        one(entry)
    };
    match verb {
        Verb::Stat(request) => {
            let place = Place::parse(&request.path)?;
            let within = &request.within;
            one(entry::stat_within(
                &names,
                &root,
                &place,
                request.follow,
                within,
            )?)
        }
        Verb::List(request) => Ok(vec![list_page(guest, &root, request, cancel)?]),
        Verb::Mkdir(request) => {
            let owner = Owner::find(guest, &request.user)?;
            let made = mkdir::mkdir(&root, &names, &request, owner)?;
            flush.parent(&root, &Place::parse(&request.path)?)?;
            settled(made)
        }
        Verb::Remove(request) => {
            let place = Place::parse(&request.path)?;
            change::remove(&root, &place, request.recursive, &cancel)?;
            flush.parent(&root, &place)?;
            settled(Entry::default()).map(|_| Vec::new())
        }
        Verb::Move(request) => {
            let (from, to) = (Place::parse(&request.from)?, Place::parse(&request.to)?);
            let how = change::Moving {
                replace: request.overwrite,
                flush: &flush,
                cancel: &cancel,
            };
            let moved = change::move_to(&root, &names, &from, &to, how)?;
            flush.parent(&root, &to)?;
            flush.parent(&root, &from)?;
            settled(moved)
        }
        Verb::Chmod(request) => {
            let changed = change::chmod(&root, &names, &request)?;
            flush.attributes(&root, &Place::parse(&request.path)?)?;
            settled(changed)
        }
        Verb::Symlink(request) => {
            let owner = Owner::find(guest, &request.user)?;
            let made = change::symlink(&root, &names, &request, owner)?;
            flush.parent(&root, &Place::parse(&request.path)?)?;
            settled(made)
        }
        Verb::Glob(request) => {
            let limit = list::page_size(request.limit);
            let glob = glob::Glob {
                root: &root,
                names: &names,
                limit,
                cancel,
            };
            let (found, more) = glob.run(&request.pattern)?;
            Ok(notes(found, more))
        }
        _ => Err(Failed::new(
            Failure::Unsupported,
            "this guest does not know the request",
        )),
    }
}

fn list_page(guest: &Guest, root: &Root, request: List, cancel: Cancel) -> Result<Entries, Failed> {
    let names = guest.users.names();
    let listing = list::Listing {
        root,
        names: &names,
        place: Place::parse(&request.path)?,
        depth: request.depth,
        after: request.after.to_vec(),
        limit: list::page_size(request.limit),
        cancel,
    };
    listing.run()
}

/// Splits matches into notes that fit frames. Every note but the last says that more follow.
fn notes(found: Vec<Entry>, more: bool) -> Vec<Entries> {
    let mut all = vec![Entries::default()];
    let mut size = 0;
    for entry in found {
        size += entry.encoded_len() + 8;
        if size > list::PAGE_BYTES {
            size = entry.encoded_len() + 8;
            all.push(Entries::default());
        }
        if let Some(last) = all.last_mut() {
            last.entries.push(entry);
        }
    }
    let count = all.len();
    for (index, note) in all.iter_mut().enumerate() {
        if more || index + 1 < count {
            note.next = note
                .entries
                .last()
                .map_or_else(Bytes::new, |entry| entry.path.clone());
        }
    }
    all
}

pub async fn tree_out(guest: &Arc<Guest>, request: TreeOut, tx: &Sender) -> Result<(), Failed> {
    let place = Place::parse(&request.path)?;
    let root = guest.settings().root.clone();
    let within = request.within;
    let mut packer = blocking::run(move || Packer::tree(&root, &place, &within)).await?;
    let work = async {
        loop {
            let (back, piece) = blocking::run(move || {
                let piece = packer.next_piece()?;
                Ok((packer, piece))
            })
            .await?;
            packer = back;
            match piece {
                Some(piece) => tx.data(CHANNEL_IN, Bytes::from(piece)).await?,
                None => return Ok(()),
            }
        }
    };
    blocking::unless_gone(tx, work).await
}

pub async fn tree_in(
    guest: &Arc<Guest>,
    request: TreeIn,
    tx: &Sender,
    mut rx: Receiver,
) -> Result<(), Failed> {
    let place = Place::parse(&request.path)?;
    let ownership = match request.user.as_str() {
        ARCHIVE_OWNERS => Ownership::Archive,
        user => Ownership::One(Owner::find(guest, user)?),
    };
    let limits = Limits::new(request.max_bytes, request.max_entries);
    let shared = guest.clone();
    let mut unpacker =
        blocking::run(move || open_unpacker(&shared, &place, ownership, limits)).await?;
    loop {
        match rx.recv().await? {
            Event::Data { bytes, .. } => {
                unpacker = blocking::run(move || {
                    unpacker.feed(&bytes)?;
                    Ok(unpacker)
                })
                .await?;
            }
            Event::Eof => break,
            Event::Message(_) => {}
            Event::End(_) | Event::Reset => return Err(Failed::cancelled()),
        }
    }
    let done = blocking::run(move || unpacker.finish()).await?;
    Ok(note(tx, Said::TreeDone(done)).await?)
}

fn open_unpacker(
    guest: &Guest,
    place: &Place,
    ownership: Ownership,
    limits: Limits,
) -> Result<Unpacker, Failed> {
    let root = guest.settings().root.clone();
    if root.directory(place).is_err() {
        let owner = match ownership {
            Ownership::One(owner) => owner,
            Ownership::Archive => Owner::find(guest, "")?,
        };
        // Making something below the place makes the place itself.
        mkdir::make_parents(&root, &place.join(b"x"), owner)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let dest = root
        .open_at(place, flags, Mode::empty())
        .map_err(|errno| place.failed(errno))?;
    let unpacker = Unpacker::new(dest, ownership, limits).whole();
    let flush = guest.flush();
    Ok(match flush.wanted() {
        true => unpacker.flushed(flush.of_trees()),
        false => unpacker,
    })
}
