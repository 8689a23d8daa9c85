//! One task owns one sandbox.
//!
//! The driver takes requests and events one at a time, asks [`lifecycle`] what
//! may happen, writes the new state to the store and only then acts on it.
//! Everyone else sees the state through a watch.
//!
//! ```text
//!   handle     the outside: ask, look, use
//!   making     how the machine comes to be
//!   changing   pause, stop, start, fork, end
//!   storing    the intent before, the state after
//!   looking    limits and network, from time to time
//!   copying    the disks, for a backup
//!   network    the rules and their gateway
//!   table      all of them, and which are dormant; order is that of their lists
//! ```

mod changing;
mod copying;
mod handle;
mod looking;
mod making;
mod network;
mod order;
mod storing;
mod table;

pub use crate::launch::Launch;
pub(crate) use crate::launch::expiry;
pub(crate) use changing::BEING_RESET;
pub use handle::{Handle, Prepare, refused};
pub use making::Origin;
pub(crate) use making::identity;
pub use order::Age;
pub use table::{Bounds, Table};
pub(crate) use table::{Listed, Whereabouts};

use crate::clock::{self, Deadline, Now};
use crate::dormant::Dormant;
use crate::egress::Gateways;
use crate::home::Home;
use crate::kept::Baselines;
use crate::lease::Leases;
use crate::lifecycle::{self, Decision, Request};
use crate::proof::Proofs;
use crate::record;
use crate::store::{SandboxRow, Store};
use crate::trash::Trash;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handle::Inside;
use jiff::Timestamp;
use motu_core::audit::{self, AuditId};
use motu_core::runtime::{Ended, Kept, Machine, MachineSpec};
use motu_core::sandbox::{Keepalive, OnIdle, Sandbox, State};
use motu_core::{Result, Runtime, SandboxId};
use motu_policy::Known;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::MissedTickBehavior;

/// Capacity of a driver's inbox.
const INBOX: usize = 32;
/// How often the driver of a sandbox without deadline wakes up.
const NO_DEADLINE: Duration = Duration::from_secs(86_400);
/// Longest sleep until a deadline: tokio's sleep does not count while the host is suspended.
const LOOK: Duration = Duration::from_secs(60);
/// How often a machine's directory, its limits and its gateway are looked for.
const LOOK_OUTSIDE: Duration = Duration::from_secs(5);

type Answer<T> = oneshot::Sender<Result<T>>;

/// Requests to a driver.
enum Command {
    Pause(Answer<Sandbox>),
    Resume(Answer<Sandbox>),
    /// Resumes a sandbox that was paused while idle.
    Wake(Answer<()>),
    /// Pauses for lack of disk space on the host.
    Hold(String, Answer<()>),
    Release(Answer<()>),
    Stop(Answer<Sandbox>),
    Start(Answer<Sandbox>),
    Recreate(Kept, Prepare, Answer<Sandbox>),
    Keepalive(Keepalive, Answer<Sandbox>),
    Launch(Answer<Launch>),
    SetNetwork(Box<Known>, Answer<Sandbox>),
    Fork(Vec<MachineSpec>, Answer<Vec<Machine>>),
    CopyDisks(PathBuf, Answer<()>),
    Save(PathBuf, Answer<()>),
    Destroy(Answer<Sandbox>),
}

/// A request, and the call that it is made for.
struct Asked {
    command: Command,
    call: Option<AuditId>,
}

impl Asked {
    fn now(command: Command) -> Asked {
        Asked {
            command,
            call: audit::current(),
        }
    }
}

/// What a deadline requires.
enum Due {
    Nothing,
    /// Pause the idle sandbox.
    Nap,
    /// Destroy it, for this reason.
    End(&'static str),
}

/// Whether a sandbox survives restarts of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Kept in the store until it is destroyed.
    Stored,
    /// Not stored. If the daemon dies, the next one finds the directory and removes it.
    Transient,
}

/// Makes stopped sandboxes dormant.
pub trait Dormancy: std::fmt::Debug + Send + Sync {
    /// Whether it is dormant from now on: nobody holds anything of it, and its driver ends. `unused` is
    /// asked when nobody can take hold of it any more.
    fn make_dormant(
        &self,
        id: &SandboxId,
        handle: &Weak<Handle>,
        dormant: Dormant,
        unused: &dyn Fn() -> bool,
    ) -> bool;
}

/// What every driver shares.
#[derive(Debug)]
pub struct Shared {
    pub home: Home,
    pub store: Store,
    pub trash: Trash,
    pub baselines: Baselines,
    pub gateways: Gateways,
    /// When machines end that no daemon looks after.
    pub leases: Leases,
    /// Which runtimes have made machines.
    pub proofs: Arc<Proofs>,
    /// How long guests may be silent.
    pub bounds: crate::guest::Bounds,
    /// The table of live sandboxes; a driver removes itself at its end.
    pub table: Weak<Table>,
    /// How long a stopped sandbox is unused until it is dormant.
    pub dormant_after: Duration,
    /// Makes stopped sandboxes dormant; set once the engine is whole.
    pub dormancy: OnceLock<Weak<dyn Dormancy>>,
}

impl Shared {
    /// The empty, private directory of a new machine: that of one that is gone, or a new one.
    pub fn make_machine(&self, runtime: &str, id: &SandboxId) -> Result<PathBuf> {
        let dir = self.home.machine(runtime, id);
        match self.trash.reuse(&dir) {
            true => Ok(dir),
            false => self.home.make_machine(runtime, id),
        }
    }

    /// Stores a row: in the record beside its kept disks, if it has any, and in the store.
    pub async fn persist(&self, row: &mut SandboxRow) -> Result<()> {
        row.revision += 1;
        if row.sandbox.keep && self.home.kept(&row.sandbox.sandbox_id).exists() {
            let (home, beside) = (self.home.clone(), row.clone());
            let written = crate::blocking::blocking(move || record::write_sandbox(&home, &beside));
            match written.await {
                // A sandbox is reported as running only if its record is written: recovery relies
                // on it.
                Err(error) if row.sandbox.state == State::Running => return Err(error),
                Err(error) => {
                    tracing::warn!(id = %row.sandbox.sandbox_id, %error, "could not write the record beside the disks");
                }
                Ok(()) => {}
            }
        }
        self.store.update(row).await
    }

    /// Releases a baseline, and removes it when this was its last user.
    pub async fn release_baseline(&self, baseline: &str, id: &SandboxId) -> Result<()> {
        match self.store.release_baseline(baseline, id).await? {
            true => self.remove_baseline(baseline).await,
            false => Ok(()),
        }
    }

    /// Removes a baseline that no sandbox uses.
    pub async fn remove_baseline(&self, baseline: &str) -> Result<()> {
        tracing::info!(baseline, "removing a baseline without references");
        self.baselines.discard(&self.trash, baseline)?;
        self.store.baseline_removed(baseline).await
    }
}

/// The inside of a driver.
pub struct Driver {
    shared: Arc<Shared>,
    runtime: Arc<dyn Runtime>,
    keep: Keep,
    row: SandboxRow,
    status: watch::Sender<Sandbox>,
    inbox: mpsc::Receiver<Asked>,
    inside: Arc<Inside>,
    handle: Weak<Handle>,
    /// Set when the machine has changed, so that the new one is watched.
    watch_again: bool,
    /// Its row is newer than the one that is stored.
    unsaved: bool,
}

impl Driver {
    /// A driver and its handle, in the state the row says.
    pub fn new(
        shared: Arc<Shared>,
        runtime: Arc<dyn Runtime>,
        keep: Keep,
        row: SandboxRow,
    ) -> (Driver, Arc<Handle>) {
        let (status, watch) = watch::channel(row.sandbox.clone());
        let (sender, inbox) = mpsc::channel(INBOX);
        let inside = Arc::new(Inside::new(row.sandbox.last_activity_at));
        let handle = Arc::new(Handle {
            status: watch,
            inbox: sender,
            inside: inside.clone(),
        });
        let mut driver = Driver {
            shared,
            runtime,
            keep,
            row,
            status,
            inbox,
            inside,
            handle: Arc::downgrade(&handle),
            watch_again: false,
            unsaved: false,
        };
        let deadline = set_deadline(&mut driver.row);
        driver.inside.set_deadline(deadline.as_ref());
        (driver, handle)
    }

    /// A future that resolves when the current machine ends.
    fn watch(&self) -> BoxFuture<'static, Ended> {
        let alive = matches!(self.row.sandbox.state, State::Running | State::Paused);
        match self.row.machine.clone().filter(|_| alive) {
            Some(machine) => {
                let runtime = self.runtime.clone();
                let guest = self.inside.guest().clone();
                async move {
                    let verdict = async {
                        match guest {
                            Some(guest) => tokio::select! {
                                reason = guest.doomed() => reason,
                                reason = guest.misbehaved() => reason,
                            },
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        ended = runtime.ended(&machine) => ended,
                        reason = verdict => Ended { reason },
                        () = removed(&machine.dir) => Ended {
                            reason: "its directory was removed".to_string(),
                        },
                    }
                }
                .boxed()
            }
            None => std::future::pending().boxed(),
        }
    }

    async fn drive(mut self) {
        let mut ended = self.watch();
        let first = tokio::time::Instant::now() + LOOK_OUTSIDE;
        let mut look = tokio::time::interval_at(first, LOOK_OUTSIDE);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let wake = self.next_deadline();
            let alive = matches!(self.row.sandbox.state, State::Running | State::Paused);
            tokio::select! {
                asked = self.inbox.recv() => {
                    let Some(Asked { command, call }) = asked else { return };
                    // Boxed: a task that waits is as large as what it waits for, and no larger.
                    if Box::pin(audit::on_behalf(call, self.take(command))).await {
                        break;
                    }
                    if std::mem::take(&mut self.watch_again) {
                        ended = self.watch();
                    }
                }
                found = &mut ended => {
                    ended = std::future::pending().boxed();
                    Box::pin(self.machine_ended(found)).await;
                }
                _ = look.tick(), if alive => Box::pin(self.look()).await,
                () = tokio::time::sleep(self.shared.dormant_after), if self.may_be_dormant() => {
                    if Box::pin(self.become_dormant()).await {
                        return;
                    }
                }
                () = tokio::time::sleep(wake) => match self.due() {
                    Due::Nothing => {}
                    Due::Nap => Box::pin(self.nap()).await,
                    Due::End(why) => {
                        self.row.sandbox.reason.get_or_insert_with(|| why.to_string());
                        Box::pin(self.destroy()).await;
                        break;
                    }
                },
            }
        }
        self.leave();
    }

    /// Acts on one command; true when the sandbox is gone.
    async fn take(&mut self, command: Command) -> bool {
        match command {
            Command::Pause(answer) => drop(answer.send(self.pause().await)),
            Command::Resume(answer) => drop(answer.send(self.resume().await)),
            Command::Wake(answer) => drop(answer.send(self.wake().await)),
            Command::Hold(reason, answer) => drop(answer.send(self.hold(reason).await)),
            Command::Release(answer) => drop(answer.send(self.let_go().await)),
            Command::Stop(answer) => drop(answer.send(self.stop().await)),
            Command::Start(answer) => drop(answer.send(self.start().await)),
            Command::Recreate(kept, prepare, answer) => {
                drop(answer.send(self.recreate(kept, prepare).await));
            }
            Command::Keepalive(ask, answer) => drop(answer.send(self.keepalive(ask).await)),
            Command::Launch(answer) => drop(answer.send(self.launch())),
            Command::SetNetwork(known, answer) => {
                drop(answer.send(self.set_network(*known).await));
            }
            Command::Fork(copies, answer) => drop(answer.send(self.fork(&copies).await)),
            Command::CopyDisks(to, answer) => drop(answer.send(self.copy_disks(to).await)),
            Command::Save(to, answer) => drop(answer.send(self.save(&to).await)),
            Command::Destroy(answer) => {
                if let Some(guest) = self.inside.guest().as_ref() {
                    guest.goes("destroyed");
                }
                self.destroy().await;
                // Out of the table before the answer: a listing after it never shows the sandbox.
                self.leave();
                let _ = answer.send(Ok(self.row.sandbox.clone()));
                return true;
            }
        }
        false
    }

    fn decide(&self, request: Request) -> Result<Option<State>> {
        match lifecycle::decide(self.row.sandbox.state, request) {
            Decision::Accept(next) => Ok(Some(next)),
            Decision::AlreadyDone => Ok(None),
            Decision::Refuse(refusal) => Err(refused(&self.row.sandbox, refusal)),
        }
    }

    fn last_active(&self) -> Timestamp {
        let known = self.row.sandbox.last_activity_at;
        self.inside
            .last_active()
            .map_or(known, |active| active.max(known))
    }

    /// When the sandbox becomes idle. `None` if idling would pause it and it is not running.
    fn idle_deadline(&self) -> Option<u64> {
        let Sandbox {
            idle_seconds,
            on_idle,
            state,
            ..
        } = self.row.sandbox;
        let counts = on_idle == OnIdle::Destroy || state == State::Running;
        (idle_seconds > 0 && counts).then(|| {
            let used = self.inside.last_used_ms();
            used.saturating_add(idle_seconds * 1000)
        })
    }

    fn next_deadline(&self) -> Duration {
        let deadlines = [self.inside.deadline_ms(), self.idle_deadline()];
        let Some(next) = deadlines.into_iter().flatten().min() else {
            return NO_DEADLINE;
        };
        Duration::from_millis(next.saturating_sub(clock::boot_ms())).min(LOOK)
    }

    fn due(&self) -> Due {
        let idle = self.idle_deadline();
        let idle = idle.is_some_and(|deadline| clock::boot_ms() >= deadline);
        match self.row.sandbox.on_idle {
            _ if self.inside.expired() => Due::End(lifecycle::OUTLIVED),
            _ if !idle => Due::Nothing,
            OnIdle::Destroy => Due::End(lifecycle::UNUSED),
            OnIdle::Pause => Due::Nap,
        }
    }

    /// Whether it is stopped, as it is stored, and no clock ends it.
    fn may_be_dormant(&self) -> bool {
        self.keep == Keep::Stored
            && self.row.sandbox.keep
            && self.row.sandbox.state == State::Stopped
            && self.row.intent.is_none()
            && self.row.machine.is_none()
            && !self.unsaved
            && self.inside.deadline_ms().is_none()
            && self.idle_deadline().is_none()
    }

    /// Leaves its row to the store, if nobody holds anything of the sandbox; true when it does. The next use makes another driver.
    async fn become_dormant(&mut self) -> bool {
        if self.last_active() > self.row.sandbox.last_activity_at
            && self.become_state(State::Stopped).await.is_err()
        {
            return false;
        }
        let Some(all) = self.shared.dormancy.get().and_then(Weak::upgrade) else {
            return false;
        };
        let dormant = Dormant::of(&self.row.sandbox, self.row.launch.as_ref());
        // The handle has one of them.
        let unused = || self.status.receiver_count() <= 1 && self.inbox.is_empty();
        let id = &self.row.sandbox.sandbox_id;
        let gone = all.make_dormant(id, &self.handle, dormant, &unused);
        if gone {
            tracing::info!(%id, "a stopped sandbox is dormant");
        }
        gone
    }

    fn leave(&self) {
        if let Some(table) = self.shared.table.upgrade() {
            table.remove(&self.row.sandbox.sandbox_id, &self.handle);
        }
    }
}

/// Computes the deadline of the time to live; it is stored with the row.
fn set_deadline(row: &mut SandboxRow) -> Option<Deadline> {
    let (expires_at, ttl) = (row.sandbox.expires_at, row.sandbox.ttl_seconds);
    let launch = row.launch.as_ref();
    let written = launch.and_then(|launch| launch.deadline.as_ref());
    let deadline = expires_at.map(|at| Now::get().deadline(at, ttl, written));
    if let Some(launch) = &mut row.launch {
        launch.deadline = deadline.clone();
    }
    deadline
}

/// Returns when a machine's directory is gone: the machine cannot be reached any more.
async fn removed(dir: &Path) {
    loop {
        tokio::time::sleep(LOOK_OUTSIDE).await;
        if let Ok(false) = dir.try_exists() {
            return;
        }
    }
}
