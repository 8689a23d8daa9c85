//! Machines made ahead, in a directory of their own: first a QEMU that waits for its state,
//! and when things are quiet a machine restored from its template, warmed by a first
//! command and stopped. One that is taken is moved to where the new machine is to be,
//! told the time and given new randomness.
//!
//! ```text
//!   a machine is made ──► one more process, unstarted ──► a moment of quiet ──► settled
//!   the next of its kind ──► renamed, given its state or continued, renewed
//! ```
//!
//! A spare never outlives us: the kernel ends it when we are gone (see
//! `sys::Leash`), and its directory is swept by the next one. It goes by
//! itself when nobody has wanted it for a while.

use crate::error::QemuError;
use crate::guest;
use crate::place::{Place, QMP};
use crate::process;
use crate::qmp::Qmp;
use crate::record::Record;
use crate::sys::Leash;
use crate::{cache, cgroup, state};
use motu_boot::Matter;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use serde_json::json;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How long no machine must have been made before a spare is let live.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// How long a spare waits for somebody who wants it.
pub(crate) const LIFETIME: Duration = Duration::from_secs(120);
/// When a directory without a machine counts as left behind.
const LEFT_BEHIND: Duration = Duration::from_secs(300);

/// A machine nobody uses yet.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) key: String,
    dir: PathBuf,
    pidfd: OwnedFd,
    leash: Option<Leash>,
    stage: Stage,
}

/// How far a spare has come.
#[derive(Debug)]
enum Stage {
    /// A process that waits for the state of its devices on a pipe.
    Unstarted { state: File, to: File },
    /// A machine that has run and is stopped.
    Settled(Qmp),
}

impl Spare {
    /// A process that reads its state from the other end of `to`.
    pub(crate) fn unstarted(
        key: String,
        dir: &Path,
        (pidfd, leash): (OwnedFd, Leash),
        (state, to): (File, File),
    ) -> Spare {
        Spare {
            key,
            dir: dir.to_path_buf(),
            pidfd,
            leash: Some(leash),
            stage: Stage::Unstarted { state, to },
        }
    }

    fn is_unstarted(&self) -> bool {
        matches!(self.stage, Stage::Unstarted { .. })
    }

    /// Lets it live for a moment, warms it and stops it.
    pub(crate) async fn settle(mut self) -> Result<Spare, QemuError> {
        let place = Place::open(&self.dir)?;
        self.live(&place).await?;
        let link = guest::greet(&place).await?;
        guest::warm(&link).await;
        link.close();
        let mut qmp = Qmp::connect(&place.socket(QMP)).await?;
        qmp.execute("stop", json!({})).await?;
        self.stage = Stage::Settled(qmp);
        Ok(self)
    }

    /// Moves into an empty directory and goes on there.
    pub(crate) async fn become_machine(mut self, to: &Path) -> Result<Record, QemuError> {
        std::fs::rename(&self.dir, to).map_err(QemuError::io("cannot move a spare machine"))?;
        self.dir = to.to_path_buf();
        self.live(&Place::open(to)?).await?;
        let record = Record::load(to).ok_or(QemuError::Gone)?;
        if let Some(leash) = self.leash.take() {
            leash
                .release()
                .map_err(QemuError::io("cannot let a spare machine go"))?;
        }
        Ok(record)
    }

    /// Makes it run as a machine of its own.
    async fn live(&mut self, place: &Place) -> Result<(), QemuError> {
        let watched = self
            .pidfd
            .try_clone()
            .map_err(QemuError::io("cannot watch QEMU"))?;
        let stage = &mut self.stage;
        let living = async {
            match stage {
                Stage::Unstarted { state, to } => hand_over(state, to).await?,
                Stage::Settled(qmp) => drop(qmp.execute("cont", json!({})).await?),
            }
            guest::renew(place, Matter::News).await
        };
        tokio::select! {
            living = living => living,
            _ = process::wait(watched) => Err(QemuError::Gone),
        }
    }
}

/// Gives a process the state it waits for.
async fn hand_over(state: &File, to: &mut File) -> Result<(), QemuError> {
    let handing = || QemuError::io("cannot hand a machine its state");
    let from = state.try_clone().map_err(handing())?;
    // The only one that is left of this end: with it the pipe is closed.
    let nothing = File::open("/dev/null").map_err(handing())?;
    state::hand_over(from, std::mem::replace(to, nothing)).await
}

impl Drop for Spare {
    fn drop(&mut self) {
        if self.leash.is_none() {
            return;
        }
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        // Killed, it ends at once; nobody else waits for it.
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        leave(&self.dir);
    }
}

/// Removes what is left of a spare whose process is gone.
fn leave(dir: &Path) {
    if let Some(record) = Record::load(dir) {
        cgroup::remove(&record.cgroups);
    }
    if let Err(error) = cache::remove(dir) {
        tracing::warn!(%error, "a spare machine was left behind");
    }
}

/// The spares, the newest last.
#[derive(Debug)]
pub(crate) struct Spares {
    dir: PathBuf,
    /// How many there may be.
    limit: usize,
    waiting: Mutex<Vec<(Instant, Spare)>>,
    /// When a machine was last made.
    last: Mutex<Instant>,
}

impl Spares {
    pub(crate) fn open(home: &Path, limit: usize) -> Result<Spares, QemuError> {
        let dir = home.join("cache/spares");
        std::fs::create_dir_all(&dir).map_err(QemuError::io("cannot make the cache"))?;
        Ok(Spares {
            dir,
            limit,
            waiting: Mutex::default(),
            last: Mutex::new(Instant::now()),
        })
    }

    /// A directory for one more.
    pub(crate) fn place(&self) -> Result<PathBuf, QemuError> {
        let dir = self.dir.join(motu_core::SandboxId::generate().as_str());
        std::fs::create_dir(&dir).map_err(QemuError::io("cannot make a spare machine"))?;
        Ok(dir)
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.locked().len()
    }

    pub(crate) fn take(&self, key: &str) -> Option<Spare> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let mut waiting = self.locked();
        let at = waiting.iter().position(|(_, spare)| spare.key == key)?;
        Some(waiting.remove(at).1)
    }

    /// One that has not lived yet.
    pub(crate) fn take_unstarted(&self, key: &str) -> Option<Spare> {
        let mut waiting = self.locked();
        let wanted = |spare: &Spare| spare.key == key && spare.is_unstarted();
        let at = waiting.iter().position(|(_, spare)| wanted(spare))?;
        Some(waiting.remove(at).1)
    }

    /// Whether one of this kind should be made now.
    pub(crate) fn wants(&self, key: &str) -> bool {
        self.limit > 0 && !self.locked().iter().any(|(_, spare)| spare.key == key)
    }

    /// How long it is until nobody has made a machine for a while.
    pub(crate) fn until_quiet(&self) -> Duration {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        QUIET.saturating_sub(last.elapsed())
    }

    pub(crate) fn put(&self, spare: Spare) {
        let mut waiting = self.locked();
        waiting.push((Instant::now(), spare));
        let over = waiting.len().saturating_sub(self.limit);
        let gone: Vec<_> = waiting.drain(..over).collect();
        // Ended without the lock.
        drop(waiting);
        drop(gone);
    }

    /// Lets all of them go.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut *self.locked());
        // Ended without the lock.
        drop(gone);
    }

    /// Lets those go that have waited too long.
    pub(crate) fn expire(&self) {
        let mut waiting = self.locked();
        let old = waiting
            .iter()
            .take_while(|(since, _)| since.elapsed() >= LIFETIME);
        let gone: Vec<_> = {
            let count = old.count();
            waiting.drain(..count).collect()
        };
        drop(waiting);
        drop(gone);
    }

    /// Removes the directories of those that were ended with their daemon.
    pub(crate) fn sweep(&self) {
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let dir = entry.path();
            let over = match Record::load(&dir) {
                Some(record) => record.open().is_none(),
                None => is_old(&dir),
            };
            if over {
                leave(&dir);
            }
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Vec<(Instant, Spare)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_old(dir: &Path) -> bool {
    let modified = dir.metadata().and_then(|found| found.modified());
    modified
        .ok()
        .and_then(|modified| SystemTime::now().duration_since(modified).ok())
        .is_some_and(|age| age > LEFT_BEHIND)
}
