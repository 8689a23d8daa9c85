//! Starting a service: from a row with its name to a process that is watched.

use super::probes;
use super::publish::Bound;
use super::readying::Readying;
use super::room::{Room, in_words};
use super::supervised::Supervised;
use super::watching::Watcher;
use crate::driver::Handle;
use crate::store::{ServiceRow, Store};
use motu_core::config::Config;
use motu_core::workspace::Readiness;
use motu_core::{Error, Result};
use motu_link::message as link;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// A service whose name is taken and that does not run yet.
pub(super) struct Beginning {
    pub(super) service: Supervised,
    /// The ended service that had the name.
    pub(super) before: Option<Arc<Supervised>>,
    pub(super) start: link::Start,
    pub(super) bound: Vec<Bound>,
    pub(super) room: Arc<Room>,
    pub(super) handle: Arc<Handle>,
    pub(super) config: Config,
    pub(super) store: Store,
    /// The right to give names, held until the service has its own.
    pub(super) naming: OwnedMutexGuard<()>,
}

impl Beginning {
    /// Starts it, or leaves everything as it was. The caller waits until it is ready.
    pub(super) async fn begin(self) -> Result<(Arc<Supervised>, Readying)> {
        // From here on nothing is stored of the one that had the name.
        if let Some(before) = &self.before {
            before.row.retire().await;
        }
        let pid = match self.started().await {
            Ok(pid) => pid,
            Err(error) => {
                let error = self.handle.explain_soon(error).await;
                self.forget().await?;
                return Err(in_words(error));
            }
        };
        let service = Arc::new(self.service);
        service.ports.open(self.bound, &self.handle);
        service.learn(|row| row.status.pid = Some(pid)).await;
        let name = service.row().status.service_name.clone();
        self.room.services().insert(name, service.clone());
        drop(self.naming);
        let readying = watch_over(&service, &self.room, &self.handle, &self.config)?;
        Ok((service, readying))
    }

    async fn started(&self) -> Result<u32> {
        let row = self.service.row();
        // Stored before it runs: a restarted daemon finds the process, or learns that it never began.
        if !self.store.put_service(&row).await? {
            let id = &row.status.workspace_id;
            return Err(Error::conflict(format!(
                "workspace {id} was deleted meanwhile"
            )));
        }
        let guest = self.handle.guest()?;
        let started = guest.start_background(self.start.clone()).await?;
        Ok(started.pid)
    }

    /// Removes a service that did not start; the one that had its name has it again.
    async fn forget(self) -> Result<()> {
        let row = self.service.row();
        let Some(before) = self.before else {
            let deleting = self.store.delete_service(&row);
            return self.service.row.remove(deleting).await;
        };
        self.service.row.retire().await;
        let before = ServiceRow::clone(&before.row());
        let name = row.status.service_name.clone();
        let restored = Supervised::new(before, self.store.clone());
        let stored = self.store.put_service(&restored.row()).await;
        self.room.services().insert(name, Arc::new(restored));
        stored.map(drop)
    }
}

/// Starts the supervising task of a service; returns what waits until it is ready.
pub(super) fn watch_over(
    service: &Arc<Supervised>,
    room: &Arc<Room>,
    handle: &Arc<Handle>,
    config: &Config,
) -> Result<Readying> {
    let pattern = match &service.row().status.readiness {
        Some(Readiness::Log { pattern }) => Some(probes::pattern_of(pattern)?),
        _ => None,
    };
    let watcher = Watcher {
        service: service.clone(),
        room: room.clone(),
        handle: handle.clone(),
        config: config.clone(),
        pattern,
    };
    tokio::spawn(watcher.run());
    Ok(Readying {
        service: service.clone(),
        handle: handle.clone(),
        config: config.clone(),
    })
}
