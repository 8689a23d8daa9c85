//! The environments that are installed or known by name: looking, pulling, naming, removing.

use super::Environments;
use super::archives::environment;
use crate::admission::environment_error;
use crate::sandbox::{account, progress_event};
use crate::titles::{pulled, title};
use motu_core::account::{Account, current};
use motu_core::event::{EventFacts, EventKind, Happened};
use motu_core::lists::EnvironmentList;
use motu_core::report::{Environment, ProgressSink, Prune, Pruned, TagAs};
use motu_core::{Project, Result};
use motu_environments::Title;

impl Environments {
    pub(crate) async fn list(&self) -> Result<EnvironmentList> {
        let found = self.store().list().await.map_err(environment_error)?;
        let all = found.into_iter().map(environment).collect();
        Ok(EnvironmentList::new(all))
    }

    /// The environment that a project means by a name, and whether it is its own.
    pub(crate) async fn meant(&self, name: String, project: &Project) -> Result<(String, bool)> {
        let owner = project.owner();
        let name = self.sandboxes.environment_of(&owner, &name).await?;
        let whose = self.store().whose(&name).await;
        let own = whose.is_ok_and(|whose| whose.as_ref() == Some(&owner));
        Ok((name, own))
    }

    pub(crate) async fn inspect(&self, name: &str) -> Result<Environment> {
        let found = self.store().inspect(name).await;
        found.map(environment).map_err(environment_error)
    }

    pub(crate) async fn pull(&self, name: &str, progress: ProgressSink) -> Result<Environment> {
        let report = motu_environments::Progress::new(move |event| {
            let _ = progress.try_send(progress_event(event));
        });
        let owner = match current() {
            Account::Operator => String::new(),
            Account::Other(owner) => owner,
        };
        let (image, title) = pulled(&owner, name)?;
        // What the catalog has is the host's, whoever pulls it.
        let catalog = self.store().catalog();
        let title = title.filter(|_| catalog.iter().all(|entry| entry.name != image));
        let told = title.clone().unwrap_or_else(|| Title::of_host(&image));
        let pull = async {
            let pulled = self
                .store()
                .pull_for(account(current()), title, &image, report);
            let pulled = pulled.await;
            pulled.map(environment).map_err(environment_error)
        };
        self.telling(Some(&told), self.while_space(pull)).await
    }

    pub(crate) async fn tag(&self, name: &str, ask: TagAs) -> Result<Environment> {
        let new = title(&ask.owner, &ask.name);
        let tag = async {
            let tagged = self.store().tag(name, new.clone()).await;
            tagged.map(environment).map_err(environment_error)
        };
        self.telling(Some(&new), tag).await
    }

    pub(crate) async fn remove(&self, name: &str) -> Result<Pruned> {
        self.sandboxes.end_spare().await;
        self.sandboxes.leaving.gone().await;
        let nobody_takes_one = self.sandboxes.environments_in_use.write().await;
        let in_use = self.sandboxes.digests_in_use();
        let removed = self.store().remove(name, &in_use).await;
        drop(nobody_takes_one);
        self.sandboxes.tell_of_removal().await;
        let removed = removed.map_err(environment_error)?;
        self.tell_removed(&removed).await;
        Ok(pruned(removed))
    }

    pub(crate) async fn prune(&self, ask: Prune) -> Result<Pruned> {
        self.sandboxes.end_spare().await;
        self.sandboxes.leaving.gone().await;
        let nobody_takes_one = self.sandboxes.environments_in_use.write().await;
        let mut in_use = self.sandboxes.digests_in_use();
        in_use.extend(self.store().held());
        let swept = self.store().prune(&in_use, ask.all).await;
        let swept = swept.map_err(environment_error)?;
        self.tell_removed(&swept).await;
        let mut pruned = pruned(swept);
        if ask.all {
            for runtime in self.sandboxes.runtimes.all() {
                pruned.freed_bytes += runtime.prune().await?;
            }
        } else {
            drop(nobody_takes_one);
            self.sandboxes.tell_of_removal().await;
        }
        Ok(Pruned {
            in_use: in_use.into_iter().collect(),
            ..pruned
        })
    }

    /// Does something that installs an environment, and tells of it if the name means another one
    /// afterwards.
    pub(crate) async fn telling(
        &self,
        title: Option<&Title>,
        work: impl Future<Output = Result<Environment>>,
    ) -> Result<Environment> {
        let (before, place) = match title {
            Some(title) => {
                let place = self.place(title).await?;
                (self.inspect(&title.name).await.ok(), Some(place))
            }
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
            let event = Happened::now(EventKind::EnvironmentInstalled, &made.owner);
            let event = event.about(&made.name).facts(facts);
            self.sandboxes.shared.store.tell(event).await;
        }
        Ok(made)
    }

    async fn tell_removed(&self, removed: &motu_environments::Pruned) {
        for (name, owner) in removed.names.iter().zip(&removed.owners) {
            let event = Happened::now(EventKind::EnvironmentRemoved, owner).about(name);
            self.sandboxes.shared.store.tell(event).await;
        }
    }
}

fn pruned(pruned: motu_environments::Pruned) -> Pruned {
    Pruned {
        removed: pruned.names.into_iter().chain(pruned.digests).collect(),
        freed_bytes: pruned.bytes,
        in_use: Vec::new(),
    }
}
