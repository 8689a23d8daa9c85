//! A service in memory with only the calls that the tools of these tests need.

mod terminals;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use motu_core::exec::*;
use motu_core::lists::WorkspaceList;
use motu_core::report::Environment;
use motu_core::sandbox::{Sandbox, State};
use motu_core::verb::{self, Recorder};
use motu_core::workspace::*;
use motu_core::{Error, Isolation, Result, SandboxId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, mpsc};

/// Implements the calls that the tools of these tests need, refuses all others, and records every
/// call.
#[derive(Clone)]
pub struct Stub {
    pub recorder: Recorder,
    /// Sessions that were dropped before their command ended.
    pub killed: Arc<Notify>,
    /// Notified when a terminal is interrupted.
    pub interrupted: Arc<Notify>,
    /// Sessions by name, and whether they were terminated.
    pub terminals: Arc<Mutex<BTreeMap<String, bool>>>,
}

impl Default for Stub {
    fn default() -> Stub {
        let stub = Stub {
            recorder: Recorder::default(),
            killed: Arc::default(),
            interrupted: Arc::default(),
            terminals: Arc::default(),
        };
        stub.tell_machines();
        stub.tell_workspaces();
        stub.tell_terminals();
        stub
    }
}

pub fn moment() -> jiff::Timestamp {
    jiff::Timestamp::from_second(1_700_000_000).unwrap()
}

pub fn sandbox(id: &SandboxId) -> Sandbox {
    Sandbox {
        sandbox_id: id.clone(),
        owner: "uid:1000".to_string(),
        state: State::Running,
        reason: None,
        environment: "debian:12".to_string(),
        digest: "sha256:00".to_string(),
        template: None,
        runtime: "stub".to_string(),
        isolation: Isolation::Container,
        accelerator: None,
        keep: false,
        network: "off".to_string(),
        policy: None,
        vcpu_count: 1,
        mem_mib: 1024,
        limits: Vec::new(),
        user: "root".to_string(),
        workdir: "/".to_string(),
        created_at: moment(),
        last_activity_at: moment(),
        expires_at: Some(moment()),
        ttl_seconds: 600,
        idle_seconds: 0,
        on_idle: Default::default(),
        paused: None,
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
        template: None,
        runtime: "stub".to_string(),
        isolation: Isolation::Container,
        accelerator: None,
        host_compat: false,
        network_policy: NetworkPolicy::Off,
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
        secrets: Vec::new(),
        reset_count: 0,
        last_reset_at: None,
        command_count: 0,
        service_count: 0,
        running_service_count: 0,
        shell_count: 0,
        snapshot_count: 0,
        checkpoint: false,
        checkpoint_count: 0,
    }
}

/// Notifies when a session is dropped before its command has ended.
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
    pub fn calls(&self, verb: &str) -> usize {
        let all = self.recorder.written();
        all.iter().filter(|(name, _, _)| *name == verb).count()
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
        Ok(ExecSession::new(
            stream::iter(head.into_iter().map(Ok)).chain(body).boxed(),
            input,
        ))
    }
}

impl Stub {
    fn tell_machines(&self) {
        let it = &self.recorder;
        it.on_with(|call: verb::PullEnvironment, _| async move { Ok(environment(call.name)) });
        it.on(|call: verb::GetSandbox| match call.id.as_str() {
            "missing" => Err(Error::not_found("no sandbox missing").hint("make one")),
            "panic" => panic!("as asked"),
            _ => Ok(sandbox(&call.id)),
        });
        it.on(|call: verb::DestroySandbox| Ok(sandbox(&call.id)));
        let stub = self.clone();
        it.on(move |verb::Run { ask }| {
            if ask.sandbox.environment == "later" && stub.calls("pull_environment") == 0 {
                return Err(Error::not_found("later is not installed")
                    .details(serde_json::json!({"installed": false})));
            }
            let made = sandbox(&SandboxId::parse("sb-made")?);
            let head = vec![ExecEvent::Sandbox(Box::new(made))];
            stub.start(&ask.exec.program.command, head)
        });
        let stub = self.clone();
        it.on(move |call: verb::ExecStream| stub.start(&call.ask.program.command, Vec::new()));
    }

    fn tell_workspaces(&self) {
        let it = &self.recorder;
        let one = || Ok(workspace(&SandboxId::parse("ws-1")?));
        it.on(move |_: verb::CreateWorkspace| one());
        it.on(move |_: verb::ListWorkspaces| Ok(WorkspaceList::new(vec![(&one()?).into()])));
        it.on(|call: verb::DeleteWorkspace| Ok(workspace(&call.id)));
        let stub = self.clone();
        it.on(move |call: verb::ExecWorkspaceStream| {
            stub.start(&call.ask.program.command, Vec::new())
        });
    }
}

fn environment(name: String) -> Environment {
    Environment {
        name,
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
        build: None,
    }
}
