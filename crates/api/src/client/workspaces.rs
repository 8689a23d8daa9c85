//! The verbs of workspaces, sent over the wire.

use super::remote::SEGMENT;
use super::{Call, Client};
use crate::wire::{
    DiffQuery, DiskExportBody, EditBody, ExportBody, FileTextQuery, PatchBody, PathListQuery,
    ResetBody, ServiceLogsQuery, ShellOutputQuery, ShellSignalBody, SnapshotBody,
    SnapshotDiffQuery, TtySizeQuery,
};
use async_trait::async_trait;
use http::Method;
use motu_core::exec::{ExecResult, ExecSession, TtySize};
use motu_core::workspace::*;
use motu_core::{Error, Result};
use percent_encoding::utf8_percent_encode;
use serde::de::DeserializeOwned;

fn workspace(id: &WorkspaceId, rest: &str) -> String {
    format!("/v1/workspaces/{id}{rest}")
}

/// Something with a name in a workspace.
fn named(id: &WorkspaceId, family: &str, name: &str, rest: &str) -> Result<String> {
    if name.is_empty() {
        // An empty part would make it another address.
        return Err(Error::invalid("the name is empty"));
    }
    let name = utf8_percent_encode(name, SEGMENT);
    Ok(workspace(id, &format!("/{family}/{name}{rest}")))
}

fn snapshot(id: &WorkspaceId, name: &str, rest: &str) -> Result<String> {
    named(id, "snapshots", name, rest)
}

fn service(id: &WorkspaceId, name: &str, rest: &str) -> Result<String> {
    named(id, "services", name, rest)
}

fn shell(id: &WorkspaceId, shell: &str, rest: &str) -> Result<String> {
    named(id, "shells", shell, rest)
}

impl Client {
    /// A verb that says everything with its address.
    async fn plain<T: DeserializeOwned>(&self, method: Method, target: String) -> Result<T> {
        self.fetch(Call::new(method, target)).await
    }
}

#[async_trait]
impl Workspaces for Client {
    async fn create_workspace(&self, request: CreateWorkspace) -> Result<Workspace> {
        self.fetch(Call::post("/v1/workspaces").json(&request))
            .await
    }

    async fn list_workspaces(&self) -> Result<Vec<WorkspaceSummary>> {
        self.fetch(Call::get("/v1/workspaces")).await
    }

    async fn status_workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        self.plain(Method::GET, workspace(id, "")).await
    }

    async fn update_workspace(
        &self,
        id: &WorkspaceId,
        update: UpdateWorkspace,
    ) -> Result<Workspace> {
        self.fetch(Call::new(Method::PATCH, workspace(id, "")).json(&update))
            .await
    }

    async fn stop_workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        self.plain(Method::POST, workspace(id, "/stop")).await
    }

    async fn start_workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        self.plain(Method::POST, workspace(id, "/start")).await
    }

    async fn reset_workspace(&self, id: &WorkspaceId, snapshot: &str) -> Result<Workspace> {
        let snapshot = snapshot.to_string();
        self.fetch(Call::post(workspace(id, "/reset")).json(&ResetBody { snapshot }))
            .await
    }

    async fn delete_workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        self.plain(Method::DELETE, workspace(id, "")).await
    }

    async fn fork_workspace(
        &self,
        id: &WorkspaceId,
        fork: ForkWorkspace,
    ) -> Result<Vec<Workspace>> {
        self.fetch(Call::post(workspace(id, "/fork")).json(&fork))
            .await
    }

    async fn exec_workspace(&self, id: &WorkspaceId, request: WorkspaceExec) -> Result<ExecResult> {
        self.fetch(Call::post(workspace(id, "/exec")).json(&request))
            .await
    }

    async fn exec_workspace_stream(
        &self,
        id: &WorkspaceId,
        request: WorkspaceExec,
    ) -> Result<ExecSession> {
        self.open(workspace(id, "/exec"), &request).await
    }

    async fn logs_workspace(&self, id: &WorkspaceId) -> Result<CommandLog> {
        self.plain(Method::GET, workspace(id, "/logs")).await
    }

    async fn push_workspace_sync(&self, id: &WorkspaceId, push: SyncPush) -> Result<SyncReport> {
        self.fetch(Call::post(workspace(id, "/sync/push")).json(&push))
            .await
    }

    async fn list_workspace_files(
        &self,
        id: &WorkspaceId,
        path: &str,
        recursive: bool,
    ) -> Result<PathList> {
        let query = PathListQuery {
            path: Some(path.to_string()),
            recursive: Some(recursive),
        };
        self.fetch(Call::get(workspace(id, "/files")).query(&query)?)
            .await
    }

    async fn read_workspace_file(
        &self,
        id: &WorkspaceId,
        path: &str,
        max_bytes: Option<u64>,
    ) -> Result<FileText> {
        let query = FileTextQuery {
            path: Some(path.to_string()),
            max_bytes,
        };
        self.fetch(Call::get(workspace(id, "/files/text")).query(&query)?)
            .await
    }

    async fn write_workspace_file(
        &self,
        id: &WorkspaceId,
        write: WriteText,
    ) -> Result<FileWritten> {
        self.fetch(Call::new(Method::PUT, workspace(id, "/files/text")).json(&write))
            .await
    }

    async fn export_workspace(
        &self,
        id: &WorkspaceId,
        path: &str,
        output_path: &str,
        options: ExportOptions,
    ) -> Result<Exported> {
        let body = ExportBody {
            path: path.to_string(),
            output_path: output_path.to_string(),
            force: options.force,
            max_bytes: options.max_bytes,
        };
        self.fetch(Call::post(workspace(id, "/export")).json(&body))
            .await
    }

    async fn apply_workspace_patch(&self, id: &WorkspaceId, patch: &str) -> Result<PatchReport> {
        let patch = patch.to_string();
        self.fetch(Call::post(workspace(id, "/patch")).json(&PatchBody { patch }))
            .await
    }

    async fn edit_workspace(&self, id: &WorkspaceId, edits: Vec<Edit>) -> Result<PatchReport> {
        self.fetch(Call::post(workspace(id, "/edit")).json(&EditBody { edits }))
            .await
    }

    async fn diff_workspace(&self, id: &WorkspaceId, options: DiffOptions) -> Result<DiffReport> {
        let query = DiffQuery::from(options);
        self.fetch(Call::get(workspace(id, "/diff")).query(&query)?)
            .await
    }

    async fn create_snapshot(&self, id: &WorkspaceId, name: &str) -> Result<Snapshot> {
        let snapshot_name = name.to_string();
        let call = Call::post(workspace(id, "/snapshots"));
        self.fetch(call.json(&SnapshotBody { snapshot_name })).await
    }

    async fn list_snapshots(&self, id: &WorkspaceId) -> Result<SnapshotList> {
        self.plain(Method::GET, workspace(id, "/snapshots")).await
    }

    async fn delete_snapshot(&self, id: &WorkspaceId, name: &str) -> Result<Snapshot> {
        self.plain(Method::DELETE, snapshot(id, name, "")?).await
    }

    async fn diff_snapshots(
        &self,
        id: &WorkspaceId,
        from: &str,
        to: &str,
        options: DiffOptions,
    ) -> Result<DiffReport> {
        let query = SnapshotDiffQuery {
            to: Some(to.to_string()),
            max_bytes: options.max_bytes,
        };
        self.fetch(Call::get(snapshot(id, from, "/diff")?).query(&query)?)
            .await
    }

    async fn export_workspace_disk(
        &self,
        id: &WorkspaceId,
        output_path: &str,
        options: ExportOptions,
    ) -> Result<DiskExported> {
        let body = DiskExportBody {
            output_path: output_path.to_string(),
            force: options.force,
            max_bytes: options.max_bytes,
        };
        self.fetch(Call::post(workspace(id, "/disk/export")).json(&body))
            .await
    }

    async fn list_workspace_disk(
        &self,
        id: &WorkspaceId,
        path: &str,
        recursive: bool,
    ) -> Result<PathList> {
        let query = PathListQuery {
            path: Some(path.to_string()),
            recursive: Some(recursive),
        };
        self.fetch(Call::get(workspace(id, "/disk/files")).query(&query)?)
            .await
    }

    async fn read_workspace_disk(
        &self,
        id: &WorkspaceId,
        path: &str,
        max_bytes: Option<u64>,
    ) -> Result<FileText> {
        let query = FileTextQuery {
            path: Some(path.to_string()),
            max_bytes,
        };
        self.fetch(Call::get(workspace(id, "/disk/files/text")).query(&query)?)
            .await
    }

    async fn start_service(
        &self,
        id: &WorkspaceId,
        request: StartService,
    ) -> Result<ServiceStatus> {
        self.fetch(Call::post(workspace(id, "/services")).json(&request))
            .await
    }

    async fn list_services(&self, id: &WorkspaceId) -> Result<Vec<ServiceStatus>> {
        self.plain(Method::GET, workspace(id, "/services")).await
    }

    async fn status_service(&self, id: &WorkspaceId, name: &str) -> Result<ServiceStatus> {
        self.plain(Method::GET, service(id, name, "")?).await
    }

    async fn logs_service(
        &self,
        id: &WorkspaceId,
        name: &str,
        options: LogOptions,
    ) -> Result<ServiceLogs> {
        let query = ServiceLogsQuery::from(options);
        self.fetch(Call::get(service(id, name, "/logs")?).query(&query)?)
            .await
    }

    async fn follow_service(&self, id: &WorkspaceId, name: &str) -> Result<ExecSession> {
        self.open_attached(Call::post(service(id, name, "/stream")?))
            .await
    }

    async fn stop_service(&self, id: &WorkspaceId, name: &str) -> Result<ServiceStatus> {
        self.plain(Method::POST, service(id, name, "/stop")?).await
    }

    async fn open_shell(&self, id: &WorkspaceId, request: OpenShell) -> Result<Shell> {
        self.fetch(Call::post(workspace(id, "/shells")).json(&request))
            .await
    }

    async fn list_shells(&self, id: &WorkspaceId) -> Result<Vec<Shell>> {
        self.plain(Method::GET, workspace(id, "/shells")).await
    }

    async fn read_shell(
        &self,
        id: &WorkspaceId,
        shell_id: &str,
        request: ReadShell,
    ) -> Result<ShellOutput> {
        let query = ShellOutputQuery::from(request);
        self.fetch(Call::get(shell(id, shell_id, "/output")?).query(&query)?)
            .await
    }

    async fn write_shell(
        &self,
        id: &WorkspaceId,
        shell_id: &str,
        request: WriteShell,
    ) -> Result<Shell> {
        self.fetch(Call::post(shell(id, shell_id, "/input")?).json(&request))
            .await
    }

    async fn signal_shell(&self, id: &WorkspaceId, shell_id: &str, signal: &str) -> Result<Shell> {
        let signal = signal.to_string();
        let call = Call::post(shell(id, shell_id, "/signal")?);
        self.fetch(call.json(&ShellSignalBody { signal })).await
    }

    async fn resize_shell(&self, id: &WorkspaceId, shell_id: &str, size: TtySize) -> Result<Shell> {
        self.fetch(Call::post(shell(id, shell_id, "/resize")?).json(&size))
            .await
    }

    async fn attach_shell(
        &self,
        id: &WorkspaceId,
        shell_id: &str,
        size: TtySize,
    ) -> Result<ExecSession> {
        let call = Call::post(shell(id, shell_id, "/stream")?);
        self.open_attached(call.query(&TtySizeQuery::from(size))?)
            .await
    }

    async fn close_shell(&self, id: &WorkspaceId, shell_id: &str) -> Result<Shell> {
        self.plain(Method::DELETE, shell(id, shell_id, "")?).await
    }
}
