//! Copies of a workspace.

use super::Workspaces;
use super::checks;
use super::life::{baseline_of, generate, restoring};
use super::room::{Room, Stored};
use crate::admission::Admitted;
use crate::driver::{Handle, expiry};
use crate::store::WorkspaceRow;
use jiff::Timestamp;
use motu_core::event::EventKind;
use motu_core::runtime::Kept;
use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_core::{Error, Result, limits};
use std::sync::Arc;

impl Workspaces {
    /// Forks a workspace. A runtime with `fork` copies memory and disks; otherwise the copies are
    /// new machines with the same files in `/workspace`.
    pub(super) async fn fork(
        &self,
        id: &WorkspaceId,
        fork: ForkWorkspace,
    ) -> Result<Vec<Workspace>> {
        let count = limits::FORK_COUNT.resolve(fork.count)?;
        let name = fork.name.as_deref().map(checks::name).transpose()?;
        let (room, handle) = self.room(id).await?;
        let _turn = room.take_turn()?;
        let sandbox = handle.sandbox();
        let runtime = self.sandboxes.runtimes.named(&sandbox.runtime);
        let live = runtime.is_some_and(|runtime| runtime.capabilities().fork);
        let mut rows = Vec::new();
        for number in 1..=count {
            rows.push(copy_row(&room.row(), name.as_deref(), number, count));
        }
        let rows = match live {
            true => self.fork_live(&room, rows).await?,
            false => self.fork_files(&room, &handle, rows).await?,
        };
        self.tell(EventKind::WorkspaceForked, &sandbox, |facts| {
            facts.copies = rows.iter().map(WorkspaceId::to_string).collect();
        })
        .await;
        let mut copies = Vec::new();
        for id in rows {
            let (room, handle) = self.room(&id).await?;
            copies.push(self.describe(&room, &handle).await?);
        }
        Ok(copies)
    }

    async fn fork_live(&self, room: &Room, rows: Vec<WorkspaceRow>) -> Result<Vec<WorkspaceId>> {
        let ids: Vec<WorkspaceId> = rows.iter().map(|row| row.workspace_id.clone()).collect();
        for row in &rows {
            let sealed = room
                .secrets
                .seal(self.sandboxes.shared.home.path(), &row.workspace_id)?;
            self.sandboxes
                .shared
                .store
                .insert_workspace(row, sealed)
                .await?;
        }
        let forked = match self.sandboxes.fork_as(&room.id, ids.clone()).await {
            Ok(_) => self.record_all(&rows).await,
            Err(error) => Err(error),
        };
        if let Err(error) = forked {
            for id in &ids {
                self.sandboxes.shared.store.forget_workspace(id).await?;
                self.sandboxes
                    .shared
                    .trash
                    .discard(&self.sandboxes.shared.home.kept(id))?;
            }
            return Err(error);
        }
        for row in rows {
            // Each copy has its own gateway, and so its own set of secret values.
            let handle = self.sandboxes.awake(&row.workspace_id);
            let beyond = handle.map(|handle| handle.beyond().clone());
            let secrets = room.secrets.clone().and(&beyond.unwrap_or_default());
            let shared = &self.sandboxes.shared;
            self.rooms.enter(Arc::new(Room::new(row, secrets, shared)));
        }
        Ok(ids)
    }

    async fn record_all(&self, rows: &[WorkspaceRow]) -> Result<()> {
        let stored = Stored::of(&self.sandboxes.shared);
        for row in rows {
            stored.record(row).await?;
        }
        Ok(())
    }

    async fn fork_files(
        &self,
        room: &Room,
        handle: &Handle,
        rows: Vec<WorkspaceRow>,
    ) -> Result<Vec<WorkspaceId>> {
        let saved = self.save_aside(handle).await?;
        let (sandbox, launch) = (handle.sandbox(), handle.launch().await?);
        let runtime = self.sandboxes.runtimes.named(&sandbox.runtime).cloned();
        let runtime = runtime.ok_or_else(|| Error::internal("its runtime is not in this build"))?;
        let mut ids = Vec::new();
        for row in rows {
            let id = row.workspace_id.clone();
            let mut admitted = Admitted {
                runtime: runtime.clone(),
                sandbox: sandbox.clone(),
                launch: launch.clone(),
                named: true,
            };
            admitted.sandbox.sandbox_id = id.clone();
            admitted.sandbox.state = State::Creating;
            admitted.sandbox.created_at = row.created_at;
            admitted.sandbox.last_activity_at = row.created_at;
            admitted.sandbox.expires_at = expiry(sandbox.ttl_seconds);
            admitted.launch.kept = Some(Kept {
                dir: self.sandboxes.shared.home.make_disks(&id)?,
                baseline: baseline_of(handle).await?,
            });
            let prepare = restoring(saved.reopen()?);
            let begun = self.begin(admitted, row, room.secrets.clone(), Some(prepare));
            if let Err(error) = begun.await {
                // All or none: delete the copies made so far.
                for made in ids {
                    let _ = self.delete(&made).await;
                }
                return Err(error);
            }
            ids.push(id);
        }
        Ok(ids)
    }
}

fn copy_row(row: &WorkspaceRow, name: Option<&str>, number: u64, count: u64) -> WorkspaceRow {
    let name = match (name, count) {
        (Some(name), 1) => Some(name.to_string()),
        (Some(name), _) => Some(format!("{name}-{number}")),
        (None, _) => row.name.clone(),
    };
    WorkspaceRow {
        workspace_id: generate(),
        name,
        seed: WorkspaceSeed {
            mode: "fork".to_string(),
            seed_path: Some(row.workspace_id.to_string()),
            ..row.seed.clone()
        },
        reset_count: 0,
        last_reset_at: None,
        created_at: Timestamp::now(),
        revision: 0,
        ..row.clone()
    }
}
