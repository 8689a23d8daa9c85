//! The newest bytes of a stream, addressed by absolute offset.

use std::collections::VecDeque;

/// A bounded window over a stream that only grows.
#[derive(Debug)]
pub struct Ring {
    bytes: VecDeque<u8>,
    end: u64,
    limit: usize,
}

/// What a read found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// Where the bytes begin; later than requested if the start is gone.
    pub from: u64,
    pub bytes: Vec<u8>,
}

impl Ring {
    /// An empty one at `offset` of its stream.
    pub fn new(limit: usize, offset: u64) -> Ring {
        Ring {
            bytes: VecDeque::new(),
            end: offset,
            limit,
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.end += bytes.len() as u64;
        let keep = &bytes[bytes.len().saturating_sub(self.limit)..];
        let over = (self.bytes.len() + keep.len()).saturating_sub(self.limit);
        self.bytes.drain(..over);
        self.bytes.extend(keep);
    }

    /// The offset of the oldest byte kept.
    pub fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// The offset after the newest byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// At most `max` bytes of `from..to`, as far as they are kept.
    pub fn read(&self, from: u64, to: u64, max: usize) -> Read {
        let from = from.clamp(self.start(), self.end);
        let to = to
            .clamp(from, self.end)
            .min(from.saturating_add(max as u64));
        let at = (from - self.start()) as usize;
        let bytes = self.bytes.range(at..at + (to - from) as usize);
        Read {
            from,
            bytes: bytes.copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_survive_what_is_dropped() {
        let mut ring = Ring::new(8, 0);
        ring.push(b"hello ");
        ring.push(b"world");
        assert_eq!((ring.start(), ring.end()), (3, 11));
        let read = ring.read(0, u64::MAX, 100);
        assert_eq!((read.from, read.bytes.as_slice()), (3, &b"lo world"[..]));
        assert_eq!(ring.read(6, 8, 100).bytes, b"wo");
        assert_eq!(ring.read(6, 11, 3).bytes, b"wor");
        assert_eq!(ring.read(90, 99, 3).bytes, b"");
        ring.push(&[b'x'; 100]);
        assert_eq!((ring.start(), ring.end()), (103, 111));
    }
}
