//! The verbs of workspaces.

use super::Client;
use async_trait::async_trait;
use motu_core::exec::{ExecResult, ExecSession, TtySize};
use motu_core::workspace::*;
use motu_core::{Error, Result};

fn not_yet() -> Error {
    Error::unsupported("workspaces are being built")
}

#[async_trait]
impl Workspaces for Client {
    async fn create_workspace(&self, _request: CreateWorkspace) -> Result<Workspace> {
        Err(not_yet())
    }

    async fn list_workspaces(&self) -> Result<Vec<WorkspaceSummary>> {
        Err(not_yet())
    }

    async fn status_workspace(&self, _id: &WorkspaceId) -> Result<Workspace> {
        Err(not_yet())
    }

    async fn update_workspace(
        &self,
        _id: &WorkspaceId,
        _update: UpdateWorkspace,
    ) -> Result<Workspace> {
        Err(not_yet())
    }

    async fn stop_workspace(&self, _id: &WorkspaceId) -> Result<Workspace> {
        Err(not_yet())
    }

    async fn start_workspace(&self, _id: &WorkspaceId) -> Result<Workspace> {
        Err(not_yet())
    }

    async fn reset_workspace(&self, _id: &WorkspaceId, _snapshot: &str) -> Result<Workspace> {
        Err(not_yet())
    }

    async fn delete_workspace(&self, _id: &WorkspaceId) -> Result<Workspace> {
        Err(not_yet())
    }

    async fn fork_workspace(
        &self,
        _id: &WorkspaceId,
        _fork: ForkWorkspace,
    ) -> Result<Vec<Workspace>> {
        Err(not_yet())
    }

    async fn exec_workspace(
        &self,
        _id: &WorkspaceId,
        _request: WorkspaceExec,
    ) -> Result<ExecResult> {
        Err(not_yet())
    }

    async fn exec_workspace_stream(
        &self,
        _id: &WorkspaceId,
        _request: WorkspaceExec,
    ) -> Result<ExecSession> {
        Err(not_yet())
    }

    async fn logs_workspace(&self, _id: &WorkspaceId) -> Result<CommandLog> {
        Err(not_yet())
    }

    async fn push_workspace_sync(&self, _id: &WorkspaceId, _push: SyncPush) -> Result<SyncReport> {
        Err(not_yet())
    }

    async fn list_workspace_files(
        &self,
        _id: &WorkspaceId,
        _path: &str,
        _recursive: bool,
    ) -> Result<PathList> {
        Err(not_yet())
    }

    async fn read_workspace_file(
        &self,
        _id: &WorkspaceId,
        _path: &str,
        _max_bytes: Option<u64>,
    ) -> Result<FileText> {
        Err(not_yet())
    }

    async fn write_workspace_file(
        &self,
        _id: &WorkspaceId,
        _write: WriteText,
    ) -> Result<FileWritten> {
        Err(not_yet())
    }

    async fn export_workspace(
        &self,
        _id: &WorkspaceId,
        _path: &str,
        _output_path: &str,
    ) -> Result<Exported> {
        Err(not_yet())
    }

    async fn apply_workspace_patch(&self, _id: &WorkspaceId, _patch: &str) -> Result<PatchReport> {
        Err(not_yet())
    }

    async fn edit_workspace(&self, _id: &WorkspaceId, _edits: Vec<Edit>) -> Result<PatchReport> {
        Err(not_yet())
    }

    async fn diff_workspace(&self, _id: &WorkspaceId, _options: DiffOptions) -> Result<DiffReport> {
        Err(not_yet())
    }

    async fn create_snapshot(&self, _id: &WorkspaceId, _name: &str) -> Result<Snapshot> {
        Err(not_yet())
    }

    async fn list_snapshots(&self, _id: &WorkspaceId) -> Result<SnapshotList> {
        Err(not_yet())
    }

    async fn delete_snapshot(&self, _id: &WorkspaceId, _name: &str) -> Result<Snapshot> {
        Err(not_yet())
    }

    async fn diff_snapshots(
        &self,
        _id: &WorkspaceId,
        _from: &str,
        _to: &str,
        _options: DiffOptions,
    ) -> Result<DiffReport> {
        Err(not_yet())
    }

    async fn export_workspace_disk(
        &self,
        _id: &WorkspaceId,
        _output_path: &str,
    ) -> Result<DiskExported> {
        Err(not_yet())
    }

    async fn list_workspace_disk(
        &self,
        _id: &WorkspaceId,
        _path: &str,
        _recursive: bool,
    ) -> Result<PathList> {
        Err(not_yet())
    }

    async fn read_workspace_disk(
        &self,
        _id: &WorkspaceId,
        _path: &str,
        _max_bytes: Option<u64>,
    ) -> Result<FileText> {
        Err(not_yet())
    }

    async fn start_service(
        &self,
        _id: &WorkspaceId,
        _request: StartService,
    ) -> Result<ServiceStatus> {
        Err(not_yet())
    }

    async fn list_services(&self, _id: &WorkspaceId) -> Result<Vec<ServiceStatus>> {
        Err(not_yet())
    }

    async fn status_service(&self, _id: &WorkspaceId, _name: &str) -> Result<ServiceStatus> {
        Err(not_yet())
    }

    async fn logs_service(
        &self,
        _id: &WorkspaceId,
        _name: &str,
        _options: LogOptions,
    ) -> Result<ServiceLogs> {
        Err(not_yet())
    }

    async fn follow_service(&self, _id: &WorkspaceId, _name: &str) -> Result<ExecSession> {
        Err(not_yet())
    }

    async fn stop_service(&self, _id: &WorkspaceId, _name: &str) -> Result<ServiceStatus> {
        Err(not_yet())
    }

    async fn open_shell(&self, _id: &WorkspaceId, _request: OpenShell) -> Result<Shell> {
        Err(not_yet())
    }

    async fn list_shells(&self, _id: &WorkspaceId) -> Result<Vec<Shell>> {
        Err(not_yet())
    }

    async fn read_shell(
        &self,
        _id: &WorkspaceId,
        _shell: &str,
        _request: ReadShell,
    ) -> Result<ShellOutput> {
        Err(not_yet())
    }

    async fn write_shell(
        &self,
        _id: &WorkspaceId,
        _shell: &str,
        _request: WriteShell,
    ) -> Result<Shell> {
        Err(not_yet())
    }

    async fn signal_shell(&self, _id: &WorkspaceId, _shell: &str, _signal: &str) -> Result<Shell> {
        Err(not_yet())
    }

    async fn resize_shell(&self, _id: &WorkspaceId, _shell: &str, _size: TtySize) -> Result<Shell> {
        Err(not_yet())
    }

    async fn attach_shell(
        &self,
        _id: &WorkspaceId,
        _shell: &str,
        _size: TtySize,
    ) -> Result<ExecSession> {
        Err(not_yet())
    }

    async fn close_shell(&self, _id: &WorkspaceId, _shell: &str) -> Result<Shell> {
        Err(not_yet())
    }
}
