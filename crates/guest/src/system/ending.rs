//! The end of the machine: everybody is asked, then told, and the disk is
//! flushed. As pid 1 the kernel does the rest when we exit.

use crate::answer::Failed;
use crate::process;
use crate::state::Guest;
use crate::sys;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// The longest grace a host may ask for.
const MAX_GRACE: Duration = Duration::from_secs(600);
/// How often ending processes are looked at.
const LOOK: Duration = Duration::from_millis(5);
/// How long the disk may take.
const SYNC_TIME: Duration = Duration::from_secs(10);

/// Signals that ask the guest itself to end.
#[derive(Debug)]
pub struct Endings(Vec<Signal>);

impl Endings {
    /// A machine that cannot listen for them can still be ended by its host.
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

/// Ends everything that runs here.
pub async fn end_processes(guest: &Arc<Guest>, grace: Duration) {
    send_all(guest, libc::SIGTERM);
    hang_up(guest);
    // A stopped process must run to see its signal.
    send_all(guest, libc::SIGCONT);
    let deadline = Instant::now() + grace;
    while anybody_lives(guest) && Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
    }
    if guest.pid1 {
        // Nothing but init is left out of this; a fork in the middle is hit as well.
        let _ = sys::kill(-1, libc::SIGKILL);
    }
    for process in guest.processes.all() {
        process::kill_tree(&process).await;
    }
    if guest.pid1 {
        let guest = guest.clone();
        let flush = tokio::task::spawn_blocking(move || flush(&guest));
        let _ = tokio::time::timeout(SYNC_TIME, flush).await;
    }
}

/// Brings to the disk what outlives this machine. One that shares its kernel with
/// others must not make them wait for each other's files.
fn flush(guest: &Guest) {
    if let Some(workspace) = &guest.workspace {
        // A disk that fails now fails for its host too, who looks at it next.
        let _ = workspace.flush();
    }
    if guest.restrict.is_none() {
        rustix::fs::sync();
    }
}

fn send_all(guest: &Guest, signal: i32) {
    if guest.pid1 {
        // As init this reaches everybody in the machine; shims do not mind.
        let _ = sys::kill(-1, signal);
        return;
    }
    for process in guest.processes.all() {
        process::signal_tree(&process, signal);
    }
}

/// A shell that somebody types at ignores a request to end, but not the end of its terminal.
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
