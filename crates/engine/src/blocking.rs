//! Work that blocks.

use motu_core::{Error, Result};

/// Work that blocks, off the daemon's own threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Error::internal("a worker panicked"))?
}
