//! Starting a process: descriptors, shim, record, pumps and supervisor.

use super::output::{self, Which};
use super::plan::{self, Prepared};
use super::tree;
use crate::answer::{Failed, Quoted};
use crate::cgroup::memory_kills;
use crate::running::{DEFAULT_BYTES, Exit, Facts, Process, Stdin};
use crate::state::Guest;
use crate::sys;
use crate::sys::spawn::{self, Plan, Report, Spawned, Step};
use bytes::Bytes;
use motu_link::message::{Failure, PtySize, Start, Usage};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use std::collections::VecDeque;
use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Requested size of output pipes, for large reads; the kernel may grant less.
const PIPE_SIZE: usize = 1024 * 1024;
/// How often a program whose shim was killed is checked.
const LOST_SHIM_PAUSE: Duration = Duration::from_millis(100);
/// How often, and how many times, a starting shim is sent SIGCONT.
const START_PAUSE: Duration = Duration::from_millis(100);
const START_LOOKS: u32 = 300;
/// How long a shim may take to report that its program was killed.
const SHIM_TIME: Duration = Duration::from_secs(1);

/// The guest's ends of a child's descriptors.
struct Ours {
    stdin: Stdin,
    out: Arc<AsyncFd<OwnedFd>>,
    err: Option<Arc<AsyncFd<OwnedFd>>>,
    terminal: Option<Arc<AsyncFd<OwnedFd>>>,
}

/// The child's ends; closed here once the child has them.
struct Theirs([OwnedFd; 3]);

/// Starts a process and enters it into the table. `ready` sees the record before any output is
/// read.
pub async fn start(
    guest: &Arc<Guest>,
    request: Start,
    ready: impl FnOnce(&Arc<Process>),
) -> Result<Arc<Process>, Failed> {
    let reservation = guest.processes.reserve(&request.tag)?;
    let prepared = plan::prepare(guest, &request)?;
    let (ours, theirs) = match &request.pty {
        Some(size) => terminal(size, prepared.user.uid),
        None => pipes(request.stdin || !request.input.is_empty()),
    }?;
    let kills = memory_kills();
    let Theirs([input, output, errors]) = &theirs;
    let user_name = prepared.user_name.clone();
    let cwd = Bytes::copy_from_slice(&prepared.cwd);
    let plan = into_plan(
        prepared,
        [input, output, errors],
        request.pty.is_some(),
        guest,
    )?;
    let spawned = spawn::spawn(&plan).map_err(|errno| cannot_run(&plan, errno))?;
    drop(theirs);
    let shim = spawned.shim;
    guest.processes.forked(shim);
    let (pid, reports) = await_exec(&plan, spawned).await?;
    let facts = Facts {
        pid: pid as u32,
        shim,
        tag: request.tag,
        argv: request.argv,
        user: user_name,
        cwd,
        pty: request.pty.is_some(),
        started_unix_ms: unix_ms(),
        ring_bytes: if request.ring_bytes == 0 {
            DEFAULT_BYTES
        } else {
            request.ring_bytes as usize
        },
        memory_kills: kills,
        shims: guest.processes.shims.clone(),
    };
    let process = Arc::new(Process::new(facts, ours.stdin, ours.terminal));
    ready(&process);
    give_input(&process, request.input).await;
    guest.processes.insert(reservation, process.clone());
    tokio::spawn(output::pump(process.clone(), Which::Out, ours.out));
    if let Some(err) = ours.err {
        tokio::spawn(output::pump(process.clone(), Which::Err, err));
    }
    let timeout = (request.timeout_ms > 0).then(|| Duration::from_millis(request.timeout_ms));
    tokio::spawn(supervise(guest.clone(), process.clone(), reports, timeout));
    Ok(process)
}

/// Gives a process its whole input, and goes on without the caller. What the caller sends, an end
/// too, comes after it: the first look takes the lock that keeps writers in order.
async fn give_input(process: &Arc<Process>, input: Bytes) {
    if input.is_empty() {
        return;
    }
    let process = process.clone();
    let mut feeding = Box::pin(async move {
        let mut pending = VecDeque::from([input]);
        process.stdin.feed(&mut pending, true).await;
    });
    let done = std::future::poll_fn(|context| Poll::Ready(feeding.as_mut().poll(context))).await;
    if done.is_pending() {
        tokio::spawn(feeding);
    }
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

fn into_plan(
    prepared: Prepared,
    stdio: [&OwnedFd; 3],
    terminal: bool,
    guest: &Guest,
) -> Result<Plan, Failed> {
    let cwd = CString::new(prepared.cwd)
        .map_err(|_| Failed::invalid("the working directory contains a NUL byte"))?;
    // Without root the guest cannot switch users.
    let root = rustix::process::geteuid().is_root();
    Ok(Plan {
        program: prepared.program,
        argv: prepared.argv,
        env: prepared.env,
        cwd,
        user: root.then_some(prepared.user),
        stdio: stdio.map(|fd| fd.as_raw_fd()),
        terminal,
        restrict: guest.restrict,
    })
}

fn io_failed(errno: Errno) -> Failed {
    Failed::errno("cannot make the process's descriptors", errno)
}

fn watched(fd: OwnedFd, interest: Interest) -> Result<AsyncFd<OwnedFd>, Failed> {
    rustix::io::ioctl_fionbio(&fd, true).map_err(io_failed)?;
    sys::watched(fd, interest).map_err(|_| io_failed(Errno::MFILE))
}

fn pipes(stdin: bool) -> Result<(Ours, Theirs), Failed> {
    let (out, out_to) = output_pipe()?;
    let (err, err_to) = output_pipe()?;
    let (stdin, input) = if stdin {
        let (input, input_to) = pipe_with(PipeFlags::CLOEXEC).map_err(io_failed)?;
        (Stdin::pipe(watched(input_to, Interest::WRITABLE)?), input)
    } else {
        (Stdin::none(), empty_input().map_err(io_failed)?)
    };
    Ok((
        Ours {
            stdin,
            out,
            err: Some(err),
            terminal: None,
        },
        Theirs([input, out_to, err_to]),
    ))
}

/// An empty standard input: `/dev/null`, or a pipe without writers where that is missing.
fn empty_input() -> Result<OwnedFd, Errno> {
    match rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(null) => Ok(null),
        Err(_) => Ok(pipe_with(PipeFlags::CLOEXEC)?.0),
    }
}

fn output_pipe() -> Result<(Arc<AsyncFd<OwnedFd>>, OwnedFd), Failed> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(io_failed)?;
    // Best effort: an unprivileged user may have used up the pipe quota.
    let _ = rustix::pipe::fcntl_setpipe_size(&ours, PIPE_SIZE);
    Ok((Arc::new(watched(ours, Interest::READABLE)?), theirs))
}

fn terminal(size: &PtySize, owner: u32) -> Result<(Ours, Theirs), Failed> {
    let failed = |errno| Failed::errno_as(Failure::CannotRun, "cannot open a terminal", errno);
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags).map_err(failed)?;
    rustix::pty::unlockpt(&master).map_err(failed)?;
    let slave = match rustix::pty::ioctl_tiocgptpeer(&master, flags) {
        // gVisor has no `TIOCGPTPEER`: open the slave by its name.
        Err(Errno::NOTTY | Errno::INVAL) => {
            let name = rustix::pty::ptsname(&master, Vec::new()).map_err(failed)?;
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            rustix::fs::open(&name, flags, Mode::empty()).map_err(failed)?
        }
        other => other.map_err(failed)?,
    };
    resize(&slave, size).map_err(failed)?;
    if rustix::process::geteuid().is_root() {
        // Lets the program reopen its own terminal; where it is not permitted, no harm is done.
        let _ = rustix::fs::fchown(&slave, Some(rustix::fs::Uid::from_raw(owner)), None);
    }
    let copy = || slave.try_clone().map_err(|_| failed(Errno::MFILE));
    let theirs = Theirs([
        copy()?,
        copy()?,
        slave.try_clone().map_err(|_| failed(Errno::MFILE))?,
    ]);
    let master = Arc::new(watched(master, Interest::READABLE | Interest::WRITABLE)?);
    let ours = Ours {
        stdin: Stdin::terminal(master.clone()),
        out: master.clone(),
        err: None,
        terminal: Some(master),
    };
    Ok((ours, theirs))
}

/// Sets a terminal's size; zeroes mean the traditional 80 by 24.
pub fn resize(terminal: &OwnedFd, size: &PtySize) -> Result<(), Errno> {
    let or = |value: u32, default: u16| match u16::try_from(value) {
        Ok(0) => default,
        Ok(value) => value,
        Err(_) => u16::MAX,
    };
    let size = Winsize {
        ws_row: or(size.rows, 24),
        ws_col: or(size.cols, 80),
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(terminal, size)
}

/// Waits until the program has been executed, or returns the error.
async fn await_exec(plan: &Plan, spawned: Spawned) -> Result<(i32, AsyncFd<OwnedFd>), Failed> {
    let mut reports = watched(spawned.reports, Interest::READABLE)?;
    let exec = watched(spawned.exec, Interest::READABLE)?;
    let pid = match urged(spawned.shim, next_report(&mut reports))
        .await
        .flatten()
    {
        Some(Report::Started { pid }) => pid,
        Some(Report::Failed { errno }) => {
            return Err(cannot_run(plan, Errno::from_raw_os_error(errno)));
        }
        _ => {
            return Err(Failed::new(
                Failure::CannotRun,
                "the process was killed before it started",
            ));
        }
    };
    let mut failure = [0; spawn::EXEC_FAILURE_LEN];
    match urged(spawned.shim, read_exact(&exec, &mut failure)).await {
        Some(true) => Err(exec_failed(plan, spawn::parse_exec_failure(&failure))),
        Some(false) => Ok((pid, reports)),
        None => Err(Failed::new(
            Failure::CannotRun,
            "the process stopped whoever watches over it before it started",
        )),
    }
}

/// Waits for a shim's work at the start. The program may already run and may have stopped the shim
/// (SIGSTOP): it is sent SIGCONT, and finally killed with everything below it.
async fn urged<T>(shim: i32, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    for _ in 0..START_LOOKS {
        match tokio::time::timeout(START_PAUSE, &mut work).await {
            Ok(done) => return Some(done),
            Err(_) => drop(sys::kill(shim, libc::SIGCONT)),
        }
    }
    tree::kill_below(shim);
    None
}

fn cannot_run(plan: &Plan, errno: Errno) -> Failed {
    let kind = match errno {
        Errno::AGAIN | Errno::NOMEM | Errno::TOOBIG => Failure::Limit,
        _ => Failure::CannotRun,
    };
    Failed::errno_as(
        kind,
        format!("cannot run {}", Quoted(plan.program.as_bytes())),
        errno,
    )
}

fn exec_failed(plan: &Plan, (step, errno): (Step, Errno)) -> Failed {
    let who = plan.user.as_ref().map_or(0, |user| user.uid);
    let what = match step {
        Step::Exec => return cannot_run(plan, errno),
        Step::Directory => {
            let what = format!("working directory {}", Quoted(plan.cwd.as_bytes()));
            return Failed::errno_as(Failure::NoDirectory, what, errno);
        }
        Step::Stdio => "cannot set up standard streams".to_string(),
        Step::Terminal => "cannot take the terminal".to_string(),
        Step::Restrict => "cannot drop privileges".to_string(),
        Step::Groups | Step::Group | Step::User => format!("cannot become user {who}"),
    };
    Failed::errno_as(Failure::CannotRun, what, errno)
}

async fn next_report(reports: &mut AsyncFd<OwnedFd>) -> Option<Report> {
    let mut bytes = [0; spawn::REPORT_LEN];
    match read_exact(reports, &mut bytes).await {
        true => Report::parse(&bytes),
        false => None,
    }
}

/// Reads a whole record from a pipe; false at EOF. Records are written atomically.
async fn read_exact(fd: &AsyncFd<OwnedFd>, bytes: &mut [u8]) -> bool {
    loop {
        let Ok(mut ready) = fd.readable().await else {
            return false;
        };
        match ready.try_io(|fd| Ok(rustix::io::read(fd, &mut *bytes)?)) {
            Ok(Ok(got)) => return got == bytes.len(),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(Err(_)) => return false,
            Err(_) => {}
        }
    }
}

/// Supervises one process to its end. One deadline covers all of it, even if the program kills or
/// stops its shim.
async fn supervise(
    guest: Arc<Guest>,
    process: Arc<Process>,
    mut reports: AsyncFd<OwnedFd>,
    timeout: Option<Duration>,
) {
    // A timeout that overflows the clock means none.
    let deadline = timeout.and_then(|timeout| tokio::time::Instant::now().checked_add(timeout));
    match deadline {
        None => end(&process, &mut reports).await,
        Some(deadline) => {
            let ended = tokio::time::timeout_at(deadline, end(&process, &mut reports)).await;
            if ended.is_err() {
                process.set_timed_out();
                end_now(&process, &mut reports).await;
            }
        }
    }
    guest.processes.prune();
}

/// Waits for the program's end, reported by the shim or by the reaper.
async fn end(process: &Process, reports: &mut AsyncFd<OwnedFd>) {
    // When called again after a deadline, the exit may have been recorded already.
    if process.has_exited() {
        return;
    }
    match next_report(reports).await {
        Some(Report::Exited {
            status,
            user_us,
            system_us,
            max_rss_bytes,
        }) => {
            let usage = Some(Usage {
                user_us,
                system_us,
                max_rss_bytes,
            });
            process.set_exit(exit(process, status, usage));
        }
        _ => await_without_shim(process).await,
    }
}

/// Kills a program whose time is over, and its shim too if that does not report it.
async fn end_now(process: &Process, reports: &mut AsyncFd<OwnedFd>) {
    tree::kill(process).await;
    if tokio::time::timeout(SHIM_TIME, end(process, reports))
        .await
        .is_ok()
    {
        return;
    }
    tree::kill_shim(process);
    if tokio::time::timeout(SHIM_TIME, end(process, reports))
        .await
        .is_err()
    {
        // A process that SIGKILL cannot end; the host ends the machine instead.
        return end(process, reports).await;
    }
    // The shim's children are ours now: kill what is left of them.
    tree::kill(process).await;
}

/// How a process ended, from its wait status.
pub fn exit(process: &Process, status: i32, usage: Option<Usage>) -> Exit {
    Exit {
        status,
        usage,
        after: process.started.elapsed(),
        out_of_memory: memory_kills() > process.facts.memory_kills,
    }
}

/// The shim died first. The program is now our own child, so the reaper reports its end, unless the
/// shim had already reaped it.
async fn await_without_shim(process: &Process) {
    let proc = format!("/proc/{}", process.facts.pid);
    loop {
        tokio::select! {
            () = process.exit() => return,
            () = tokio::time::sleep(LOST_SHIM_PAUSE) => {}
        }
        if !std::path::Path::new(&proc).exists() {
            return process.set_exit(exit(process, libc::SIGKILL, None));
        }
    }
}
