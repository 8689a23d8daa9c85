//! The buffered output of a terminal, and its readers.
//!
//! Bytes have absolute offsets. A lossless reader blocks the writer; others get a gap.

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Bytes sent at once.
const PIECE: usize = 64 * 1024;

#[derive(Debug, Default)]
struct Kept {
    bytes: VecDeque<u8>,
    /// The offset of the first byte.
    from: u64,
    /// Positions of lossless readers.
    readers: BTreeMap<u64, u64>,
    last: u64,
}

impl Kept {
    fn to(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }
}

#[derive(Debug)]
pub(super) struct Ring {
    kept: Mutex<Kept>,
    most: usize,
    /// Changes with every write and read.
    moved: watch::Sender<u64>,
}

/// A reader; unregisters on drop.
pub(super) struct Reader<'a> {
    ring: &'a Ring,
    id: u64,
    at: u64,
    lossless: bool,
    moved: watch::Receiver<u64>,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Bytes(Bytes),
    /// These bytes are lost.
    Gap {
        from: u64,
        to: u64,
    },
    Nothing,
}

impl Ring {
    pub(super) fn new(most: usize) -> Ring {
        Ring {
            kept: Mutex::default(),
            most: most.max(1),
            moved: watch::Sender::new(0),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Total bytes written.
    pub(super) fn total(&self) -> u64 {
        self.kept().to()
    }

    /// Adds bytes, once no lossless reader would lose any.
    pub(super) async fn push(&self, bytes: &[u8]) {
        let mut moved = self.moved.subscribe();
        for piece in bytes.chunks(self.most) {
            while !self.fits(piece.len()) {
                // `self` holds the sender, so waiting cannot fail.
                let _ = moved.changed().await;
            }
            let mut kept = self.kept();
            kept.bytes.extend(piece);
            let over = kept.bytes.len().saturating_sub(self.most);
            kept.bytes.drain(..over);
            kept.from += over as u64;
            drop(kept);
            self.moved
                .send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    fn fits(&self, more: usize) -> bool {
        let kept = self.kept();
        let slowest = kept.readers.values().min();
        slowest.is_none_or(|at| kept.to() - at.max(&kept.from) + more as u64 <= self.most as u64)
    }

    /// Registers a reader: at the oldest byte, the newest, or an offset. An empty ring of an
    /// adopted terminal begins at its first reader's offset.
    pub(super) fn reader(&self, at: Option<u64>, newest: bool, lossless: bool) -> Reader<'_> {
        let mut kept = self.kept();
        if let (Some(at), true) = (at, kept.from == 0 && kept.bytes.is_empty()) {
            kept.from = at;
        }
        let at = match (at, newest) {
            (_, true) => kept.to(),
            (None, false) => kept.from,
            (Some(at), false) => at.min(kept.to()),
        };
        kept.last += 1;
        let id = kept.last;
        if lossless {
            kept.readers.insert(id, at);
        }
        Reader {
            ring: self,
            id,
            at,
            lossless,
            moved: self.moved.subscribe(),
        }
    }
}

impl Reader<'_> {
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The next bytes or gap.
    pub(super) fn take(&mut self) -> Found {
        self.moved.mark_unchanged();
        let mut kept = self.ring.kept();
        if self.at < kept.from {
            let gap = Found::Gap {
                from: self.at,
                to: kept.from,
            };
            self.at = kept.from;
            return gap;
        }
        let skip = (self.at - kept.from) as usize;
        let piece: Vec<u8> = kept.bytes.iter().skip(skip).take(PIECE).copied().collect();
        if piece.is_empty() {
            return Found::Nothing;
        }
        self.at += piece.len() as u64;
        if self.lossless {
            kept.readers.insert(self.id, self.at);
        }
        drop(kept);
        self.ring
            .moved
            .send_modify(|count| *count = count.wrapping_add(1));
        Found::Bytes(piece.into())
    }

    /// Waits for a write or read since the last check.
    pub(super) async fn moved(&mut self) {
        let _ = self.moved.changed().await;
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.ring.kept().readers.remove(&self.id);
        self.ring
            .moved
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_leaves_nothing_out_holds_the_writer_up() {
        let ring = Ring::new(4);
        let mut reader = ring.reader(None, false, true);
        ring.push(b"abcd").await;
        let mut writing = Box::pin(ring.push(b"e"));
        tokio::select! {
            biased;
            () = &mut writing => panic!("there was no room"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(reader.take(), Found::Bytes("abcd".into()));
        writing.await;
        assert_eq!(reader.take(), Found::Bytes("e".into()));
        assert_eq!(reader.take(), Found::Nothing);
    }

    #[tokio::test]
    async fn what_others_miss_is_named() {
        let ring = Ring::new(4);
        let mut reader = ring.reader(None, false, false);
        ring.push(b"abcdef").await;
        assert_eq!(reader.take(), Found::Gap { from: 0, to: 2 });
        assert_eq!(reader.take(), Found::Bytes("cdef".into()));
        assert_eq!(ring.total(), 6);
        assert_eq!(
            ring.reader(Some(5), false, false).take(),
            Found::Bytes("f".into())
        );
        assert_eq!(ring.reader(None, true, false).take(), Found::Nothing);
        assert_eq!(ring.reader(Some(99), false, false).at(), 6);
    }

    #[tokio::test]
    async fn a_terminal_found_again_goes_on_where_its_reader_was() {
        let ring = Ring::new(4);
        let mut reader = ring.reader(Some(100), false, true);
        ring.push(b"ab").await;
        assert_eq!(reader.take(), Found::Bytes("ab".into()));
        assert_eq!((reader.at(), ring.total()), (102, 102));
    }
}
