//! Finds environments, and pulls them if needed.

use super::Sandboxes;
use crate::admission::environment_error;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::report::{ProgressEvent, ProgressSink};
use motu_core::{Error, ErrorKind, Project, Result};
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

impl Sandboxes {
    /// The environment that an owner means by a name. In a project that is the project's own, or
    /// that of the host where it has none; what is another project's is not there.
    pub(crate) async fn environment_of(&self, owner: &str, name: &str) -> Result<String> {
        let Some(project) = Project::of_owner(owner) else {
            return Ok(name.to_string());
        };
        if name.is_empty() {
            return Ok(String::new());
        }
        if motu_environments::reads_host_files(name) {
            return Err(Error::new(
                ErrorKind::Denied,
                "environments in files of the host are for callers of the local socket",
            )
            .hint(hint!["send the archive: ", verb("import_environment")]));
        }
        if !project.sees_environment(name) {
            return Err(Error::not_found(format!("there is no environment {name}"))
                .hint(hint![verb("list_environments"), " shows them"]));
        }
        let own = project.complete(name);
        match self.environments.resolve(&own).await {
            Ok(_) => Ok(own),
            Err(_) => Ok(name.to_string()),
        }
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
