//! The environments that are installed or known by name: looking, pulling, naming, removing.

use super::Environments;
use super::archives::environment;
use crate::admission::environment_error;
use crate::sandbox::progress_event;
use motu_core::event::{EventFacts, EventKind, Happened};
use motu_core::lists::EnvironmentList;
use motu_core::project::of_environment;
use motu_core::report::{Environment, ProgressSink, Prune, Pruned, TagAs};
use motu_core::{Project, Result};

impl Environments {
    pub(crate) async fn list(&self) -> Result<EnvironmentList> {
        let found = self.store().list().await.map_err(environment_error)?;
        let all = found.into_iter().map(environment).collect();
        Ok(EnvironmentList::new(all))
    }

    pub(crate) async fn inspect(&self, name: &str) -> Result<Environment> {
        let found = self.store().inspect(name).await;
        found.map(environment).map_err(environment_error)
    }

    pub(crate) async fn pull(&self, name: &str, progress: ProgressSink) -> Result<Environment> {
        let report = motu_environments::Progress::new(move |event| {
            let _ = progress.try_send(progress_event(event));
        });
        let pull = async {
            let pulled = self.store().pull(name, report).await;
            pulled.map(environment).map_err(environment_error)
        };
        self.telling(Some(name), pull).await
    }

    pub(crate) async fn tag(&self, name: &str, ask: TagAs) -> Result<Environment> {
        let tag = async {
            let tagged = self.store().tag(name, &ask.name).await;
            tagged.map(environment).map_err(environment_error)
        };
        self.telling(Some(&ask.name), tag).await
    }

    pub(crate) async fn remove(&self, name: &str) -> Result<Pruned> {
        self.sandboxes.end_spare().await;
        self.sandboxes.leaving.gone().await;
        let nobody_takes_one = self.sandboxes.environments_in_use.write().await;
        let in_use = self.sandboxes.digests_in_use();
        let removed = self.store().remove(name, &in_use).await;
        drop(nobody_takes_one);
        self.sandboxes.tell_of_removal().await;
        let removed = removed.map(pruned).map_err(environment_error)?;
        self.tell_removed(&removed).await;
        Ok(removed)
    }

    pub(crate) async fn prune(&self, ask: Prune) -> Result<Pruned> {
        self.sandboxes.end_spare().await;
        self.sandboxes.leaving.gone().await;
        let nobody_takes_one = self.sandboxes.environments_in_use.write().await;
        let in_use = self.sandboxes.digests_in_use();
        let swept = self.store().prune(&in_use, ask.all).await;
        let mut pruned = swept.map(pruned).map_err(environment_error)?;
        if ask.all {
            for runtime in self.sandboxes.runtimes.all() {
                pruned.freed_bytes += runtime.prune().await?;
            }
        } else {
            drop(nobody_takes_one);
            self.sandboxes.tell_of_removal().await;
        }
        self.tell_removed(&pruned).await;
        Ok(Pruned {
            in_use: in_use.into_iter().collect(),
            ..pruned
        })
    }

    /// Does something that installs an environment, and tells of it if the name means another one
    /// afterwards.
    pub(crate) async fn telling(
        &self,
        name: Option<&str>,
        work: impl Future<Output = Result<Environment>>,
    ) -> Result<Environment> {
        let (before, place) = match name {
            Some(name) => (self.inspect(name).await.ok(), Some(self.place(name).await?)),
            None => (None, None),
        };
        let made = work.await?;
        drop(place);
        let before = before.filter(|before| before.installed);
        if before.is_none_or(|before| before.digest != made.digest) {
            let facts = EventFacts {
                digest: made.digest.clone(),
                ..EventFacts::default()
            };
            let event = Happened::now(EventKind::EnvironmentInstalled, &owner(&made.name));
            let event = event.about(&made.name).facts(facts);
            self.sandboxes.shared.store.tell(event).await;
        }
        Ok(made)
    }

    async fn tell_removed(&self, removed: &Pruned) {
        let names = removed.removed.iter();
        for name in names.filter(|name| !name.starts_with("sha256:")) {
            let event = Happened::now(EventKind::EnvironmentRemoved, &owner(name)).about(name);
            self.sandboxes.shared.store.tell(event).await;
        }
    }
}

/// Whose an environment is: a project's, or nobody's.
fn owner(name: &str) -> String {
    let project = of_environment(name).and_then(|name| Project::parse(name).ok());
    project.map_or(String::new(), |project| project.owner())
}

fn pruned(pruned: motu_environments::Pruned) -> Pruned {
    Pruned {
        removed: pruned.names.into_iter().chain(pruned.digests).collect(),
        freed_bytes: pruned.bytes,
        in_use: Vec::new(),
    }
}
