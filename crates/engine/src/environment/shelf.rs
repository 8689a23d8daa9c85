//! The environments that are installed or known by name: looking, pulling, naming, removing.

use super::Environments;
use super::archives::environment;
use crate::admission::environment_error;
use crate::sandbox::progress_event;
use motu_core::Result;
use motu_core::lists::EnvironmentList;
use motu_core::report::{Environment, ProgressSink, Prune, Pruned, TagAs};

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
        let pulled = self.store().pull(name, report).await;
        pulled.map(environment).map_err(environment_error)
    }

    pub(crate) async fn tag(&self, name: &str, ask: TagAs) -> Result<Environment> {
        let tagged = self.store().tag(name, &ask.name).await;
        tagged.map(environment).map_err(environment_error)
    }

    pub(crate) async fn remove(&self, name: &str) -> Result<Pruned> {
        self.sandboxes.end_spare().await;
        let nobody_takes_one = self.sandboxes.environments_in_use.write().await;
        let in_use = self.sandboxes.digests_in_use();
        let removed = self.store().remove(name, &in_use).await;
        drop(nobody_takes_one);
        self.sandboxes.tell_of_removal().await;
        removed.map(pruned).map_err(environment_error)
    }

    pub(crate) async fn prune(&self, ask: Prune) -> Result<Pruned> {
        self.sandboxes.end_spare().await;
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
        Ok(Pruned {
            in_use: in_use.into_iter().collect(),
            ..pruned
        })
    }
}

fn pruned(pruned: motu_environments::Pruned) -> Pruned {
    Pruned {
        removed: pruned.names.into_iter().chain(pruned.digests).collect(),
        freed_bytes: pruned.bytes,
        in_use: Vec::new(),
    }
}
