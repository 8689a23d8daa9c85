//! Restores saved files exactly as they were.

use super::inside::Inside;
use super::{MAX_LIST, Workspace, parse_all, parse_list, remove, too_long, workspace};
use crate::answer::{Failed, note};
use crate::blocking::{self, Cancel};
use crate::files::{Limits, Ownership, Unpacker};
use crate::flush::Flush;
use crate::state::Guest;
use bytes::Bytes;
use motu_link::Event;
use motu_link::message::{Restore, Said};
use motu_link::mux::{Receiver, Sender};
use rustix::fs::OFlags;
use std::sync::Arc;

pub async fn restore(
    guest: &Arc<Guest>,
    request: Restore,
    tx: &Sender,
    mut rx: Receiver,
) -> Result<(), Failed> {
    let workspace = workspace(guest)?;
    let mut paths = parse_all(&request.remove)?;
    let cancel = Cancel::default();
    let _cancelled_when_dropped = cancel.on_drop();
    let list_bytes = usize::try_from(request.list_bytes).map_err(|_| too_long())?;
    if list_bytes > MAX_LIST {
        return Err(too_long());
    }
    let (list, first) = read_list(&mut rx, list_bytes).await?;
    paths.extend(parse_list(&list)?);
    let flush = guest.flush().of_trees();
    let mut unpacker = blocking::run(move || begin(&workspace, &paths, flush, &cancel)).await?;
    let mut next = Some(first);
    loop {
        if let Some(bytes) = next.take().filter(|bytes| !bytes.is_empty()) {
            unpacker = blocking::run(move || {
                unpacker.feed(&bytes)?;
                Ok(unpacker)
            })
            .await?;
        }
        match rx.recv().await? {
            Event::Data { bytes, .. } => next = Some(bytes),
            Event::Eof => break,
            Event::Message(_) => {}
            Event::End(_) | Event::Reset => return Err(Failed::cancelled()),
        }
    }
    let done = blocking::run(move || unpacker.finish()).await?;
    Ok(note(tx, Said::TreeDone(done)).await?)
}

/// Reads the list at the head of the data; also returns the first bytes of the archive.
async fn read_list(rx: &mut Receiver, length: usize) -> Result<(Vec<u8>, Bytes), Failed> {
    let mut list = Vec::new();
    while list.len() < length {
        match rx.recv().await? {
            Event::Data { mut bytes, .. } => {
                let mine = bytes.split_to(bytes.len().min(length - list.len()));
                list.extend_from_slice(&mine);
                if !bytes.is_empty() {
                    return Ok((list, bytes));
                }
            }
            Event::Eof => return Err(Failed::invalid("the data ends within the list of paths")),
            Event::Message(_) => {}
            Event::End(_) | Event::Reset => return Err(Failed::cancelled()),
        }
    }
    Ok((list, Bytes::new()))
}

fn begin(
    workspace: &Workspace,
    paths: &[Inside],
    flush: Flush,
    cancel: &Cancel,
) -> Result<Unpacker, Failed> {
    if paths.iter().any(Inside::is_top) {
        return Err(Failed::invalid("/workspace itself cannot be removed"));
    }
    for path in paths {
        remove(workspace, path, cancel)?;
    }
    let top = Inside::default();
    let dest = top
        .open(&workspace.top, OFlags::RDONLY | OFlags::DIRECTORY)
        .map_err(|errno| top.failed(errno))?;
    Ok(Unpacker::new(dest, Ownership::Archive, Limits::none())
        .exactly()
        .whole()
        .flushed(flush))
}
