//! Finds the workspaces of a previous daemon: their rows, or the records beside their disks.

use super::Workspaces;
use super::room::{Room, Stored};
use super::secrets::Secrets;
use crate::driver::{Handle, Whereabouts};
use crate::record;
use crate::store::WorkspaceRow;
use motu_core::Result;
use motu_core::sandbox::State;
use motu_core::workspace::WorkspaceId;
use std::collections::HashSet;
use std::sync::Arc;

impl Workspaces {
    /// Adopts the workspaces of a previous daemon, after their sandboxes.
    pub(crate) async fn adopt(&self) -> Result<()> {
        let (shared, table) = (&self.sandboxes.shared, &self.sandboxes.table);
        let mut known = HashSet::new();
        for called in shared.store.called().await? {
            let (id, name) = (called.workspace_id, called.name);
            match table.find(&id) {
                Whereabouts::Dormant => self.rooms.lay_down(id.clone(), name.as_deref()),
                Whereabouts::Awake(handle) => {
                    if let Some(row) = shared.store.workspace(&id).await? {
                        self.take_over(row, &handle).await?;
                    }
                }
                Whereabouts::Nowhere => self.forget_gone(&id).await?,
            }
            known.insert(id);
        }
        for row in self.unreadable_rows(&known).await? {
            if let Some(handle) = self.sandboxes.get(&row.workspace_id).await? {
                self.take_over(row, &handle).await?;
            }
        }
        Ok(())
    }

    /// Reads a dormant workspace again, with its sandbox.
    pub(super) async fn wake(&self, id: &WorkspaceId) -> Result<Option<Arc<Room>>> {
        // One after the other: a workspace has one row in memory.
        let _one_at_a_time = self.waking.lock().await;
        if let Whereabouts::Dormant = self.rooms.find(id) {
            let row = self.sandboxes.shared.store.workspace(id).await?;
            let row = match row {
                Some(row) => Some(row),
                None => self.row_beside(id).await?,
            };
            let handle = self.sandboxes.get(id).await?;
            match (row, handle) {
                (Some(row), Some(handle)) => self.take_over(row, &handle).await?,
                // Its row is in the store still, or is set aside, or its disks are gone.
                _ => self.rooms.leave(id),
            }
        }
        match self.rooms.find(id) {
            Whereabouts::Awake(room) => Ok(Some(room)),
            Whereabouts::Dormant | Whereabouts::Nowhere => Ok(None),
        }
    }

    async fn take_over(&self, row: WorkspaceRow, handle: &Arc<Handle>) -> Result<()> {
        let id = row.workspace_id.clone();
        let row = self.newest_row(row).await?;
        let secrets = match self.open_secrets(&id).await {
            Ok(secrets) => secrets,
            Err(error) => {
                tracing::error!(%id, %error, "could not unseal a workspace's secrets; it runs without them");
                Secrets::none(&self.sandboxes.patterns)?
            }
        };
        let secrets = secrets.and(handle.beyond());
        let room = Arc::new(Room::new(row, secrets, &self.sandboxes.shared));
        self.end_lost_commands(&id).await?;
        self.adopt_services(&room, handle).await?;
        if handle.state() != State::Running {
            room.forget_shells();
        }
        self.rooms.enter(room);
        Ok(())
    }

    /// The newest version of a workspace's row: from the store, or from the record beside its
    /// disks.
    async fn newest_row(&self, row: WorkspaceRow) -> Result<WorkspaceRow> {
        let id = &row.workspace_id;
        let beside = record::read_workspace(&self.sandboxes.shared.home.kept(id)).into_record();
        match beside {
            Some(beside)
                if beside.workspace.created_at == row.created_at
                    && beside.workspace.revision > row.revision =>
            {
                tracing::warn!(%id, "restoring the row from the record beside the disks");
                self.sandboxes
                    .shared
                    .store
                    .update_workspace(&beside.workspace)
                    .await?;
                Ok(beside.workspace)
            }
            Some(beside) if beside.workspace == row => Ok(row),
            _ => {
                // The record is needed only if the store is lost. A workspace without one, for
                // example because its disks have vanished, keeps its name and does not stop the
                // others from starting.
                if let Err(error) = Stored::of(&self.sandboxes.shared).record(&row).await {
                    tracing::error!(%id, %error, "could not write the record beside the disks");
                }
                Ok(row)
            }
        }
    }

    /// Workspaces whose row is missing or unreadable, from the records beside their disks.
    async fn unreadable_rows(&self, known: &HashSet<WorkspaceId>) -> Result<Vec<WorkspaceRow>> {
        let mut found = Vec::new();
        for (id, _) in record::kept(&self.sandboxes.shared.home) {
            if !known.contains(&id) && self.sandboxes.table.has(&id) {
                found.extend(self.row_beside(&id).await?);
            }
        }
        Ok(found)
    }

    /// A workspace's row from the record beside its disks, stored again.
    async fn row_beside(&self, id: &WorkspaceId) -> Result<Option<WorkspaceRow>> {
        let dir = self.sandboxes.shared.home.kept(id);
        let Some(beside) = record::read_workspace(&dir).into_record() else {
            return Ok(None);
        };
        tracing::warn!(%id, "restoring the row from the record beside the disks");
        self.sandboxes.shared.store.put_workspace(&beside).await?;
        Ok(Some(beside.workspace))
    }

    /// Deletes a workspace whose sandbox is gone or was never made. If the sandbox's row is
    /// unreadable, or its disks exist, the workspace keeps its name and history.
    async fn forget_gone(&self, id: &WorkspaceId) -> Result<()> {
        let gone = match self.sandboxes.shared.store.get(id).await {
            Ok(None) => !self.sandboxes.shared.home.kept(id).exists(),
            Ok(Some(row)) => row.sandbox.state == State::Destroyed,
            Err(_) => false,
        };
        match gone {
            true => self.sandboxes.shared.store.forget_workspace(id).await,
            false => Ok(()),
        }
    }
}
