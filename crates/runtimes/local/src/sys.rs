//! The system calls that `rustix` does not wrap: loop devices, ext4, pidfds.
//!
//! All unsafe code of this crate is here.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_AUTOCLEAR: u32 = 4;

/// `struct loop_info64` of the kernel.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of the kernel.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// The number of a free loop device.
pub(crate) fn free_loop(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: this ioctl takes no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Attaches `image` to a loop device with autoclear, which frees itself after its last use.
pub(crate) fn configure_loop(device: BorrowedFd<'_>, image: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all-zero is a valid configuration of every field.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = image.as_raw_fd() as u32;
    config.info.flags = LOOP_AUTOCLEAR;
    // SAFETY: the structure lives through the call and has the kernel's layout.
    let result = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            LOOP_CONFIGURE,
            std::ptr::from_ref(&config),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Resizes a mounted ext4 to this many blocks.
pub fn resize_ext4(directory: BorrowedFd<'_>, blocks: u64) -> io::Result<()> {
    /// `EXT4_IOC_RESIZE_FS` of the kernel.
    const RESIZE: libc::Ioctl = 0x4008_6610;
    // SAFETY: the kernel reads one u64, which lives through the call.
    let result = unsafe { libc::ioctl(directory.as_raw_fd(), RESIZE, std::ptr::from_ref(&blocks)) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Discards free blocks of a mounted ext4 (FITRIM).
pub(crate) fn trim_ext4(directory: BorrowedFd<'_>) -> io::Result<()> {
    /// `FITRIM` of the kernel.
    const TRIM: libc::Ioctl = 0xC018_5879_u32 as libc::Ioctl;
    // Start, length, and shortest range.
    let mut range = [0u64, u64::MAX, 0];
    // SAFETY: the kernel reads and writes three u64, which live through the call.
    let result = unsafe { libc::ioctl(directory.as_raw_fd(), TRIM, range.as_mut_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The wait status of a process that has ended, if the kernel keeps it (Linux 6.15).
pub fn exit_status(pidfd: BorrowedFd<'_>) -> Option<i32> {
    const EXIT: u64 = 1 << 3;
    // SAFETY: all-zero is a valid request.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = EXIT;
    // SAFETY: the structure lives through the call and has the type this ioctl fills.
    let result = unsafe {
        libc::ioctl(
            pidfd.as_raw_fd(),
            libc::PIDFD_GET_INFO,
            std::ptr::from_mut(&mut info),
        )
    };
    (result == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
}

/// Registers a pidfd: it becomes readable when its process has ended.
pub fn watch(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the registration and closed after it.
    Ok(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?)
}
