//! Create, stop, start, reset, fork, delete.
//!
//! A workspace's row is stored before its sandbox's; undoing or destroying the sandbox also removes
//! the workspace's rows and files. So after a crash the next start finds either a complete
//! workspace, or what to remove.

use super::Workspaces;
use super::checks;
use super::room::Room;
use super::secrets::Secrets;
use super::snapshots::Saved;
use crate::admission::Admitted;
use crate::blocking::blocking;
use crate::driver::{Handle, Keep, Origin, Prepare, expiry};
use crate::kept::{Baselines, Owner, owner};
use crate::record;
use crate::store::WorkspaceRecord;
use crate::store::{SealedSecret, WorkspaceRow};
use futures_util::FutureExt;
use jiff::Timestamp;
use motu_core::call::SecretRef;
use motu_core::event::EventKind;
use motu_core::runtime::Kept;
use motu_core::sandbox::{CreateSandbox, State};
use motu_core::workspace::*;
use motu_core::{Error, Result, SandboxId, id, limits};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Workspaces {
    pub(super) async fn create(&self, request: CreateWorkspace) -> Result<Workspace> {
        let request = self.templates.fill_workspace(request).await?;
        let asked = request.runtime.clone();
        let work = || self.create_once(request.clone());
        self.sandboxes.with_next(asked.as_deref(), work).await
    }

    async fn create_once(&self, request: CreateWorkspace) -> Result<Workspace> {
        let name = request.name.as_deref().map(checks::name).transpose()?;
        checks::labels(&request.labels)?;
        let referred = self.sandboxes.sort(&request.secret_refs).await?;
        // A secret that is bound to no host becomes one of the workspace, as if the caller had
        // given its value.
        let mut sources = request.secrets.clone();
        sources.extend(
            referred
                .values
                .into_iter()
                .map(|(name, value)| SecretSource {
                    name,
                    value: Some(value.to_string()),
                    path: None,
                }),
        );
        let secrets = self.take_secrets(&sources)?;
        let ttl = limits::WORKSPACE_TTL_SECONDS.resolve(request.ttl_seconds)?;
        let seed_path = request.seed_path.as_deref();
        let source = seed_path
            .map(|path| checks::on_host(path, "seed_path"))
            .transpose()?;
        let _environments_stay = self.sandboxes.environments_in_use.read().await;
        let id = request.workspace_id.clone().unwrap_or_else(generate);
        self.sandboxes.unused(&id).await?;
        let mut admitted = self
            .admit_workspace(&id, &request, (ttl, referred.bound))
            .await?;
        let owner = owner(&admitted.launch.root, &admitted.sandbox.user);
        let (baseline, seed) = self.baseline(&id, owner, source).await?;
        let row = WorkspaceRow {
            workspace_id: id.clone(),
            name,
            labels: request.labels,
            network_policy: request.network_policy,
            seed,
            secrets: secrets.infos(),
            reset_count: 0,
            last_reset_at: None,
            created_at: admitted.sandbox.created_at,
            revision: 0,
            checkpoint: request.checkpoint,
        };
        let leased = crate::kept::seeded(&baseline);
        let begun = match self.sandboxes.shared.home.make_disks(&id) {
            Ok(dir) => {
                admitted.launch.kept = Some(Kept { dir, baseline });
                self.begin(admitted, row, secrets, None).await
            }
            Err(error) => Err(error),
        };
        if let (Some(baseline), Err(_)) = (leased, &begun) {
            self.sandboxes
                .shared
                .release_baseline(&baseline, &id)
                .await?;
        }
        begun
    }

    /// Stores a workspace, makes its machine and enters it into the table.
    async fn begin(
        &self,
        admitted: Admitted,
        row: WorkspaceRow,
        secrets: Secrets,
        prepare: Option<Prepare>,
    ) -> Result<Workspace> {
        let id = row.workspace_id.clone();
        let sealed = secrets.seal(self.sandboxes.shared.home.path(), &id)?;
        self.sandboxes
            .shared
            .store
            .insert_workspace(&row, sealed.clone())
            .await?;
        // Written after the insert: if the name were taken, this would overwrite another
        // workspace's record.
        let started = match self.record_workspace(&row, sealed).await {
            Ok(()) => {
                let origin = Origin::New(prepare);
                self.sandboxes.start(admitted, Keep::Stored, origin).await
            }
            Err(error) => Err(error),
        };
        let handle = match started {
            Ok((_, handle)) => handle,
            Err(error) => {
                // The driver has undone the sandbox.
                self.sandboxes.shared.store.forget_workspace(&id).await?;
                self.sandboxes
                    .shared
                    .trash
                    .discard(&self.sandboxes.shared.home.kept(&id))?;
                return Err(error);
            }
        };
        let room = Arc::new(Room::new(row, secrets.and(handle.beyond())));
        self.rooms.enter(room.clone());
        self.describe(&room, &handle).await
    }

    async fn admit_workspace(
        &self,
        id: &WorkspaceId,
        request: &CreateWorkspace,
        (ttl, bound): (u64, BTreeMap<String, SecretRef>),
    ) -> Result<Admitted> {
        let sandbox = CreateSandbox {
            owner: request.owner.clone(),
            bounds: request.bounds.clone(),
            environment: request.environment.clone(),
            made_from: request.made_from.clone(),
            env: request.env.clone(),
            sandbox_id: Some(id.clone()),
            runtime: request.runtime.clone(),
            isolation: request.isolation,
            size: request.size,
            io_mbps: request.io_mbps,
            iops: request.iops,
            allow_host_compat: request.allow_host_compat,
            accel: request.accel,
            keep: true,
            network: request.network_policy != NetworkPolicy::Off,
            policy: request.policy.clone(),
            narrowed: request.narrowed.clone(),
            allowed_hosts: request.allowed_hosts.clone(),
            secret_refs: bound,
            ..CreateSandbox::default()
        };
        let mut admitted = self.sandboxes.gate().admit(sandbox).await?;
        if admitted.runtime.capabilities().uses_environment {
            admitted.sandbox.workdir = WORKSPACE.to_string();
        }
        admitted.sandbox.ttl_seconds = ttl;
        admitted.sandbox.expires_at = expiry(ttl);
        Ok(admitted)
    }

    /// The baseline of `/workspace`.
    async fn baseline(
        &self,
        id: &WorkspaceId,
        owner: Owner,
        source: Option<std::path::PathBuf>,
    ) -> Result<(std::path::PathBuf, WorkspaceSeed)> {
        let Some(source) = source else {
            let seed = WorkspaceSeed {
                mode: "empty".to_string(),
                seed_path: None,
                destination: WORKSPACE.to_string(),
                entry_count: 0,
                bytes_written: 0,
            };
            return Ok((self.sandboxes.shared.baselines.empty(owner)?, seed));
        };
        let name = Baselines::new_name();
        // Lease it before it is published, so that a crash leaves no baseline without a reference.
        self.sandboxes
            .shared
            .store
            .lease_baseline(&name, id)
            .await?;
        let (baselines, leased) = (self.sandboxes.shared.baselines.clone(), name.clone());
        let made = blocking(move || {
            let staged = baselines.stage(owner)?;
            let seeded = super::content::seed(&source, &Baselines::staged_tree(&staged), owner);
            let seed = match seeded {
                Ok(seed) => seed,
                Err(error) => {
                    let _ = std::fs::remove_dir_all(&staged);
                    return Err(error);
                }
            };
            baselines.publish(&staged, &name)?;
            Ok((baselines.tree(&name), seed))
        })
        .await;
        if made.is_err() {
            self.sandboxes.shared.release_baseline(&leased, id).await?;
        }
        made
    }

    pub(super) async fn list(&self) -> Result<Vec<WorkspaceSummary>> {
        let mut all = Vec::new();
        for room in self.rooms.all() {
            if let Ok((room, handle)) = self.room(&room.id).await {
                all.push(WorkspaceSummary::from(
                    &self.describe(&room, &handle).await?,
                ));
            }
        }
        all.sort_by(|a, b| {
            (b.last_activity_at, &b.workspace_id).cmp(&(a.last_activity_at, &a.workspace_id))
        });
        Ok(all)
    }

    pub(super) async fn update(
        &self,
        id: &WorkspaceId,
        update: UpdateWorkspace,
    ) -> Result<Workspace> {
        let (room, handle) = self.room(id).await?;
        if update.clear_name && update.name.is_some() {
            return Err(Error::invalid("both a name and clear_name are given"));
        }
        let name = update.name.as_deref().map(checks::name).transpose()?;
        for key in &update.clear_labels {
            checks::label_key(key)?;
        }
        let row = {
            let mut row = room.row();
            let mut labels = row.labels.clone();
            labels.retain(|key, _| !update.clear_labels.contains(key));
            labels.extend(update.labels);
            checks::labels(&labels)?;
            row.labels = labels;
            if name.is_some() || update.clear_name {
                row.name = name;
            }
            row.revision += 1;
            row.clone()
        };
        self.record_again(&row).await?;
        self.sandboxes.shared.store.update_workspace(&row).await?;
        handle.touch();
        self.describe(&room, &handle).await
    }

    pub(super) async fn stop(&self, id: &WorkspaceId) -> Result<Workspace> {
        let (room, handle) = self.room(id).await?;
        let _turn = room.take_turn()?;
        self.quiet(&room, "the workspace was stopped").await;
        handle.stop().await?;
        room.forget_shells();
        self.describe(&room, &handle).await
    }

    pub(super) async fn start(&self, id: &WorkspaceId) -> Result<Workspace> {
        let (room, handle) = self.room(id).await?;
        let _turn = room.take_turn()?;
        let _environments_stay = self.sandboxes.environments_in_use.read().await;
        let (table, quota) = (&self.sandboxes.table, &self.sandboxes.config.quota);
        let _counted = self.sandboxes.placed(|| table.starts(id, quota)).await?;
        handle.start().await?;
        self.describe(&room, &handle).await
    }

    pub(super) async fn reset(&self, id: &WorkspaceId, snapshot: &str) -> Result<Workspace> {
        let (room, handle) = self.room(id).await?;
        let _turn = room.take_turn()?;
        let _quiet = self.sandboxes.shared.trash.rest();
        let saved = self.open_saved(id, snapshot).await?;
        let _environments_stay = self.sandboxes.environments_in_use.read().await;
        let kept = Kept {
            dir: self.sandboxes.shared.home.make_disks(id)?,
            baseline: baseline_of(&handle).await?,
        };
        self.quiet(&room, "the workspace was reset").await;
        handle.recreate(kept, restoring(saved)).await?;
        let row = {
            let mut row = room.row();
            row.reset_count += 1;
            row.last_reset_at = Some(Timestamp::now());
            row.revision += 1;
            row.clone()
        };
        room.services().clear();
        // Side by side: each waits for the host's disk, and either restores the other.
        let store = &self.sandboxes.shared.store;
        tokio::try_join!(self.record_again(&row), store.reset_workspace(&row))?;
        self.describe(&room, &handle).await
    }

    pub(super) async fn delete(&self, id: &WorkspaceId) -> Result<Workspace> {
        let (room, handle) = self.room(id).await?;
        let _turn = room.take_turn()?;
        let mut last = self.describe(&room, &handle).await?;
        self.quiet(&room, "the workspace was deleted").await;
        let sandbox = handle.destroy().await?;
        self.rooms.leave(id);
        last.state = sandbox.state;
        Ok(last)
    }

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
            let handle = self.sandboxes.table.get(&row.workspace_id);
            let beyond = handle.map(|handle| handle.beyond().clone());
            let secrets = room.secrets.clone().and(&beyond.unwrap_or_default());
            self.rooms.enter(Arc::new(Room::new(row, secrets)));
        }
        Ok(ids)
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

    /// Adopts the workspaces of a previous daemon, after their sandboxes.
    pub(crate) async fn adopt(&self) -> Result<()> {
        let mut rows = self.sandboxes.shared.store.workspaces().await?;
        rows.extend(self.unreadable_rows(&rows).await?);
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
            let room = Arc::new(Room::new(row, secrets.and(handle.beyond())));
            self.rooms.enter(room.clone());
            self.end_lost_commands(&id).await?;
            self.adopt_services(&room, &handle).await?;
            if handle.state() != State::Running {
                room.forget_shells();
            }
        }
        Ok(())
    }
}

impl Workspaces {
    /// Writes a workspace's record beside its disks.
    async fn record_workspace(&self, row: &WorkspaceRow, secrets: Vec<SealedSecret>) -> Result<()> {
        let (home, workspace) = (self.sandboxes.shared.home.clone(), row.clone());
        blocking(move || record::write_workspace(&home, &WorkspaceRecord { workspace, secrets }))
            .await
    }

    async fn record_again(&self, row: &WorkspaceRow) -> Result<()> {
        let secrets = self
            .sandboxes
            .shared
            .store
            .secrets(&row.workspace_id)
            .await?;
        self.record_workspace(row, secrets).await
    }

    async fn record_all(&self, rows: &[WorkspaceRow]) -> Result<()> {
        for row in rows {
            self.record_again(row).await?;
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
                if let Err(error) = self.record_again(&row).await {
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

fn generate() -> WorkspaceId {
    let text = format!("ws-{}", id::random_name(12));
    SandboxId::parse(&text).unwrap_or_else(|_| SandboxId::generate())
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

async fn baseline_of(handle: &Handle) -> Result<std::path::PathBuf> {
    let kept = handle.launch().await?.kept;
    let kept = kept.ok_or_else(|| Error::internal("the workspace has no baseline"))?;
    Ok(kept.baseline)
}

/// Prepares a new machine by restoring `/workspace` from a saved state.
fn restoring(saved: Saved) -> Prepare {
    Box::new(move |guest| async move { saved.restore(&guest).await }.boxed())
}
