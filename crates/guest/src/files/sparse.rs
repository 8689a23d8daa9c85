//! Sparse files in archives, in GNU's format 1.0: the body is a map of the
//! written parts (decimal numbers, one a line, filled up to a whole block), then
//! these parts.

use super::tar::{BLOCK, padding};
use crate::answer::{Failed, Quoted};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

/// The most parts of one file. What a file has beyond them becomes one last part, holes included.
pub const MAX_PARTS: usize = 4096;
/// The longest map: every part is two numbers of at most twenty digits.
const MAX_MAP: usize = (2 * MAX_PARTS + 1) * 21 + BLOCK;

/// A written part: where and how long.
pub type Part = (u64, u64);

/// The written parts of a file of this size; `None` when it has no holes.
pub fn parts(file: impl AsFd, size: u64) -> Result<Option<Vec<Part>>, Errno> {
    let file = file.as_fd();
    let mut found = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.min(size),
            Err(Errno::NXIO) => break,
            // A file system that knows of no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        if start >= size {
            break;
        }
        if found.len() + 1 == MAX_PARTS {
            found.push((start, size - start));
            break;
        }
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
        if end <= start {
            // Changed under our hands: take the rest as it is.
            found.push((start, size - start));
            break;
        }
        found.push((start, end - start));
        at = end;
    }
    let whole = matches!(found[..], [(0, length)] if length == size);
    Ok((!whole && size > 0).then_some(found))
}

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

/// Reads a map that has arrived as a whole; `None` while it has not.
fn read_map(map: &[u8], size: u64) -> Result<Option<VecDeque<Part>>, &'static str> {
    let mut numbers = Vec::new();
    let mut lines = map.split_inclusive(|byte| *byte == b'\n');
    let mut wanted = 1;
    while numbers.len() < wanted {
        let Some(line) = lines.next().and_then(|line| line.strip_suffix(b"\n")) else {
            return Ok(None);
        };
        let number = std::str::from_utf8(line).ok().filter(|text| {
            !text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit())
        });
        let number: u64 = number
            .and_then(|text| text.parse().ok())
            .ok_or("has a malformed map")?;
        if numbers.is_empty() {
            if number > MAX_PARTS as u64 {
                return Err("has too many parts");
            }
            wanted = 1 + 2 * number as usize;
        }
        numbers.push(number);
    }
    let mut parts = VecDeque::with_capacity(wanted / 2);
    let mut end = 0;
    for pair in numbers.get(1..).unwrap_or_default().chunks_exact(2) {
        let (start, length) = (pair[0], pair[1]);
        let next = start.checked_add(length).filter(|next| *next <= size);
        if start < end {
            return Err("has parts in disorder");
        }
        end = next.ok_or("has parts beyond its end")?;
        parts.push_back((start, length));
    }
    Ok(Some(parts))
}

/// Reads a map for its own sake.
pub fn read(map: &[u8]) {
    if let Ok(Some(parts)) = read_map(map, u64::MAX) {
        let again = write_map(parts.iter().copied().collect::<Vec<_>>().as_slice());
        assert_eq!(read_map(&again, u64::MAX), Ok(Some(parts)));
    }
}

/// A sparse file being written from an archive.
#[derive(Debug)]
pub struct SparseSink {
    fd: OwnedFd,
    size: u64,
    map: Vec<u8>,
    /// `None` until the map is there.
    parts: Option<VecDeque<Part>>,
}

impl SparseSink {
    pub fn new(fd: OwnedFd, size: u64) -> SparseSink {
        SparseSink {
            fd,
            size,
            map: Vec::new(),
            parts: None,
        }
    }

    pub fn take(&mut self, mut bytes: &[u8], path: &[u8]) -> Result<(), Failed> {
        let refused = |why: &str| Failed::invalid(format!("entry {} {why}", Quoted(path)));
        let failed = |errno| Failed::errno(format!("entry {}", Quoted(path)), errno);
        while !bytes.is_empty() {
            let Some(parts) = &mut self.parts else {
                let room = BLOCK - self.map.len() % BLOCK;
                let (now, rest) = bytes.split_at(bytes.len().min(room));
                self.map.extend_from_slice(now);
                bytes = rest;
                if self.map.len() > MAX_MAP {
                    return Err(refused("has too long a map"));
                }
                if self.map.len().is_multiple_of(BLOCK) {
                    self.parts = read_map(&self.map, self.size).map_err(refused)?;
                }
                continue;
            };
            let Some((start, length)) = parts.front_mut() else {
                return Err(refused("is longer than its map"));
            };
            let most = usize::try_from(*length).unwrap_or(usize::MAX);
            let now = bytes.get(..bytes.len().min(most)).unwrap_or_default();
            if now.is_empty() {
                parts.pop_front();
                continue;
            }
            match rustix::io::pwrite(&self.fd, now, *start) {
                Ok(written) => {
                    *start += written as u64;
                    *length -= written as u64;
                    bytes = bytes.get(written..).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }

    /// The file with its whole size, when everything has come.
    pub fn finish(self, path: &[u8]) -> Result<OwnedFd, Failed> {
        let complete = self
            .parts
            .is_some_and(|parts| parts.iter().all(|(_, length)| *length == 0));
        if !complete {
            return Err(Failed::invalid(format!(
                "entry {} is shorter than its map",
                Quoted(path)
            )));
        }
        rustix::fs::ftruncate(&self.fd, self.size)
            .map_err(|errno| Failed::errno(format!("entry {}", Quoted(path)), errno))?;
        Ok(self.fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
            prop_assert_eq!(read_map(&map, at).unwrap().unwrap(), parts);
        }

        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..2000), size: u64, digits in "[0-9\n]{0,300}") {
            for bytes in [&noise[..], digits.as_bytes()] {
                let _ = read_map(bytes, size);
                let file = tempfile::tempfile().unwrap();
                let mut sink = SparseSink::new(file.into(), 4096);
                let _ = sink.take(bytes, b"x").and_then(|()| sink.finish(b"x").map(drop));
            }
        }
    }
}
