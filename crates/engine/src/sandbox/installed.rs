//! Finds environments, and pulls them if needed.

use super::Sandboxes;
use crate::admission::environment_error;
use motu_core::Result;
use motu_core::report::{ProgressEvent, ProgressSink};
use motu_environments::{Environment, EnvironmentError};

impl Sandboxes {
    /// Finds an environment, after pulling it if it is not installed. One that would be read from
    /// files of the host is never pulled implicitly.
    pub(crate) async fn installed(
        &self,
        name: &str,
        progress: &ProgressSink,
    ) -> Result<Environment> {
        let found = match self.environments.resolve(name).await {
            Err(EnvironmentError::NotInstalled { .. } | EnvironmentError::Unknown { .. })
                if !motu_environments::reads_host_files(name) =>
            {
                let progress = progress.clone();
                let report = motu_environments::Progress::new(move |event| {
                    let _ = progress.try_send(progress_event(event));
                });
                let pulled = self.environments.pull(name, report).await;
                pulled.map_err(environment_error)?;
                self.environments.resolve(name).await
            }
            other => other,
        };
        found.map_err(environment_error)
    }
}

/// Converts a progress event of the environment store.
pub(crate) fn progress_event(event: motu_environments::ProgressEvent) -> ProgressEvent {
    ProgressEvent {
        stage: event.stage,
        message: event.message,
        done: event.done,
        total: event.total,
    }
}
