//! Blocking work, off the single thread that serves all streams.

use crate::answer::Failed;
use motu_link::Sender;
use motu_link::message::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs one bounded piece of blocking work.
pub async fn run<T, F>(work: F) -> Result<T, Failed>
where
    F: FnOnce() -> Result<T, Failed> + Send + 'static,
    T: Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(Failed::new(
            Failure::Cancelled,
            "the guest is shutting down",
        )),
    }
}

/// Tells running work that its result is no longer needed.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the flag when dropped.
    pub fn on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }
}

/// See [`Cancel::on_drop`].
#[derive(Debug)]
pub struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Runs work until it is done or the host resets the stream. Further messages of the host stay
/// unread.
pub async fn unless_gone<T>(
    tx: &Sender,
    work: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    tokio::select! {
        biased;
        done = work => done,
        _ = tx.closed() => Err(Failed::cancelled()),
    }
}
