//! Workspaces: sandboxes that are kept.
//!
//! ```text
//!   room        what is known of each while it is used; rooms has all, dormant ones by name
//!   life        create, stop, start, reset, delete; forking for copies
//!   adopting    those that a former daemon had
//!   history     commands and what is remembered of them
//!   content     files, exporting; pushing what came later
//!   patching    patches, edits, diffs
//!   snapshots   named states of /workspace
//!   checkpoints states before commands, and going back to them in place
//!   disk        the disks of a stopped one
//!   services    long-running processes: beginning and watching them, supervised for what is known
//!               of each, probes and readying for when one is ready, publish for who reaches it
//!   ring, pipe  output a machine still has; streams for code that blocks
//!   secrets     sealed at rest, redacted from what is shown
//!   checks      names, labels and paths callers give
//! ```

mod adopting;
mod beginning;
mod checkpoints;
mod checks;
mod content;
mod disk;
mod forking;
mod history;
mod life;
mod patching;
mod probes;
mod publish;
mod pushing;
mod readying;
mod resolve;
mod ring;
mod room;
mod rooms;
mod secrets;
mod services;
mod snapshots;
mod supervised;
mod watching;

pub(crate) use room::{Room, in_words};
pub(crate) use secrets::Secrets;

use crate::sandbox::Sandboxes;
use crate::template::Templates;
use async_trait::async_trait;
use motu_core::Result;
use motu_core::event::{EventFacts, EventKind, Happened};
use motu_core::exec::{ExecResult, ExecSession};
use motu_core::lists::{ServiceList, SnapshotList, WorkspaceCopies, WorkspaceList};
use motu_core::sandbox::Sandbox;
use motu_core::workspace::*;
use rooms::Rooms;
use std::sync::Arc;

/// All workspaces.
#[derive(Debug)]
pub struct Workspaces {
    pub(crate) sandboxes: Arc<Sandboxes>,
    templates: Arc<Templates>,
    pub(crate) rooms: Rooms,
    /// Held while a dormant workspace is read again.
    waking: tokio::sync::Mutex<()>,
}

impl Workspaces {
    pub fn new(sandboxes: Arc<Sandboxes>, templates: Arc<Templates>) -> Workspaces {
        Workspaces {
            sandboxes,
            templates,
            rooms: Rooms::default(),
            waking: tokio::sync::Mutex::default(),
        }
    }

    /// Tells of something that was done with a workspace and is not in the store.
    async fn tell(&self, kind: EventKind, sandbox: &Sandbox, fill: impl FnOnce(&mut EventFacts)) {
        let mut facts = EventFacts::default();
        fill(&mut facts);
        let event = Happened::now(kind, &sandbox.owner).about(&sandbox.sandbox_id);
        self.sandboxes.shared.store.tell(event.facts(facts)).await;
    }
}

#[async_trait]
impl motu_core::Workspaces for Workspaces {
    async fn create_workspace(&self, request: CreateWorkspace) -> Result<Workspace> {
        self.create(request).await
    }

    async fn list_workspaces(&self, page: motu_core::Page) -> Result<WorkspaceList> {
        self.list(&page).await.map(WorkspaceList::new)
    }

    async fn status_workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        let (room, handle) = self.room(id).await?;
        self.describe(&room, &handle).await
    }

    async fn update_workspace(
        &self,
        id: &WorkspaceId,
        update: UpdateWorkspace,
    ) -> Result<Workspace> {
        self.update(id, update).await
    }

    async fn stop_workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        self.stop(id).await
    }

    async fn start_workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        self.start(id).await
    }

    async fn reset_workspace(&self, id: &WorkspaceId, ask: ResetTo) -> Result<Workspace> {
        self.reset(id, &ask.snapshot).await
    }

    async fn undo_workspace(&self, id: &WorkspaceId, ask: Undo) -> Result<Undone> {
        self.undo(id, ask.steps).await
    }

    async fn delete_workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        self.delete(id).await
    }

    async fn fork_workspace(
        &self,
        id: &WorkspaceId,
        fork: ForkWorkspace,
    ) -> Result<WorkspaceCopies> {
        let copies = self.fork(id, fork).await?;
        Ok(WorkspaceCopies::new(copies))
    }

    async fn exec_workspace(&self, id: &WorkspaceId, request: WorkspaceExec) -> Result<ExecResult> {
        self.exec(id, request).await
    }

    async fn exec_workspace_stream(
        &self,
        id: &WorkspaceId,
        request: WorkspaceExec,
    ) -> Result<ExecSession> {
        self.exec_stream(id, request).await
    }

    async fn logs_workspace(&self, id: &WorkspaceId) -> Result<CommandLog> {
        self.logs(id).await
    }

    async fn push_workspace_sync(&self, id: &WorkspaceId, push: SyncPush) -> Result<SyncReport> {
        self.push(id, push).await
    }

    async fn list_workspace_files(&self, id: &WorkspaceId, ask: ListPaths) -> Result<PathList> {
        self.list_files(id, &ask.path, ask.recursive).await
    }

    async fn read_workspace_file(&self, id: &WorkspaceId, ask: ReadText) -> Result<FileText> {
        self.read_file(id, &ask.path, ask.max_bytes).await
    }

    async fn write_workspace_file(
        &self,
        id: &WorkspaceId,
        write: WriteText,
    ) -> Result<FileWritten> {
        self.write_file(id, write).await
    }

    async fn export_workspace(&self, id: &WorkspaceId, ask: ExportFiles) -> Result<Exported> {
        let options = ask.options();
        self.export(id, &ask.path, &ask.output_path, options).await
    }

    async fn apply_workspace_patch(&self, id: &WorkspaceId, ask: Patch) -> Result<PatchReport> {
        self.apply_patch(id, &ask.patch).await
    }

    async fn edit_workspace(&self, id: &WorkspaceId, ask: EditFiles) -> Result<PatchReport> {
        self.edit(id, ask.edits).await
    }

    async fn diff_workspace(&self, id: &WorkspaceId, options: DiffOptions) -> Result<DiffReport> {
        self.diff(id, options).await
    }

    async fn create_snapshot(&self, id: &WorkspaceId, ask: SaveAs) -> Result<Snapshot> {
        self.take_snapshot(id, &ask.snapshot_name).await
    }

    async fn list_snapshots(&self, id: &WorkspaceId, _: motu_core::Page) -> Result<SnapshotList> {
        self.snapshot_list(id).await
    }

    async fn delete_snapshot(&self, id: &WorkspaceId, name: &str) -> Result<Snapshot> {
        self.drop_snapshot(id, name).await
    }

    async fn diff_snapshots(&self, id: &WorkspaceId, from: &str, ask: Since) -> Result<DiffReport> {
        let options = DiffOptions {
            max_bytes: ask.max_bytes,
        };
        self.compare_snapshots(id, from, &ask.to, options).await
    }

    async fn export_workspace_disk(
        &self,
        id: &WorkspaceId,
        ask: ExportDisk,
    ) -> Result<DiskExported> {
        let options = ask.options();
        self.export_disk(id, &ask.output_path, options).await
    }

    async fn list_workspace_disk(&self, id: &WorkspaceId, ask: ListPaths) -> Result<PathList> {
        self.list_disk(id, &ask.path, ask.recursive).await
    }

    async fn read_workspace_disk(&self, id: &WorkspaceId, ask: ReadText) -> Result<FileText> {
        self.read_disk(id, &ask.path, ask.max_bytes).await
    }

    async fn start_service(
        &self,
        id: &WorkspaceId,
        request: StartService,
    ) -> Result<ServiceStatus> {
        self.new_service(id, request).await
    }

    async fn list_services(&self, id: &WorkspaceId) -> Result<ServiceList> {
        let (room, _) = self.room(id).await?;
        let services = room.services();
        let all = services.values().map(|one| one.status()).collect();
        Ok(ServiceList::new(id.clone(), all))
    }

    async fn status_service(&self, id: &WorkspaceId, name: &str) -> Result<ServiceStatus> {
        let (room, _) = self.room(id).await?;
        Ok(services::named(&room, name)?.status())
    }

    async fn logs_service(
        &self,
        id: &WorkspaceId,
        name: &str,
        options: LogOptions,
    ) -> Result<ServiceLogs> {
        self.service_logs(id, name, options).await
    }

    async fn follow_service(&self, id: &WorkspaceId, name: &str) -> Result<ExecSession> {
        self.service_output(id, name).await
    }

    async fn stop_service(&self, id: &WorkspaceId, name: &str) -> Result<ServiceStatus> {
        self.end_service(id, name).await
    }
}
