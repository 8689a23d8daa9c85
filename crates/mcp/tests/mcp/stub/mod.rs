//! A recorder that was told the verbs which the tools of these tests need.

mod terminals;

use motu_core::exec::ExecEvent;
use motu_core::lists::WorkspaceList;
use motu_core::sandbox::Sandbox;
use motu_core::verb::{self, Recorder};
use motu_core::{Error, Isolation, SandboxId};
use motu_testkit::answers::{self, Sessions, workspace};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

#[derive(Clone, Default)]
pub struct Stub {
    pub recorder: Recorder,
    pub sessions: Sessions,
    /// Notified when a terminal is interrupted.
    pub interrupted: Arc<Notify>,
    /// Sessions by name, and whether they were terminated.
    pub terminals: Arc<Mutex<BTreeMap<String, bool>>>,
}

pub fn sandbox(id: &SandboxId) -> Sandbox {
    Sandbox {
        isolation: Isolation::Container,
        ..answers::sandbox(id)
    }
}

impl Stub {
    pub fn new() -> Stub {
        let stub = Stub::default();
        stub.sessions.tell(&stub.recorder);
        stub.tell_machines();
        stub.tell_workspaces();
        stub.tell_terminals();
        stub
    }

    pub fn calls(&self, verb: &str) -> usize {
        let all = self.recorder.written();
        all.iter().filter(|(name, _, _)| *name == verb).count()
    }

    fn tell_machines(&self) {
        let it = &self.recorder;
        it.on_with(
            |call: verb::PullEnvironment, _| async move { Ok(answers::environment(&call.name)) },
        );
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
            stub.sessions.start(&ask.exec.program.command, head)
        });
    }

    fn tell_workspaces(&self) {
        let it = &self.recorder;
        it.always::<verb::CreateWorkspace>(workspace());
        it.always::<verb::ListWorkspaces>(WorkspaceList::new(vec![(&workspace()).into()]));
        it.always::<verb::DeleteWorkspace>(workspace());
    }
}
