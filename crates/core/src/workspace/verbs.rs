//! The verbs of workspaces: the second half of the one list.

use super::*;
use crate::Result;
use crate::exec::{ExecResult, ExecSession, TtySize};
use async_trait::async_trait;

#[async_trait]
pub trait Workspaces: Send + Sync + 'static {
    // ── life ────────────────────────────────────────────────────────────
    async fn create_workspace(&self, request: CreateWorkspace) -> Result<Workspace>;
    /// The most recently active first.
    async fn list_workspaces(&self) -> Result<Vec<WorkspaceSummary>>;
    async fn status_workspace(&self, id: &WorkspaceId) -> Result<Workspace>;
    async fn update_workspace(
        &self,
        id: &WorkspaceId,
        update: UpdateWorkspace,
    ) -> Result<Workspace>;
    async fn stop_workspace(&self, id: &WorkspaceId) -> Result<Workspace>;
    async fn start_workspace(&self, id: &WorkspaceId) -> Result<Workspace>;
    /// Makes the whole machine anew, with `/workspace` as a snapshot (or `baseline`) has it.
    async fn reset_workspace(&self, id: &WorkspaceId, snapshot: &str) -> Result<Workspace>;
    async fn delete_workspace(&self, id: &WorkspaceId) -> Result<Workspace>;
    async fn fork_workspace(&self, id: &WorkspaceId, fork: ForkWorkspace)
    -> Result<Vec<Workspace>>;

    // ── commands ────────────────────────────────────────────────────────
    async fn exec_workspace(&self, id: &WorkspaceId, request: WorkspaceExec) -> Result<ExecResult>;
    /// With live output; the command ends when the session is dropped.
    async fn exec_workspace_stream(
        &self,
        id: &WorkspaceId,
        request: WorkspaceExec,
    ) -> Result<ExecSession>;
    async fn logs_workspace(&self, id: &WorkspaceId) -> Result<CommandLog>;

    // ── content ─────────────────────────────────────────────────────────
    async fn push_workspace_sync(&self, id: &WorkspaceId, push: SyncPush) -> Result<SyncReport>;
    async fn list_workspace_files(
        &self,
        id: &WorkspaceId,
        path: &str,
        recursive: bool,
    ) -> Result<PathList>;
    async fn read_workspace_file(
        &self,
        id: &WorkspaceId,
        path: &str,
        max_bytes: Option<u64>,
    ) -> Result<FileText>;
    async fn write_workspace_file(&self, id: &WorkspaceId, write: WriteText)
    -> Result<FileWritten>;
    /// Copies a file or a tree to the daemon's host, to a new name or an empty directory.
    async fn export_workspace(
        &self,
        id: &WorkspaceId,
        path: &str,
        output_path: &str,
        options: ExportOptions,
    ) -> Result<Exported>;
    async fn apply_workspace_patch(&self, id: &WorkspaceId, patch: &str) -> Result<PatchReport>;
    async fn edit_workspace(&self, id: &WorkspaceId, edits: Vec<Edit>) -> Result<PatchReport>;
    async fn diff_workspace(&self, id: &WorkspaceId, options: DiffOptions) -> Result<DiffReport>;

    // ── snapshots ───────────────────────────────────────────────────────
    async fn create_snapshot(&self, id: &WorkspaceId, name: &str) -> Result<Snapshot>;
    async fn list_snapshots(&self, id: &WorkspaceId) -> Result<SnapshotList>;
    async fn delete_snapshot(&self, id: &WorkspaceId, name: &str) -> Result<Snapshot>;
    async fn diff_snapshots(
        &self,
        id: &WorkspaceId,
        from: &str,
        to: &str,
        options: DiffOptions,
    ) -> Result<DiffReport>;

    // ── the disk of a stopped workspace ─────────────────────────────────
    async fn export_workspace_disk(
        &self,
        id: &WorkspaceId,
        output_path: &str,
        options: ExportOptions,
    ) -> Result<DiskExported>;
    async fn list_workspace_disk(
        &self,
        id: &WorkspaceId,
        path: &str,
        recursive: bool,
    ) -> Result<PathList>;
    async fn read_workspace_disk(
        &self,
        id: &WorkspaceId,
        path: &str,
        max_bytes: Option<u64>,
    ) -> Result<FileText>;

    // ── services ────────────────────────────────────────────────────────
    async fn start_service(&self, id: &WorkspaceId, request: StartService)
    -> Result<ServiceStatus>;
    async fn list_services(&self, id: &WorkspaceId) -> Result<Vec<ServiceStatus>>;
    async fn status_service(&self, id: &WorkspaceId, name: &str) -> Result<ServiceStatus>;
    async fn logs_service(
        &self,
        id: &WorkspaceId,
        name: &str,
        options: LogOptions,
    ) -> Result<ServiceLogs>;
    /// Follows the output from now on, until the service ends.
    async fn follow_service(&self, id: &WorkspaceId, name: &str) -> Result<ExecSession>;
    async fn stop_service(&self, id: &WorkspaceId, name: &str) -> Result<ServiceStatus>;

    // ── shells ──────────────────────────────────────────────────────────
    async fn open_shell(&self, id: &WorkspaceId, request: OpenShell) -> Result<Shell>;
    async fn list_shells(&self, id: &WorkspaceId) -> Result<Vec<Shell>>;
    async fn read_shell(
        &self,
        id: &WorkspaceId,
        shell: &str,
        request: ReadShell,
    ) -> Result<ShellOutput>;
    async fn write_shell(
        &self,
        id: &WorkspaceId,
        shell: &str,
        request: WriteShell,
    ) -> Result<Shell>;
    /// A name such as `INT` or a number.
    async fn signal_shell(&self, id: &WorkspaceId, shell: &str, signal: &str) -> Result<Shell>;
    async fn resize_shell(&self, id: &WorkspaceId, shell: &str, size: TtySize) -> Result<Shell>;
    /// Live, with the screen as it is now first. Leaving does not end the shell.
    async fn attach_shell(
        &self,
        id: &WorkspaceId,
        shell: &str,
        size: TtySize,
    ) -> Result<ExecSession>;
    async fn close_shell(&self, id: &WorkspaceId, shell: &str) -> Result<Shell>;
}
