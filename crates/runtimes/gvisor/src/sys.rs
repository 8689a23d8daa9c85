//! The system calls that need `unsafe`. All unsafe code of this crate is here.

use rustix::thread::UnshareFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// What a child does between fork and exec.
#[derive(Debug)]
pub(crate) struct Before {
    /// Open `cgroup.procs` files to enter, so that all its descendants are inside.
    pub(crate) cgroups: Vec<OwnedFd>,
    /// A seccomp filter, inherited by all its descendants.
    pub(crate) filter: Option<&'static [libc::sock_filter]>,
}

/// Registers these actions for a command.
pub(crate) fn first(command: &mut Command, before: Before) {
    let enter = move || {
        for entry in &before.cgroups {
            // "0" means the writing process.
            rustix::io::write(entry, b"0").map_err(io::Error::from)?;
        }
        before.filter.map_or(Ok(()), install)?;
        // A new session: signals from the daemon's terminal are not for machines.
        rustix::process::setsid().map_err(io::Error::from)?;
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls; what it uses was made before.
    unsafe { command.pre_exec(enter) };
}

fn install(filter: &'static [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the program lives through the call; the kernel copies and verifies it.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            std::ptr::from_ref(&program),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Moves the calling thread and its children into a new network namespace, with the loopback device
/// up.
pub(crate) fn private_network() -> io::Result<()> {
    // SAFETY: sockets that are open stay what they are; the caller is a thread made for this.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    // SAFETY: all-zero is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: the request lives through the call and names a flag change only.
    match unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as libc::Ioctl,
            &raw const request,
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Moves the calling thread and its children into a network namespace.
pub(crate) fn enter_network(network: &OwnedFd) -> io::Result<()> {
    let kind = Some(rustix::thread::LinkNameSpaceType::Network);
    Ok(rustix::thread::move_into_link_name_space(
        network.as_fd(),
        kind,
    )?)
}

/// The path of the calling thread's network namespace, valid while the thread lives.
pub(crate) fn own_network() -> PathBuf {
    let (process, thread) = (rustix::process::getpid(), rustix::thread::gettid());
    let (process, thread) = (process.as_raw_nonzero(), thread.as_raw_nonzero());
    format!("/proc/{process}/task/{thread}/ns/net").into()
}

/// Moves the calling thread and its children into a new mount namespace.
pub(crate) fn private_mounts() -> io::Result<()> {
    // SAFETY: mounts and the working directory cease to be shared with other threads; the
    // caller is a thread made for this, and no other code relies on sharing them with it.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }?)
}
