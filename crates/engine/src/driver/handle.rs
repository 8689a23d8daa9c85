//! The outside of a driver: what everyone else sees and asks.

use super::{Asked, Command, Launch};
use crate::beyond::Beyond;
use crate::clock::{self, Deadline};
use crate::guest::{Guest, taken_away};
use crate::lifecycle::{self, Decision, Refusal, Request};
use crate::rings::Rings;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use motu_core::exec::ExecSession;
use motu_core::hint;
use motu_core::hint::{field, verb};
use motu_core::runtime::{AT_LIMIT, Kept, Machine, MachineSpec};
use motu_core::sandbox::{Keepalive, PausedBy, Sandbox, State};
use motu_core::{Error, ErrorKind, Result, Runtime};
use motu_policy::Known;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Prepares the inside of a new machine before it may be used.
pub type Prepare = Box<dyn FnOnce(Arc<Guest>) -> BoxFuture<'static, Result<()>> + Send>;

/// The outside of a driver.
#[derive(Debug)]
pub struct Handle {
    pub(super) status: watch::Receiver<Sandbox>,
    pub(super) inbox: mpsc::Sender<Asked>,
    pub(super) inside: Arc<Inside>,
}

/// The state that a driver shares with its handle. A driver never holds its own handle: the inbox
/// closes with the last handle, and the driver ends.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) guest: Mutex<Option<Arc<Guest>>>,
    pub(super) last_active_ms: AtomicI64,
    /// The kept disks of the current machine.
    pub(super) disk: Mutex<Option<(Arc<dyn Runtime>, Kept)>>,
    /// When the machine was last used, in milliseconds since the host was started.
    last_used_ms: AtomicU64,
    /// The end of the time to live, in milliseconds since the host was started.
    deadline_ms: AtomicU64,
    /// Secret values that its gateway puts into requests.
    pub(super) beyond: Beyond,
    /// Resource usage over time.
    rings: Mutex<Rings>,
}

/// No deadline.
const NEVER: u64 = u64::MAX;

impl Inside {
    pub(super) fn new(last_active: Timestamp) -> Inside {
        Inside {
            guest: Mutex::new(None),
            last_active_ms: AtomicI64::new(last_active.as_millisecond()),
            disk: Mutex::new(None),
            last_used_ms: AtomicU64::new(clock::boot_ms()),
            deadline_ms: AtomicU64::new(NEVER),
            beyond: Beyond::default(),
            rings: Mutex::default(),
        }
    }

    /// When the sandbox was last used; the current time while a call to its guest is running.
    pub(super) fn last_used_ms(&self) -> u64 {
        let known = self.last_used_ms.load(Ordering::SeqCst);
        let guest = self.guest();
        guest
            .as_ref()
            .map_or(known, |guest| guest.last_used_ms().max(known))
    }

    pub(super) fn deadline_ms(&self) -> Option<u64> {
        let at = self.deadline_ms.load(Ordering::Relaxed);
        (at != NEVER).then_some(at)
    }

    pub(super) fn set_deadline(&self, deadline: Option<&Deadline>) {
        let at = deadline.map_or(NEVER, |deadline| deadline.at_ms);
        self.deadline_ms.store(at, Ordering::Relaxed);
    }

    pub(super) fn expired(&self) -> bool {
        self.deadline_ms().is_some_and(|at| clock::boot_ms() >= at)
    }

    pub(super) fn guest(&self) -> MutexGuard<'_, Option<Arc<Guest>>> {
        self.guest
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, Option<(Arc<dyn Runtime>, Kept)>> {
        self.disk
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn last_active(&self) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.last_active_ms.load(Ordering::Relaxed)).ok()
    }

    pub(super) fn touch(&self) {
        self.last_active_ms
            .store(Timestamp::now().as_millisecond(), Ordering::Relaxed);
        self.last_used_ms.store(clock::boot_ms(), Ordering::SeqCst);
    }
}

impl Handle {
    /// The error to report if the sandbox's disk has met I/O errors.
    pub(crate) fn faulty(&self) -> Option<Error> {
        let (runtime, kept) = self.disk()?;
        let count = runtime.disk_errors(&kept);
        (count > 0).then(|| {
            let id = self.sandbox().sandbox_id;
            let disk = kept.dir.display().to_string();
            Error::unavailable(format!(
                "the disk of {id} in {disk} has met {count} errors and takes no more writes"
            ))
            .hint(format!(
                "stop {id}, repair the image with `e2fsck -f` in {disk}, and start it again"
            ))
            .details(serde_json::json!({ "sandbox_id": id, "disk": disk, "errors": count }))
        })
    }

    /// The secrets that stay outside of the sandbox, as its gateway knows them.
    pub fn beyond(&self) -> &Beyond {
        &self.inside.beyond
    }

    /// The current record of the sandbox.
    pub fn sandbox(&self) -> Sandbox {
        let mut sandbox = self.status.borrow().clone();
        if let Some(active) = self.inside.last_active() {
            sandbox.last_activity_at = sandbox.last_activity_at.max(active);
        }
        sandbox
    }

    /// Never changes: lists are ordered by it.
    pub fn created_at(&self) -> jiff::Timestamp {
        self.status.borrow().created_at
    }

    pub fn state(&self) -> State {
        self.status.borrow().state
    }

    /// Follows changes of the record.
    pub fn watch(&self) -> watch::Receiver<Sandbox> {
        self.status.clone()
    }

    /// Whether the time to live is over.
    pub fn expired(&self) -> bool {
        self.inside.expired()
    }

    /// Records activity.
    pub fn touch(&self) {
        self.inside.touch();
    }

    /// The guest, if the sandbox may be used now. Counts as activity.
    pub fn guest(&self) -> Result<Arc<Guest>> {
        {
            let status = self.status.borrow();
            if let Decision::Refuse(refusal) = lifecycle::decide(status.state, Request::Use) {
                return Err(refused(&status, refusal));
            }
            // Touch while the state is borrowed: a driver that pauses an idle sandbox checks the
            // last use after it has published the new state, and so sees this one.
            self.inside.touch();
        }
        self.here()
    }

    /// The guest of a machine that stays. Its state is published when a change of it is done, so
    /// until then a machine that is being taken away seems to run.
    fn here(&self) -> Result<Arc<Guest>> {
        let guest = self.inside.guest().clone();
        if let Some(guest) = guest {
            return match guest.going() {
                Some(error) => Err(error),
                None => Ok(guest),
            };
        }
        let status = self.status.borrow();
        Err(match lifecycle::decide(status.state, Request::Use) {
            Decision::Refuse(refusal) => refused(&status, refusal),
            _ => taken_away(&status.sandbox_id, "stopped, reset or destroyed"),
        })
    }

    /// Whether it is paused because it was idle.
    pub fn naps(&self) -> bool {
        paused_by(&self.status.borrow()) == Some(PausedBy::Idle)
    }

    /// The guest, for a use that resumes a sandbox paused while idle.
    pub async fn wake(&self) -> Result<Arc<Guest>> {
        if self.naps() {
            self.touch();
            self.ask(Command::Wake).await?;
        }
        self.guest()
    }

    /// The guest, for a look that does not count as use.
    pub fn look(&self) -> Result<Arc<Guest>> {
        {
            let status = self.status.borrow();
            if let Decision::Refuse(refusal) = lifecycle::decide(status.state, Request::Use) {
                return Err(refused(&status, refusal));
            }
        }
        self.here()
    }

    /// The kept disks of the current machine.
    pub fn disk(&self) -> Option<(Arc<dyn Runtime>, Kept)> {
        self.inside.disk().clone()
    }

    /// Resource usage over time.
    pub fn rings(&self) -> MutexGuard<'_, Rings> {
        let rings = self.inside.rings.lock();
        rings.unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether it is paused until the host's disk has space again.
    pub fn is_held(&self) -> bool {
        held(&self.status.borrow())
    }

    /// Replaces a broken connection by its cause, when the sandbox has come to an end, and a
    /// failed write by the state of the disk, when that is the cause.
    pub fn explain(&self, error: Error) -> Error {
        if matches!(error.kind, ErrorKind::Internal | ErrorKind::Denied) {
            return self.faulty().unwrap_or(error);
        }
        if !unreachable(&error) {
            return error;
        }
        let status = self.status.borrow();
        match lifecycle::decide(status.state, Request::Use) {
            Decision::Refuse(_) if self.inside.expired() => outlived(&status),
            Decision::Refuse(refusal) => refused(&status, refusal),
            _ => error,
        }
    }

    /// Like [`Handle::explain`], after waiting a moment for the machine's end to be noticed:
    /// a broken link and a dead machine arrive in either order.
    pub async fn explain_soon(&self, error: Error) -> Error {
        if unreachable(&error) {
            let mut status = self.status.clone();
            let ended = status.wait_for(|sandbox| sandbox.state != State::Running);
            let _ = tokio::time::timeout(Duration::from_millis(500), ended).await;
        }
        self.explain(error)
    }

    /// A session in which a broken connection is reported as the state of the sandbox.
    pub(crate) fn explained(self: Arc<Self>, session: ExecSession) -> ExecSession {
        let events = session.events.then(move |event| {
            let handle = self.clone();
            async move {
                match event {
                    Ok(event) => Ok(event),
                    Err(error) => Err(handle.explain_soon(error).await),
                }
            }
        });
        ExecSession::new(events.boxed(), session.input)
    }

    pub async fn pause(&self) -> Result<Sandbox> {
        self.touch();
        self.ask(Command::Pause).await
    }

    pub async fn resume(&self) -> Result<Sandbox> {
        self.touch();
        self.ask(Command::Resume).await
    }

    /// Pauses the machine until [`Handle::release`], and says why.
    pub async fn hold(&self, reason: String) -> Result<()> {
        self.ask(|answer| Command::Hold(reason, answer)).await
    }

    /// Resumes a sandbox that [`Handle::hold`] paused.
    pub async fn release(&self) -> Result<()> {
        self.ask(Command::Release).await
    }

    pub async fn stop(&self) -> Result<Sandbox> {
        self.touch();
        self.ask(Command::Stop).await
    }

    pub async fn start(&self) -> Result<Sandbox> {
        self.touch();
        self.ask(Command::Start).await
    }

    /// Replaces the machine by one on other disks and discards the old ones. If that fails, the old
    /// disks stay and the sandbox is stopped.
    pub async fn recreate(&self, kept: Kept, prepare: Prepare) -> Result<Sandbox> {
        self.touch();
        self.ask(|answer| Command::Recreate(kept, prepare, answer))
            .await
    }

    pub async fn keepalive(&self, ask: Keepalive) -> Result<Sandbox> {
        self.ask(|answer| Command::Keepalive(ask, answer)).await
    }

    pub async fn destroy(&self) -> Result<Sandbox> {
        self.ask(Command::Destroy).await
    }

    /// The specification that its machine was made from.
    pub async fn launch(&self) -> Result<Launch> {
        self.ask(Command::Launch).await
    }

    /// Replaces the network rules.
    pub async fn set_network(&self, known: Known) -> Result<Sandbox> {
        self.touch();
        self.ask(|answer| Command::SetNetwork(known.into(), answer))
            .await
    }

    /// Forks the machine, into the directories that the specifications name.
    pub async fn fork(&self, copies: Vec<MachineSpec>) -> Result<Vec<Machine>> {
        self.ask(|answer| Command::Fork(copies, answer)).await
    }

    /// Writes the machine with its memory into an empty directory.
    pub async fn save(&self, to: PathBuf) -> Result<()> {
        self.ask(|answer| Command::Save(to, answer)).await
    }

    /// Copies the kept directory to a new one. A running machine is paused meanwhile.
    pub async fn copy_disks(&self, to: PathBuf) -> Result<()> {
        self.ask(|answer| Command::CopyDisks(to, answer)).await
    }

    /// Asks for destruction without waiting for it.
    pub fn destroy_soon(self: &Arc<Self>) -> oneshot::Receiver<Result<Sandbox>> {
        let (answer, answered) = oneshot::channel();
        if let Err(mpsc::error::TrySendError::Full(command)) =
            self.inbox.try_send(Asked::now(Command::Destroy(answer)))
        {
            let inbox = self.inbox.clone();
            tokio::spawn(async move { inbox.send(command).await });
        }
        answered
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T>>) -> Command,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let gone = || {
            let status = self.status.borrow();
            refused(&status, Refusal::Destroyed)
        };
        let asked = Asked::now(command(answer));
        self.inbox.send(asked).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// Whether the host paused the sandbox for lack of disk space.
pub(super) fn held(sandbox: &Sandbox) -> bool {
    paused_by(sandbox) == Some(PausedBy::Shortage)
}

/// Why a sandbox is paused, if it is. Rows of older versions have only a reason, which the host
/// set.
pub(super) fn paused_by(sandbox: &Sandbox) -> Option<PausedBy> {
    match (sandbox.state, sandbox.paused, &sandbox.reason) {
        (State::Paused, Some(paused), _) => Some(paused.by),
        (State::Paused, None, Some(_)) => Some(PausedBy::Shortage),
        (State::Paused, None, None) => Some(PausedBy::Caller),
        _ => None,
    }
}

/// Whether the error means that the guest could not be reached.
fn unreachable(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Transport | ErrorKind::Unavailable)
}

/// The error of a call that was cut off because the time to live ended.
fn outlived(sandbox: &Sandbox) -> Error {
    let seconds = sandbox.ttl_seconds;
    Error::new(
        ErrorKind::Timeout,
        format!("the sandbox's time to live of {seconds} s was over"),
    )
    .hint(hint![
        "ask for a longer one with ",
        field("ttl_seconds").of("create_sandbox")
    ])
    .details(serde_json::json!({"limit": "ttl_seconds", "value": seconds}))
}

/// Converts a lifecycle refusal to the service's `Error`.
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
        Refusal::Failed => {
            let reason = sandbox.reason.as_deref().unwrap_or("its machine ended");
            let kind = match reason.contains(AT_LIMIT) {
                true => ErrorKind::Limit,
                false => ErrorKind::Unavailable,
            };
            Error::new(kind, format!("sandbox {id} failed: {reason}"))
                .hint(hint![
                    "create a new one; ",
                    verb("destroy_sandbox"),
                    " forgets this one"
                ])
                .details(details)
        }
        Refusal::Paused if held(sandbox) => {
            let reason = sandbox.reason.as_deref().unwrap_or_default();
            crate::shortage::shortage(id, reason)
        }
        Refusal::Paused => Error::conflict(format!("sandbox {id} is paused"))
            .hint(hint![
                verb("resume_sandbox").with("id", id.as_str()),
                " wakes it"
            ])
            .details(details),
        Refusal::Stopped => {
            let why = sandbox
                .reason
                .as_deref()
                .map(|reason| format!(": {reason}"));
            Error::conflict(format!("{id} is stopped{}", why.unwrap_or_default()))
                .hint(hint![
                    verb("start_sandbox").with("id", id.as_str()),
                    " (for a workspace: ",
                    verb("start_workspace").with("id", id.as_str()),
                    ") makes it run again",
                ])
                .details(details)
        }
        Refusal::Creating | Refusal::OutOfOrder => {
            Error::conflict(format!("sandbox {id}: {refusal}")).details(details)
        }
    }
}
