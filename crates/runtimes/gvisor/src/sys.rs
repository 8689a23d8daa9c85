//! The system calls that need `unsafe`. All unsafe code of this crate is here.

use rustix::thread::UnshareFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// What a command does before it becomes its program.
#[derive(Debug)]
pub(crate) struct Before {
    /// Files it enters cgroups by, so that nothing it ever starts is outside of them.
    pub(crate) cgroups: Vec<OwnedFd>,
    /// A filter of system calls that is on it and on all it starts.
    pub(crate) filter: Option<&'static [libc::sock_filter]>,
}

/// Makes a command do all this first.
pub(crate) fn first(command: &mut Command, before: Before) {
    let enter = move || {
        for entry in &before.cgroups {
            // "0" is whoever writes it.
            rustix::io::write(entry, b"0").map_err(io::Error::from)?;
        }
        before.filter.map_or(Ok(()), install)?;
        // A session of its own: a signal to the daemon's terminal is not for machines.
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

/// Gives the calling thread, and what it starts, a network of their own, with a loopback device
/// that is up.
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
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Brings the calling thread, and what it starts, into a network.
pub(crate) fn enter_network(network: &OwnedFd) -> io::Result<()> {
    let kind = Some(rustix::thread::LinkNameSpaceType::Network);
    Ok(rustix::thread::move_into_link_name_space(
        network.as_fd(),
        kind,
    )?)
}

/// Where others find the calling thread's network, for as long as the thread lives.
pub(crate) fn own_network() -> PathBuf {
    let (process, thread) = (rustix::process::getpid(), rustix::thread::gettid());
    let (process, thread) = (process.as_raw_nonzero(), thread.as_raw_nonzero());
    format!("/proc/{process}/task/{thread}/ns/net").into()
}

/// Gives the calling thread, and what it starts, mounts of their own.
pub(crate) fn private_mounts() -> io::Result<()> {
    // SAFETY: mounts and the working directory cease to be shared with other threads; the
    // caller is a thread made for this, and no other code relies on sharing them with it.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }?)
}
