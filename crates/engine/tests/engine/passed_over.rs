//! What `auto` does when a runtime that looks fine fails at its first machine.

use async_trait::async_trait;
use motu_core::report::{Check, Examine};
use motu_core::runtime::{Capabilities, Connection, Ended, Machine, MachineSpec};
use motu_core::sandbox::CreateSandbox;
use motu_core::{Error, ErrorKind, Isolation, Result, Runtime, SandboxId, Service};
use motu_engine::{Engine, Home, Setup};
use motu_environments::{Environments, Privilege};
use motu_fake::Fake;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A fake under another name and with walls, so that `auto` takes it.
#[derive(Debug)]
struct Posing {
    name: &'static str,
    isolation: Isolation,
    inner: Arc<Fake>,
    /// What every create fails with.
    broken: Mutex<Option<Error>>,
    /// The version of its program.
    programs: AtomicUsize,
}

impl Posing {
    fn new(name: &'static str, isolation: Isolation) -> Arc<Posing> {
        Arc::new(Posing {
            name,
            isolation,
            inner: Fake::new(),
            broken: Mutex::default(),
            programs: AtomicUsize::new(0),
        })
    }

    fn breaks(&self, error: Option<Error>) {
        *self.broken.lock().unwrap() = error;
    }
}

#[async_trait]
impl Runtime for Posing {
    fn name(&self) -> &'static str {
        self.name
    }
    fn isolation(&self) -> Isolation {
        self.isolation
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn programs(&self) -> String {
        self.programs.load(Ordering::SeqCst).to_string()
    }
    async fn check(&self) -> Vec<Check> {
        self.inner.check().await
    }
    fn plan(&self, spec: &MachineSpec) -> Result<String> {
        self.inner.plan(spec)
    }
    async fn create(&self, spec: &MachineSpec) -> Result<Machine> {
        if let Some(error) = self.broken.lock().unwrap().clone() {
            self.inner.fail_next_create(error);
        }
        self.inner.create(spec).await
    }
    async fn connect(&self, machine: &Machine) -> Result<Connection> {
        self.inner.connect(machine).await
    }
    async fn ended(&self, machine: &Machine) -> Ended {
        self.inner.ended(machine).await
    }
    async fn alive(&self, machine: &Machine) -> bool {
        self.inner.alive(machine).await
    }
    async fn destroy(&self, machine: &Machine) -> Result<()> {
        self.inner.destroy(machine).await
    }
    async fn sweep(&self, id: &SandboxId, dir: &Path) -> Result<()> {
        self.inner.sweep(id, dir).await
    }
}

/// A host with a virtual machine and a weaker wall.
struct Host {
    _home: tempfile::TempDir,
    vm: Arc<Posing>,
    wall: Arc<Posing>,
    engine: Arc<Engine>,
}

impl Host {
    async fn new() -> Host {
        let home = tempfile::tempdir().unwrap();
        let (vm, wall) = (
            Posing::new("posing-vm", Isolation::Vm),
            Posing::new("posing-wall", Isolation::Container),
        );
        let engine = Engine::open(Setup {
            home: Home::open(home.path()).unwrap(),
            runtimes: vec![vm.clone(), wall.clone()],
            environments: Environments::open(home.path(), Privilege::detect()).unwrap(),
            gateway: None,
        });
        Host {
            engine: engine.await.unwrap(),
            _home: home,
            vm,
            wall,
        }
    }

    async fn make(&self, runtime: Option<&str>, isolation: Option<Isolation>) -> Result<String> {
        let request = CreateSandbox {
            environment: "fake".to_string(),
            runtime: runtime.map(str::to_string),
            isolation,
            ..CreateSandbox::default()
        };
        Ok(self.engine.create_sandbox(request).await?.runtime)
    }

    fn creates(&self) -> (usize, usize) {
        (
            self.vm.inner.counts().creates,
            self.wall.inner.counts().creates,
        )
    }
}

fn msr() -> Error {
    Error::unavailable("the virtual machine did not come up: failed to set MSR")
}

#[tokio::test]
async fn auto_goes_on_to_the_next_and_remembers() {
    let host = Host::new().await;
    host.vm.breaks(Some(msr()));
    assert_eq!(host.make(None, None).await.unwrap(), "posing-wall");
    assert_eq!(host.creates(), (1, 1));
    // Nobody pays for it a second time.
    assert_eq!(host.make(Some("auto"), None).await.unwrap(), "posing-wall");
    assert_eq!(host.creates(), (1, 2));
    assert_eq!(host.engine.live(), 2);
}

#[tokio::test]
async fn nothing_weaker_than_what_was_asked_for_is_taken() {
    let host = Host::new().await;
    host.vm.breaks(Some(msr()));
    for _ in 0..2 {
        let error = host.make(None, Some(Isolation::Vm)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.message.contains("failed to set MSR"), "{error}");
    }
    assert_eq!(host.creates(), (1, 0));
    assert_eq!(host.engine.live(), 0);
}

#[tokio::test]
async fn whoever_names_it_is_told_the_error_each_time() {
    let host = Host::new().await;
    host.vm.breaks(Some(msr()));
    for _ in 0..2 {
        let error = host.make(Some("posing-vm"), None).await.unwrap_err();
        assert_eq!(error, msr());
    }
    assert_eq!(host.creates(), (2, 0));
    // A machine that comes is a proof, also for `auto`.
    host.vm.breaks(None);
    assert_eq!(
        host.make(Some("posing-vm"), None).await.unwrap(),
        "posing-vm"
    );
    assert_eq!(host.make(None, None).await.unwrap(), "posing-vm");
}

#[tokio::test]
async fn a_wrong_request_says_nothing_of_the_runtime() {
    let host = Host::new().await;
    host.vm.breaks(Some(Error::invalid("too little memory")));
    let error = host.make(None, None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    host.vm.breaks(None);
    assert_eq!(host.make(None, None).await.unwrap(), "posing-vm");
}

#[tokio::test]
async fn other_programs_and_a_deep_look_have_it_tried_again() {
    let host = Host::new().await;
    host.vm.breaks(Some(msr()));
    assert_eq!(host.make(None, None).await.unwrap(), "posing-wall");
    host.vm.programs.fetch_add(1, Ordering::SeqCst);
    assert_eq!(host.make(None, None).await.unwrap(), "posing-wall");
    assert_eq!(host.creates(), (2, 2), "another program was tried, once");

    let look = |deep| host.engine.doctor(Examine { deep });
    let vm = |doctor: motu_core::report::Doctor| {
        let mut all = doctor.runtimes.into_iter();
        all.find(|report| report.name == "posing-vm").unwrap()
    };
    let seen = vm(look(false).await.unwrap());
    assert!(
        !seen.works && seen.detail.contains("failed to set MSR"),
        "{seen:?}"
    );
    host.vm.breaks(None);
    assert_eq!(host.make(None, None).await.unwrap(), "posing-wall");
    look(true).await.unwrap();
    assert_eq!(host.make(None, None).await.unwrap(), "posing-vm");
}

#[tokio::test]
async fn what_has_worked_may_fail_without_being_given_up() {
    let host = Host::new().await;
    assert_eq!(host.make(None, None).await.unwrap(), "posing-vm");
    host.vm.breaks(Some(msr()));
    assert_eq!(host.make(None, None).await.unwrap_err(), msr());
    host.vm.breaks(None);
    assert_eq!(host.make(None, None).await.unwrap(), "posing-vm");
}
