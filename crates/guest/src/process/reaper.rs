//! Waits for all children of the guest: shims, and orphans that the kernel reparents to an init.

use super::{follow, start};
use crate::state::Guest;
use rustix::process::{WaitOptions, WaitStatus};
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Reaps on SIGCHLD.
#[derive(Debug)]
pub struct Reaper(Signal);

impl Reaper {
    pub fn new() -> std::io::Result<Reaper> {
        Ok(Reaper(signal(SignalKind::child())?))
    }

    pub async fn run(mut self, guest: Arc<Guest>) {
        loop {
            // SIGCHLD is not queued: one signal may stand for any number of children.
            while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
                reaped(&guest, pid.as_raw_nonzero().get(), status);
            }
            if self.0.recv().await.is_none() {
                return;
            }
        }
    }
}

fn reaped(guest: &Guest, pid: i32, status: WaitStatus) {
    guest.processes.shims.remove(pid);
    for process in guest.processes.all() {
        if process.facts.shim == pid && process.may_live() && !process.lost_its_shim() {
            process.set_shim_gone(!status.exited());
            if process.is_forgotten() && process.has_exited() {
                follow::forget(guest, &process);
            }
            guest.processes.prune();
            return;
        }
        // A program becomes our own child only if its shim was killed.
        if process.facts.pid == pid as u32 && process.lost_its_shim() && !process.has_exited() {
            process.set_exit(start::exit(&process, status.as_raw(), None));
            return;
        }
    }
    guest.processes.ended_unknown(pid, !status.exited());
}
