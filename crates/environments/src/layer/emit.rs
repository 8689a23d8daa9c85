//! The second reading of the layers.
//!
//! Owns passing on the merged tree: directories and links first, from memory,
//! then the contents of files that are left, in the order the layers have them.
//! Unpacking a layer happens on a thread of its own, one layer ahead.

use std::{
    io::{self, Read, Write},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use super::{
    archive::Archive,
    decompress,
    entry::EntryKind,
    index::{Section, read_error},
    merge::{Merged, What},
};
use crate::{error::EnvironmentError, process::Cancel, tree::TreeWriter};

/// Unpacked bytes handed over at once, and how many such pieces may wait.
const PIECE_BYTES: usize = 64 << 10;
const PIECES: usize = 32;

/// Writes the merged tree. `on_file` is told the size of each file written.
pub(crate) fn emit<W: Write>(
    merged: &Merged,
    layers: &[Section],
    tree: &mut TreeWriter<W>,
    cancel: &Cancel,
    mut on_file: impl FnMut(u64),
) -> Result<(), EnvironmentError> {
    for (path, spot) in merged.spots() {
        // What is on the disk already stays as it is.
        if tree.has(path) {
            continue;
        }
        match &spot.what {
            What::Directory => tree.directory(path, spot.meta)?,
            What::Symlink(target) => tree.symlink(path, spot.meta, target)?,
            What::Own(text) => {
                let contents = (text.len() as u64, text.as_bytes());
                tree.file_with(path, spot.meta, Default::default(), contents)?;
            }
            What::File(_) | What::Base => {}
        }
    }
    let winners = merged.winners();
    let mut needed: Vec<u32> = winners.keys().map(|(layer, _)| *layer).collect();
    needed.sort_unstable();
    needed.dedup();
    let mut readers = needed
        .iter()
        .map(|layer| (*layer, read_ahead(&layers[*layer as usize], cancel)))
        .peekable();
    while let Some((layer, reader)) = readers.next() {
        // Looking at the next one starts its thread.
        let _ = readers.peek();
        let name = format!("layer {}", layer + 1);
        let size = layers[layer as usize].length;
        let failed = |error| read_error(&name, size, error);
        let mut archive = Archive::new(reader);
        let mut left = winners.keys().filter(|(other, _)| *other == layer).count();
        let mut place = 0;
        while left > 0 {
            let Some(entry) = archive.next_entry().map_err(failed)? else {
                return Err(changed(&name));
            };
            if let Some(paths) = winners.get(&(layer, place)) {
                let [first, others @ ..] = paths.as_slice() else {
                    return Err(changed(&name));
                };
                let contents = merged
                    .number_of(first)
                    .map(|number| merged.contents(number))
                    .filter(|contents| contents.size == entry.size)
                    .filter(|_| entry.kind == EntryKind::File)
                    .ok_or_else(|| changed(&name))?;
                let attributes = contents.attributes.clone();
                tree.file_with(first, contents.meta, attributes, (entry.size, &mut archive))?;
                for other in others {
                    tree.hard_link(other, first)?;
                }
                on_file(entry.size);
                left -= 1;
            }
            place += 1;
        }
    }
    Ok(())
}

/// The file under a layer is not what it was a moment ago.
fn changed(name: &str) -> EnvironmentError {
    EnvironmentError::Malformed {
        what: name.to_owned(),
        reason: "it changed while it was read".to_owned(),
    }
}

/// Unpacks a layer on another thread.
fn read_ahead(layer: &Section, cancel: &Cancel) -> Pieces {
    let (sender, receiver) = sync_channel(PIECES);
    let (layer, cancel) = (layer.clone(), cancel.clone());
    thread::spawn(move || {
        if let Err(error) = send_pieces(layer, &cancel, &sender) {
            // Nobody listens when the import has failed already.
            let _ = sender.send(Err(error));
        }
    });
    Pieces {
        receiver,
        current: Vec::new(),
        at: 0,
    }
}

type Piece = io::Result<Vec<u8>>;

fn send_pieces(layer: Section, cancel: &Cancel, sender: &SyncSender<Piece>) -> io::Result<()> {
    let compressed = layer.length;
    let mut unpacked = decompress::open(layer, compressed, cancel)?;
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let filled = fill(&mut unpacked, &mut piece)?;
        piece.truncate(filled);
        if piece.is_empty() || sender.send(Ok(piece)).is_err() {
            return Ok(());
        }
    }
}

/// Reads until the buffer is full or the source ends.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

struct Pieces {
    receiver: Receiver<Piece>,
    current: Vec<u8>,
    at: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.current.len() {
            match self.receiver.recv() {
                Ok(piece) => (self.current, self.at) = (piece?, 0),
                Err(_) => return Ok(0),
            }
        }
        let count = (self.current.len() - self.at).min(buffer.len());
        buffer[..count].copy_from_slice(&self.current[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
