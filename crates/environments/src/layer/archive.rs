//! Reading tar archives that may be hostile, as layers need them.
//!
//! The format is [`motu_archive`]'s. Here is what an environment takes of an entry: which ids,
//! times and attributes. It never judges paths; `entry` does.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use motu_archive::{Header, PIPE, Reader, Type};

use super::entry::EntryKind;
use crate::tree::{Meta, keeps_attribute};

/// Attributes kept for one file, all together; the kernel takes no more.
const MAX_ATTRIBUTES_BYTES: usize = 64 << 10;
/// Times beyond this are cut to it.
const MAX_TIME: u64 = 1 << 33;

/// One entry, as the archive has it.
#[derive(Debug)]
pub struct Entry {
    pub path: Vec<u8>,
    pub link: Vec<u8>,
    pub kind: EntryKind,
    pub meta: Meta,
    /// Size of the contents, holes included.
    pub size: u64,
    pub attributes: BTreeMap<String, Vec<u8>>,
    /// Nanoseconds after the second of the time of modification.
    pub mtime_nanos: u32,
}

/// An archive; reading from it gives the contents of the entry last returned.
#[derive(Debug)]
pub struct Archive<R> {
    input: Reader<R>,
}

impl<R: Read> Archive<R> {
    pub fn new(input: R) -> Self {
        let input = Reader::new(input);
        Self { input }
    }

    /// The next entry, or `None` at the end of the archive.
    pub fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        self.input.next_entry()?.map(entry).transpose()
    }

    /// Whether the current entry has holes, and so its contents are not stored as they are.
    pub fn is_sparse(&self) -> bool {
        self.input.is_sparse()
    }

    /// The input, which stands at the contents of the current entry.
    pub fn get_ref(&self) -> &R {
        self.input.get_ref()
    }

    /// Reads what follows the last entry, so that all of the stream was seen.
    pub fn drain(self) -> io::Result<()> {
        self.input.drain()
    }
}

impl<R: Read> Read for Archive<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer)
    }
}

fn entry(header: Header) -> io::Result<Entry> {
    // A time before 1970 is not worth a failure.
    let (mtime, nanos) = match u64::try_from(header.mtime) {
        Ok(time) => (time.min(MAX_TIME), header.nanos),
        Err(_) => (0, 0),
    };
    Ok(Entry {
        kind: kind(header.kind),
        meta: Meta {
            mode: header.mode,
            uid: id(header.uid)?,
            gid: id(header.gid)?,
            mtime,
        },
        size: header.size,
        attributes: kept(header.attributes)?,
        mtime_nanos: nanos,
        path: header.path,
        link: header.link,
    })
}

fn kind(kind: Type) -> EntryKind {
    match kind {
        Type::File => EntryKind::File,
        Type::HardLink => EntryKind::HardLink,
        Type::Symlink => EntryKind::Symlink,
        Type::Directory => EntryKind::Directory,
        Type::Other(b'3' | b'4') => EntryKind::Device,
        Type::Other(PIPE) => EntryKind::Pipe,
        _ => EntryKind::Other,
    }
}

fn id(id: u32) -> io::Result<u64> {
    match id {
        // The last number means "leave it" to the kernel.
        u32::MAX => Err(invalid("owner is not a valid id")),
        id => Ok(u64::from(id)),
    }
}

/// The attributes that go into environments.
fn kept(all: motu_archive::Attributes) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut kept = BTreeMap::new();
    let mut bytes = 0;
    for (name, value) in all {
        // A name that is not text is none that matters here.
        let Ok(name) = String::from_utf8(name) else {
            continue;
        };
        if keeps_attribute(&name) {
            bytes += name.len() + value.len();
            if bytes > MAX_ATTRIBUTES_BYTES {
                return Err(invalid("attributes of a file are too large"));
            }
            kept.insert(name, value);
        }
    }
    Ok(kept)
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
