//! Blocking work for async callers.

use motu_core::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs blocking work on tokio's blocking pool.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Error::internal("a worker panicked"))?
}

/// Tells blocking work that its caller has left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller(Arc<AtomicBool>);

impl Caller {
    /// Fails once nobody waits any more. Long loops ask in each round.
    pub(crate) fn waits(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Error::unavailable("the caller has left")),
        }
    }
}

/// Says so when it is dropped.
struct Leaves(Caller);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Runs blocking work that ends when its caller leaves.
pub(crate) async fn while_waited<T: Send + 'static>(
    work: impl FnOnce(&Caller) -> Result<T> + Send + 'static,
) -> Result<T> {
    let caller = Caller::default();
    let _leaves = Leaves(caller.clone());
    blocking(move || work(&caller)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn work_ends_with_its_caller() {
        let (told, ended) = std::sync::mpsc::channel();
        let work = while_waited(move |caller| {
            while caller.waits().is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = told.send(());
            Ok(())
        });
        let left = tokio::time::timeout(Duration::from_millis(20), work).await;
        assert!(left.is_err());
        assert_eq!(ended.recv_timeout(Duration::from_secs(10)), Ok(()));
    }
}
