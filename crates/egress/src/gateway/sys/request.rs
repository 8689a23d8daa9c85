//! `ifreq` ioctls about network devices.

use rustix::fd::{AsRawFd, OwnedFd};
use std::io;

/// Sets a device up.
pub(super) fn up(socket: &OwnedFd, device: &str) -> io::Result<()> {
    let mut request = named(device);
    call(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has just written the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    call(socket, libc::SIOCSIFFLAGS, &mut request)
}

/// A request about a device of this name.
pub(super) fn named(device: &str) -> libc::ifreq {
    // SAFETY: bytes and a union of integers, addresses and a pointer: zeroes are a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

pub(super) fn call(on: &OwnedFd, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    let request = std::ptr::from_mut(request);
    // SAFETY: every caller passes a call that reads and writes one ifreq.
    checked(unsafe { libc::ioctl(on.as_raw_fd(), what as libc::Ioctl, request) })
}

pub(super) fn checked(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
