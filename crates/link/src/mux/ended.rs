//! Remembers streams that the peer has ended, to detect a second end.

use super::MAX_STREAMS;
use std::collections::{HashSet, VecDeque};

/// The streams that ended last; older ones are forgotten.
#[derive(Debug, Default)]
pub(super) struct Ended {
    known: HashSet<u32>,
    order: VecDeque<u32>,
}

impl Ended {
    /// Records an end; false if the stream had ended already.
    pub fn add(&mut self, stream: u32) -> bool {
        if !self.known.insert(stream) {
            return false;
        }
        self.order.push_back(stream);
        if self.order.len() > MAX_STREAMS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}
