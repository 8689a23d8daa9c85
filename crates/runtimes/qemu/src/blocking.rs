//! Work that blocks, away from the threads that must not.

use crate::error::QemuError;

/// Runs work that blocks.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, QemuError> + Send + 'static,
) -> Result<T, QemuError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(QemuError::Io {
            context: "work was interrupted".into(),
            error: error.into(),
        }),
    }
}
