//! Files with holes: the list of their written parts, in each of the ways archives have it.
//!
//! GNU's format 1.0, the one that is written, begins the body with the list: decimal numbers,
//! one a line, filled up to a whole block. Older ones have it in records or in header blocks.

use crate::field::{decimal, number};
use crate::{BLOCK, TarError, padding};

/// The most parts of one file that are written. What a file has beyond them becomes one last
/// part, holes included.
pub const MAX_PARTS: usize = 4096;
/// The most parts of one file that are read.
pub const MAX_READ_PARTS: usize = 100_000;
/// Digits of the largest number in a list.
const MAX_DIGITS: usize = 20;

/// A written part: where and how long.
pub type Part = (u64, u64);

/// The map of a file's parts, as the body of its entry begins.
pub fn write_map(parts: &[Part]) -> Vec<u8> {
    let mut map = format!("{}\n", parts.len());
    for (start, length) in parts {
        map.push_str(&format!("{start}\n{length}\n"));
    }
    let mut map = map.into_bytes();
    map.resize(map.len() + padding(map.len() as u64), 0);
    map
}

/// A map that arrives block by block.
#[derive(Debug)]
pub struct MapReader {
    most: usize,
    /// How many parts there are, once that was read.
    count: Option<usize>,
    digits: Vec<u8>,
    start: Option<u64>,
    parts: Vec<Part>,
}

impl MapReader {
    /// Reads a map of at most so many parts.
    pub fn new(most: usize) -> MapReader {
        MapReader {
            most,
            count: None,
            digits: Vec::new(),
            start: None,
            parts: Vec::new(),
        }
    }

    /// Takes the next block; the parts when it was the last.
    pub fn block(&mut self, block: &[u8]) -> Result<Option<Vec<Part>>, TarError> {
        for byte in block {
            match byte {
                b'0'..=b'9' if self.digits.len() < MAX_DIGITS => self.digits.push(*byte),
                b'\n' => {
                    let value = decimal(&self.digits)?;
                    self.digits.clear();
                    self.number(value)?;
                    if self.count == Some(self.parts.len()) {
                        return Ok(Some(std::mem::take(&mut self.parts)));
                    }
                }
                _ => return Err(TarError::Map),
            }
        }
        Ok(None)
    }

    fn number(&mut self, value: u64) -> Result<(), TarError> {
        match (self.count, self.start.take()) {
            (None, _) => {
                let count = usize::try_from(value).ok().filter(|n| *n <= self.most);
                self.count = Some(count.ok_or(TarError::ManyParts)?);
            }
            (Some(_), None) => self.start = Some(value),
            (Some(_), Some(start)) => self.parts.push((start, value)),
        }
        Ok(())
    }
}

/// Checks that parts are in order and within a file of this size; how many bytes they have.
pub fn check(parts: &[Part], size: u64) -> Result<u64, TarError> {
    let mut end = 0u64;
    let mut data = 0;
    for (start, length) in parts {
        if *start < end {
            return Err(TarError::Overlap);
        }
        end = start.checked_add(*length).ok_or(TarError::LargePart)?;
        data += length;
    }
    match end <= size {
        true => Ok(data),
        false => Err(TarError::Unfit),
    }
}

/// Appends the parts that a header block of the oldest format lists.
pub(crate) fn push_old(parts: &mut Vec<Part>, list: &[u8]) -> Result<(), TarError> {
    for pair in list.chunks_exact(24) {
        if pair[0] == 0 {
            break;
        }
        if parts.len() >= MAX_READ_PARTS {
            return Err(TarError::ManyParts);
        }
        parts.push((number(&pair[..12])?, number(&pair[12..])?));
    }
    Ok(())
}

/// Appends what a block after such a header lists; whether another one follows.
pub(crate) fn push_continued(parts: &mut Vec<Part>, block: &[u8; BLOCK]) -> Result<bool, TarError> {
    push_old(parts, &block[..504])?;
    Ok(block[504] != 0)
}

/// `GNU.sparse.*` records of one entry, without that prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SparseRecords {
    major: Option<u64>,
    name: Option<Vec<u8>>,
    real_size: Option<u64>,
    size: Option<u64>,
    /// Starts and lengths in turn, from one record or many.
    numbers: Option<Vec<u64>>,
}

/// What the records of a file with holes amount to.
pub(crate) struct Sparse {
    pub name: Option<Vec<u8>>,
    /// Its size with the holes.
    pub size: Option<u64>,
    /// Whether the list begins the body (format 1.0).
    pub mapped: bool,
    /// The list, where it does not.
    pub parts: Result<Vec<Part>, TarError>,
}

impl SparseRecords {
    pub fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), TarError> {
        match key {
            b"major" => self.major = Some(decimal(value)?),
            b"name" => self.name = Some(value.to_vec()),
            b"realsize" => self.real_size = Some(decimal(value)?),
            b"size" => self.size = Some(decimal(value)?),
            b"offset" | b"numbytes" => self.push(decimal(value)?)?,
            b"numblocks" => drop(self.numbers.get_or_insert_default()),
            b"map" => {
                for number in value.split(|byte| *byte == b',') {
                    self.push(decimal(number)?)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn push(&mut self, number: u64) -> Result<(), TarError> {
        let numbers = self.numbers.get_or_insert_default();
        if numbers.len() >= 2 * MAX_READ_PARTS {
            return Err(TarError::ManyParts);
        }
        numbers.push(number);
        Ok(())
    }

    /// What they amount to; `None` when they describe no file with holes.
    pub fn finish(self) -> Option<Sparse> {
        let mapped = self.major == Some(1);
        if !mapped && self.numbers.is_none() {
            return None;
        }
        let numbers = self.numbers.unwrap_or_default();
        let parts = match numbers.as_chunks::<2>() {
            (pairs, []) => Ok(pairs
                .iter()
                .map(|[start, length]| (*start, *length))
                .collect()),
            _ => Err(TarError::HalfPart),
        };
        Some(Sparse {
            name: self.name,
            size: self.real_size.or(self.size),
            mapped,
            parts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(map: &[u8], most: usize) -> Result<Option<Vec<Part>>, TarError> {
        let mut reader = MapReader::new(most);
        for block in map.chunks(BLOCK) {
            if let Some(parts) = reader.block(block)? {
                return Ok(Some(parts));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_map_has_as_many_parts_as_it_says_and_may() {
        assert_eq!(read(b"0\n", 1), Ok(Some(Vec::new())));
        assert_eq!(read(b"1\n5\n7\n", 1), Ok(Some(vec![(5, 7)])));
        assert_eq!(read(b"1\n5\n7", 1), Ok(None));
        assert_eq!(read(b"2\n5\n7\n", 1), Err(TarError::ManyParts));
        assert_eq!(read(b"\n", 1), Err(TarError::RecordNumber));
        assert_eq!(read(b"1\n5\nx\n", 1), Err(TarError::Map));
        assert_eq!(read(&[b'1'; 40], 1), Err(TarError::Map));
    }

    #[test]
    fn parts_lie_one_after_the_other_within_the_file() {
        assert_eq!(check(&[(0, 10), (10, 5)], 15), Ok(15));
        assert_eq!(check(&[(0, 10), (9, 5)], 15), Err(TarError::Overlap));
        assert_eq!(check(&[(0, 16)], 15), Err(TarError::Unfit));
        assert_eq!(check(&[(u64::MAX, 2)], 15), Err(TarError::LargePart));
    }

    proptest! {
        #[test]
        fn maps_survive(gaps in prop::collection::vec((0u64..1000, 0u64..1000), 0..200)) {
            let mut at = 0;
            let parts: Vec<Part> = gaps.iter().map(|(gap, length)| {
                let start = at + gap;
                at = start + length;
                (start, *length)
            }).collect();
            let map = write_map(&parts);
            prop_assert_eq!(map.len() % BLOCK, 0);
            prop_assert_eq!(read(&map, 200).unwrap().unwrap(), parts.clone());
            prop_assert_eq!(check(&parts, at).unwrap(), gaps.iter().map(|(_, length)| length).sum::<u64>());
        }

        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..2000), digits in "[0-9\n]{0,300}", size: u64) {
            for bytes in [&noise[..], digits.as_bytes()] {
                if let Ok(Some(parts)) = read(bytes, MAX_PARTS) {
                    let _ = check(&parts, size);
                }
            }
        }
    }
}
