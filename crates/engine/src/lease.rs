//! Times to live that end without a daemon.
//!
//! ```text
//!   run/leases/ID    when the time of a machine is over, and by what it ends
//! ```
//!
//! While a daemon runs, its drivers end what is over. Beside it waits the keeper, a process that
//! does nothing until that daemon is gone, however it went. Then it ends each machine at its time,
//! and leaves with the last lease, or when another daemon serves.
//!
//! It ends processes and nothing else: disks, devices and records are the next daemon's.

use crate::clock::{Deadline, boot_id, boot_ms};
use crate::home::Home;
use motu_core::SandboxId;
use motu_core::runtime::{Lifeline, ProcessOfBoot};
use motu_egress::gateway::Started;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::io::{self, PipeWriter, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The hidden argument that makes the executable run as the keeper of a state directory.
pub const KEEPER: &str = "__keeper";

const LEASES: &str = "run/leases";
/// The file a daemon holds a lock on.
const DAEMON: &str = "daemon.lock";
/// How long a daemon that has let go of its keeper may take to end.
const LAST_BREATH: Duration = Duration::from_secs(60);
/// How often the keeper looks whether another daemon serves, and whether its own has ended.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_AT_DAEMON: Duration = Duration::from_millis(50);
/// How long a machine may take to end when it is asked to, and when it is killed.
const GRACE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(10);

/// One machine's lease, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Lease {
    boot_id: String,
    /// By `CLOCK_BOOTTIME`.
    at_ms: u64,
    line: Lifeline,
}

/// The leases of one state directory.
#[derive(Clone, Debug)]
pub struct Leases {
    dir: PathBuf,
    /// What a keeper is started from; without it nothing is kept.
    program: Option<PathBuf>,
    keeper: Arc<Mutex<Option<Keeper>>>,
}

/// A keeper that waits for the end of this process, which holds the other end of its input.
#[derive(Debug)]
struct Keeper {
    process: Child,
    _input: PipeWriter,
}

impl Leases {
    pub fn open(home: &Home, program: Option<PathBuf>) -> Leases {
        Leases {
            dir: home.path().join(LEASES),
            program,
            keeper: Arc::default(),
        }
    }

    /// Writes down when a machine is over, or that it never is.
    pub fn set(&self, id: &SandboxId, deadline: Option<&Deadline>, line: Option<Lifeline>) {
        let (Some(deadline), Some(line)) = (deadline, line) else {
            return self.clear(id);
        };
        if self.program.is_none() {
            return;
        }
        let lease = Lease {
            boot_id: deadline.boot_id.clone(),
            at_ms: deadline.at_ms,
            line,
        };
        if let Err(error) = self.write(id, &lease) {
            tracing::warn!(%id, %error, "no lease could be written: without a daemon the sandbox outlives its time");
        }
        self.keep();
    }

    /// Forgets a machine that is gone, or has no end any more.
    pub fn clear(&self, id: &SandboxId) {
        // Most have none.
        let _ = std::fs::remove_file(self.dir.join(id.as_str()));
    }

    fn write(&self, id: &SandboxId, lease: &Lease) -> io::Result<()> {
        let text = serde_json::to_vec(lease)?;
        // No sandbox is called so.
        let staged = self.dir.join(format!(".{id}"));
        let write = || std::fs::write(&staged, &text);
        match write() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut builder = std::fs::DirBuilder::new();
                builder.recursive(true).mode(0o700).create(&self.dir)?;
                write()?;
            }
            other => other?,
        }
        std::fs::rename(&staged, self.dir.join(id.as_str()))
    }

    /// Starts the keeper, if there is none. In the background: starting a program takes longer than
    /// all the rest of making a machine.
    fn keep(&self) {
        let runs = |keeper: &mut Keeper| matches!(keeper.process.try_wait(), Ok(None));
        let mut place = match self.keeper.lock() {
            Ok(place) => place,
            Err(poisoned) => poisoned.into_inner(),
        };
        if place.as_mut().is_some_and(runs) {
            return;
        }
        *place = None;
        drop(place);
        let leases = self.clone();
        std::thread::spawn(move || {
            // Others who come here meanwhile wait for this one.
            let Ok(mut place) = leases.keeper.lock() else {
                return;
            };
            if place.is_some() {
                return;
            }
            match leases.start() {
                Ok(keeper) => *place = Some(keeper),
                Err(error) => {
                    tracing::warn!(%error, "no keeper of times to live could be started");
                }
            }
        });
    }

    fn start(&self) -> io::Result<Keeper> {
        let program = self.program.as_deref().unwrap_or(Path::new(""));
        // `run/leases` of the state directory.
        let home = self.dir.ancestors().nth(2).unwrap_or(&self.dir);
        let (theirs, ours) = io::pipe()?;
        let process = Command::new(program)
            .arg(KEEPER)
            .arg(home)
            .current_dir("/")
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Keeper {
            process,
            _input: ours,
        })
    }
}

/// The keeper's own life: waits for the end of its daemon, then for the ends of machines.
pub fn keep(home: &Path) {
    // A terminal's signals are not meant for it.
    let _ = rustix::process::setsid();
    let daemon = rustix::process::getppid();
    // Nothing is ever written: this returns when the daemon goes.
    let _ = io::stdin().lock().read(&mut [0]);
    let dir = home.join(LEASES);
    let begin = Instant::now();
    // One that leaves in order holds its lock until the end.
    while rustix::process::getppid() == daemon && begin.elapsed() < LAST_BREATH {
        std::thread::sleep(LOOK_AT_DAEMON);
    }
    loop {
        if !is_alone(home) {
            return;
        }
        let all = leases(&dir);
        let Some(next) = all.iter().map(|(_, lease)| lease.at_ms).min() else {
            return;
        };
        let left = next.saturating_sub(boot_ms());
        if left > 0 {
            std::thread::sleep(Duration::from_millis(left).min(LOOK));
        }
        if !is_alone(home) {
            return;
        }
        let now = boot_ms();
        end(all.into_iter().filter(|(_, lease)| lease.at_ms <= now));
    }
}

/// Whether no daemon serves the state directory: it would hold the lock, and have a keeper of its
/// own.
fn is_alone(home: &Path) -> bool {
    // Let go of at once, with the file.
    std::fs::File::open(home.join(DAEMON))
        .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_ok())
}

/// The leases of this boot of the host. One whose processes are gone is removed.
fn leases(dir: &Path) -> Vec<(PathBuf, Lease)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.path();
        // One that is being written.
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let text = std::fs::read(&path).unwrap_or_default();
        let Ok(lease) = serde_json::from_slice::<Lease>(&text) else {
            continue;
        };
        let lives = |process: &ProcessOfBoot| open(*process).is_some();
        if lease.boot_id == boot_id() && lease.line.processes.iter().any(lives) {
            found.push((path, lease));
        } else {
            let _ = std::fs::remove_file(path);
        }
    }
    found
}

/// Ends machines: asks the first process of each, then kills them all.
fn end(due: impl Iterator<Item = (PathBuf, Lease)>) {
    let mut left = Vec::new();
    for (path, lease) in due {
        for (file, word) in &lease.line.thaw {
            // The group may be gone; then nothing stands still in it.
            let _ = std::fs::write(file, word);
        }
        let processes: Vec<OwnedFd> = lease
            .line
            .processes
            .iter()
            .copied()
            .filter_map(open)
            .collect();
        if let Some(first) = processes.first() {
            let _ = pidfd_send_signal(first, Signal::TERM);
        }
        left.push((path, processes));
    }
    wait_for(&left, GRACE);
    for process in left.iter().flat_map(|(_, processes)| processes) {
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    wait_for(&left, PATIENCE);
    for (path, processes) in left {
        // Others are tried again.
        if processes
            .iter()
            .all(|process| has_ended(process, Duration::ZERO))
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn wait_for(left: &[(PathBuf, Vec<OwnedFd>)], patience: Duration) {
    let until = Instant::now() + patience;
    for process in left.iter().flat_map(|(_, processes)| processes) {
        has_ended(process, until.saturating_duration_since(Instant::now()));
    }
}

fn has_ended(process: &OwnedFd, patience: Duration) -> bool {
    let patience = Timespec::try_from(patience).unwrap_or_default();
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    matches!(poll(&mut watched, Some(&patience)), Ok(1..))
}

/// A pidfd, if that very process still exists.
fn open(process: ProcessOfBoot) -> Option<OwnedFd> {
    let ProcessOfBoot { pid, start_time } = process;
    Started { pid, start_time }.open()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn leases_of(home: &Path) -> Leases {
        Leases {
            dir: home.join(LEASES),
            program: Some("/nonexistent".into()),
            keeper: Arc::default(),
        }
    }

    fn in_ms(left: u64) -> Deadline {
        Deadline {
            boot_id: boot_id().to_string(),
            at_ms: boot_ms() + left,
            expires_at: jiff::Timestamp::now(),
        }
    }

    fn sleeper() -> (Child, Lifeline) {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id() as i32;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let start_time = stat.split(' ').nth(21).unwrap().parse().unwrap();
        let processes = vec![ProcessOfBoot { pid, start_time }];
        let thaw = Vec::new();
        (child, Lifeline { processes, thaw })
    }

    #[test]
    fn what_is_over_is_ended_and_what_is_not_goes_on() {
        let home = tempfile::tempdir().unwrap();
        let leases = leases_of(home.path());
        let id = |text| SandboxId::parse(text).unwrap();
        let (mut over, line) = sleeper();
        leases
            .write(&id("sb-over"), &lease(in_ms(0), line))
            .unwrap();
        let (mut early, line) = sleeper();
        leases
            .write(&id("sb-early"), &lease(in_ms(3_600_000), line))
            .unwrap();
        let all = super::leases(&leases.dir);
        assert_eq!(all.len(), 2);
        let now = boot_ms();
        // It is a child of this test, which must wait for it.
        let waits = std::thread::spawn(move || over.wait().unwrap().signal());
        end(all.into_iter().filter(|(_, lease)| lease.at_ms <= now));
        assert_eq!(waits.join().unwrap(), Some(Signal::TERM.as_raw()));
        assert!(early.try_wait().unwrap().is_none());
        let left: Vec<PathBuf> = super::leases(&leases.dir)
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        assert_eq!(left, [leases.dir.join("sb-early")]);
        early.kill().unwrap();
        early.wait().unwrap();
        assert!(super::leases(&leases.dir).is_empty());
    }

    fn lease(deadline: Deadline, line: Lifeline) -> Lease {
        Lease {
            boot_id: deadline.boot_id,
            at_ms: deadline.at_ms,
            line,
        }
    }

    #[test]
    fn a_number_that_is_anothers_now_is_left_alone() {
        let (mut child, line) = sleeper();
        let mut other = line.processes[0];
        other.start_time += 1;
        assert!(open(other).is_none());
        assert!(open(line.processes[0]).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(open(line.processes[0]).is_none());
    }

    #[test]
    fn whoever_holds_the_lock_is_a_daemon() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(DAEMON);
        let lock = std::fs::File::create(&path).unwrap();
        assert!(is_alone(home.path()));
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(!is_alone(home.path()));
        drop(lock);
        assert!(is_alone(home.path()));
    }
}
