//! Finds the workspaces of a previous daemon: their rows, or the records beside their disks.

use super::Workspaces;
use super::room::{Room, Stored};
use super::secrets::Secrets;
use crate::record;
use crate::store::WorkspaceRow;
use motu_core::Result;
use motu_core::sandbox::State;
use motu_core::workspace::WorkspaceId;
use std::sync::Arc;

impl Workspaces {
    /// Adopts the workspaces of a previous daemon, after their sandboxes.
    pub(crate) async fn adopt(&self) -> Result<()> {
        let mut rows = self.sandboxes.shared.store.workspaces().await?;
        rows.extend(self.unreadable_rows(&rows).await?);
        let shared = &self.sandboxes.shared;
        for row in rows {
            let id = row.workspace_id.clone();
            let Some(handle) = self.sandboxes.table.get(&id) else {
                self.forget_gone(&id).await?;
                continue;
            };
            let row = self.newest_row(row).await?;
            let secrets = match self.open_secrets(&id).await {
                Ok(secrets) => secrets,
                Err(error) => {
                    tracing::error!(%id, %error, "could not unseal a workspace's secrets; it runs without them");
                    Secrets::none(&self.sandboxes.patterns)?
                }
            };
            let room = Arc::new(Room::new(row, secrets.and(handle.beyond()), shared));
            self.rooms.enter(room.clone());
            self.end_lost_commands(&id).await?;
            self.adopt_services(&room, &handle).await?;
            if handle.state() != State::Running {
                room.forget_shells();
            }
        }
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
    async fn unreadable_rows(&self, known: &[WorkspaceRow]) -> Result<Vec<WorkspaceRow>> {
        let mut found = Vec::new();
        for (id, dir) in record::kept(&self.sandboxes.shared.home) {
            if known.iter().any(|row| row.workspace_id == id)
                || self.sandboxes.table.get(&id).is_none()
            {
                continue;
            }
            if let Some(beside) = record::read_workspace(&dir).into_record() {
                tracing::warn!(%id, "restoring the row from the record beside the disks");
                self.sandboxes.shared.store.put_workspace(&beside).await?;
                found.push(beside.workspace);
            }
        }
        Ok(found)
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
