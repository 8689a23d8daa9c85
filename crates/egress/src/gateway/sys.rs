//! System and C library calls without a safe wrapper in the workspace.

pub(super) mod device;
mod request;
mod veth;

use rustix::process::Pid;
use std::io;

/// Forks: `Some(pid)` in the parent, `None` in the child.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the process has one thread, so the child may go on as the parent could.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Exits a forked child without running its parent's exit handlers.
fn leave(status: i32) -> ! {
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(status) }
}

/// Makes malloc return freed connection buffers to the kernel.
pub(super) fn keep_memory_low() {
    #[cfg(target_env = "gnu")]
    // SAFETY: integers only; the process has one thread.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 * 1024);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 * 1024);
    }
}

/// Switches to another user and group, without supplementary groups.
pub(super) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: integers and an empty list.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(gid, gid, gid) == 0
            && libc::setresuid(uid, uid, uid) == 0
    };
    if done {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
