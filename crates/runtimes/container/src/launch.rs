//! Runs a plan: starts the launcher, listens to it, waits for its end.
//!
//! Blocking, and short; callers put it on a thread that may block.

use crate::sys;
use motu_launch::{DISK_FD, Failure, PLAN_FD, Plan, REPORT_FD, Report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, WaitOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// How long a launcher may take on the busiest host.
const PATIENCE_SECONDS: i64 = 30;
/// Descriptors are moved up here first, so that none is overwritten while it is
/// still to be passed on.
const ABOVE: i32 = 64;

/// The guest program, in memory, sealed.
#[derive(Debug)]
pub(crate) struct Launcher {
    program: OwnedFd,
}

/// A first process that exists.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
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
        })
    }

    /// Carries out a plan. `started` is told of the first process before it has
    /// done anything.
    pub(crate) fn run(
        &self,
        plan: &Plan,
        disk: Option<BorrowedFd<'_>>,
        mut started: impl FnMut(Started),
    ) -> Result<(), LaunchError> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| LaunchError::Spawn(error.into()))?;
        let launcher = self
            .spawn(plan, &theirs, disk)
            .map_err(LaunchError::Spawn)?;
        drop(theirs);
        let result = listen(ours.as_fd(), &mut started);
        if matches!(result, Err(LaunchError::Slow)) {
            let _ = rustix::process::kill_process(launcher, Signal::KILL);
        }
        // It has nothing left to do but end; until then it holds the machine's mounts.
        let _ = rustix::process::waitpid(Some(launcher), WaitOptions::empty());
        result
    }

    fn spawn(
        &self,
        plan: &Plan,
        report: &OwnedFd,
        disk: Option<BorrowedFd<'_>>,
    ) -> io::Result<Pid> {
        let bytes = postcard::to_allocvec(plan).map_err(|e| io::Error::other(e.to_string()))?;
        let mut file = std::fs::File::from(memfd_create("plan", MemfdFlags::CLOEXEC)?);
        io::Write::write_all(&mut file, &bytes)?;
        rustix::fs::seek(&file, SeekFrom::Start(0))?;

        let up = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, ABOVE);
        let mut moved = vec![
            (up(file.as_fd())?, PLAN_FD),
            (up(report.as_fd())?, REPORT_FD),
        ];
        if let Some(disk) = disk {
            moved.push((up(disk)?, DISK_FD));
        }
        let handover: Vec<(BorrowedFd<'_>, i32)> = moved
            .iter()
            .map(|(fd, number)| (fd.as_fd(), *number))
            .collect();
        let program = format!("/proc/self/fd/{}", self.program.as_raw_fd());
        let pid = sys::spawn(&program, &["motu-guest", "launch"], &handover)?;
        Pid::from_raw(pid).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Reads reports until the plan is carried out or has failed.
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
            Some((Report::Started { pid }, Some(pidfd))) => started(Started { pid, pidfd }),
            Some((Report::Started { .. }, None)) => return Err(LaunchError::Silent),
            Some((Report::Ready, _)) => return Ok(()),
            Some((Report::Failed(failure), _)) => return Err(failure.into()),
        }
    }
}
