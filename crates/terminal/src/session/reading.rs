//! Reads the part of a session's stream that is in memory.

use super::{Session, Shape};
use crate::output::{self, Span};
use crate::ring::Read;

impl Session {
    /// The end of the stream: the cursor of "from now on".
    pub fn end(&self) -> u64 {
        self.ring.end()
    }

    /// The oldest place that can still be read here; what is older is in the transcript.
    pub fn start(&self) -> u64 {
        self.ring.start()
    }

    /// A page of the stream as text, and the cursor after it. `None` when `from` is no longer kept.
    pub fn read(&self, from: u64, to: u64, shape: Shape) -> Option<(String, u64)> {
        if from < self.ring.start() {
            return None;
        }
        let read = self.ring.read(from, to, output::MAX_BUDGET);
        let span = Span {
            from: read.from,
            bytes: &read.bytes,
        };
        Some(output::page(span, &self.show(shape)))
    }

    /// Bytes of the stream as they are kept, at most `max`. `None` when `from` is no longer kept.
    pub fn bytes(&self, from: u64, max: usize) -> Option<Read> {
        (from >= self.ring.start()).then(|| self.ring.read(from, self.end(), max))
    }
}
