//! Starting a program under a shim.
//!
//! ```text
//!   guest ── fork ──► shim (subreaper) ── vfork ─► child ── exec ──► program
//!     ▲                 │  exit status              pid │
//!     └── report pipe ──┴───────────────────────────────┤
//!     └── exec pipe ◄── errno, or closed by exec ───────┘
//! ```
//!
//! The shim is a copy-on-write image of the guest that only waits: every descendant of the program,
//! even a daemon, stays below it, so the tree can be counted and killed. It ends with its last
//! child. The child shares the shim's memory until exec (vfork): another copy would cost more than
//! all the rest, most of all in gVisor.
//!
//! Between fork and exec only system calls are made: everything they need is
//! prepared in [`Plan`] before.

use super::inherited::Inherited;
use super::restrict::{self, Restrict, Switch, check, errno};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

static CHILDREN_TO_KILLER: AtomicU8 = AtomicU8::new(KillerSees::AsIs as u8);

/// The size of one report on the report pipe.
pub const REPORT_LEN: usize = 32;
/// The size of the failure on the exec pipe.
pub const EXEC_FAILURE_LEN: usize = 8;

const REPORT_STARTED: u32 = 1;
const REPORT_FAILED: u32 = 2;
const REPORT_EXITED: u32 = 3;

/// How the OOM killer ranks what the guest starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum KillerSees {
    AsIs,
    /// Like any program; the guest itself is protected.
    Ordinary,
    /// Before the guest, which could not be protected.
    First,
}

/// Sets how the OOM killer ranks children.
pub(super) fn show_children_to_killer(how: KillerSees) {
    CHILDREN_TO_KILLER.store(how as u8, Ordering::Relaxed);
}

/// The user a program runs as.
#[derive(Debug)]
pub struct RunAs {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// Whether it differs from the guest's own, so that failing to switch is an error.
    pub differs: bool,
}

/// Everything a child needs, made before the fork.
#[derive(Debug)]
pub struct Plan {
    pub program: CString,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub cwd: CString,
    /// `None`: the guest's own user.
    pub user: Option<RunAs>,
    /// Descriptors for 0, 1 and 2; each above 2.
    pub stdio: [RawFd; 3],
    /// Whether descriptor 0 becomes the controlling terminal.
    pub terminal: bool,
    pub restrict: Option<Restrict>,
}

/// A shim and the pipes it and its child report on.
#[derive(Debug)]
pub struct Spawned {
    pub shim: i32,
    pub reports: OwnedFd,
    pub exec: OwnedFd,
}

/// A report of a shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    Started {
        pid: i32,
    },
    /// The shim could not fork.
    Failed {
        errno: i32,
    },
    /// A raw wait status and what the program used.
    Exited {
        status: i32,
        user_us: u64,
        system_us: u64,
        max_rss_bytes: u64,
    },
}

impl Report {
    pub fn parse(bytes: &[u8; REPORT_LEN]) -> Option<Report> {
        let (head, numbers) = bytes.split_at_checked(8)?;
        let kind = u32::from_ne_bytes(head.get(..4)?.try_into().ok()?);
        let value = i32::from_ne_bytes(head.get(4..8)?.try_into().ok()?);
        let number = |at: usize| {
            Some(u64::from_ne_bytes(
                numbers.get(at * 8..at * 8 + 8)?.try_into().ok()?,
            ))
        };
        Some(match kind {
            REPORT_STARTED => Report::Started { pid: value },
            REPORT_FAILED => Report::Failed { errno: value },
            REPORT_EXITED => Report::Exited {
                status: value,
                user_us: number(0)?,
                system_us: number(1)?,
                max_rss_bytes: number(2)?,
            },
            _ => return None,
        })
    }
}

/// Which step before exec failed, as sent over the exec pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    Stdio = 1,
    Terminal = 2,
    Restrict = 3,
    Groups = 4,
    Group = 5,
    User = 6,
    Directory = 7,
    Exec = 8,
}

/// Reads what a child wrote to the exec pipe.
pub fn parse_exec_failure(bytes: &[u8; EXEC_FAILURE_LEN]) -> (Step, Errno) {
    let [a, b, c, d, e, f, g, h] = *bytes;
    let step = match u32::from_ne_bytes([a, b, c, d]) {
        1 => Step::Stdio,
        2 => Step::Terminal,
        3 => Step::Restrict,
        4 => Step::Groups,
        5 => Step::Group,
        6 => Step::User,
        7 => Step::Directory,
        _ => Step::Exec,
    };
    (
        step,
        Errno::from_raw_os_error(i32::from_ne_bytes([e, f, g, h])),
    )
}

/// Raw pointers into a [`Plan`], laid out as `execve` wants them.
struct Vectors {
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    let mut list: Vec<*const c_char> = strings.iter().map(|string| string.as_ptr()).collect();
    list.push(std::ptr::null());
    list
}

/// Forks the shim. Returns as soon as it exists; what follows comes over its pipes.
pub fn spawn(plan: &Plan) -> Result<Spawned, Errno> {
    let (reports, report_to) = pipe_with(PipeFlags::CLOEXEC)?;
    let (exec, exec_to) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&reports, rustix::fs::OFlags::NONBLOCK)?;
    rustix::fs::fcntl_setfl(&exec, rustix::fs::OFlags::NONBLOCK)?;
    let vectors = Vectors {
        argv: pointers(&plan.argv),
        env: pointers(&plan.env),
    };
    // Read before the fork: after it only system calls are allowed.
    let inherited = Inherited::get();
    // Block signals before the fork, so that no handler of the guest runs in the shim.
    let mask = block_signals();
    let shim = fork();
    if shim == 0 {
        let child = Child {
            plan,
            vectors: &vectors,
            inherited,
            exec: exec_to.as_raw_fd(),
            report: report_to.as_raw_fd(),
        };
        shim_main(&child);
    }
    let failure = errno();
    restore_signals(&mask);
    if shim < 0 {
        return Err(Errno::from_raw_os_error(failure));
    }
    Ok(Spawned {
        shim,
        reports,
        exec,
    })
}

/// Forks without the C library's atfork handlers, which may take locks held by other threads.
fn fork() -> i32 {
    // SAFETY: without CLONE_VM the child has its own memory; both sides only make system calls
    // until exec or exit, except for the guest, which is the unchanged parent.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 }
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are plain data, written by the calls before they are read.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: the mask came from the kernel.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

/// Everything a child needs up to exec.
struct Child<'a> {
    plan: &'a Plan,
    vectors: &'a Vectors,
    inherited: &'a Inherited,
    exec: RawFd,
    report: RawFd,
}

fn shim_main(task: &Child<'_>) -> ! {
    let report = task.report;
    // SAFETY: prctl with integers and a static string.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_NAME, c"motu-shim".as_ptr(), 0, 0, 0);
        // Leave the guest's process group: signals to it are not meant for the shim.
        libc::setpgid(0, 0);
    }
    let child = start_child(task);
    if child < 0 {
        send_report(report, REPORT_FAILED, errno(), [0; 3]);
        // SAFETY: ends this process without running anything of the guest's.
        unsafe { libc::_exit(1) };
    }
    // Descriptors left open here would keep other processes' pipes from reaching EOF.
    // SAFETY: dup2 and close take integers; nothing in the shim uses the closed descriptors.
    let report = unsafe {
        libc::dup2(report, 0);
        0
    };
    close_from(1);
    reap(child, report)
}

/// The size of the child's stack, inside the shim's.
const CHILD_STACK: usize = 64 * 1024;

/// Starts the child in the shim's memory (vfork): the shim waits until the child's exec or exit.
fn start_child(task: &Child<'_>) -> i32 {
    #[repr(align(16))]
    struct Stack(
        #[expect(dead_code, reason = "only its place is used")] MaybeUninit<[u8; CHILD_STACK]>,
    );
    extern "C" fn begin(task: *mut libc::c_void) -> i32 {
        // SAFETY: the caller of `clone` waits in a frame that holds it, and nobody changes it.
        child_main(unsafe { &*task.cast::<Child<'_>>() })
    }
    let mut stack = Stack(MaybeUninit::uninit());
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child has a stack of its own, as large as the array; it makes system calls
    // only, and this process does nothing until the child has left its memory.
    unsafe {
        let top = (&raw mut stack).add(1);
        let task = std::ptr::from_ref(task).cast_mut();
        libc::clone(begin, top.cast(), flags, task.cast())
    }
}

/// Reaps every descendant; reports the program's own exit.
fn reap(child: i32, report: RawFd) -> ! {
    loop {
        let mut status = 0;
        // SAFETY: rusage is plain data that the call fills.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live values.
        let ended = unsafe { libc::wait4(-1, &raw mut status, libc::__WALL, &raw mut usage) };
        if ended == child {
            let micros =
                |time: libc::timeval| (time.tv_sec as u64) * 1_000_000 + time.tv_usec as u64;
            let numbers = [
                micros(usage.ru_utime),
                micros(usage.ru_stime),
                (usage.ru_maxrss as u64) << 10,
            ];
            send_report(report, REPORT_EXITED, status, numbers);
        }
        if ended < 0 && errno() != libc::EINTR {
            // SAFETY: ends this process without running anything of the guest's.
            unsafe { libc::_exit(0) };
        }
    }
}

/// Writes one report; smaller than `PIPE_BUF`, so the write is atomic.
fn send_report(fd: RawFd, kind: u32, value: i32, numbers: [u64; 3]) {
    #[repr(C)]
    struct Wire {
        kind: u32,
        value: i32,
        numbers: [u64; 3],
    }
    const _: () = assert!(size_of::<Wire>() == REPORT_LEN);
    let wire = Wire {
        kind,
        value,
        numbers,
    };
    // SAFETY: the struct has no padding and lives through the call.
    unsafe { libc::write(fd, (&raw const wire).cast(), REPORT_LEN) };
}

fn child_main(task: &Child<'_>) -> ! {
    let (step, code) = match prepare_child(task) {
        Ok(exec) => {
            // SAFETY: program and vectors are null-terminated and outlive the call.
            unsafe {
                libc::execve(
                    task.plan.program.as_ptr(),
                    task.vectors.argv.as_ptr(),
                    task.vectors.env.as_ptr(),
                );
            }
            let code = errno();
            fail_child(exec, Step::Exec, code)
        }
        Err(failed) => failed,
    };
    fail_child(CHILD_EXEC_FD, step, code)
}

/// The descriptor of the exec pipe in the child, after stdio.
const CHILD_EXEC_FD: RawFd = 3;

fn fail_child(exec: RawFd, step: Step, code: i32) -> ! {
    let mut wire = [0u8; EXEC_FAILURE_LEN];
    let (first, second) = wire.split_at_mut(4);
    first.copy_from_slice(&(step as u32).to_ne_bytes());
    second.copy_from_slice(&code.to_ne_bytes());
    // SAFETY: the buffer lives through the call; then the process ends.
    unsafe {
        libc::write(exec, wire.as_ptr().cast(), EXEC_FAILURE_LEN);
        libc::_exit(127)
    }
}

fn prepare_child(task: &Child<'_>) -> Result<RawFd, (Step, i32)> {
    let (plan, exec) = (task.plan, task.exec);
    // Report the pid before exec: afterwards the program could stop or kill the shim and stay
    // unknown.
    // SAFETY: getpid takes nothing and cannot fail.
    let own = unsafe { libc::getpid() };
    send_report(task.report, REPORT_STARTED, own, [0; 3]);
    // The guest itself never uses descriptors 0 to 2, so no source is overwritten before it is
    // copied; the exec pipe moves last because 3 may be one of the sources.
    // SAFETY: descriptors are integers; a failure is checked.
    unsafe {
        libc::setsid();
        for (number, fd) in plan.stdio.iter().enumerate() {
            if libc::dup2(*fd, number as RawFd) < 0 {
                let code = errno();
                // The exec pipe still has its old number.
                fail_child(exec, Step::Stdio, code);
            }
        }
        if exec != CHILD_EXEC_FD {
            libc::dup3(exec, CHILD_EXEC_FD, libc::O_CLOEXEC);
        }
    }
    close_from(CHILD_EXEC_FD + 1);
    if plan.terminal {
        // SAFETY: TIOCSCTTY takes an integer.
        let taken = unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) };
        check(i64::from(taken)).map_err(|code| (Step::Terminal, code))?;
    }
    set_oom_score(CHILDREN_TO_KILLER.load(Ordering::Relaxed));
    become_restricted(plan, task.inherited)?;
    // SAFETY: the path is null-terminated.
    let moved = unsafe { libc::chdir(plan.cwd.as_ptr()) };
    check(i64::from(moved)).map_err(|code| (Step::Directory, code))?;
    reset_signals(task.inherited);
    Ok(CHILD_EXEC_FD)
}

fn become_restricted(plan: &Plan, inherited: &Inherited) -> Result<(), (Step, i32)> {
    if let Some(restrict) = &plan.restrict {
        restrict
            .before_user(inherited.bounding)
            .map_err(|code| (Step::Restrict, code))?;
    }
    if let Some(user) = &plan.user {
        let switched = restrict::become_user(user.uid, user.gid, &user.groups, user.differs);
        switched.map_err(|(part, code)| match part {
            Switch::Groups => (Step::Groups, code),
            Switch::Group => (Step::Group, code),
            Switch::User => (Step::User, code),
        })?;
    }
    if let Some(restrict) = &plan.restrict {
        restrict
            .after_user()
            .map_err(|code| (Step::Restrict, code))?;
    }
    Ok(())
}

/// Exec resets handlers, but ignored signals (as Rust's runtime ignores SIGPIPE) would stay
/// ignored. A raw system call: the C library hides two signals that a parent may have ignored.
fn reset_signals(inherited: &Inherited) {
    /// All zeros: the default action, no flags, an empty mask; larger than any kernel's struct.
    const DEFAULT: [u64; 8] = [0; 8];
    const MASK_BYTES: usize = 8;
    // SAFETY: the kernel reads its struct from the zeros; a signal that cannot be changed only fails.
    unsafe {
        for signal in (1..=64).filter(|signal| inherited.alters(*signal)) {
            let none = std::ptr::null_mut::<u64>();
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                DEFAULT.as_ptr(),
                none,
                MASK_BYTES,
            );
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

fn set_oom_score(how: u8) {
    let score = match how {
        how if how == KillerSees::Ordinary as u8 => c"0",
        how if how == KillerSees::First as u8 => c"500",
        _ => return,
    };
    // SAFETY: the path is a static string, and the descriptor is checked before use.
    unsafe {
        // The guest is not dumpable, and this process is a copy of it: so its /proc files belong to
        // root of the user namespace that the guest was started from, in a container the host's.
        // Making this process dumpable for a moment makes them its own. Processes inside have fewer
        // capabilities than this one and cannot inspect it, dumpable or not.
        let hidden = libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) == 0;
        if hidden {
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        }
        let fd = libc::open(
            c"/proc/self/oom_score_adj".as_ptr(),
            libc::O_WRONLY | libc::O_CLOEXEC,
        );
        if fd >= 0 {
            libc::write(fd, score.as_ptr().cast(), score.count_bytes());
            libc::close(fd);
        }
        if hidden {
            libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        }
    }
}

fn close_from(first: RawFd) {
    /// The last descriptor to close on kernels without `close_range`.
    const LAST: RawFd = 4096;
    // SAFETY: closing descriptors that nothing in this child uses.
    unsafe {
        // Descriptors are at most `i32::MAX`, and gVisor accepts no larger number.
        if libc::syscall(libc::SYS_close_range, first, i32::MAX, 0) < 0 {
            for fd in first..LAST {
                libc::close(fd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    /// Runs a script under the shim and returns what it wrote.
    fn run(script: &str, restrict: Option<Restrict>) -> String {
        let (out, out_to) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (input, _) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let plan = Plan {
            program: c"/bin/sh".into(),
            argv: vec![c"sh".into(), c"-c".into(), CString::new(script).unwrap()],
            env: vec![c"PATH=/usr/sbin:/usr/bin:/sbin:/bin".into()],
            cwd: c"/".into(),
            user: None,
            stdio: [input.as_raw_fd(), out_to.as_raw_fd(), out_to.as_raw_fd()],
            terminal: false,
            restrict,
        };
        let spawned = spawn(&plan).unwrap();
        drop(out_to);
        let mut text = String::new();
        std::fs::File::from(out).read_to_string(&mut text).unwrap();
        let shim = rustix::process::Pid::from_raw(spawned.shim);
        rustix::process::waitpid(shim, rustix::process::WaitOptions::empty()).unwrap();
        text
    }

    #[test]
    fn nothing_is_taken_unless_asked() {
        let text = run(
            "grep -E 'CapBnd|NoNewPrivs' /proc/self/status; ulimit -n",
            None,
        );
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        for line in own
            .lines()
            .filter(|line| line.starts_with("CapBnd") || line.starts_with("NoNewPrivs"))
        {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn no_signal_is_ignored_and_none_is_blocked() {
        // The test's own runtime ignores SIGPIPE, as the guest's does.
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(!own.contains("SigIgn:\t0000000000000000"), "{own}");
        let text = run("grep -E 'SigIgn|SigBlk' /proc/self/status", None);
        assert_eq!(text.matches("0000000000000000").count(), 2, "{text}");
    }

    #[test]
    fn what_is_restricted_stays_so() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root has privileges to lose");
            return;
        }
        // CAP_CHOWN and CAP_MKNOD: the second would allow devices, but for Landlock.
        let keep = 1 | 1 << 27;
        let restrict = Restrict {
            drop_caps_keep: keep,
            no_new_privs: true,
            landlock: true,
            nofile: Some((64, 128)),
            nproc: None,
        };
        let place = tempfile::tempdir().unwrap();
        let node = place.path().join("node");
        let script = format!(
            "grep -E 'Cap|NoNewPrivs' /proc/self/status; ulimit -Sn; ulimit -Hn; mknod {0} c 1 3; mkdir {0}.d && \
             touch {0}.f && mv {0}.f {0}.d/f && ln {0}.d/f {0}.l && mkdir {0}.d/s && mv {0}.d/s {0}.s && echo made",
            node.display()
        );
        let text = run(&script, Some(restrict)).replace('\t', " ");
        let set = format!("{keep:016x}");
        for (name, value) in [
            ("Inh", "0000000000000000"),
            ("Prm", &set),
            ("Eff", &set),
            ("Bnd", &set),
            ("Amb", "0000000000000000"),
        ] {
            assert!(text.contains(&format!("Cap{name}: {value}")), "{text}");
        }
        assert!(
            text.contains("NoNewPrivs: 1") && text.contains("\n64\n128\n") && text.contains("made"),
            "{text}"
        );
        assert!(!node.exists(), "{text}");
    }
}
