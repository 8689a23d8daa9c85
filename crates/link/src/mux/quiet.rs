//! Detects whether a peer still sends anything, for callers with a timeout.

use super::{Link, LinkError};
use std::sync::atomic::Ordering;

impl Link {
    /// Increases whenever anything arrives from the peer.
    pub fn heard(&self) -> u64 {
        self.inner.heard.load(Ordering::Relaxed)
    }

    /// Streams that are open now.
    pub fn streams(&self) -> usize {
        self.inner.slots().len()
    }

    /// Waits until a stream is open or the link has ended.
    pub async fn used(&self) {
        while self.streams() == 0 && !self.is_closed() {
            tokio::select! {
                () = self.inner.opened.notified() => {}
                _ = self.closed() => {}
            }
        }
    }

    /// Closes the link because its peer is silent; all waiting calls get this reason.
    pub fn give_up(&self, why: String) {
        self.inner.close(LinkError::Silent(why));
    }
}
