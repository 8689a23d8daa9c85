//! System and C library calls without a safe wrapper in the workspace.

pub(super) mod device;
mod request;
mod veth;

use rustix::process::Pid;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// The addresses of this network namespace.
pub(super) fn addresses() -> io::Result<Vec<IpAddr>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the pointer is to a place for one pointer.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut at = first;
    while !at.is_null() {
        // SAFETY: the list is valid until it is freed below; each entry's address is null or a
        // socket address of the family it says.
        unsafe {
            let address = (*at).ifa_addr;
            if !address.is_null() {
                match i32::from((*address).sa_family) {
                    libc::AF_INET => {
                        let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                        let bits = u32::from_be(address.sin_addr.s_addr);
                        found.push(Ipv4Addr::from_bits(bits).into());
                    }
                    libc::AF_INET6 => {
                        let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                        found.push(Ipv6Addr::from(address.sin6_addr.s6_addr).into());
                    }
                    _ => {}
                }
            }
            at = (*at).ifa_next;
        }
    }
    // SAFETY: the list came from getifaddrs and is not used after this.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_this_host_are_found() {
        let found = addresses().unwrap();
        assert!(found.contains(&IpAddr::from([127, 0, 0, 1])), "{found:?}");
    }
}
