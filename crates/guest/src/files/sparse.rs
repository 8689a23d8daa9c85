//! A file with holes that comes out of an archive: its map first, then its written parts.

use crate::answer::{Failed, Quoted};
use motu_archive::sparse::{MAX_PARTS, MapReader, check};
use motu_archive::{BLOCK, Part};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// A sparse file being written from an archive.
#[derive(Debug)]
pub struct SparseSink {
    fd: OwnedFd,
    size: u64,
    map: MapReader,
    /// The block of the map that is not complete yet.
    block: Vec<u8>,
    /// `None` until the map is there.
    parts: Option<VecDeque<Part>>,
}

impl SparseSink {
    pub fn new(fd: OwnedFd, size: u64) -> SparseSink {
        SparseSink {
            fd,
            size,
            map: MapReader::new(MAX_PARTS),
            block: Vec::new(),
            parts: None,
        }
    }

    pub fn take(&mut self, mut bytes: &[u8], path: &[u8]) -> Result<(), Failed> {
        let failed = |errno| Failed::errno(format!("entry {}", Quoted(path)), errno);
        while !bytes.is_empty() {
            let Some(parts) = &mut self.parts else {
                let room = BLOCK - self.block.len();
                let (now, rest) = bytes.split_at(bytes.len().min(room));
                self.block.extend_from_slice(now);
                bytes = rest;
                if self.block.len() == BLOCK {
                    self.read_map(path)?;
                }
                continue;
            };
            let Some((start, length)) = parts.front_mut() else {
                return Err(refused(path, "is longer than its map"));
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

    /// Takes a whole block of the map.
    fn read_map(&mut self, path: &[u8]) -> Result<(), Failed> {
        let wrong = |error| refused(path, &format!("cannot be read: {error}"));
        if let Some(parts) = self.map.block(&self.block).map_err(wrong)? {
            check(&parts, self.size).map_err(wrong)?;
            self.parts = Some(parts.into());
        }
        self.block.clear();
        Ok(())
    }

    /// The file with its whole size, when everything has come.
    pub fn finish(self, path: &[u8]) -> Result<OwnedFd, Failed> {
        let complete = self
            .parts
            .is_some_and(|parts| parts.iter().all(|(_, length)| *length == 0));
        if !complete {
            return Err(refused(path, "is shorter than its map"));
        }
        rustix::fs::ftruncate(&self.fd, self.size)
            .map_err(|errno| Failed::errno(format!("entry {}", Quoted(path)), errno))?;
        Ok(self.fd)
    }
}

fn refused(path: &[u8], why: &str) -> Failed {
    Failed::invalid(format!("entry {} {why}", Quoted(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..2000), digits in "[0-9\n]{0,300}") {
            for bytes in [&noise[..], digits.as_bytes()] {
                let file = tempfile::tempfile().unwrap();
                let mut sink = SparseSink::new(file.into(), 4096);
                let _ = sink.take(bytes, b"x").and_then(|()| sink.finish(b"x").map(drop));
            }
        }
    }
}
