//! The buffered output of one channel: bounded, addressed by absolute offsets.
//!
//! ```text
//!   dropped │ start ........ chunks ........ │ tail │ end
//!                 ▲ sent − UNSURE   ▲ sent (a lossless follower)
//! ```
//!
//! Pure data: no clock, no descriptors, no waiting. A lossless follower *holds* the ring: output it
//! has not sent yet is never dropped, and output it has sent is kept a while longer, because only
//! the reader at the other end knows how much arrived before the link, or the daemon, broke.

use bytes::{Buf as _, Bytes};
use motu_link::mux::WINDOW;
use std::collections::VecDeque;
use std::time::Instant;

/// Bytes kept per channel unless asked otherwise.
pub const DEFAULT_BYTES: usize = 1024 * 1024;
/// The most that may be asked for.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Smaller rings would drop the result of a single read.
pub const MIN_BYTES: usize = 4096;
/// Bytes that may have been sent but not yet processed: those in flight on the link, and those that
/// a daemon buffers for a slow reader.
const UNSURE: u64 = WINDOW as u64 + 1024 * 1024;
/// Smaller pieces are merged, to avoid the overhead of a chunk.
const SMALL: usize = 16 * 1024;
/// Reads of at least this size keep their buffer instead of being copied.
const LARGE: usize = 128 * 1024;

/// One channel's output.
#[derive(Debug)]
pub struct Ring {
    chunks: VecDeque<(u64, Bytes)>,
    tail: Vec<u8>,
    start: u64,
    end: u64,
    capacity: u64,
    holds: Vec<Hold>,
}

/// The progress of a lossless follower.
#[derive(Debug)]
struct Hold {
    id: u64,
    sent: u64,
    /// Set when its link broke.
    expires: Option<Instant>,
}

/// The result of a read at a position.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Data(Bytes),
    /// All output before this offset has been dropped.
    Gap(u64),
    Nothing,
}

impl Ring {
    pub fn new(capacity: usize) -> Ring {
        Ring {
            chunks: VecDeque::new(),
            tail: Vec::new(),
            start: 0,
            end: 0,
            capacity: capacity.clamp(MIN_BYTES, MAX_BYTES) as u64,
            holds: Vec::new(),
        }
    }

    pub fn start(&self) -> u64 {
        self.start
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes kept right now.
    pub fn kept(&self) -> u64 {
        self.end - self.start
    }

    /// How much may be added without dropping held output; `None`: any amount.
    pub fn room(&mut self, now: Instant) -> Option<usize> {
        let before = self.holds.len();
        self.holds
            .retain(|hold| hold.expires.is_none_or(|expires| expires > now));
        if self.holds.len() < before {
            self.trim();
        }
        let slowest = self.slowest()?;
        let unsent = self.end - slowest;
        Some(self.capacity.saturating_sub(unsent) as usize)
    }

    /// When the next hold of a broken follower expires.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.holds.iter().filter_map(|hold| hold.expires).min()
    }

    /// Adds the result of a read. Takes the buffer itself if that is cheaper than a copy.
    pub fn push(&mut self, buffer: &mut Vec<u8>) {
        let size = buffer.len();
        if size <= SMALL {
            if self.tail.len() + size > SMALL {
                self.seal();
            }
            self.tail.extend_from_slice(buffer);
            buffer.clear();
        } else {
            self.seal();
            let chunk = if size >= LARGE {
                Bytes::from(std::mem::take(buffer))
            } else {
                let copy = Bytes::copy_from_slice(buffer);
                buffer.clear();
                copy
            };
            self.chunks.push_back((self.end, chunk));
        }
        self.end += size as u64;
        self.trim();
    }

    /// Makes the tail a chunk of exactly its size.
    fn seal(&mut self) {
        if !self.tail.is_empty() {
            let at = self.end - self.tail.len() as u64;
            let mut tail = std::mem::take(&mut self.tail);
            tail.shrink_to_fit();
            self.chunks.push_back((at, Bytes::from(tail)));
        }
    }

    fn slowest(&self) -> Option<u64> {
        self.holds.iter().map(|hold| hold.sent).min()
    }

    /// Drops the oldest bytes beyond the capacity, except held ones.
    fn trim(&mut self) {
        let mut keep_from = self.end.saturating_sub(self.capacity);
        if let Some(slowest) = self.slowest() {
            keep_from = keep_from.min(slowest.saturating_sub(UNSURE));
        }
        if keep_from <= self.start {
            return;
        }
        if keep_from > self.end - self.tail.len() as u64 {
            self.seal();
        }
        while let Some((at, chunk)) = self.chunks.front_mut() {
            let chunk_end = *at + chunk.len() as u64;
            if chunk_end <= keep_from {
                self.chunks.pop_front();
                continue;
            }
            if *at < keep_from {
                chunk.advance((keep_from - *at) as usize);
                *at = keep_from;
            }
            break;
        }
        self.start = keep_from;
    }

    /// Reads at `cursor`, at most `limit` bytes.
    pub fn read(&self, cursor: u64, limit: usize) -> Found {
        if cursor < self.start {
            return Found::Gap(self.start);
        }
        if cursor >= self.end {
            return Found::Nothing;
        }
        let tail_at = self.end - self.tail.len() as u64;
        if cursor >= tail_at {
            let rest = self
                .tail
                .get((cursor - tail_at) as usize..)
                .unwrap_or_default();
            return Found::Data(Bytes::copy_from_slice(&rest[..rest.len().min(limit)]));
        }
        let after = self.chunks.partition_point(|(at, _)| *at <= cursor);
        let Some((at, chunk)) = after
            .checked_sub(1)
            .and_then(|index| self.chunks.get(index))
        else {
            return Found::Nothing;
        };
        let from = (cursor - at) as usize;
        let to = chunk.len().min(from.saturating_add(limit));
        Found::Data(chunk.slice(from..to))
    }

    /// Registers a lossless follower at `cursor`. It replaces holds whose link has broken.
    pub fn hold(&mut self, id: u64, cursor: u64) {
        self.holds.retain(|hold| hold.expires.is_none());
        self.holds.push(Hold {
            id,
            sent: cursor,
            expires: None,
        });
    }

    /// Records the progress of a lossless follower.
    pub fn sent(&mut self, id: u64, cursor: u64) {
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.id == id) {
            hold.sent = hold.sent.max(cursor);
        }
    }

    /// Ends the hold of a follower.
    pub fn release(&mut self, id: u64) {
        self.holds.retain(|hold| hold.id != id);
        self.trim();
    }

    /// Called when a follower's link breaks: its hold stays until `expires`, unless its successor
    /// has registered already.
    pub fn linger(&mut self, id: u64, expires: Instant) {
        if self
            .holds
            .iter()
            .any(|hold| hold.id > id && hold.expires.is_none())
        {
            return self.release(id);
        }
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.id == id) {
            hold.expires = Some(expires);
        }
    }

    /// Called when no more output comes: releases spare capacity.
    pub fn settle(&mut self) {
        self.seal();
        self.chunks.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn byte(at: u64) -> u8 {
        (at % 251) as u8
    }

    fn write(ring: &mut Ring, size: usize) {
        let mut piece: Vec<u8> = (ring.end()..ring.end() + size as u64).map(byte).collect();
        ring.push(&mut piece);
    }

    fn read_all(ring: &Ring, mut cursor: u64) -> (u64, u64) {
        let from = cursor;
        while let Found::Data(data) = ring.read(cursor, 256 * 1024) {
            assert!(!data.is_empty());
            for value in &data[..] {
                assert_eq!(*value, byte(cursor));
                cursor += 1;
            }
        }
        (from, cursor)
    }

    #[test]
    fn single_bytes_cost_about_a_byte_each() {
        let mut ring = Ring::new(1 << 20);
        for _ in 0..300_000 {
            write(&mut ring, 1);
        }
        assert!(ring.chunks.len() <= 300_000 / SMALL + 1);
        assert_eq!(read_all(&ring, 0), (0, 300_000));
    }

    #[test]
    fn a_hold_keeps_a_window_behind_what_was_sent_and_lets_go_when_it_expires() {
        let now = Instant::now();
        let mut ring = Ring::new(MIN_BYTES);
        ring.hold(1, 0);
        write(&mut ring, MIN_BYTES);
        assert_eq!(ring.room(now), Some(0));
        ring.sent(1, MIN_BYTES as u64);
        assert_eq!(ring.room(now), Some(MIN_BYTES));
        write(&mut ring, MIN_BYTES);
        assert_eq!(ring.start(), 0);
        ring.linger(1, now + Duration::from_secs(30));
        assert_eq!(ring.room(now), Some(0));
        assert_eq!(ring.room(now + Duration::from_secs(31)), None);
        assert_eq!(ring.kept(), MIN_BYTES as u64);
        assert_eq!(ring.read(0, 1), Found::Gap(MIN_BYTES as u64));
    }

    #[test]
    fn a_new_lossless_follower_replaces_a_broken_one() {
        let now = Instant::now();
        let mut ring = Ring::new(MIN_BYTES);
        ring.hold(1, 0);
        ring.linger(1, now + Duration::from_secs(30));
        write(&mut ring, MIN_BYTES);
        ring.hold(2, MIN_BYTES as u64);
        assert_eq!(ring.room(now), Some(MIN_BYTES));
        // The same if the guest notices the broken link only after the new follower.
        ring.hold(3, MIN_BYTES as u64);
        ring.linger(2, now + Duration::from_secs(30));
        assert_eq!(ring.holds.len(), 1);
    }

    proptest! {
        #[test]
        fn what_is_kept_is_what_was_written(
            sizes in prop::collection::vec(prop_oneof![1usize..40, 1000usize..40_000, 100_000usize..300_000], 1..40),
            capacity in 1000usize..400_000,
        ) {
            let mut ring = Ring::new(capacity);
            for size in sizes {
                write(&mut ring, size);
                prop_assert!(ring.kept() <= capacity.max(MIN_BYTES) as u64);
            }
            let start = ring.start();
            prop_assert_eq!(read_all(&ring, start), (start, ring.end()));
            if start > 0 {
                prop_assert_eq!(ring.read(start - 1, 10), Found::Gap(start));
            }
        }
    }
}
