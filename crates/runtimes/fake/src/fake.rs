//! The runtime itself, with controls for tests to make it fail.

use crate::machine::Machine;
use crate::process::lock;
use async_trait::async_trait;
use motu_core::report::{Check, Health};
use motu_core::runtime::{
    Ask, Capabilities, Connection, Ended, Machine as Record, MachineLimits, MachineSpec,
};
use motu_core::sandbox::AppliedLimit;
use motu_core::{Error, Isolation, Runtime, SandboxId};
use std::collections::HashMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tokio::io::DuplexStream;
use tokio::sync::watch;

/// Bytes in flight in each direction of a link.
const PIPE: usize = 256 * 1024;

/// What a fake has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Machines that run now.
    pub live: usize,
    /// Creates that were asked for, successful or not.
    pub creates: usize,
    /// Machines that were destroyed.
    pub destroys: usize,
}

/// Acts as a machine's guest on one connection, from the handshake on.
pub type Play = Arc<dyn Fn(DuplexStream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A runtime without isolation, because nothing real runs in it.
pub struct Fake {
    machines: Mutex<HashMap<SandboxId, Arc<Machine>>>,
    counts: Mutex<Counts>,
    fail_next: Mutex<Option<Error>>,
    gate: watch::Sender<Gate>,
    play: Mutex<Option<Play>>,
    /// The runtime of the machines, separate from any engine's. `Some` until the drop.
    threads: Option<tokio::runtime::Runtime>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    closed: bool,
    waiting: usize,
}

/// Blocks every create until it is dropped.
#[derive(Debug)]
pub struct Stall {
    gate: watch::Sender<Gate>,
}

impl Stall {
    /// Waits until a create is blocked.
    pub async fn reached(&self) {
        // `self` holds the sender, so waiting cannot fail.
        let _ = self
            .gate
            .subscribe()
            .wait_for(|gate| gate.waiting > 0)
            .await;
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.gate.send_modify(|gate| gate.closed = false);
    }
}

/// One blocked create; also counted down if it is cancelled.
struct Waiting<'a>(&'a watch::Sender<Gate>);

impl<'a> Waiting<'a> {
    fn new(gate: &'a watch::Sender<Gate>) -> Waiting<'a> {
        gate.send_modify(|gate| gate.waiting += 1);
        Waiting(gate)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|gate| gate.waiting -= 1);
    }
}

impl Fake {
    /// A fake with a thread of its own for its machines.
    pub fn new() -> Arc<Fake> {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fake-machines")
            .enable_all()
            .build()
            .expect("a test can start a thread");
        Arc::new(Fake {
            machines: Mutex::new(HashMap::new()),
            counts: Mutex::new(Counts::default()),
            fail_next: Mutex::new(None),
            gate: watch::channel(Gate::default()).0,
            play: Mutex::new(None),
            threads: Some(threads),
        })
    }

    /// Makes the next create fail with this error.
    pub fn fail_next_create(&self, error: Error) {
        *lock(&self.fail_next) = Some(error);
    }

    /// Lets `play` answer all connections from now on instead of a guest, for example a hostile
    /// one.
    pub fn play_guest(&self, play: Play) {
        *lock(&self.play) = Some(play);
        for machine in lock(&self.machines).values() {
            machine.cut_links();
        }
    }

    /// Ends the machine; false if there is none.
    pub fn kill(&self, id: &SandboxId) -> bool {
        self.with(id, |machine| machine.end("killed by the test"))
    }

    /// Drops every connection to the machine, which lives on; false if there is none.
    pub fn cut_links(&self, id: &SandboxId) -> bool {
        self.with(id, Machine::cut_links)
    }

    /// Blocks creates until the result is dropped.
    pub fn stall_create(&self) -> Stall {
        self.gate.send_modify(|gate| gate.closed = true);
        Stall {
            gate: self.gate.clone(),
        }
    }

    pub fn counts(&self) -> Counts {
        let live = lock(&self.machines)
            .values()
            .filter(|machine| !machine.has_ended())
            .count();
        Counts {
            live,
            ..*lock(&self.counts)
        }
    }

    fn with(&self, id: &SandboxId, act: impl FnOnce(&Machine)) -> bool {
        let machine = self.find(id);
        machine.as_deref().map(act).is_some()
    }

    fn find(&self, id: &SandboxId) -> Option<Arc<Machine>> {
        lock(&self.machines).get(id).cloned()
    }

    /// The machine, if it is there and runs.
    fn living(&self, id: &SandboxId) -> Result<Arc<Machine>, Error> {
        self.find(id)
            .filter(|machine| !machine.has_ended())
            .ok_or_else(|| Error::transport(format!("the fake machine {id} is not there")))
    }

    fn remove(&self, id: &SandboxId) {
        let removed = lock(&self.machines).remove(id);
        if let Some(machine) = removed {
            machine.end("destroyed");
            lock(&self.counts).destroys += 1;
        }
    }
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fake")
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            // The last owner may be an async task, which must not block.
            threads.shutdown_background();
        }
    }
}

#[async_trait]
impl Runtime for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn isolation(&self) -> Isolation {
        Isolation::None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: true,
            keep: false,
            setuid: true,
            uses_environment: false,
            ..Capabilities::default()
        }
    }

    async fn check(&self) -> Vec<Check> {
        vec![Check {
            name: "fake".to_string(),
            health: Health::Ok,
            detail: "works everywhere, for tests only".to_string(),
            fix: None,
        }]
    }

    fn plan(&self, spec: &MachineSpec) -> Result<String, Error> {
        Ok(format!("start a fake machine {} in memory\n", spec.id))
    }

    async fn create(&self, spec: &MachineSpec) -> Result<Record, Error> {
        lock(&self.counts).creates += 1;
        {
            let _waiting = Waiting::new(&self.gate);
            // `self` holds the sender, so waiting cannot fail.
            let _ = self.gate.subscribe().wait_for(|gate| !gate.closed).await;
        }
        if let Some(error) = lock(&self.fail_next).take() {
            return Err(error);
        }
        let mut machines = lock(&self.machines);
        if machines.contains_key(&spec.id) {
            return Err(Error::conflict(format!("machine {} exists", spec.id)));
        }
        machines.insert(spec.id.clone(), Machine::new());
        Ok(Record {
            id: spec.id.clone(),
            dir: spec.dir.clone(),
            limits: limits(&spec.limits),
            accelerator: None,
            record: serde_json::json!({ "fake": 1 }),
        })
    }

    async fn connect(&self, machine: &Record) -> Result<Connection, Error> {
        let found = self.living(&machine.id)?;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        if let Some(threads) = &self.threads {
            match lock(&self.play).clone() {
                Some(play) => drop(threads.spawn(play(theirs))),
                None => drop(threads.spawn(found.serve(theirs))),
            }
        }
        let (read, write) = tokio::io::split(ours);
        Ok(Connection::new(read, write))
    }

    async fn ended(&self, machine: &Record) -> Ended {
        let reason = match self.find(&machine.id) {
            Some(found) => found.ended().await,
            None => "the machine is not there".to_string(),
        };
        Ended { reason }
    }

    async fn alive(&self, machine: &Record) -> bool {
        self.living(&machine.id).is_ok()
    }

    async fn pause(&self, machine: &Record) -> Result<(), Error> {
        self.living(&machine.id)?.set_paused(true);
        Ok(())
    }

    async fn resume(&self, machine: &Record) -> Result<(), Error> {
        self.living(&machine.id)?.set_paused(false);
        Ok(())
    }

    async fn destroy(&self, machine: &Record) -> Result<(), Error> {
        self.remove(&machine.id);
        Ok(())
    }

    async fn sweep(&self, id: &SandboxId, _dir: &Path) -> Result<(), Error> {
        self.remove(id);
        Ok(())
    }
}

fn limits(asked: &MachineLimits) -> Vec<AppliedLimit> {
    let report = |name: &str, ask: Ask| AppliedLimit {
        name: name.to_string(),
        value: ask.value,
        enforced: false,
        by: "a fake machine enforces nothing".to_string(),
    };
    let mut limits = vec![
        report("vcpu_count", asked.vcpu_count),
        report("mem_mib", asked.mem_mib),
        report("disk_mib", asked.disk_mib),
        report("pids_max", asked.pids_max),
        report("nofile", asked.nofile),
    ];
    let io = asked.io().into_iter();
    limits.extend(io.map(|(name, value)| {
        let explicit = true;
        report(name, Ask { value, explicit })
    }));
    limits
}
