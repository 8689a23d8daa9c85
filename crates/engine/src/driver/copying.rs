//! Copying the disks of a sandbox, running or not.

use super::Driver;
use crate::blocking::blocking;
use bytes::Bytes;
use futures_util::StreamExt;
use motu_core::runtime::Machine;
use motu_core::sandbox::State;
use motu_core::{ErrorKind, Isolation, Result};
use motu_link::message as link;
use std::path::PathBuf;
use std::time::Duration;

/// How long a machine may take to write out what it holds in its own memory.
const SYNC_TIME: Duration = Duration::from_secs(60);

impl Driver {
    /// Copies the kept directory to a new one. Everything the machine had written before is in the
    /// copy. If the daemon dies meanwhile, the machine stays paused until the next daemon resumes
    /// it.
    pub(super) async fn copy_disks(&mut self, to: PathBuf) -> Result<()> {
        let running = self.row.sandbox.state == State::Running;
        let machine = self.row.machine.clone().filter(|_| running);
        let stands = match &machine {
            Some(machine) => self.stand_still(machine).await?,
            None => false,
        };
        let copied = self.copy_still(machine.is_some(), to).await;
        if let (Some(machine), true) = (&machine, stands) {
            self.runtime.resume(machine).await?;
        }
        copied
    }

    async fn copy_still(&self, flush: bool, to: PathBuf) -> Result<()> {
        if let Some(kept) = self.launch()?.kept.filter(|_| flush) {
            // Flush twice: the second one returns only after the writes that the first began.
            for _ in 0..2 {
                match self.runtime.flush(&kept).await {
                    // A machine that has ended has flushed its disks.
                    Err(error) if error.kind == ErrorKind::Unavailable => {}
                    other => other?,
                }
            }
        }
        let from = self.shared.home.kept(&self.row.sandbox.sandbox_id);
        blocking(move || crate::copy_tree::copy(&from, &to)).await
    }

    /// Pauses a machine after a `sync` inside, which writes out the page cache of its own kernel.
    /// Returns false where machines cannot be paused.
    async fn stand_still(&self, machine: &Machine) -> Result<bool> {
        if matches!(
            self.row.sandbox.isolation,
            Isolation::Vm | Isolation::Gvisor
        ) {
            self.sync_inside().await;
        }
        if !self.runtime.capabilities().pause {
            return Ok(false);
        }
        self.runtime.pause(machine).await?;
        Ok(true)
    }

    /// Runs `sync` inside. Only for machines with a kernel of their own: elsewhere it would sync
    /// the host.
    async fn sync_inside(&self) {
        let Some(guest) = self.inside.guest().clone() else {
            return;
        };
        let sync = link::Start {
            argv: vec![Bytes::from_static(b"sync")],
            user: "root".into(),
            cwd: Bytes::from_static(b"/"),
            follow: true,
            forget: true,
            timeout_ms: SYNC_TIME.as_millis() as u64,
            ..link::Start::default()
        };
        let ran = async {
            let mut session = guest.start(sync).await?;
            while let Some(event) = session.events.next().await {
                event?;
            }
            Ok::<(), motu_core::Error>(())
        };
        let ran = tokio::time::timeout(SYNC_TIME, ran).await;
        if !matches!(ran, Ok(Ok(()))) {
            tracing::warn!(id = %self.row.sandbox.sandbox_id, ?ran, "sync inside the machine failed: its disks are copied as after a crash");
        }
    }
}
