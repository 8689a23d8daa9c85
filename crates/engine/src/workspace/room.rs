//! The in-memory state of each workspace.

use super::Workspaces;
use super::supervised::{STOP_GRACE, Supervised};
use crate::blocking::blocking;
use crate::driver::{Handle, Shared, Whereabouts};
use crate::home::Home;
use crate::owned::{Keeper, Owned};
use crate::record;
use crate::shown::Pace;
use crate::store::{Store, TerminalRow, WorkspaceRecord, WorkspaceRow};
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use motu_core::exec::ExecEvent;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::workspace::{Workspace, WorkspaceId};
use motu_core::{Error, ErrorKind, Isolation, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use super::secrets::Secrets;

/// What is stored of a workspace: its row, and the record beside its disks.
#[derive(Debug)]
pub(crate) struct Stored {
    home: Home,
    store: Store,
}

/// What changes along with a workspace's row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Along {
    #[default]
    Nothing,
    /// It is new again: its history goes.
    Reset,
}

impl Stored {
    pub(super) fn of(shared: &Shared) -> Stored {
        Stored {
            home: shared.home.clone(),
            store: shared.store.clone(),
        }
    }

    /// Writes the record beside the disks. A secret that only the record has stays in it.
    pub(super) async fn record(&self, row: &WorkspaceRow) -> Result<()> {
        let mut secrets = self.store.secrets(&row.workspace_id).await?;
        let (home, workspace) = (self.home.clone(), row.clone());
        blocking(move || {
            let beside = record::read_workspace(&home.kept(&workspace.workspace_id)).into_record();
            let same = beside.filter(|beside| beside.workspace.created_at == workspace.created_at);
            for secret in same.into_iter().flat_map(|beside| beside.secrets) {
                if !secrets.iter().any(|known| known.name == secret.name) {
                    secrets.push(secret);
                }
            }
            record::write_workspace(&home, &WorkspaceRecord { workspace, secrets })
        })
        .await
    }
}

impl Keeper<WorkspaceRow> for Stored {
    type Along = Along;

    /// Side by side: each waits for the host's disk, and either restores the other.
    async fn keep(&self, row: &WorkspaceRow, along: Along) -> Result<()> {
        let stored = async {
            match along {
                Along::Nothing => self.store.update_workspace(row).await,
                Along::Reset => self.store.reset_workspace(row).await,
            }
        };
        // Both are done before the next change, whichever fails.
        let (recorded, stored) = tokio::join!(self.record(row), stored);
        recorded.and(stored)
    }
}

/// One workspace.
#[derive(Debug)]
pub struct Room {
    pub(super) id: WorkspaceId,
    pub(super) row: Arc<Owned<WorkspaceRow, Stored>>,
    /// Held while the workspace as a whole is changed: stop, start, reset, fork, snapshots, delete.
    turn: Arc<Turn<()>>,
    /// Held while a patch or push changes files, so that two do not interleave.
    pub(super) edit: Turn<()>,
    /// Held while a service is given its name, and while none may be.
    pub(super) naming: Arc<Turn<()>>,
    pub(super) secrets: Secrets,
    /// Shells opened before this time have ended with their machine.
    shells_since: Mutex<Timestamp>,
    pub(super) services: Mutex<BTreeMap<String, Arc<Supervised>>>,
}

impl Room {
    /// A workspace whose row is stored.
    pub(super) fn new(row: WorkspaceRow, secrets: Secrets, shared: &Shared) -> Room {
        Room {
            id: row.workspace_id.clone(),
            row: Owned::new(row, Stored::of(shared)),
            turn: Arc::default(),
            edit: Turn::new(()),
            naming: Arc::default(),
            secrets,
            shells_since: Mutex::new(Timestamp::UNIX_EPOCH),
            services: Mutex::default(),
        }
    }

    /// A session of this workspace with its secrets redacted.
    pub(crate) fn shown(
        &self,
        events: BoxStream<'static, Result<ExecEvent>>,
        pace: Pace,
    ) -> BoxStream<'static, Result<ExecEvent>> {
        self.secrets.redacted(events, pace)
    }

    /// Marks all shells as ended: they end with their machine.
    pub(super) fn forget_shells(&self) {
        *self.since() = Timestamp::now();
    }

    /// Whether a session is a shell of the current machine.
    pub(crate) fn has_shell(&self, row: &TerminalRow) -> bool {
        let reset = self.row().last_reset_at;
        let opened = row.opened_in.is_some() && !row.terminated && row.sandbox_id == self.id;
        opened && row.started_at >= *self.since() && reset.is_none_or(|at| row.started_at >= at)
    }

    fn since(&self) -> MutexGuard<'_, Timestamp> {
        self.shells_since
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The secrets of this workspace.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Whether something of it is not stored, or goes on without anybody who holds it.
    pub(super) fn is_busy(&self) -> bool {
        let services = self.services();
        let alive = services
            .values()
            .any(|one| one.is_alive() || !one.is_saved());
        alive || !self.row.is_saved()
    }

    pub(super) fn row(&self) -> Arc<WorkspaceRow> {
        self.row.row()
    }

    pub(super) fn services(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Supervised>>> {
        self.services
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Keeps services from being started, while this is held. A guest that does not answer one that
    /// is being started is not waited for.
    pub(super) async fn no_new_services(&self) -> Option<OwnedMutexGuard<()>> {
        let naming = self.naming.clone().lock_owned();
        tokio::time::timeout(STOP_GRACE, naming).await.ok()
    }

    /// Waits for the right to change the workspace as a whole.
    pub(crate) async fn wait_turn(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }

    /// The right to change the workspace as a whole; a conflict if it is taken.
    pub(super) fn take_turn(&self) -> Result<OwnedMutexGuard<()>> {
        self.turn.clone().try_lock_owned().map_err(|_| {
            Error::conflict(format!(
                "workspace {} is being stopped, started, reset, saved or deleted",
                self.id
            ))
            .hint("try again when that has ended")
        })
    }
}

impl Workspaces {
    /// A workspace and its sandbox, or an error that says why there is none.
    pub(crate) async fn room(&self, id: &WorkspaceId) -> Result<(Arc<Room>, Arc<Handle>)> {
        let missing = || {
            Error::not_found(format!("there is no workspace {id}"))
                .hint(hint![verb("list_workspaces"), " shows them"])
        };
        let room = self.known(id).await?.ok_or_else(missing)?;
        match self.sandboxes.get(id).await? {
            Some(handle) => {
                handle.beyond().settled().await;
                Ok((room, handle))
            }
            None => {
                // The sandbox is gone: its time to live was over.
                self.rooms.leave(id);
                Err(missing())
            }
        }
    }

    /// The workspace with this id; a dormant one is woken.
    pub(crate) async fn known(&self, id: &WorkspaceId) -> Result<Option<Arc<Room>>> {
        match self.rooms.find(id) {
            Whereabouts::Awake(room) => Ok(Some(room)),
            Whereabouts::Nowhere => Ok(None),
            Whereabouts::Dormant => self.wake(id).await,
        }
    }

    /// Fails for a workspace, which has verbs of its own.
    pub(crate) fn not_a_workspace(&self, id: &WorkspaceId) -> Result<()> {
        if !self.rooms.has(id) || !self.sandboxes.table.has(id) {
            return Ok(());
        }
        Err(Error::conflict(format!("{id} is a workspace")).hint(hint![
            verb("delete_workspace").with("id", id.as_str()),
            " deletes it with all that it has"
        ]))
    }

    pub(super) async fn describe(&self, room: &Room, handle: &Handle) -> Result<Workspace> {
        let sandbox = handle.sandbox();
        let store = &self.sandboxes.shared.store;
        let command_count = store.command_count(&room.id).await?;
        let shells = store.shells(&room.id).await?;
        let shell_count = shells.iter().filter(|row| room.has_shell(row)).count() as u64;
        let snapshot_count = self.snapshot_count(&room.id).await?;
        let checkpoint_count = self.checkpoint_count(&room.id).await?;
        let (service_count, running_service_count) = {
            let services = room.services();
            let alive = services.values().filter(|one| one.is_alive());
            (services.len() as u64, alive.count() as u64)
        };
        let row = WorkspaceRow::clone(&room.row());
        Ok(Workspace {
            workspace_id: room.id.clone(),
            name: row.name,
            labels: row.labels,
            state: sandbox.state,
            reason: sandbox.reason,
            environment: sandbox.environment,
            digest: sandbox.digest,
            template: sandbox.template,
            runtime: sandbox.runtime,
            host_compat: sandbox.isolation == Isolation::None,
            isolation: sandbox.isolation,
            accelerator: sandbox.accelerator,
            network_policy: row.network_policy,
            policy: sandbox.policy,
            vcpu_count: sandbox.vcpu_count,
            mem_mib: sandbox.mem_mib,
            created_at: sandbox.created_at,
            last_activity_at: sandbox.last_activity_at,
            expires_at: sandbox.expires_at,
            workspace_path: motu_core::workspace::WORKSPACE.to_string(),
            workspace_seed: row.seed,
            secrets: row.secrets,
            reset_count: row.reset_count,
            last_reset_at: row.last_reset_at,
            command_count,
            service_count,
            running_service_count,
            shell_count,
            snapshot_count,
            checkpoint: row.checkpoint,
            checkpoint_count,
        })
    }
}

/// Rewords an error about a sandbox for a workspace.
pub(crate) fn in_words(error: Error) -> Error {
    let said = error.message.replace("sandbox ", "workspace ");
    let vague = error.kind == ErrorKind::Unavailable && error.hint.is_some();
    let error = Error {
        message: said,
        ..error
    };
    match vague {
        true => error.hint(hint![verb("status_workspace"), " says more"]),
        false => error,
    }
}
