//! Reading tar archives that may be hostile.
//!
//! Owns the format: headers, GNU and PAX extensions, sparse files. Everything an
//! archive can make us keep in memory is bounded, which the general library for
//! tar does not promise. It never judges paths; `entry` does.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use super::{
    entry::EntryKind,
    header::{BLOCK, invalid, number, until_zero},
    sparse::{Regions, SparseRecords},
};
use crate::tree::{Meta, keeps_attribute};

/// Largest record block of one entry. Real ones hold a path and a few attributes.
const MAX_RECORDS_BYTES: u64 = 1 << 20;
/// Longest name in an extension of its own: a path, or too long to be one.
const MAX_LONG_NAME_BYTES: u64 = 8 << 10;
/// Attributes kept for one file, all together; the kernel takes no more.
const MAX_ATTRIBUTES_BYTES: usize = 64 << 10;
const ATTRIBUTE_PREFIX: &str = "SCHILY.xattr.";
const SPARSE_PREFIX: &str = "GNU.sparse.";

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
    input: R,
    /// Stored bytes of the current entry that were not read yet.
    stored: u64,
    padding: u64,
    regions: Option<Regions>,
}

/// What extension headers say about the entry after them.
#[derive(Debug, Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<u64>,
    mtime_nanos: u32,
    attributes: BTreeMap<String, Vec<u8>>,
    sparse: SparseRecords,
}

impl<R: Read> Archive<R> {
    pub fn new(input: R) -> Self {
        Self {
            input,
            stored: 0,
            padding: 0,
            regions: None,
        }
    }

    /// The next entry, or `None` at the end of the archive.
    pub fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        let mut extensions = Extensions::default();
        loop {
            self.skip(self.stored + self.padding)?;
            (self.stored, self.padding, self.regions) = (0, 0, None);
            let Some(block) = self.header()? else {
                return Ok(None);
            };
            let size = number(&block[124..136])?;
            match block[156] {
                b'x' => extensions.records(&self.extension(size, MAX_RECORDS_BYTES)?)?,
                b'L' => {
                    let name = self.extension(size, MAX_LONG_NAME_BYTES)?;
                    extensions.path = Some(until_zero(&name).to_vec());
                }
                b'K' => {
                    let name = self.extension(size, MAX_LONG_NAME_BYTES)?;
                    extensions.link = Some(until_zero(&name).to_vec());
                }
                // Records for all entries are comments in practice, and volume
                // labels are nothing else.
                b'g' | b'V' => self.begin(size),
                _ => return self.entry(&block, extensions).map(Some),
            }
        }
    }

    /// Whether the current entry has holes, and so its contents are not stored as they are.
    pub fn is_sparse(&self) -> bool {
        self.regions.is_some()
    }

    /// The input, which stands at the contents of the current entry.
    pub fn get_ref(&self) -> &R {
        &self.input
    }

    /// Reads what follows the last entry, so that all of the stream was seen.
    pub fn drain(mut self) -> io::Result<()> {
        io::copy(&mut self.input, &mut io::sink()).map(drop)
    }

    fn entry(&mut self, block: &[u8; BLOCK], extensions: Extensions) -> io::Result<Entry> {
        let mut path = extensions.path.unwrap_or_else(|| path_of(block));
        let kind = kind_of(block[156], &path)?;
        let mut size = 0;
        // Other kinds have no contents, whatever their header says.
        if matches!(kind, EntryKind::File | EntryKind::Other) {
            let stored = match extensions.size {
                Some(size) => size,
                None => number(&block[124..136])?,
            };
            self.begin(stored);
            self.regions = if block[156] == b'S' {
                Some(Regions::from_header(block, &mut self.input, stored)?)
            } else {
                Regions::from_records(&extensions.sparse, &mut self.input, &mut self.stored)?
            };
            size = self.regions.as_ref().map_or(stored, |regions| regions.size);
        }
        if let Some(name) = extensions.sparse.fields.get("name") {
            path = name.clone().into_bytes();
        }
        let field = |extension: Option<u64>, range: std::ops::Range<usize>| match extension {
            Some(value) => Ok(value),
            None => number(&block[range]),
        };
        let meta = Meta {
            mode: u32::try_from(number(&block[100..108])? & 0o7777).unwrap_or(0),
            uid: id(field(extensions.uid, 108..116)?)?,
            gid: id(field(extensions.gid, 116..124)?)?,
            // A time before 1970 or beyond the header is not worth a failure.
            mtime: field(extensions.mtime, 136..148).unwrap_or(0).min(1 << 33),
        };
        Ok(Entry {
            link: extensions
                .link
                .unwrap_or_else(|| until_zero(&block[157..257]).to_vec()),
            path,
            kind,
            meta,
            size,
            attributes: extensions.attributes,
            mtime_nanos: extensions.mtime_nanos,
        })
    }

    /// The next header; `None` at the end, which some writers leave unmarked.
    fn header(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        if !self.block(&mut block)? {
            return Ok(None);
        }
        if block.iter().all(|byte| *byte == 0) {
            if self.block(&mut block)? && block.iter().any(|byte| *byte != 0) {
                return Err(invalid("archive continues after its end"));
            }
            return Ok(None);
        }
        let sum: u64 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| match at {
                148..156 => u64::from(b' '),
                _ => u64::from(*byte),
            })
            .sum();
        if number(&block[148..156])? != sum {
            return Err(invalid("header has a wrong checksum"));
        }
        Ok(Some(block))
    }

    /// Fills a block; false when the input ends before it.
    fn block(&mut self, block: &mut [u8; BLOCK]) -> io::Result<bool> {
        let mut filled = 0;
        while filled < BLOCK {
            match self.input.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn begin(&mut self, stored: u64) {
        self.stored = stored;
        self.padding = stored.wrapping_neg() % BLOCK as u64;
    }

    fn extension(&mut self, size: u64, limit: u64) -> io::Result<Vec<u8>> {
        if size > limit {
            return Err(invalid("extension header is too large"));
        }
        self.begin(size);
        let mut bytes = Vec::new();
        self.input.by_ref().take(size).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.stored = 0;
        Ok(bytes)
    }

    fn skip(&mut self, count: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.input.by_ref().take(count), &mut io::sink())?;
        if skipped < count {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

impl<R: Read> Read for Archive<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut stored = self.input.by_ref().take(self.stored);
        let count = match &mut self.regions {
            Some(regions) => regions.read(&mut stored, buffer)?,
            None => stored.read(buffer)?,
        };
        self.stored = stored.limit();
        Ok(count)
    }
}

impl Extensions {
    /// Takes over PAX records: `"<length> <key>=<value>\n"`, one after the other.
    fn records(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let broken = || invalid("PAX record is broken");
        let mut kept = 0;
        while !until_zero(bytes).is_empty() {
            let space = bytes.iter().position(|b| *b == b' ').ok_or_else(broken)?;
            let length = std::str::from_utf8(&bytes[..space])
                .ok()
                .and_then(|text| text.parse::<usize>().ok())
                .filter(|length| *length > space + 1 && *length <= bytes.len())
                .ok_or_else(broken)?;
            let (record, rest) = bytes.split_at(length);
            bytes = rest;
            let record = record[space + 1..].strip_suffix(b"\n").ok_or_else(broken)?;
            let equals = record.iter().position(|b| *b == b'=').ok_or_else(broken)?;
            // A key that is not text is none that matters here.
            if let Ok(key) = std::str::from_utf8(&record[..equals]) {
                self.record(key, &record[equals + 1..], &mut kept)?;
            }
        }
        Ok(())
    }

    fn record(&mut self, key: &str, value: &[u8], kept: &mut usize) -> io::Result<()> {
        let whole = || {
            let text = std::str::from_utf8(value).unwrap_or_default();
            let whole = text.split('.').next().unwrap_or_default();
            whole.parse::<u64>()
        };
        let number = || whole().map_err(|_| invalid("number in a PAX record is not a number"));
        match key {
            "path" => self.path = Some(value.to_vec()),
            "linkpath" => self.link = Some(value.to_vec()),
            "size" => self.size = Some(number()?),
            "uid" => self.uid = Some(number()?),
            "gid" => self.gid = Some(number()?),
            "mtime" => {
                self.mtime = whole().ok().or(Some(0));
                // A time before 1970 has none either.
                self.mtime_nanos = whole().map_or(0, |_| nanoseconds(value));
            }
            key => {
                if let Some(key) = key.strip_prefix(SPARSE_PREFIX) {
                    self.sparse.push(key, value)?;
                } else if let Some(name) = key.strip_prefix(ATTRIBUTE_PREFIX).map(unescaped)
                    && keeps_attribute(&name)
                {
                    *kept += name.len() + value.len();
                    if *kept > MAX_ATTRIBUTES_BYTES {
                        return Err(invalid("attributes of a file are too large"));
                    }
                    self.attributes.insert(name, value.to_vec());
                }
            }
        }
        Ok(())
    }
}

/// The part of a decimal time after its point.
fn nanoseconds(text: &[u8]) -> u32 {
    let part = text.splitn(2, |byte| *byte == b'.').nth(1).unwrap_or(b"");
    let digits = part.iter().chain(b"000000000").take(9);
    digits.fold(0, |all, digit| match digit {
        b'0'..=b'9' => all * 10 + u32::from(digit - b'0'),
        _ => all * 10,
    })
}

/// The name of an attribute: the two characters that a record cannot hold are escaped.
fn unescaped(key: &str) -> String {
    key.replace("%3D", "=").replace("%25", "%")
}

fn kind_of(flag: u8, path: &[u8]) -> io::Result<EntryKind> {
    Ok(match flag {
        // Before there was a flag, a slash at the end said the same.
        0 | b'0' if path.ends_with(b"/") => EntryKind::Directory,
        0 | b'0' | b'7' | b'S' => EntryKind::File,
        b'1' => EntryKind::HardLink,
        b'2' => EntryKind::Symlink,
        b'3' | b'4' => EntryKind::Device,
        b'5' => EntryKind::Directory,
        b'6' => EntryKind::Pipe,
        b'M' => return Err(invalid("archive continues another one")),
        _ => EntryKind::Other,
    })
}

fn path_of(block: &[u8; BLOCK]) -> Vec<u8> {
    let name = until_zero(&block[..100]);
    let prefix = until_zero(&block[345..500]);
    // GNU headers have other things where the prefix would be.
    if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
        return [prefix, b"/", name].concat();
    }
    name.to_vec()
}

fn id(value: u64) -> io::Result<u64> {
    // The last number means "leave it" to the kernel.
    if value >= u64::from(u32::MAX) {
        return Err(invalid("owner is not a valid id"));
    }
    Ok(value)
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
