//! Shutdown of the machine: processes get SIGTERM, then SIGKILL, and the disk is flushed. If we are
//! pid 1, the kernel does the rest when we exit.

use crate::answer::Failed;
use crate::blocking;
use crate::process;
use crate::state::Guest;
use crate::sys;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// The longest grace a host may ask for.
const MAX_GRACE: Duration = Duration::from_secs(600);
/// How often ending processes are checked.
const LOOK: Duration = Duration::from_millis(5);
/// How long the flush may take.
const SYNC_TIME: Duration = Duration::from_secs(10);

/// Signals that ask the guest itself to end.
#[derive(Debug)]
pub struct Endings(Vec<Signal>);

impl Endings {
    /// If the handlers cannot be installed, the host can still end the machine.
    pub fn new() -> Endings {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt()];
        Endings(
            kinds
                .into_iter()
                .filter_map(|kind| signal(kind).ok())
                .collect(),
        )
    }

    pub async fn asked(mut self) {
        std::future::poll_fn(|context| {
            match self
                .0
                .iter_mut()
                .any(|signal| signal.poll_recv(context).is_ready())
            {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
    }
}

pub async fn shutdown(guest: &Arc<Guest>, grace_ms: u64) -> Result<(), Failed> {
    let grace = Duration::from_millis(grace_ms).min(MAX_GRACE);
    end_processes(guest, grace).await;
    Ok(())
}

/// Ends all processes of the machine.
pub async fn end_processes(guest: &Arc<Guest>, grace: Duration) {
    send_all(guest, libc::SIGTERM);
    hang_up(guest);
    // A stopped process must continue to handle its signal.
    send_all(guest, libc::SIGCONT);
    let deadline = Instant::now() + grace;
    while anybody_lives(guest) && Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
    }
    if guest.pid1 {
        // Everything except init, including processes forked meanwhile.
        let _ = sys::kill(-1, libc::SIGKILL);
    }
    for process in guest.processes.all() {
        process::kill_tree(&process).await;
    }
    if guest.pid1 {
        let guest = guest.clone();
        let flush = blocking::spawn(move || flush(&guest));
        let _ = tokio::time::timeout(SYNC_TIME, flush).await;
    }
}

/// Flushes the data that outlives this machine. A machine that shares the host's kernel must not
/// run a global `sync`, which would also wait for other machines' files.
fn flush(guest: &Guest) {
    if let Some(workspace) = &guest.workspace {
        // An error here will be seen by the host too, which flushes next.
        let _ = workspace.flush();
    }
    if guest.restrict.is_none() {
        rustix::fs::sync();
    }
}

fn send_all(guest: &Guest, signal: i32) {
    if guest.pid1 {
        // As init, kill(-1) reaches all processes of the machine; shims ignore the signal.
        let _ = sys::kill(-1, signal);
        return;
    }
    for process in guest.processes.all() {
        process::signal_tree(&process, signal);
    }
}

/// Sends SIGHUP to shells on terminals: an interactive shell ignores SIGTERM.
fn hang_up(guest: &Guest) {
    for process in guest.processes.all() {
        if process.terminal().is_some() {
            process::signal_tree(&process, libc::SIGHUP);
        }
    }
}

fn anybody_lives(guest: &Guest) -> bool {
    guest
        .processes
        .all()
        .iter()
        .any(|process| process.may_live())
}
