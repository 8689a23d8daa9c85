//! System calls that need `unsafe`. Nothing here knows about links or streams.
//!
//! [`notified`] is where system calls of commands arrive; [`spawn`] forks, knowing what is [`inherited`]; [`restrict`] takes privileges away in a forked child. Both
//! run between fork and exec, so they may only make system calls: no
//! allocation, no locks, no environment.

mod inherited;
pub mod notified;
mod restrict;
pub mod spawn;

pub use restrict::Restrict;

use rustix::io::Errno;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The guest's `oom_score_adj`: killed last.
const OOM_SCORE: &str = "-900";

/// Prepares this process to be the guest. Every step is best effort: a machine with a weaker guest
/// is better than none.
pub fn prepare_self(pid1: bool, may_be_killed: bool) {
    limit_allocator();
    if may_be_killed {
        // Not permitted in a user namespace; the launcher has set it there, if it could.
        let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
        let own = std::fs::read_to_string("/proc/self/oom_score_adj");
        let protected = own.is_ok_and(|score| score.starts_with('-'));
        match (protected, pid1) {
            (true, _) => spawn::show_children_to_killer(spawn::KillerSees::Ordinary),
            (false, true) => spawn::show_children_to_killer(spawn::KillerSees::First),
            (false, false) => {}
        }
    }
    // Orphans of a killed shim are reparented to us instead of the host's init.
    // SAFETY: prctl with integer arguments touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if pid1 {
        // What we run must not trace us or read our memory and descriptors through /proc.
        // SAFETY: as above.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
        differ_from_commands();
    }
    // Asked for once: what is inherited from whoever started us is what we keep.
    let _ = own_open_files();
}

/// The kernel lets a process set limits of another one (`prlimit64`) that has the same real,
/// effective and saved ids. Commands of root would have ours: with a limit of no open files we
/// could not look for the processes of a command whose time is over. A saved group that no command
/// has makes the difference. Not every user namespace has that id; there the system call filter
/// stands alone.
fn differ_from_commands() {
    const SAME: libc::gid_t = libc::gid_t::MAX;
    const NOBODY: libc::gid_t = 65_534;
    // SAFETY: integers only; there are no other threads yet.
    unsafe { libc::setresgid(SAME, SAME, NOBODY) };
}

/// The limit of open files that this process was started with.
fn own_open_files() -> rustix::process::Rlimit {
    use rustix::process::{Resource, Rlimit, getrlimit};
    static OWN: std::sync::OnceLock<Rlimit> = std::sync::OnceLock::new();
    *OWN.get_or_init(|| getrlimit(Resource::Nofile))
}

/// Takes our own limit of open files back, where somebody privileged has changed it: root of a
/// virtual machine may.
pub fn keep_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let own = own_open_files();
    if getrlimit(Resource::Nofile) != own {
        let _ = setrlimit(Resource::Nofile, own);
    }
}

/// Whether we are the init of our pid namespace, so that signals to everybody reach nobody
/// outside of it.
pub fn is_init() -> bool {
    // SAFETY: getpid takes nothing and cannot fail.
    unsafe { libc::getpid() == 1 }
}

/// Sends a signal to every process of our pid namespace but ourselves, at one moment: one that is
/// being forked gets it too.
pub fn signal_everybody(signal: i32) {
    if is_init() {
        let _ = kill(-1, signal);
    }
}

/// Has the kernel kill this process when its parent ends. Under proot the guest would otherwise
/// continue with the host's tree as its root.
pub fn end_with_parent() {
    // SAFETY: prctl with integer arguments touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// Sets the soft and hard limit of open files for this process and all it starts.
pub fn allow_open_files(count: u64) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = Rlimit {
        current: Some(count),
        maximum: Some(count),
    };
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Lets this process and all it starts run on the first processors alone. For gVisor, whose threads the host balances all the
/// same: there it is only what programs are told.
pub fn show_processors(count: u32) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(own) = sched_getaffinity(None) else {
        return;
    };
    let mut first = CpuSet::new();
    let numbers = (0..CpuSet::MAX_CPU).filter(|number| own.is_set(*number));
    for number in numbers.take(count as usize) {
        first.set(number);
    }
    let _ = sched_setaffinity(None, &first);
}

/// Keeps the C allocator small: few arenas, and big buffers go straight back to the kernel.
#[cfg(target_env = "gnu")]
fn limit_allocator() {
    // SAFETY: mallopt only sets tunables; no other thread exists yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 20);
    }
}

#[cfg(not(target_env = "gnu"))]
fn limit_allocator() {}

/// Gives unused memory back to the kernel.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Takes ownership of an inherited descriptor, if it is open.
pub fn adopt(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: fcntl with F_SETFD touches no memory and fails cleanly on a closed descriptor.
    let open = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
    // SAFETY: the descriptor is open, and the caller was told its number in order to own it.
    open.then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers a descriptor with the runtime, which owns it from now on.
pub fn watched(fd: OwnedFd, interest: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` always gives the same open descriptor, and the result keeps it open.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}

/// Makes the kernel's random generator use newly added entropy at once.
pub fn reseed_now(device: &std::fs::File) -> Result<(), Errno> {
    /// `RNDRESEEDCRNG` of the kernel.
    const RESEED: libc::Ioctl = 0x5207;
    use std::os::fd::AsRawFd as _;
    // SAFETY: this ioctl takes no argument.
    match unsafe { libc::ioctl(device.as_raw_fd(), RESEED) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// The signals this process ignores or catches; bit 0 is signal 1.
fn altered_signals() -> u64 {
    /// The kernel's struct: handler, flags, restorer, mask.
    const HANDLER: usize = 0;
    const MASK_BYTES: usize = 8;
    let altered = |signal: &i32| {
        let mut action = [0usize; 8];
        // A raw system call: the C library hides two signals.
        // SAFETY: the kernel writes its struct, which is smaller than the array.
        let asked = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                *signal,
                std::ptr::null::<usize>(),
                action.as_mut_ptr(),
                MASK_BYTES,
            )
        };
        asked == 0 && action[HANDLER] != libc::SIG_DFL
    };
    (1..=64)
        .filter(altered)
        .fold(0, |set, signal| set | 1 << (signal - 1))
}

/// Sends a signal; a negative pid is a process group.
pub fn kill(pid: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill takes integers only.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Sends a signal through a pidfd, so that a reused pid is never hit.
pub fn pidfd_kill(pidfd: &OwnedFd, signal: i32) -> Result<(), Errno> {
    use std::os::fd::AsRawFd as _;
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open, and a null siginfo is allowed.
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            none,
            0u32,
        )
    };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// Sets the machine's clock.
pub fn set_clock(unix_ns: i64) -> Result<(), Errno> {
    let time = libc::timespec {
        tv_sec: unix_ns.div_euclid(1_000_000_000),
        tv_nsec: unix_ns.rem_euclid(1_000_000_000),
    };
    // SAFETY: the pointer is to a live timespec.
    match unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const time) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

fn last_error() -> Errno {
    std::io::Error::last_os_error()
        .raw_os_error()
        .map_or(Errno::IO, Errno::from_raw_os_error)
}
