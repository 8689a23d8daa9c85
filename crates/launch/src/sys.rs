//! The system calls that `rustix` does not wrap.
//!
//! All unsafe code of this crate that calls the kernel is here; every function is a thin, typed
//! wrapper of one call.

use rustix::io::Errno;
use std::ffi::{CStr, c_int, c_long};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Repeats a call that a signal interrupted.
pub(crate) fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// The two results of a clone.
pub(crate) enum Cloned {
    Parent { pid: i32, pidfd: OwnedFd },
    Child,
}

/// `clone3` with namespaces, in a process of one thread.
pub(crate) fn clone_process(namespaces: c_int) -> io::Result<Cloned> {
    let mut pidfd: c_int = -1;
    // glibc keeps the thread id at the address that the kernel clears on exit. As in its own fork,
    // let the kernel write the child's id there: otherwise the child would keep the launcher's.
    let mut tid_address: usize = 0;
    // SAFETY: the kernel writes one pointer-sized value to a live local.
    let has_tid = unsafe {
        libc::prctl(
            libc::PR_GET_TID_ADDRESS,
            std::ptr::from_mut(&mut tid_address),
        )
    } == 0
        && tid_address != 0;
    let mut flags = namespaces as u64 | libc::CLONE_PIDFD as u64;
    if has_tid {
        flags |= (libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID) as u64;
    }
    // SAFETY: an all-zero clone_args is a valid "no options" value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    args.pidfd = std::ptr::from_mut(&mut pidfd) as u64;
    args.child_tid = tid_address as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: without CLONE_VM and with a zero stack this is a fork: the child
    // gets a copy of everything. The launcher has one thread, so no lock is
    // held by anybody who does not exist in the child.
    let pid = check(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            std::ptr::from_ref(&args),
            size_of::<libc::clone_args>(),
        )
    })?;
    if pid == 0 {
        return Ok(Cloned::Child);
    }
    Ok(Cloned::Parent {
        pid: pid as i32,
        // SAFETY: the kernel has just made this descriptor for us (CLONE_PIDFD).
        pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
    })
}

/// Unshares some namespaces.
pub(crate) fn unshare(namespaces: c_int) -> io::Result<()> {
    // SAFETY: plain integers; no namespace of this process is used through memory.
    check(c_long::from(unsafe { libc::unshare(namespaces) }))?;
    Ok(())
}

/// Sets an id mapping, attributes, or both on a detached mount.
pub(crate) fn mount_setattr(
    mount: BorrowedFd<'_>,
    set: u64,
    userns: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    set_attributes(
        mount,
        libc::mount_attr {
            attr_set: set
                | if userns.is_some() {
                    libc::MOUNT_ATTR_IDMAP
                } else {
                    0
                },
            attr_clr: 0,
            propagation: 0,
            userns_fd: userns.map_or(0, |fd| fd.as_raw_fd() as u64),
        },
    )
}

/// Makes a detached mount private: a copy of a shared mount is shared with it.
pub(crate) fn mount_private(mount: BorrowedFd<'_>) -> io::Result<()> {
    set_attributes(
        mount,
        libc::mount_attr {
            attr_set: 0,
            attr_clr: 0,
            propagation: libc::MS_PRIVATE,
            userns_fd: 0,
        },
    )
}

fn set_attributes(mount: BorrowedFd<'_>, attr: libc::mount_attr) -> io::Result<()> {
    // SAFETY: the path is empty and the structure lives through the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            std::ptr::from_ref(&attr),
            size_of::<libc::mount_attr>(),
        )
    })?;
    Ok(())
}

/// Installs a seccomp filter for this process and its descendants. Returns where the calls arrive that it leaves to the guest.
///
/// A kernel before 5.0 knows nothing like it, and below a process that takes calls already (motu in somebody else's container)
/// nobody else may: then each of these calls is allowed or absent, as the filter says, and nothing is returned.
pub(crate) fn install_filter(program: &[u8]) -> io::Result<Option<OwnedFd>> {
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut steps: Vec<libc::sock_filter> = program
        .chunks_exact(8)
        .map(|b| libc::sock_filter {
            code: u16::from_ne_bytes([b[0], b[1]]),
            jt: b[2],
            jf: b[3],
            k: u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
        })
        .collect();
    let asks = |step: &libc::sock_filter| {
        step.code == RETURN
            && step.k & libc::SECCOMP_RET_ACTION_FULL == libc::SECCOMP_RET_USER_NOTIF
    };
    if steps.iter().any(asks) {
        let listen = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        // Signals of a program (Go's, many in a second) do not begin its call anew. Not before Linux 5.19.
        for flags in [
            listen | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
            listen,
        ] {
            match set_filter(&steps, flags) {
                // SAFETY: with this flag the result is a descriptor that the kernel has just made for us.
                Ok(fd) => return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd as i32) })),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINVAL | libc::EBUSY) => {}
                    _ => return Err(error),
                },
            }
        }
        for step in steps.iter_mut().filter(|step| asks(step)) {
            step.k = match step.k & crate::OTHERWISE_ALLOWED {
                0 => libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
                _ => libc::SECCOMP_RET_ALLOW,
            };
        }
    }
    set_filter(&steps, 0)?;
    Ok(None)
}

fn set_filter(steps: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<c_long> {
    let program = libc::sock_fprog {
        len: u16::try_from(steps.len()).map_err(|_| Errno::INVAL)?,
        filter: steps.as_ptr().cast_mut(),
    };
    // SAFETY: the program lives through the call; the kernel copies and verifies it.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            std::ptr::from_ref(&program),
        )
    })
}

/// The bytes that the kernel writes for a set of processors.
pub(crate) fn processor_set_bytes() -> usize {
    let mut set = [0u64; 1024];
    // SAFETY: the kernel writes at most the size of the live buffer.
    let written = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            size_of_val(&set),
            set.as_mut_ptr(),
        )
    };
    usize::try_from(written).unwrap_or(0)
}

/// Leaves the inherited session keyring for a new, empty one.
pub(crate) fn join_new_session_keyring() -> io::Result<()> {
    // SAFETY: a null name asks for an anonymous keyring; no memory is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            libc::KEYCTL_JOIN_SESSION_KEYRING,
            std::ptr::null::<libc::c_char>(),
        )
    })?;
    Ok(())
}

/// Sets the flags of a network interface to "up".
pub(crate) fn interface_up(name: &CStr) -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: an all-zero ifreq is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.to_bytes()) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request lives through the call and has the type this ioctl reads.
    check(c_long::from(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as libc::Ioctl,
            std::ptr::from_ref(&request),
        )
    }))?;
    Ok(())
}

/// Drops all capabilities outside `keep` from the bounding set.
pub(crate) fn drop_bounding(keep: u64) -> io::Result<()> {
    for capability in 0..64u32 {
        if keep & (1 << capability) != 0 {
            continue;
        }
        // SAFETY: plain integers.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        if result != 0 {
            let error = io::Error::last_os_error();
            // EINVAL: beyond the kernel's last capability.
            return match error.raw_os_error() {
                Some(libc::EINVAL) => Ok(()),
                _ => Err(error),
            };
        }
    }
    Ok(())
}

/// Keeps capabilities across a change of uid.
pub(crate) fn keep_capabilities_over_setuid() -> io::Result<()> {
    const SECBIT_NO_SETUID_FIXUP: c_int = 1 << 2;
    // SAFETY: plain integers.
    check(c_long::from(unsafe {
        libc::prctl(libc::PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    }))?;
    Ok(())
}

/// Makes this process dumpable, so that its user owns its files in `/proc`.
pub(crate) fn dumpable() {
    // SAFETY: plain integers; this cannot fail with these values.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
}

/// Closes every descriptor above the standard three except those in `keep`.
pub(crate) fn close_others(keep: Vec<BorrowedFd<'_>>) {
    let mut keep: Vec<u32> = keep.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    keep.sort_unstable();
    let mut first = 3;
    for fd in keep {
        close_range(first, fd.saturating_sub(1));
        first = first.max(fd + 1);
    }
    close_range(first, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    if first <= last {
        // SAFETY: the caller owns the whole process and uses nothing in this range from now on.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// A path for a descriptor: `/proc/self/fd/N`.
pub(crate) fn fd_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// Takes a descriptor that the daemon passed at a fixed number.
pub(crate) fn inherited(fd: i32) -> OwnedFd {
    // SAFETY: called once per number, by the only owner of the process.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
