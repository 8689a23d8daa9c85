//! The environment of a check: a state directory, and lives of a daemon in it.
//!
//! A life is an engine on threads of its own. When the threads are dropped, the engine stops at any
//! point, as in a crash; only machines and files are left for the next life.

use crate::life::Life;
use crate::subject::{Skip, Subject};
use motu_core::{SandboxId, Service as _, Workspaces as _};
use motu_engine::{Engine, Home, Setup};
use motu_gate::{Caller, Face, Gate, Who};
use motu_needs::skip;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// How long to wait for blocking work of an ended life.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// A state directory with one runtime.
#[derive(Debug)]
pub struct Bench {
    subject: Arc<Subject>,
    home: TempDir,
}

impl Bench {
    pub fn new(subject: Subject) -> Bench {
        // Short, because the path of a Unix socket has 108 bytes.
        let home = tempfile::Builder::new()
            .prefix("motu-")
            .tempdir()
            .expect("a temporary directory");
        motu_needs::probes::warm(home.path());
        Bench {
            subject: Arc::new(subject),
            home,
        }
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// One life of a daemon, from its start to its sudden end.
    pub fn life<F, Fut, T>(&self, during: F) -> T
    where
        F: FnOnce(Life) -> Fut,
        Fut: Future<Output = T>,
    {
        let threads = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a test can start a runtime");
        let result = threads.block_on(async {
            let life = self.open().await;
            during(life).await
        });
        threads.shutdown_timeout(LAST_BREATH);
        result
    }

    /// Ends a machine while no daemon runs.
    pub fn end_machine(&self, id: &SandboxId) {
        let machines = self.home().join("machines").join(self.subject.name);
        (self.subject.end_machine)(id, &machines.join(id.as_str()));
    }

    async fn open(&self) -> Life {
        let runtime = (self.subject.make)(self.home());
        let setup = Setup {
            home: Home::open(self.home()).expect("the state directory opens"),
            runtimes: vec![runtime.clone()],
            environments: self.subject.environments(self.home()),
            gateway: gateway(),
        };
        let engine = Engine::open(setup).await.expect("the engine opens");
        let caller = Caller::new(Who::Local { uid: 0 }, Face::Socket);
        Life::new(
            Gate::new(engine).desk(caller),
            self.subject.clone(),
            runtime,
            self.home().to_path_buf(),
        )
    }
}

impl Drop for Bench {
    /// Removes everything, even after a failed test.
    fn drop(&mut self) {
        self.life(|life| async move {
            for workspace in life
                .engine
                .list_workspaces(Default::default())
                .await
                .into_iter()
                .flatten()
            {
                let _ = life.engine.delete_workspace(&workspace.workspace_id).await;
            }
            for sandbox in life
                .engine
                .list_sandboxes(Default::default())
                .await
                .into_iter()
                .flatten()
            {
                let _ = life.engine.destroy_sandbox(&sandbox.sandbox_id).await;
            }
        });
    }
}

/// Runs a check in one life of a daemon.
pub fn prove<F, Fut>(subject: Result<Subject, Skip>, check: F)
where
    F: FnOnce(Life) -> Fut,
    Fut: Future<Output = ()>,
{
    prove_across(subject, |bench| bench.life(check));
}

/// Runs a check that starts daemons itself.
pub fn prove_across(subject: Result<Subject, Skip>, check: impl FnOnce(&Bench)) {
    match subject {
        Ok(subject) => check(&Bench::new(subject)),
        Err(Skip(reason)) => skip(&reason),
    }
}

/// The gateway program, built beside the tests.
fn gateway() -> Option<std::path::PathBuf> {
    let own = std::env::current_exe().ok()?;
    let beside = own.parent()?.parent()?.join("motu-egress");
    beside.exists().then_some(beside)
}
