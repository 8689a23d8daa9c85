//! Blocking work for async callers.

use motu_core::{Error, Result};

/// Runs blocking work on tokio's blocking pool.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Error::internal("a worker panicked"))?
}
