//! Files with holes, as archives describe them.
//!
//! Owns the three ways a list of data regions is written (in header blocks, in
//! PAX records, at the start of the contents) and reading such a file with its
//! holes as zeros.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use super::header::{BLOCK, invalid, number};

/// Most data regions of one file.
const MAX_REGIONS: usize = 100_000;
/// Digits of the largest number in a list.
const MAX_DIGITS: usize = 20;

/// Where the data of a file is; everything else is zero.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Regions {
    list: Vec<(u64, u64)>,
    /// Size of the file with its holes.
    pub size: u64,
    position: u64,
    current: usize,
}

impl Regions {
    /// Checks a list against what is stored for it.
    pub fn new(list: Vec<(u64, u64)>, size: u64, stored: u64) -> io::Result<Self> {
        let mut end = 0_u64;
        let mut data = 0_u64;
        for (offset, length) in &list {
            if *offset < end {
                return Err(invalid("regions of a sparse file overlap"));
            }
            end = offset
                .checked_add(*length)
                .ok_or_else(|| invalid("region of a sparse file is too large"))?;
            data += length;
        }
        if end > size || data != stored {
            return Err(invalid("regions of a sparse file do not fit it"));
        }
        Ok(Self {
            list,
            size,
            position: 0,
            current: 0,
        })
    }

    /// From an old GNU header and the blocks that continue it.
    pub fn from_header(
        block: &[u8; BLOCK],
        input: &mut impl Read,
        stored: u64,
    ) -> io::Result<Self> {
        let size = number(&block[483..495])?;
        let mut list = Vec::new();
        push_regions(&mut list, &block[386..482])?;
        let mut more = block[482] != 0;
        while more {
            let mut next = [0; BLOCK];
            input.read_exact(&mut next)?;
            push_regions(&mut list, &next[..504])?;
            more = next[504] != 0;
        }
        Self::new(list, size, stored)
    }

    /// From PAX records, of which the newest form puts the list before the
    /// data. `None` when the records describe no sparse file.
    pub fn from_records(
        records: &SparseRecords,
        input: &mut impl Read,
        stored: &mut u64,
    ) -> io::Result<Option<Self>> {
        let list = if records.fields.get("major").map(String::as_str) == Some("1") {
            read_list(input, stored)?
        } else if let Some(map) = records.fields.get("map") {
            pairs(map.split(','))?
        } else if !records.regions.is_empty() {
            pairs(records.regions.iter().map(String::as_str))?
        } else {
            return Ok(None);
        };
        let size = ["realsize", "size"]
            .iter()
            .find_map(|key| records.fields.get(*key))
            .ok_or_else(|| invalid("sparse file has no size"))?;
        Self::new(list, decimal(size)?, *stored).map(Some)
    }

    /// Reads the file with its holes; data comes from `input`.
    pub fn read(&mut self, input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some((offset, length)) = self.list.get(self.current)
            && self.position == offset + length
        {
            self.current += 1;
        }
        let (until, is_data) = match self.list.get(self.current) {
            Some((offset, length)) if self.position >= *offset => (offset + length, true),
            Some((offset, _)) => (*offset, false),
            None => (self.size, false),
        };
        let wanted = usize::try_from(until - self.position).unwrap_or(usize::MAX);
        let wanted = wanted.min(buffer.len());
        let count = if is_data {
            input.read(&mut buffer[..wanted])?
        } else {
            buffer[..wanted].fill(0);
            wanted
        };
        if count == 0 && wanted > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.position += count as u64;
        Ok(count)
    }
}

/// `GNU.sparse.*` records of one entry, without that prefix.
#[derive(Debug, Default)]
pub(super) struct SparseRecords {
    pub fields: BTreeMap<String, String>,
    /// Offsets and lengths in turn, from the oldest form.
    pub regions: Vec<String>,
}

impl SparseRecords {
    pub fn push(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        let value = String::from_utf8_lossy(value).into_owned();
        if matches!(key, "offset" | "numbytes") {
            if self.regions.len() >= MAX_REGIONS * 2 {
                return Err(invalid("sparse file has too many regions"));
            }
            self.regions.push(value);
        } else {
            self.fields.insert(key.to_owned(), value);
        }
        Ok(())
    }
}

fn push_regions(list: &mut Vec<(u64, u64)>, bytes: &[u8]) -> io::Result<()> {
    for pair in bytes.chunks_exact(24) {
        if pair[0] == 0 {
            break;
        }
        if list.len() >= MAX_REGIONS {
            return Err(invalid("sparse file has too many regions"));
        }
        list.push((number(&pair[..12])?, number(&pair[12..])?));
    }
    Ok(())
}

fn pairs<'a>(mut numbers: impl Iterator<Item = &'a str>) -> io::Result<Vec<(u64, u64)>> {
    let mut list = Vec::new();
    while let Some(offset) = numbers.next() {
        let length = numbers
            .next()
            .ok_or_else(|| invalid("sparse file has half a region"))?;
        if list.len() >= MAX_REGIONS {
            return Err(invalid("sparse file has too many regions"));
        }
        list.push((decimal(offset)?, decimal(length)?));
    }
    Ok(list)
}

/// The list in front of the data: a count, then offsets and lengths, one number
/// per line, filled up to a whole block.
fn read_list(input: &mut impl Read, stored: &mut u64) -> io::Result<Vec<(u64, u64)>> {
    let mut lines = Lines {
        input,
        block: [0; BLOCK],
        at: BLOCK,
        read: 0,
        stored: *stored,
    };
    let count = usize::try_from(lines.number()?).unwrap_or(usize::MAX);
    if count > MAX_REGIONS {
        return Err(invalid("sparse file has too many regions"));
    }
    let mut list = Vec::with_capacity(count);
    for _ in 0..count {
        list.push((lines.number()?, lines.number()?));
    }
    *stored -= lines.read;
    Ok(list)
}

struct Lines<'a, R> {
    input: &'a mut R,
    block: [u8; BLOCK],
    at: usize,
    read: u64,
    stored: u64,
}

impl<R: Read> Lines<'_, R> {
    fn number(&mut self) -> io::Result<u64> {
        let mut text = String::new();
        loop {
            if self.at == BLOCK {
                self.read += BLOCK as u64;
                if self.read > self.stored {
                    return Err(invalid("list of a sparse file does not end"));
                }
                self.input.read_exact(&mut self.block)?;
                self.at = 0;
            }
            let byte = self.block[self.at];
            self.at += 1;
            match byte {
                b'\n' => return decimal(&text),
                b'0'..=b'9' if text.len() < MAX_DIGITS => text.push(char::from(byte)),
                _ => return Err(invalid("list of a sparse file is not made of numbers")),
            }
        }
    }
}

fn decimal(text: &str) -> io::Result<u64> {
    text.parse()
        .map_err(|_| invalid("number in a PAX record is not a number"))
}
