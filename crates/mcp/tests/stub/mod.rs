//! A service in memory: what the tools of these tests ask for, and nothing else.

mod terminals;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use motu_core::exec::*;
use motu_core::files::*;
use motu_core::report::*;
use motu_core::runtime::Connection;
use motu_core::sandbox::{CreateSandbox, Sandbox, State};
use motu_core::service::ProgressSink;
use motu_core::workspace::*;
use motu_core::{Error, Isolation, Result, SandboxId, Service};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, mpsc};

/// Notes every call that matters, and how sessions ended.
#[derive(Default)]
pub struct Stub {
    pub noted: Mutex<Vec<(&'static str, serde_json::Value)>>,
    /// Sessions that were dropped before their command ended.
    pub killed: Arc<Notify>,
    /// A terminal was interrupted.
    pub interrupted: Arc<Notify>,
    /// Sessions by name, and whether they were ended.
    pub terminals: Mutex<BTreeMap<String, bool>>,
}

fn not_stubbed() -> Error {
    Error::unsupported("not stubbed")
}

pub fn moment() -> jiff::Timestamp {
    jiff::Timestamp::from_second(1_700_000_000).unwrap()
}

pub fn sandbox(id: &SandboxId) -> Sandbox {
    Sandbox {
        sandbox_id: id.clone(),
        state: State::Running,
        reason: None,
        environment: "debian:12".to_string(),
        digest: "sha256:00".to_string(),
        runtime: "stub".to_string(),
        isolation: Isolation::Container,
        accelerator: None,
        keep: false,
        network: "off".to_string(),
        vcpu_count: 1,
        mem_mib: 1024,
        limits: Vec::new(),
        user: "root".to_string(),
        workdir: "/".to_string(),
        created_at: moment(),
        last_active_at: moment(),
        expires_at: Some(moment()),
        ttl_seconds: 600,
        idle_seconds: 0,
    }
}

pub fn workspace(id: &WorkspaceId) -> Workspace {
    Workspace {
        workspace_id: id.clone(),
        name: Some("a name".to_string()),
        labels: BTreeMap::new(),
        state: State::Running,
        reason: None,
        environment: "debian:12".to_string(),
        digest: "sha256:00".to_string(),
        runtime: "stub".to_string(),
        isolation: Isolation::Container,
        accelerator: None,
        host_compat: false,
        network_policy: NetworkPolicy::Off,
        network_missing: None,
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
        secrets: Vec::new(),
        reset_count: 0,
        last_reset_at: None,
        command_count: 0,
        service_count: 0,
        running_service_count: 0,
        shell_count: 0,
        snapshot_count: 0,
    }
}

/// Tells when a session goes away before its command has ended.
struct OnDrop(Arc<Notify>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn exited(exit_code: i32) -> ExecEvent {
    ExecEvent::Exited(Exited {
        exit_code,
        duration_ms: 5,
        ..Exited::default()
    })
}

impl Stub {
    pub fn note(&self, verb: &'static str, given: &impl serde::Serialize) {
        let given = serde_json::to_value(given).unwrap();
        self.noted.lock().unwrap().push((verb, given));
    }

    pub fn calls(&self, verb: &str) -> usize {
        let noted = self.noted.lock().unwrap();
        noted.iter().filter(|(name, _)| *name == verb).count()
    }

    /// The scripts: `echo WORDS`, `both`, `flood LINES`, `sleep`, `fail`.
    fn start(&self, command: &[String], head: Vec<ExecEvent>) -> Result<ExecSession> {
        let (input, _) = mpsc::channel(1);
        let script = command.join(" ");
        let (word, rest) = script.split_once(' ').unwrap_or((&script, ""));
        let body: BoxStream<'static, Result<ExecEvent>> = match word {
            "echo" => {
                let line = Bytes::from(format!("{rest}\n"));
                stream::iter([Ok(ExecEvent::Stdout(line)), Ok(exited(0))]).boxed()
            }
            "both" => stream::iter([
                Ok(ExecEvent::Stdout("out".into())),
                Ok(ExecEvent::Stderr(Bytes::from_static(b"err\xff"))),
                Ok(exited(3)),
            ])
            .boxed(),
            "flood" => {
                let lines: usize = rest.parse().unwrap();
                let text: String = (0..lines).map(|n| format!("line {n}\n")).collect();
                stream::iter([Ok(ExecEvent::Stdout(text.into())), Ok(exited(0))]).boxed()
            }
            "fail" => stream::iter([Err(Error::transport("the guest is gone"))]).boxed(),
            "sleep" => {
                let guard = OnDrop(self.killed.clone());
                async move {
                    let _alive = guard;
                    std::future::pending().await
                }
                .into_stream()
                .boxed()
            }
            _ => return Err(Error::invalid("no such script")),
        };
        Ok(ExecSession {
            events: stream::iter(head.into_iter().map(Ok)).chain(body).boxed(),
            input,
        })
    }
}

#[async_trait]
impl Service for Stub {
    async fn version(&self) -> Result<Version> {
        Err(not_stubbed())
    }
    async fn doctor(&self, _: Examine) -> Result<Doctor> {
        Err(not_stubbed())
    }
    async fn list_environments(&self) -> Result<Vec<Environment>> {
        Err(not_stubbed())
    }
    async fn inspect_environment(&self, _: &str) -> Result<Environment> {
        Err(not_stubbed())
    }
    async fn pull_environment(&self, name: &str, _: ProgressSink) -> Result<Environment> {
        self.note("pull_environment", &name);
        Ok(Environment {
            name: name.to_string(),
            description: String::new(),
            installed: true,
            digest: None,
            size_bytes: None,
            created_at: None,
            architecture: "amd64".to_string(),
            default_user: "root".to_string(),
            default_workdir: "/".to_string(),
            source: "stub".to_string(),
            packages: Vec::new(),
            manifest_digest: None,
            layers: Vec::new(),
            entrypoint: Vec::new(),
            cmd: Vec::new(),
        })
    }
    async fn backup(&self, _: BackUp) -> Result<motu_core::report::Backup> {
        Err(not_stubbed())
    }
    async fn prune_environments(&self, _: Prune) -> Result<Pruned> {
        Err(not_stubbed())
    }
    async fn create_sandbox(&self, _: CreateSandbox) -> Result<Sandbox> {
        Err(not_stubbed())
    }
    async fn list_sandboxes(&self) -> Result<Vec<Sandbox>> {
        Err(not_stubbed())
    }
    async fn get_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        match id.as_str() {
            "missing" => Err(Error::not_found("no sandbox missing").hint("make one")),
            "panic" => panic!("as asked"),
            _ => Ok(sandbox(id)),
        }
    }
    async fn destroy_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        self.note("destroy_sandbox", id);
        Ok(sandbox(id))
    }
    async fn pause_sandbox(&self, _: &SandboxId) -> Result<Sandbox> {
        Err(not_stubbed())
    }
    async fn resume_sandbox(&self, _: &SandboxId) -> Result<Sandbox> {
        Err(not_stubbed())
    }
    async fn stop_sandbox(&self, _: &SandboxId) -> Result<Sandbox> {
        Err(not_stubbed())
    }
    async fn start_sandbox(&self, _: &SandboxId) -> Result<Sandbox> {
        Err(not_stubbed())
    }
    async fn fork_sandbox(
        &self,
        _: &SandboxId,
        _: motu_core::sandbox::Fork,
    ) -> Result<Vec<Sandbox>> {
        Err(not_stubbed())
    }
    async fn keepalive(&self, _: &SandboxId, _: motu_core::sandbox::Keepalive) -> Result<Sandbox> {
        Err(not_stubbed())
    }
    async fn reap_expired(&self) -> Result<motu_core::sandbox::Reaped> {
        Err(not_stubbed())
    }
    async fn plan(&self, _: CreateSandbox) -> Result<String> {
        Err(not_stubbed())
    }
    async fn run(&self, request: RunRequest) -> Result<ExecSession> {
        self.note("run", &request);
        if request.sandbox.environment == "later" && self.calls("pull_environment") == 0 {
            return Err(Error::not_found("later is not installed")
                .details(serde_json::json!({"installed": false})));
        }
        let made = sandbox(&SandboxId::parse("sb-made")?);
        self.start(
            &request.exec.command,
            vec![ExecEvent::Sandbox(Box::new(made))],
        )
    }
    async fn exec(&self, _: &SandboxId, _: ExecRequest) -> Result<ExecResult> {
        Err(not_stubbed())
    }
    async fn exec_stream(&self, id: &SandboxId, request: ExecRequest) -> Result<ExecSession> {
        self.note("exec_stream", id);
        self.start(&request.command, Vec::new())
    }
    async fn exec_background(&self, _: &SandboxId, _: ExecRequest) -> Result<Background> {
        Err(not_stubbed())
    }
    async fn attach(&self, _: &SandboxId, _: &Selector, _: Attach) -> Result<ExecSession> {
        Err(not_stubbed())
    }
    async fn list_processes(&self, _: &SandboxId) -> Result<Vec<Process>> {
        Err(not_stubbed())
    }
    async fn signal_process(&self, _: &SandboxId, _: &Selector, _: SignalProcess) -> Result<()> {
        Err(not_stubbed())
    }
    async fn stat(&self, _: &SandboxId, _: StatFile) -> Result<FileEntry> {
        Err(not_stubbed())
    }
    async fn list_files(&self, _: &SandboxId, _: ListFiles) -> Result<FilePage> {
        Err(not_stubbed())
    }
    async fn read_file(&self, _: &SandboxId, _: ReadFile) -> Result<(FileEntry, ByteStream)> {
        Err(not_stubbed())
    }
    async fn write_file(&self, _: &SandboxId, _: WriteFile, _: ByteStream) -> Result<FileEntry> {
        Err(not_stubbed())
    }
    async fn mkdir(&self, _: &SandboxId, _: MakeDirectory) -> Result<FileEntry> {
        Err(not_stubbed())
    }
    async fn remove_file(&self, _: &SandboxId, _: RemoveFile) -> Result<()> {
        Err(not_stubbed())
    }
    async fn move_file(&self, _: &SandboxId, _: MoveFile) -> Result<FileEntry> {
        Err(not_stubbed())
    }
    async fn chmod(&self, _: &SandboxId, _: ChangeMode) -> Result<FileEntry> {
        Err(not_stubbed())
    }
    async fn glob(&self, _: &SandboxId, _: FindFiles) -> Result<FilePage> {
        Err(not_stubbed())
    }
    async fn hash(&self, _: &SandboxId, _: AtPath) -> Result<FileHash> {
        Err(not_stubbed())
    }
    async fn watch(
        &self,
        _: &SandboxId,
        _: WatchFiles,
    ) -> Result<BoxStream<'static, Result<FileChange>>> {
        Err(not_stubbed())
    }
    async fn read_tree(&self, _: &SandboxId, _: AtPath) -> Result<ByteStream> {
        Err(not_stubbed())
    }
    async fn write_tree(&self, _: &SandboxId, _: AtPath, _: ByteStream) -> Result<TreeWritten> {
        Err(not_stubbed())
    }
    async fn list_ports(&self, _: &SandboxId) -> Result<Vec<Port>> {
        Err(not_stubbed())
    }
    async fn dial(&self, _: &SandboxId, _: &u16) -> Result<Connection> {
        Err(not_stubbed())
    }
    async fn dial_unix(&self, _: &SandboxId, _: AtPath) -> Result<Connection> {
        Err(not_stubbed())
    }
    async fn metrics(&self, _: &SandboxId) -> Result<Metrics> {
        Err(not_stubbed())
    }
}

#[async_trait]
impl Workspaces for Stub {
    async fn create_workspace(&self, request: CreateWorkspace) -> Result<Workspace> {
        self.note("create_workspace", &request);
        Ok(workspace(&SandboxId::parse("ws-1")?))
    }
    async fn list_workspaces(&self) -> Result<Vec<WorkspaceSummary>> {
        self.note("list_workspaces", &());
        Ok(vec![(&workspace(&SandboxId::parse("ws-1")?)).into()])
    }
    async fn status_workspace(&self, _: &WorkspaceId) -> Result<Workspace> {
        Err(not_stubbed())
    }
    async fn update_workspace(&self, _: &WorkspaceId, _: UpdateWorkspace) -> Result<Workspace> {
        Err(not_stubbed())
    }
    async fn stop_workspace(&self, _: &WorkspaceId) -> Result<Workspace> {
        Err(not_stubbed())
    }
    async fn start_workspace(&self, _: &WorkspaceId) -> Result<Workspace> {
        Err(not_stubbed())
    }
    async fn reset_workspace(&self, _: &WorkspaceId, _: ResetTo) -> Result<Workspace> {
        Err(not_stubbed())
    }
    async fn delete_workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        self.note("delete_workspace", id);
        Ok(workspace(id))
    }
    async fn fork_workspace(&self, _: &WorkspaceId, _: ForkWorkspace) -> Result<Vec<Workspace>> {
        Err(not_stubbed())
    }
    async fn exec_workspace(&self, _: &WorkspaceId, _: WorkspaceExec) -> Result<ExecResult> {
        Err(not_stubbed())
    }
    async fn exec_workspace_stream(
        &self,
        _: &WorkspaceId,
        request: WorkspaceExec,
    ) -> Result<ExecSession> {
        self.note("exec_workspace_stream", &request);
        self.start(&request.command, Vec::new())
    }
    async fn logs_workspace(&self, _: &WorkspaceId) -> Result<CommandLog> {
        Err(not_stubbed())
    }
    async fn push_workspace_sync(&self, _: &WorkspaceId, _: SyncPush) -> Result<SyncReport> {
        Err(not_stubbed())
    }
    async fn list_workspace_files(&self, _: &WorkspaceId, _: ListPaths) -> Result<PathList> {
        Err(not_stubbed())
    }
    async fn read_workspace_file(&self, _: &WorkspaceId, _: ReadText) -> Result<FileText> {
        Err(not_stubbed())
    }
    async fn write_workspace_file(&self, _: &WorkspaceId, _: WriteText) -> Result<FileWritten> {
        Err(not_stubbed())
    }
    async fn export_workspace(&self, _: &WorkspaceId, _: ExportFiles) -> Result<Exported> {
        Err(not_stubbed())
    }
    async fn apply_workspace_patch(&self, _: &WorkspaceId, _: Patch) -> Result<PatchReport> {
        Err(not_stubbed())
    }
    async fn edit_workspace(&self, _: &WorkspaceId, _: EditFiles) -> Result<PatchReport> {
        Err(not_stubbed())
    }
    async fn diff_workspace(&self, _: &WorkspaceId, _: DiffOptions) -> Result<DiffReport> {
        Err(not_stubbed())
    }
    async fn create_snapshot(&self, _: &WorkspaceId, _: SaveAs) -> Result<Snapshot> {
        Err(not_stubbed())
    }
    async fn list_snapshots(&self, _: &WorkspaceId) -> Result<SnapshotList> {
        Err(not_stubbed())
    }
    async fn delete_snapshot(&self, _: &WorkspaceId, _: &str) -> Result<Snapshot> {
        Err(not_stubbed())
    }
    async fn diff_snapshots(&self, _: &WorkspaceId, _: &str, _: Since) -> Result<DiffReport> {
        Err(not_stubbed())
    }
    async fn export_workspace_disk(&self, _: &WorkspaceId, _: ExportDisk) -> Result<DiskExported> {
        Err(not_stubbed())
    }
    async fn list_workspace_disk(&self, _: &WorkspaceId, _: ListPaths) -> Result<PathList> {
        Err(not_stubbed())
    }
    async fn read_workspace_disk(&self, _: &WorkspaceId, _: ReadText) -> Result<FileText> {
        Err(not_stubbed())
    }
    async fn start_service(&self, _: &WorkspaceId, _: StartService) -> Result<ServiceStatus> {
        Err(not_stubbed())
    }
    async fn list_services(&self, _: &WorkspaceId) -> Result<Vec<ServiceStatus>> {
        Err(not_stubbed())
    }
    async fn status_service(&self, _: &WorkspaceId, _: &str) -> Result<ServiceStatus> {
        Err(not_stubbed())
    }
    async fn logs_service(&self, _: &WorkspaceId, _: &str, _: LogOptions) -> Result<ServiceLogs> {
        Err(not_stubbed())
    }
    async fn follow_service(&self, _: &WorkspaceId, _: &str) -> Result<ExecSession> {
        Err(not_stubbed())
    }
    async fn stop_service(&self, _: &WorkspaceId, _: &str) -> Result<ServiceStatus> {
        Err(not_stubbed())
    }
    async fn open_shell(&self, _: &WorkspaceId, _: OpenShell) -> Result<Shell> {
        Err(not_stubbed())
    }
    async fn list_shells(&self, _: &WorkspaceId) -> Result<Vec<Shell>> {
        Err(not_stubbed())
    }
    async fn read_shell(&self, _: &WorkspaceId, _: &str, _: ReadShell) -> Result<ShellOutput> {
        Err(not_stubbed())
    }
    async fn write_shell(&self, _: &WorkspaceId, _: &str, _: WriteShell) -> Result<Shell> {
        Err(not_stubbed())
    }
    async fn signal_shell(&self, _: &WorkspaceId, _: &str, _: SignalShell) -> Result<Shell> {
        Err(not_stubbed())
    }
    async fn resize_shell(&self, _: &WorkspaceId, _: &str, _: TtySize) -> Result<Shell> {
        Err(not_stubbed())
    }
    async fn attach_shell(&self, _: &WorkspaceId, _: &str, _: AttachShell) -> Result<ExecSession> {
        Err(not_stubbed())
    }
    async fn close_shell(&self, _: &WorkspaceId, _: &str) -> Result<Shell> {
        Err(not_stubbed())
    }
}
