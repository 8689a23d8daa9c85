//! One task owns one sandbox.
//!
//! The driver takes requests and events one at a time, asks [`lifecycle`] what
//! may happen, writes the new state to the store and only then acts on it.
//! Everyone else sees the state through a watch.

use crate::admission::Admitted;
use crate::guest::Guest;
use crate::home::Home;
use crate::lifecycle::{self, Decision, Refusal, Request};
use crate::store::{SandboxRow, Store};
use crate::trash::Trash;
use jiff::{SignedDuration, Timestamp};
use motu_core::runtime::{Ended, Machine, MachineSpec};
use motu_core::sandbox::{Sandbox, State};
use motu_core::{Error, ErrorKind, Result, Runtime, SandboxId, limits};
use motu_link::message as link;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Requests that may wait for a driver.
const INBOX: usize = 32;
/// How long a new guest may take to accept its identity.
const INIT_TIMEOUT: Duration = Duration::from_secs(30);

/// What a driver can be asked.
#[derive(Debug)]
enum Command {
    Pause(oneshot::Sender<Result<Sandbox>>),
    Resume(oneshot::Sender<Result<Sandbox>>),
    Keepalive(Option<u64>, oneshot::Sender<Result<Sandbox>>),
    Destroy(oneshot::Sender<Result<Sandbox>>),
}

/// Whether a sandbox is remembered across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// In the store, until it is destroyed.
    Stored,
    /// One-shots: found by their directory if the daemon dies, and removed.
    Transient,
}

/// What every driver shares.
#[derive(Debug)]
pub struct Shared {
    pub home: Home,
    pub store: Store,
    pub trash: Trash,
    /// The table that lists live sandboxes; a driver removes itself at its end.
    pub table: Weak<crate::engine::Table>,
}

/// The outside of a driver.
#[derive(Debug)]
pub struct Handle {
    status: watch::Receiver<Sandbox>,
    inbox: mpsc::Sender<Command>,
    inside: Arc<Inside>,
}

/// What a driver and its handle both reach. A driver never holds its own handle: with the last
/// handle the inbox closes, and the driver leaves.
#[derive(Debug)]
struct Inside {
    guest: Mutex<Option<Arc<Guest>>>,
    last_active_ms: AtomicI64,
}

impl Inside {
    fn guest(&self) -> MutexGuard<'_, Option<Arc<Guest>>> {
        self.guest
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn last_active(&self) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.last_active_ms.load(Ordering::Relaxed)).ok()
    }

    fn touch(&self) {
        self.last_active_ms
            .store(Timestamp::now().as_millisecond(), Ordering::Relaxed);
    }
}

impl Handle {
    /// The sandbox as it is now.
    pub fn sandbox(&self) -> Sandbox {
        let mut sandbox = self.status.borrow().clone();
        if let Some(active) = self.inside.last_active() {
            sandbox.last_active_at = sandbox.last_active_at.max(active);
        }
        sandbox
    }

    /// The guest, if the sandbox may be used now. Counts as activity.
    pub fn guest(&self) -> Result<Arc<Guest>> {
        {
            let status = self.status.borrow();
            if let Decision::Refuse(refusal) = lifecycle::decide(status.state, Request::Use) {
                return Err(refused(&status, refusal));
            }
        }
        self.inside.touch();
        let guest = self.inside.guest().clone();
        guest.ok_or_else(|| Error::internal("a running sandbox has no guest"))
    }

    /// Replaces a broken connection by its cause, when the sandbox has come to an end.
    pub fn explain(&self, error: Error) -> Error {
        if error.kind != ErrorKind::Transport {
            return error;
        }
        let status = self.status.borrow();
        match lifecycle::decide(status.state, Request::Use) {
            Decision::Refuse(refusal) => refused(&status, refusal),
            _ => error,
        }
    }

    /// Like [`Handle::explain`], after waiting a moment for the machine's end to be noticed:
    /// a broken link and a dead machine arrive in either order.
    pub async fn explain_soon(&self, error: Error) -> Error {
        if error.kind == ErrorKind::Transport {
            let mut status = self.status.clone();
            let ended = status.wait_for(|sandbox| sandbox.state != State::Running);
            let _ = tokio::time::timeout(Duration::from_millis(500), ended).await;
        }
        self.explain(error)
    }

    pub async fn pause(&self) -> Result<Sandbox> {
        self.ask(Command::Pause).await
    }

    pub async fn resume(&self) -> Result<Sandbox> {
        self.ask(Command::Resume).await
    }

    pub async fn keepalive(&self, ttl_seconds: Option<u64>) -> Result<Sandbox> {
        self.ask(|answer| Command::Keepalive(ttl_seconds, answer))
            .await
    }

    pub async fn destroy(&self) -> Result<Sandbox> {
        self.ask(Command::Destroy).await
    }

    /// Asks for destruction without waiting for it.
    pub fn destroy_soon(self: &Arc<Self>) -> oneshot::Receiver<Result<Sandbox>> {
        let (answer, answered) = oneshot::channel();
        if let Err(mpsc::error::TrySendError::Full(command)) =
            self.inbox.try_send(Command::Destroy(answer))
        {
            let inbox = self.inbox.clone();
            tokio::spawn(async move { inbox.send(command).await });
        }
        answered
    }

    async fn ask(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<Sandbox>>) -> Command,
    ) -> Result<Sandbox> {
        let (answer, answered) = oneshot::channel();
        let gone = || {
            let status = self.status.borrow();
            refused(&status, Refusal::Destroyed)
        };
        self.inbox.send(command(answer)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// A refusal at the border.
pub fn refused(sandbox: &Sandbox, refusal: Refusal) -> Error {
    let id = &sandbox.sandbox_id;
    let details = serde_json::json!({ "sandbox_id": id, "state": sandbox.state });
    match refusal {
        Refusal::Destroyed => {
            Error::not_found(format!("sandbox {id} was destroyed")).details(details)
        }
        Refusal::Destroying => {
            Error::conflict(format!("sandbox {id} is being destroyed")).details(details)
        }
        Refusal::Failed => Error::unavailable(format!(
            "sandbox {id} failed: {}",
            sandbox.reason.as_deref().unwrap_or("its machine ended")
        ))
        .hint("create a new one; `motu rm` forgets this one")
        .details(details),
        Refusal::Paused => Error::conflict(format!("sandbox {id} is paused"))
            .hint(format!("`motu resume {id}` wakes it"))
            .details(details),
        Refusal::Creating | Refusal::OutOfOrder => {
            Error::conflict(format!("sandbox {id}: {refusal}")).details(details)
        }
    }
}

/// The inside of a driver.
pub struct Driver {
    shared: Arc<Shared>,
    runtime: Arc<dyn Runtime>,
    keep: Keep,
    row: SandboxRow,
    status: watch::Sender<Sandbox>,
    inbox: mpsc::Receiver<Command>,
    inside: Arc<Inside>,
    handle: Weak<Handle>,
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
        let inside = Arc::new(Inside {
            guest: Mutex::new(None),
            last_active_ms: AtomicI64::new(row.sandbox.last_active_at.as_millisecond()),
        });
        let handle = Arc::new(Handle {
            status: watch,
            inbox: sender,
            inside: inside.clone(),
        });
        let driver = Driver {
            shared,
            runtime,
            keep,
            row,
            status,
            inbox,
            inside,
            handle: Arc::downgrade(&handle),
        };
        (driver, handle)
    }

    /// Makes the machine, answers the caller, and looks after it until its end.
    pub async fn create(mut self, admitted: Admitted, answer: oneshot::Sender<Result<Sandbox>>) {
        let id = self.row.sandbox.sandbox_id.clone();
        match self.make(admitted).await {
            Ok(()) => {
                if answer.send(Ok(self.row.sandbox.clone())).is_ok() {
                    self.drive().await;
                } else {
                    // Nobody ever learnt of it.
                    self.destroy().await;
                    self.leave();
                }
            }
            Err(error) => {
                tracing::debug!(%id, %error, "create failed");
                self.unmake().await;
                self.leave();
                let _ = answer.send(Err(error));
            }
        }
    }

    /// Looks after a sandbox that was there before this daemon. It can be used before the task runs.
    pub fn adopt(mut self) -> impl Future<Output = ()> {
        if let Some(machine) = self.row.machine.clone()
            && matches!(self.row.sandbox.state, State::Running | State::Paused)
        {
            self.connect(machine);
        }
        self.drive()
    }

    fn connect(&mut self, machine: Machine) -> Arc<Guest> {
        let guest = Arc::new(Guest::new(self.runtime.clone(), machine));
        *self.inside.guest() = Some(guest.clone());
        guest
    }

    async fn make(&mut self, admitted: Admitted) -> Result<()> {
        let id = self.row.sandbox.sandbox_id.clone();
        if self.keep == Keep::Stored {
            self.shared.store.insert(&self.row).await?;
        }
        let dir = self.shared.home.make_machine(self.runtime.name(), &id)?;
        let machine = self
            .runtime
            .create(&MachineSpec {
                id: id.clone(),
                dir,
                root: admitted.root,
                hostname: id.to_string(),
                wants_sudo: admitted.wants_sudo,
                limits: admitted.limits,
                accel: motu_core::Accel::Auto,
                kept: None,
            })
            .await?;
        self.row.sandbox.limits = machine.limits.clone();
        self.row.machine = Some(machine.clone());
        let around = self.runtime.surroundings(&machine);
        if self.row.sandbox.workdir.is_empty() {
            self.row.sandbox.workdir = around.workdir.unwrap_or_else(|| "/".to_string());
        }
        let guest = self.connect(machine);
        let sandbox = &self.row.sandbox;
        let init = guest.init(link::Init {
            hostname: id.to_string(),
            default_user: sandbox.user.clone(),
            env: around.env.into_iter().chain(admitted.env).collect(),
            clock_unix_ns: 0,
            entropy: bytes::Bytes::new(),
            default_cwd: bytes::Bytes::copy_from_slice(sandbox.workdir.as_bytes()),
            file_root: bytes::Bytes::new(),
        });
        tokio::time::timeout(INIT_TIMEOUT, init)
            .await
            .map_err(|_| Error::new(ErrorKind::Timeout, "the guest did not come up in 30 s"))??;
        self.become_state(State::Running).await
    }

    /// Removes every trace of a machine that did not come to be.
    async fn unmake(&mut self) {
        let id = self.row.sandbox.sandbox_id.clone();
        let dir = self.shared.home.machine(self.runtime.name(), &id);
        self.release_guest().await;
        let swept = match &self.row.machine {
            Some(machine) => self.runtime.destroy(machine).await,
            None => self.runtime.sweep(&id, &dir).await,
        };
        if let Err(error) = swept.and_then(|()| self.shared.trash.discard(&dir)) {
            tracing::warn!(%id, %error, "something was left of a failed create");
        }
        if self.keep == Keep::Stored
            && let Err(error) = self.shared.store.delete(&id).await
        {
            tracing::warn!(%id, %error, "a failed create is still in the store");
        }
    }

    async fn drive(mut self) {
        let ended = {
            let (runtime, machine) = (self.runtime.clone(), self.row.machine.clone());
            let watching = matches!(self.row.sandbox.state, State::Running | State::Paused);
            async move {
                match machine.filter(|_| watching) {
                    Some(machine) => runtime.ended(&machine).await,
                    None => std::future::pending().await,
                }
            }
        };
        tokio::pin!(ended);
        let mut watching = true;
        loop {
            let wake = self.next_deadline();
            tokio::select! {
                command = self.inbox.recv() => {
                    let Some(command) = command else { return };
                    if self.take(command).await {
                        break;
                    }
                }
                found = &mut ended, if watching => {
                    watching = false;
                    self.machine_ended(found).await;
                }
                () = tokio::time::sleep(wake) => {
                    if self.time_is_up() {
                        self.destroy().await;
                        break;
                    }
                }
            }
        }
        self.leave();
    }

    /// Acts on one command; true when the sandbox is gone.
    async fn take(&mut self, command: Command) -> bool {
        match command {
            Command::Pause(answer) => {
                let _ = answer.send(self.pause().await);
            }
            Command::Resume(answer) => {
                let _ = answer.send(self.resume().await);
            }
            Command::Keepalive(ttl, answer) => {
                let _ = answer.send(self.keepalive(ttl).await);
            }
            Command::Destroy(answer) => {
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

    async fn pause(&mut self) -> Result<Sandbox> {
        if let (Some(next), Some(machine)) =
            (self.decide(Request::Pause)?, self.row.machine.clone())
        {
            self.runtime.pause(&machine).await?;
            self.become_state(next).await?;
        }
        Ok(self.row.sandbox.clone())
    }

    async fn resume(&mut self) -> Result<Sandbox> {
        if let (Some(next), Some(machine)) =
            (self.decide(Request::Resume)?, self.row.machine.clone())
        {
            self.runtime.resume(&machine).await?;
            self.become_state(next).await?;
        }
        Ok(self.row.sandbox.clone())
    }

    async fn keepalive(&mut self, ttl_seconds: Option<u64>) -> Result<Sandbox> {
        if matches!(self.row.sandbox.state, State::Destroying | State::Destroyed) {
            return Err(refused(&self.row.sandbox, Refusal::Destroyed));
        }
        if let Some(ttl) = ttl_seconds {
            self.row.sandbox.ttl_seconds = limits::TTL_SECONDS.resolve(Some(ttl))?;
        }
        let ttl = SignedDuration::from_secs(self.row.sandbox.ttl_seconds as i64);
        self.row.sandbox.expires_at = Timestamp::now() + ttl;
        self.inside.touch();
        self.become_state(self.row.sandbox.state).await?;
        Ok(self.row.sandbox.clone())
    }

    async fn machine_ended(&mut self, ended: Ended) {
        if let Ok(Some(next)) = self.decide(Request::MachineEnded) {
            self.row.sandbox.reason = Some(ended.reason);
            if let Err(error) = self.become_state(next).await {
                tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "a failure is not in the store");
            }
            self.release().await;
        }
    }

    /// Ends everything the sandbox has. Never fails half way: what cannot be
    /// removed now is found again by its directory at the next start.
    async fn destroy(&mut self) {
        if let Ok(Some(next)) = self.decide(Request::Destroy) {
            if let Err(error) = self.become_state(next).await {
                tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "destroying without a record");
            }
            self.release().await;
        }
        if let Err(error) = self.become_state(State::Destroyed).await {
            tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "destroyed without a record");
        }
    }

    async fn release_guest(&mut self) {
        let guest = self.inside.guest().take();
        if let Some(guest) = guest {
            guest.close().await;
        }
    }

    async fn release(&mut self) {
        let id: SandboxId = self.row.sandbox.sandbox_id.clone();
        if let Some(machine) = &self.row.machine {
            let gone = self.runtime.destroy(machine).await;
            if let Err(error) = gone.and_then(|()| self.shared.trash.discard(&machine.dir)) {
                tracing::warn!(%id, %error, "something of a sandbox was left behind");
            }
        }
        // After the machine's end, so that calls in progress see why they ended.
        self.release_guest().await;
    }

    /// Writes the state down, then shows it.
    async fn become_state(&mut self, next: State) -> Result<()> {
        self.row.sandbox.state = next;
        self.row.sandbox.last_active_at = self.last_active();
        let written = match self.keep {
            Keep::Stored => self.shared.store.update(&self.row).await,
            Keep::Transient => Ok(()),
        };
        self.status.send_replace(self.row.sandbox.clone());
        written
    }

    fn last_active(&self) -> Timestamp {
        let known = self.row.sandbox.last_active_at;
        self.inside
            .last_active()
            .map_or(known, |active| active.max(known))
    }

    fn idle_deadline(&self) -> Option<Timestamp> {
        let idle = self.row.sandbox.idle_seconds;
        (idle > 0).then(|| self.last_active() + SignedDuration::from_secs(idle as i64))
    }

    fn next_deadline(&self) -> Duration {
        let expires = self.row.sandbox.expires_at;
        let next = self
            .idle_deadline()
            .map_or(expires, |idle| idle.min(expires));
        Duration::try_from(next.duration_since(Timestamp::now())).unwrap_or_default()
    }

    fn time_is_up(&mut self) -> bool {
        let now = Timestamp::now();
        let idle = self.idle_deadline().is_some_and(|deadline| now >= deadline);
        let expired = now >= self.row.sandbox.expires_at;
        if expired || idle {
            let why = if expired {
                "its time to live was over"
            } else {
                "nobody used it"
            };
            self.row
                .sandbox
                .reason
                .get_or_insert_with(|| why.to_string());
        }
        expired || idle
    }

    fn leave(&self) {
        if let Some(table) = self.shared.table.upgrade() {
            table.remove(&self.row.sandbox.sandbox_id, &self.handle);
        }
    }
}
