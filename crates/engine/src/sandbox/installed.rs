//! Finds environments, and pulls them if needed.

use super::Sandboxes;
use crate::admission::environment_error;
use crate::titles::{check_place, pulled, title};
use motu_core::account::Account;
use motu_core::project::{is_elsewhere, sees};
use motu_core::report::{ProgressEvent, ProgressSink, no_environment};
use motu_core::{Error, Project, Result};
use motu_environments::{Environment, EnvironmentError, Hold};

/// How often an environment is pulled again that somebody removes at once.
const TRIES: u32 = 3;

impl Sandboxes {
    /// Finds an environment, after pulling it on its owner's account if it is not installed. One that
    /// would be read from files of the host is never pulled implicitly.
    pub(crate) async fn installed(
        &self,
        owner: &str,
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
                let account = account(Account::of_owner(owner));
                let (image, title) = pulled(owner, name)?;
                // The project may have pulled it before.
                if let Some(title) = &title
                    && let Ok(found) = self.environments.resolve(&title.name).await
                {
                    return Ok(found);
                }
                let pulled = self.environments.pull_for(account, title, &image, report);
                let pulled = pulled.await.map_err(environment_error)?;
                self.environments.resolve(&pulled.name).await
            }
            other => other,
        };
        found.map_err(environment_error)
    }

    /// The same, and keeps it from being collected for as long as what comes with it lives.
    pub(crate) async fn installed_and_held(
        &self,
        owner: &str,
        name: &str,
        progress: &ProgressSink,
    ) -> Result<(Environment, Hold)> {
        for _ in 0..TRIES {
            let found = self.installed(owner, name, progress).await?;
            // Nothing is collected while this is held; it may have been before.
            let _environments_stay = self.environments_in_use.read().await;
            if let Ok(hold) = self.environments.hold(&found.digest).await {
                return Ok((found, hold));
            }
        }
        Err(Error::conflict(format!(
            "the environment {name} is removed again and again while it is asked for"
        )))
    }
}

impl Sandboxes {
    /// The environment that an owner means by a name. In a project that is the project's own, or
    /// that of the host where it has none; what is another project's is not there, in the words for
    /// what never was.
    pub(crate) async fn environment_of(&self, owner: &str, name: &str) -> Result<String> {
        let Some(project) = Project::of_owner(owner) else {
            return Ok(name.to_string());
        };
        if name.is_empty() {
            return Ok(String::new());
        }
        let short = project.short(name);
        check_place(name)?;
        check_place(short)?;
        // By its own name, by that of an image which it has pulled, and what is the host's.
        let image = motu_environments::full_name(short);
        let own = [
            Some(project.complete(name)),
            image.map(|image| title(owner, &image).name),
        ];
        for name in own.into_iter().flatten().chain([name.to_string()]) {
            let whose = self.environments.whose(&name).await;
            // One that cannot be read is nobody's.
            if whose.is_ok_and(|whose| whose.is_some_and(|whose| sees(Some(&project), &whose))) {
                return Ok(name);
            }
        }
        match is_elsewhere(Some(&project), name) {
            true => Err(no_environment(name)),
            false => Ok(name.to_string()),
        }
    }
}

/// Who answers for a pull.
pub(crate) fn account(account: Account) -> motu_environments::Account {
    match account {
        Account::Operator => motu_environments::Account::Operator,
        Account::Other(owner) => {
            let project = Project::of_owner(&owner);
            let name = project.map_or(owner, |project| project.to_string());
            motu_environments::Account::Other(name)
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
