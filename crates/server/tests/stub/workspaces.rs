//! Workspaces in memory: every verb notes what reached it and answers with something to compare.

use super::{Stub, exited, started};
use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use motu_core::exec::*;
use motu_core::files::FileType;
use motu_core::lists::*;
use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_core::{Error, Isolation, Program, Result};
use serde::Serialize;
use std::collections::BTreeMap;

fn moment() -> jiff::Timestamp {
    jiff::Timestamp::from_second(1_700_000_000).unwrap()
}

pub fn workspace(id: &WorkspaceId) -> Workspace {
    Workspace {
        workspace_id: id.clone(),
        name: Some("a name".to_string()),
        labels: BTreeMap::from([("team".to_string(), "red".to_string())]),
        state: State::Running,
        reason: None,
        environment: "debian:12".to_string(),
        digest: "sha256:00".to_string(),
        template: None,
        runtime: "stub".to_string(),
        isolation: Isolation::None,
        accelerator: Some("tcg".to_string()),
        host_compat: false,
        network_policy: NetworkPolicy::EgressPublishedPorts,
        policy: None,
        vcpu_count: 1,
        mem_mib: 1024,
        created_at: moment(),
        last_activity_at: moment(),
        expires_at: None,
        workspace_path: WORKSPACE.to_string(),
        workspace_seed: WorkspaceSeed {
            mode: "empty".to_string(),
            seed_path: None,
            destination: WORKSPACE.to_string(),
            entry_count: 0,
            bytes_written: 0,
        },
        secrets: vec![SecretInfo {
            name: "KEY".to_string(),
            source_kind: "literal".to_string(),
        }],
        reset_count: 1,
        last_reset_at: Some(moment()),
        command_count: 2,
        service_count: 3,
        running_service_count: 1,
        shell_count: 1,
        snapshot_count: 4,
        checkpoint: true,
        checkpoint_count: 5,
    }
}

pub fn undone(id: &WorkspaceId, steps: u64) -> Undone {
    Undone {
        workspace_id: id.clone(),
        steps,
        commands: vec![vec!["make".to_string(), "it so".to_string()]],
        restored_count: 3,
        removed_count: 1,
        checkpoint_count: 4,
    }
}

pub fn path_list(id: &WorkspaceId, path: &str, recursive: bool) -> PathList {
    PathList {
        workspace_id: id.clone(),
        path: path.to_string(),
        recursive,
        entries: vec![PathInfo {
            path: format!("{path}/link"),
            kind: FileType::Symlink,
            size_bytes: 3,
            mode: 0o777,
            modified_at: moment(),
            link_target: Some("\u{e4}\n".to_string()),
        }],
        truncated: true,
    }
}

pub fn file_text(id: &WorkspaceId, path: &str, max_bytes: Option<u64>) -> FileText {
    FileText {
        workspace_id: id.clone(),
        path: path.to_string(),
        size_bytes: 12,
        max_bytes: max_bytes.unwrap_or(65_536),
        content: "line\n\u{1f30a}\u{0}".to_string(),
        truncated: false,
    }
}

pub fn patch_report(id: &WorkspaceId) -> PatchReport {
    PatchReport {
        workspace_id: id.clone(),
        changed: true,
        added: 1,
        modified: 2,
        deleted: 3,
        renamed: 4,
        entries: vec![PatchedFile {
            path: "/workspace/b".to_string(),
            status: "renamed".to_string(),
            from: Some("/workspace/a".to_string()),
        }],
    }
}

pub fn diff_report(id: &WorkspaceId, from: &str, to: &str) -> DiffReport {
    DiffReport {
        workspace_id: id.clone(),
        from: from.to_string(),
        to: to.to_string(),
        changed: true,
        added: 0,
        modified: 0,
        deleted: 0,
        type_changed: 0,
        mode_changed: 1,
        entries: vec![DiffEntry {
            path: "/workspace/a".to_string(),
            status: DiffStatus::ModeChanged,
            kind: FileType::File,
            size_before: None,
            size_after: Some(5),
            mode_before: Some(0o644),
            mode_after: Some(0o755),
            binary: true,
            omitted: false,
        }],
        patch: "--- a\n+++ b\n".to_string(),
        truncated: false,
    }
}

pub fn snapshot(id: &WorkspaceId, name: &str) -> Snapshot {
    Snapshot {
        workspace_id: id.clone(),
        snapshot_name: name.to_string(),
        kind: "named".to_string(),
        created_at: moment(),
        entry_count: Some(7),
        changed_count: 1,
        stored_bytes: 2,
        deletable: true,
    }
}

pub fn service_status(id: &WorkspaceId, name: &str) -> ServiceStatus {
    ServiceStatus {
        workspace_id: id.clone(),
        service_name: name.to_string(),
        state: ServiceState::Failed,
        reason: Some("never became ready".to_string()),
        command: vec!["serve".to_string()],
        cwd: WORKSPACE.to_string(),
        pid: Some(7),
        exit_code: Some(1),
        started_at: moment(),
        ready_at: None,
        ended_at: Some(moment()),
        readiness: Some(Readiness::Http {
            port: 80,
            path: Some("/up".to_string()),
        }),
        restart: Restart::OnFailure,
        restart_count: 2,
        published_ports: vec![PublishedPort {
            guest_port: 80,
            host: "127.0.0.1".to_string(),
            host_port: 8080,
        }],
    }
}

pub fn shell(id: &WorkspaceId, shell_id: &str) -> Shell {
    Shell {
        workspace_id: id.clone(),
        shell_id: shell_id.to_string(),
        state: "running".to_string(),
        cwd: WORKSPACE.to_string(),
        size: TtySize {
            cols: 120,
            rows: 30,
        },
        pid: Some(9),
        exit_code: None,
        started_at: moment(),
    }
}

impl Stub {
    /// Notes a verb and its arguments, as JSON so that nothing is left out.
    pub fn note(&self, verb: &'static str, arguments: impl Serialize) {
        let arguments = serde_json::to_value(arguments).unwrap();
        *self.called.lock().unwrap() = Some((verb, arguments));
    }
}

#[async_trait]
impl Workspaces for Stub {
    async fn create_workspace(&self, request: CreateWorkspace) -> Result<Workspace> {
        self.note("create_workspace", &request);
        match request.workspace_id {
            Some(id) => Ok(workspace(&id)),
            None => Err(Error::invalid("the stub makes up no names")),
        }
    }
    async fn list_workspaces(&self, _: motu_core::Page) -> Result<WorkspaceList> {
        self.note("list_workspaces", ());
        let one = workspace(&WorkspaceId::parse("ws-a")?);
        Ok(WorkspaceList::new(vec![WorkspaceSummary::from(&one)]))
    }
    async fn status_workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        self.note("status_workspace", id);
        Ok(workspace(id))
    }
    async fn update_workspace(
        &self,
        id: &WorkspaceId,
        update: UpdateWorkspace,
    ) -> Result<Workspace> {
        self.note("update_workspace", (id, &update));
        Ok(workspace(id))
    }
    async fn stop_workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        self.note("stop_workspace", id);
        if id.as_str() == "ws-slow" {
            self.go_on.notified().await;
        }
        Ok(workspace(id))
    }
    async fn start_workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        self.note("start_workspace", id);
        Ok(workspace(id))
    }
    async fn reset_workspace(&self, id: &WorkspaceId, ask: ResetTo) -> Result<Workspace> {
        let snapshot = ask.snapshot.as_str();
        self.note("reset_workspace", (id, snapshot));
        Ok(workspace(id))
    }
    async fn undo_workspace(&self, id: &WorkspaceId, ask: Undo) -> Result<Undone> {
        self.note("undo_workspace", (id, ask));
        Ok(undone(id, ask.steps))
    }
    async fn delete_workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        self.note("delete_workspace", id);
        Ok(workspace(id))
    }
    async fn fork_workspace(
        &self,
        id: &WorkspaceId,
        fork: ForkWorkspace,
    ) -> Result<WorkspaceCopies> {
        self.note("fork_workspace", (id, &fork));
        let copies = vec![workspace(id); fork.count.unwrap_or(1) as usize];
        Ok(WorkspaceCopies::new(copies))
    }
    async fn exec_workspace(&self, id: &WorkspaceId, request: WorkspaceExec) -> Result<ExecResult> {
        self.note("exec_workspace", (id, &request));
        let mut collector = motu_core::collect::Collector::new(None)?;
        collector.add(ExecEvent::Sandbox(Box::new(super::sandbox(id))));
        collector.add(ExecEvent::Stdout("out".into()));
        collector.add(exited(3));
        collector.finish()
    }
    async fn exec_workspace_stream(
        &self,
        id: &WorkspaceId,
        request: WorkspaceExec,
    ) -> Result<ExecSession> {
        self.note("exec_workspace_stream", (id, &request));
        let request = ExecRequest::from(Program {
            command: request.program.command,
            ..Program::default()
        });
        self.start(&request, vec![started()])
    }
    async fn logs_workspace(&self, id: &WorkspaceId) -> Result<CommandLog> {
        self.note("logs_workspace", id);
        Ok(CommandLog {
            workspace_id: id.clone(),
            count: 0,
            entries: Vec::new(),
        })
    }
    async fn push_workspace_sync(&self, id: &WorkspaceId, push: SyncPush) -> Result<SyncReport> {
        self.note("push_workspace_sync", (id, &push));
        Ok(SyncReport {
            workspace_id: id.clone(),
            mode: "directory".to_string(),
            source_path: push.source_path,
            destination: push.dest.unwrap_or_default(),
            entry_count: 3,
            sent_count: 2,
            unchanged_count: 1,
            bytes_written: 9,
        })
    }
    async fn list_workspace_files(&self, id: &WorkspaceId, ask: ListPaths) -> Result<PathList> {
        let (path, recursive) = (ask.path.as_str(), ask.recursive);
        self.note("list_workspace_files", (id, path, recursive));
        Ok(path_list(id, path, recursive))
    }
    async fn read_workspace_file(&self, id: &WorkspaceId, ask: ReadText) -> Result<FileText> {
        let (path, max_bytes) = (ask.path.as_str(), ask.max_bytes);
        self.note("read_workspace_file", (id, path, max_bytes));
        Ok(file_text(id, path, max_bytes))
    }
    async fn write_workspace_file(
        &self,
        id: &WorkspaceId,
        write: WriteText,
    ) -> Result<FileWritten> {
        let bytes = write.text.len() as u64;
        self.note("write_workspace_file", (id, &write.path));
        Ok(FileWritten {
            workspace_id: id.clone(),
            path: write.path,
            size_bytes: bytes,
            bytes_written: bytes,
        })
    }
    async fn export_workspace(&self, id: &WorkspaceId, ask: ExportFiles) -> Result<Exported> {
        let (path, output_path, options) =
            (ask.path.as_str(), ask.output_path.as_str(), ask.options());
        self.note("export_workspace", (id, path, output_path, options));
        Ok(Exported {
            workspace_id: id.clone(),
            workspace_path: path.to_string(),
            output_path: output_path.to_string(),
            kind: FileType::Directory,
            entry_count: 1,
            bytes_written: 2,
        })
    }
    async fn apply_workspace_patch(&self, id: &WorkspaceId, ask: Patch) -> Result<PatchReport> {
        let patch = ask.patch;
        self.note("apply_workspace_patch", (id, patch.len()));
        Ok(patch_report(id))
    }
    async fn edit_workspace(&self, id: &WorkspaceId, ask: EditFiles) -> Result<PatchReport> {
        let edits = ask.edits;
        self.note("edit_workspace", (id, &edits));
        Ok(patch_report(id))
    }
    async fn diff_workspace(&self, id: &WorkspaceId, options: DiffOptions) -> Result<DiffReport> {
        self.note("diff_workspace", (id, &options));
        Ok(diff_report(id, BASELINE, "now"))
    }
    async fn create_snapshot(&self, id: &WorkspaceId, ask: SaveAs) -> Result<Snapshot> {
        let name = ask.snapshot_name.as_str();
        self.note("create_snapshot", (id, name));
        Ok(snapshot(id, name))
    }
    async fn list_snapshots(&self, id: &WorkspaceId, _: motu_core::Page) -> Result<SnapshotList> {
        self.note("list_snapshots", id);
        let all = vec![snapshot(id, BASELINE), snapshot(id, "before")];
        Ok(SnapshotList::new(id.clone(), all))
    }
    async fn delete_snapshot(&self, id: &WorkspaceId, name: &str) -> Result<Snapshot> {
        self.note("delete_snapshot", (id, name));
        Ok(snapshot(id, name))
    }
    async fn diff_snapshots(&self, id: &WorkspaceId, from: &str, ask: Since) -> Result<DiffReport> {
        let (to, options) = (
            ask.to.as_str(),
            DiffOptions {
                max_bytes: ask.max_bytes,
            },
        );
        self.note("diff_snapshots", (id, from, to, &options));
        Ok(diff_report(id, from, to))
    }
    async fn export_workspace_disk(
        &self,
        id: &WorkspaceId,
        ask: ExportDisk,
    ) -> Result<DiskExported> {
        let (output_path, options) = (ask.output_path.as_str(), ask.options());
        self.note("export_workspace_disk", (id, output_path, options));
        Ok(DiskExported {
            workspace_id: id.clone(),
            output_path: output_path.to_string(),
            disk_format: "ext4".to_string(),
            bytes_written: 1 << 40,
        })
    }
    async fn list_workspace_disk(&self, id: &WorkspaceId, ask: ListPaths) -> Result<PathList> {
        let (path, recursive) = (ask.path.as_str(), ask.recursive);
        self.note("list_workspace_disk", (id, path, recursive));
        Ok(path_list(id, path, recursive))
    }
    async fn read_workspace_disk(&self, id: &WorkspaceId, ask: ReadText) -> Result<FileText> {
        let (path, max_bytes) = (ask.path.as_str(), ask.max_bytes);
        self.note("read_workspace_disk", (id, path, max_bytes));
        Ok(file_text(id, path, max_bytes))
    }
    async fn start_service(
        &self,
        id: &WorkspaceId,
        request: StartService,
    ) -> Result<ServiceStatus> {
        self.note("start_service", (id, &request));
        Ok(service_status(id, &request.service_name))
    }
    async fn list_services(&self, id: &WorkspaceId) -> Result<ServiceList> {
        self.note("list_services", id);
        Ok(ServiceList::new(
            id.clone(),
            vec![service_status(id, "web")],
        ))
    }
    async fn status_service(&self, id: &WorkspaceId, name: &str) -> Result<ServiceStatus> {
        self.note("status_service", (id, name));
        Ok(service_status(id, name))
    }
    async fn logs_service(
        &self,
        id: &WorkspaceId,
        name: &str,
        options: LogOptions,
    ) -> Result<ServiceLogs> {
        self.note("logs_service", (id, name, options));
        Ok(ServiceLogs {
            workspace_id: id.clone(),
            service_name: name.to_string(),
            stdout: "out\n".to_string(),
            stderr: "err\n".to_string(),
            truncated: true,
        })
    }
    async fn follow_service(&self, id: &WorkspaceId, name: &str) -> Result<ExecSession> {
        self.note("follow_service", (id, name));
        let (input, _) = tokio::sync::mpsc::channel(1);
        let lines = [Ok(ExecEvent::Stderr("a line\n".into())), Ok(exited(0))];
        Ok(ExecSession::new(stream::iter(lines).boxed(), input))
    }
    async fn stop_service(&self, id: &WorkspaceId, name: &str) -> Result<ServiceStatus> {
        self.note("stop_service", (id, name));
        Ok(service_status(id, name))
    }
}
