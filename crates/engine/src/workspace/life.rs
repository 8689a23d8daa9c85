//! Create, stop, start, reset, delete.
//!
//! A workspace's row is stored before its sandbox's; undoing or destroying the sandbox also removes
//! the workspace's rows and files. So after a crash the next start finds either a complete
//! workspace, or what to remove.

use super::Workspaces;
use super::checks;
use super::room::{Along, Room, Stored};
use super::secrets::Secrets;
use super::services::forget_services;
use super::snapshots::Saved;
use crate::admission::Admitted;
use crate::blocking::blocking;
use crate::driver::{Handle, Keep, Origin, Prepare, Whereabouts, expiry};
use crate::kept::{Baselines, Owner, owner};
use crate::owned::to_the_end;
use crate::store::WorkspaceRow;
use futures_util::FutureExt;
use jiff::Timestamp;
use motu_core::call::SecretRef;
use motu_core::runtime::Kept;
use motu_core::sandbox::{CreateSandbox, State};
use motu_core::workspace::*;
use motu_core::{Error, ErrorKind, Page, Project, Result, SandboxId, id, limits};
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
    pub(super) async fn begin(
        &self,
        admitted: Admitted,
        row: WorkspaceRow,
        secrets: Secrets,
        prepare: Option<Prepare>,
    ) -> Result<Workspace> {
        let id = row.workspace_id.clone();
        let shared = &self.sandboxes.shared;
        let sealed = secrets.seal(shared.home.path(), &id)?;
        shared.store.insert_workspace(&row, sealed).await?;
        // Written after the insert: if the name were taken, this would overwrite another
        // workspace's record.
        let started = match Stored::of(shared).record(&row).await {
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
                shared.store.forget_workspace(&id).await?;
                shared.trash.discard(&shared.home.kept(&id))?;
                return Err(error);
            }
        };
        let room = Arc::new(Room::new(row, secrets.and(handle.beyond()), shared));
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

    /// All workspaces, the most recently active first. Of a page, as many as it needs: the gate cuts
    /// it.
    pub(super) async fn list(&self, page: &Page) -> Result<Vec<WorkspaceSummary>> {
        let table = &self.sandboxes.table;
        let owner = Project::of_owner(&page.owner).map(|project| project.owner());
        let visible = |id: &WorkspaceId| match &owner {
            Some(owner) => table.owner(id).as_ref() == Some(owner),
            None => true,
        };
        let ids = match page.stretch::<WorkspaceId>()? {
            Some(stretch) => {
                let after = stretch.after.as_ref();
                self.rooms.stretch(after, stretch.most, visible)
            }
            None => self.rooms.stretch(None, usize::MAX, visible),
        };
        let (mut all, mut dormant) = (Vec::with_capacity(ids.len()), Vec::new());
        for id in ids {
            if let Whereabouts::Awake(room) = self.rooms.find(&id) {
                if let Some(handle) = self.sandboxes.get(&id).await? {
                    all.push(WorkspaceSummary::from(
                        &self.describe(&room, &handle).await?,
                    ));
                }
            } else {
                dormant.push(id);
            }
        }
        if !dormant.is_empty() {
            all.extend(self.sandboxes.shared.store.summaries(dormant).await?);
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
        let changed = room.row.change(|row| {
            row.labels
                .retain(|key, _| !update.clear_labels.contains(key));
            row.labels.extend(update.labels);
            checks::labels(&row.labels)?;
            if name.is_some() || update.clear_name {
                row.name = name;
            }
            row.revision += 1;
            Ok(())
        });
        changed
            .await
            .map_err(|error| unless_it_went(id, &handle, error))?;
        handle.touch();
        self.describe(&room, &handle).await
    }

    pub(super) async fn stop(&self, id: &WorkspaceId) -> Result<Workspace> {
        let (room, handle) = self.room(id).await?;
        let _turn = room.take_turn()?;
        let _naming = room.no_new_services().await;
        self.quiet(&room, &handle, "the workspace was stopped")
            .await;
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
        let turn = room.take_turn()?;
        let saved = self.open_saved(id, snapshot).await?;
        let baseline = baseline_of(&handle).await?;
        // No service begins on a machine that is about to go.
        let naming = room.no_new_services().await;
        self.quiet(&room, &handle, "the workspace was reset").await;
        let dir = self.sandboxes.shared.home.make_disks(id)?;
        let kept = Kept { dir, baseline };
        let (sandboxes, known, machine) = (self.sandboxes.clone(), room.clone(), handle.clone());
        // What has begun is finished when the caller has gone: the row says what the disks are.
        to_the_end(async move {
            let _quiet = sandboxes.shared.trash.rest();
            let _environments_stay = sandboxes.environments_in_use.read().await;
            machine.recreate(kept, restoring(saved)).await?;
            forget_services(&known).await;
            let reset = |row: &mut WorkspaceRow| {
                row.reset_count += 1;
                row.last_reset_at = Some(Timestamp::now());
                row.revision += 1;
            };
            let stored = known.row.learn_with(reset, Along::Reset).await;
            drop((turn, naming));
            stored
        })
        .await?;
        self.describe(&room, &handle).await
    }

    pub(super) async fn delete(&self, id: &WorkspaceId) -> Result<Workspace> {
        let (room, handle) = self.room(id).await?;
        let _turn = room.take_turn()?;
        let mut last = self.describe(&room, &handle).await?;
        let _naming = room.no_new_services().await;
        self.quiet(&room, &handle, "the workspace was deleted")
            .await;
        forget_services(&room).await;
        // What is changed from here on is refused: there is soon no place to store it.
        room.row.retire().await;
        let sandbox = handle.destroy().await?;
        self.rooms.leave(id);
        last.state = sandbox.state;
        Ok(last)
    }
}

pub(super) fn generate() -> WorkspaceId {
    let text = format!("ws-{}", id::random_name(12));
    SandboxId::parse(&text).unwrap_or_else(|_| SandboxId::generate())
}

pub(super) async fn baseline_of(handle: &Handle) -> Result<std::path::PathBuf> {
    let kept = handle.launch().await?.kept;
    let kept = kept.ok_or_else(|| Error::internal("the workspace has no baseline"))?;
    Ok(kept.baseline)
}

/// Prepares a new machine by restoring `/workspace` from a saved state.
pub(super) fn restoring(saved: Saved) -> Prepare {
    Box::new(move |guest| async move { saved.restore(&guest).await }.boxed())
}

/// The error of a change that could not be stored: where the workspace goes meanwhile, that.
fn unless_it_went(id: &WorkspaceId, handle: &Handle, error: Error) -> Error {
    let going = matches!(handle.state(), State::Destroying | State::Destroyed);
    match going || error.kind == ErrorKind::Conflict {
        true => Error::conflict(format!("workspace {id} was deleted meanwhile"))
            .details(serde_json::json!({ "workspace_id": id })),
        false => error,
    }
}
