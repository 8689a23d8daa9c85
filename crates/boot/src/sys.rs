//! System calls that need `unsafe`, without any policy.

use motu_link::network;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;

/// `MODULE_INIT_COMPRESSED_FILE` of the kernel.
const PACKED: libc::c_int = 4;
/// `BLKGETSIZE64` of the kernel.
const DISK_BYTES: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;
/// `BLKFLSBUF` of the kernel.
const FORGET: libc::Ioctl = 0x1261;
/// `RNDRESEEDCRNG` of the kernel.
const RESEED: libc::Ioctl = 0x5207;
/// `EXT4_IOC_RESIZE_FS` of the kernel.
const GROW: libc::Ioctl = 0x4008_6610_u32 as libc::Ioctl;

/// Loads a kernel module; no error if it is loaded already.
pub(crate) fn load_module(file: &File, packed: bool) -> io::Result<()> {
    let flags = if packed { PACKED } else { 0 };
    // SAFETY: an open descriptor, a constant string and an integer.
    let result = unsafe {
        libc::syscall(
            libc::SYS_finit_module,
            file.as_raw_fd(),
            c"".as_ptr(),
            flags,
        )
    };
    match check(result as libc::c_int) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => other,
    }
}

/// Grows the ext4 file system mounted on `at` to the size of its device.
pub(crate) fn grow(device: &Path, at: &Path) -> io::Result<()> {
    let device = File::open(device)?;
    let mut bytes = 0u64;
    // SAFETY: the ioctl writes one u64, which lives through the call.
    check(unsafe { libc::ioctl(device.as_raw_fd(), DISK_BYTES, &raw mut bytes) })?;
    let found = rustix::fs::statvfs(at)?;
    let blocks = bytes / found.f_frsize.max(1);
    let directory = File::open(at)?;
    // SAFETY: the ioctl reads one u64, which lives through the call.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), GROW, &raw const blocks) })
}

/// Drops the buffer cache of a disk.
pub(crate) fn forget_content(device: &Path) -> io::Result<()> {
    let device = File::open(device)?;
    // SAFETY: this ioctl takes no argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), FORGET, 0) })
}

/// Sets the machine's clock.
pub(crate) fn set_clock(unix_ns: i64) -> io::Result<()> {
    let time = libc::timespec {
        tv_sec: unix_ns.div_euclid(1_000_000_000),
        tv_nsec: unix_ns.rem_euclid(1_000_000_000),
    };
    // SAFETY: the pointer is to a live timespec.
    check(unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const time) })
}

/// Makes the kernel's random generator use newly added entropy at once.
pub(crate) fn reseed_now(device: &File) -> io::Result<()> {
    // SAFETY: this ioctl takes no argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), RESEED) })
}

/// Blocks all signals in this thread, so that other threads get them.
pub(crate) fn block_signals() {
    // SAFETY: an all-zero set is valid and is filled before it is used.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

/// Sets the loopback interface up.
pub(crate) fn loopback_up() -> io::Result<()> {
    interface_up(&UdpSocket::bind("0.0.0.0:0")?, "lo")
}

/// Configures the network device's address and default route, and sets it up.
pub(crate) fn network_up() -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mask = Ipv4Addr::from_bits(u32::MAX << (32 - u32::from(network::PREFIX)));
    for (call, address) in [
        (libc::SIOCSIFADDR, network::ADDRESS),
        (libc::SIOCSIFNETMASK, mask),
    ] {
        let mut request = named(network::DEVICE);
        request.ifr_ifru.ifru_addr = socket_address(address);
        // SAFETY: the request lives through the call and holds an address.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), call as libc::Ioctl, &raw const request) })?;
    }
    interface_up(&socket, network::DEVICE)?;
    // SAFETY: all-zero is a valid route: to everywhere, by no device in particular.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_gateway = socket_address(network::GATEWAY);
    route.rt_flags = (libc::RTF_UP | libc::RTF_GATEWAY) as libc::c_ushort;
    // SAFETY: the route lives through the call.
    check(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCADDRT as libc::Ioctl,
            &raw const route,
        )
    })
}

/// The kernel's `in6_rtmsg`, whose fields the C library does not declare.
#[repr(C)]
struct Route6 {
    to: libc::in6_addr,
    from: libc::in6_addr,
    gateway: libc::in6_addr,
    kind: u32,
    to_bits: u16,
    from_bits: u16,
    metric: u32,
    info: libc::c_ulong,
    flags: u32,
    device: libc::c_int,
}

/// Configures the network device's IPv6 address and its route to the gateway.
pub(crate) fn network_up_v6() -> io::Result<()> {
    let socket = UdpSocket::bind("[::]:0")?;
    let mut request = named(network::DEVICE);
    // SAFETY: the request lives through the call, which writes a number into it.
    check(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFINDEX as libc::Ioctl,
            &raw mut request,
        )
    })?;
    // SAFETY: the kernel has just written the number.
    let device = unsafe { request.ifr_ifru.ifru_ifindex };
    let bytes = |address: Ipv6Addr| libc::in6_addr {
        s6_addr: address.octets(),
    };
    let given = libc::in6_ifreq {
        ifr6_addr: bytes(network::ADDRESS6),
        ifr6_prefixlen: network::PREFIX6.into(),
        ifr6_ifindex: device,
    };
    // SAFETY: the request lives through the call, which reads one in6_ifreq.
    check(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFADDR as libc::Ioctl,
            &raw const given,
        )
    })?;
    let route = Route6 {
        to: bytes(Ipv6Addr::UNSPECIFIED),
        from: bytes(Ipv6Addr::UNSPECIFIED),
        gateway: bytes(network::GATEWAY6),
        kind: 0,
        to_bits: 0,
        from_bits: 0,
        metric: 1,
        info: 0,
        flags: (libc::RTF_UP | libc::RTF_GATEWAY) as u32,
        device,
    };
    // SAFETY: the route lives through the call, which reads one in6_rtmsg: the same fields in C.
    check(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCADDRT as libc::Ioctl,
            &raw const route,
        )
    })
}

fn interface_up(socket: &UdpSocket, name: &str) -> io::Result<()> {
    let mut request = named(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request lives through the call and names a flag change only.
    check(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as libc::Ioctl,
            &raw const request,
        )
    })
}

/// A request about the device of this name.
fn named(name: &str) -> libc::ifreq {
    // SAFETY: all-zero is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    for (to, from) in data[2..].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: data,
    }
}

/// Powers the machine off. Does not return.
pub(crate) fn power_off() -> ! {
    // SAFETY: takes an integer; all that could be lost was synced by the caller.
    unsafe { libc::reboot(libc::LINUX_REBOOT_CMD_POWER_OFF) };
    // Not init, or power-off failed: the exit of init panics the kernel, which ends the machine
    // too.
    std::process::exit(1)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
