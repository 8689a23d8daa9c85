//! Runs a plan: sends it to a launcher and reads its reports.
//!
//! A few launchers are started ahead, so that a machine does not wait for a program to be loaded
//! and scheduled. They exit when the daemon does. Blocking, but short; call it on a blocking
//! thread.

use crate::sys;
use motu_launch::{Failure, Plan, Report, SOCKET_FD};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, WaitOptions};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a launcher may take on a busy host.
const PATIENCE_SECONDS: i64 = 30;
/// Number of launchers started ahead.
const WAITING: usize = 4;
/// Descriptors are first duplicated to numbers above this, so that none is overwritten before it is
/// passed on.
const ABOVE: i32 = 64;

/// Starts launchers from the guest program in a sealed memfd.
#[derive(Debug)]
pub(crate) struct Launcher {
    program: OwnedFd,
    waiting: Mutex<VecDeque<Waiting>>,
}

/// A launcher without a plan.
#[derive(Debug)]
struct Waiting {
    pid: Pid,
    socket: OwnedFd,
}

/// A launcher that has finished and must be reaped, and the descriptors that it was given, which stay open until then.
#[derive(Debug)]
#[must_use = "an ended launcher is a zombie until it is collected"]
pub(crate) struct Finished {
    pid: Pid,
    _given: Vec<OwnedFd>,
}

impl Finished {
    /// Waits for its exit, which takes the kernel a moment: its mounts are removed with it.
    pub(crate) fn collect(self) {
        let _ = rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// A first process that exists.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    /// Its network and user namespaces, if it has its own.
    pub(crate) namespaces: Option<[OwnedFd; 2]>,
}

/// Why a plan was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error(transparent)]
    Step(#[from] Failure),
    #[error("could not start the launcher: {0}")]
    Spawn(io::Error),
    #[error("the launcher ended without a word")]
    Silent,
    #[error("the launcher did not finish in {PATIENCE_SECONDS} s")]
    Slow,
}

impl Launcher {
    pub(crate) fn new(guest: &[u8]) -> io::Result<Launcher> {
        let program = sys::sealed_program("motu-guest", guest)?;
        Ok(Launcher {
            program: rustix::io::fcntl_dupfd_cloexec(program, ABOVE)?,
            waiting: Mutex::new(VecDeque::new()),
        })
    }

    /// Executes a plan. `started` is called with the first process before that has done anything.
    pub(crate) fn run(
        &self,
        plan: &Plan,
        given: Vec<OwnedFd>,
        mut started: impl FnMut(Started),
    ) -> (Result<(), LaunchError>, Option<Finished>) {
        let ready = self.waiting().pop_front();
        let Waiting { pid, socket } = match ready.map_or_else(|| self.spawn(), Ok) {
            Ok(waiting) => waiting,
            Err(error) => return (Err(LaunchError::Spawn(error)), None),
        };
        let sent = motu_launch::send_plan(socket.as_fd(), plan, &given);
        let result = match sent {
            Ok(()) => listen(socket.as_fd(), &mut started),
            Err(error) => Err(LaunchError::Spawn(error)),
        };
        if matches!(result, Err(LaunchError::Slow)) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        let finished = Finished { pid, _given: given };
        (result, Some(finished))
    }

    /// Starts launchers until enough are waiting.
    pub(crate) fn refill(&self) -> io::Result<()> {
        while self.waiting().len() < WAITING {
            let waiting = self.spawn()?;
            self.waiting().push_back(waiting);
        }
        Ok(())
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        // The queue is consistent between statements, so a panic elsewhere does not matter.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self) -> io::Result<Waiting> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let theirs = rustix::io::fcntl_dupfd_cloexec(theirs, ABOVE)?;
        let program = format!("/proc/self/fd/{}", self.program.as_raw_fd());
        let handover = [(theirs.as_fd(), SOCKET_FD)];
        let pid = sys::spawn(&program, &["motu-guest", "launch"], &handover)?;
        Ok(Waiting {
            pid: Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?,
            socket: ours,
        })
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        for Waiting { pid, socket } in self.waiting().drain(..) {
            drop(socket);
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

/// Reads reports until the plan has been executed or has failed.
fn listen(socket: BorrowedFd<'_>, started: &mut impl FnMut(Started)) -> Result<(), LaunchError> {
    loop {
        let patience = Timespec {
            tv_sec: PATIENCE_SECONDS,
            tv_nsec: 0,
        };
        let mut wanted = [PollFd::new(&socket, PollFlags::IN)];
        match poll(&mut wanted, Some(&patience)) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(LaunchError::Spawn(error.into())),
            Ok(0) => return Err(LaunchError::Slow),
            Ok(_) => {}
        }
        match motu_launch::report::receive(socket).map_err(LaunchError::Spawn)? {
            None => return Err(LaunchError::Silent),
            Some((Report::Started { pid }, fds)) => {
                let mut fds = fds.into_iter();
                let pidfd = fds.next().ok_or(LaunchError::Silent)?;
                let namespaces = fds.next().zip(fds.next());
                started(Started {
                    pid,
                    pidfd,
                    namespaces: namespaces.map(|(net, user)| [net, user]),
                });
            }
            Some((Report::Ready, _)) => return Ok(()),
            Some((Report::Failed(failure), _)) => return Err(failure.into()),
        }
    }
}
