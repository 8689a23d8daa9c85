//! The system calls that `rustix` does not wrap, on the daemon's side.
//!
//! All unsafe code of this crate is here.

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Descriptors for a new process: ours, and the number it has over there.
pub(crate) type Handover<'a> = [(BorrowedFd<'a>, c_int)];

/// Starts `program` in a session of its own with exactly the given descriptors
/// and an empty environment but `PATH`.
///
/// `posix_spawn` shares the daemon's memory with the child until it execs, so
/// the cost does not grow with the daemon, and no lock of another thread can be
/// left held in the child.
pub(crate) fn spawn(program: &str, args: &[&str], fds: &Handover<'_>) -> io::Result<i32> {
    let program = CString::new(program)?;
    let args: Vec<CString> = args
        .iter()
        .map(|arg| CString::new(*arg))
        .collect::<Result<_, _>>()?;
    let mut argv: Vec<*mut c_char> = args.iter().map(|a| a.as_ptr().cast_mut()).collect();
    argv.push(std::ptr::null_mut());
    let path = c"PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    let envp = [path.as_ptr().cast_mut(), std::ptr::null_mut()];

    let mut actions = Actions::new()?;
    for number in 0..3 {
        actions.open_null(number)?;
    }
    for (fd, number) in fds {
        actions.dup(fd.as_raw_fd(), *number)?;
    }
    let attributes = Attributes::new()?;
    let mut pid = 0;
    // SAFETY: every pointer is to a live, terminated value.
    let result = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            program.as_ptr(),
            &raw const actions.0,
            &raw const attributes.0,
            argv.as_ptr(),
            envp.as_ptr(),
        )
    };
    check_number(result)?;
    Ok(pid)
}

/// The functions of `posix_spawn` return the error instead of setting it.
fn check_number(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn new() -> io::Result<Actions> {
        // SAFETY: initialised by the call right below, before any other use.
        let mut actions = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live local of the right type.
        check_number(unsafe { libc::posix_spawn_file_actions_init(&raw mut actions) })?;
        Ok(Actions(actions))
    }

    fn open_null(&mut self, number: c_int) -> io::Result<()> {
        // SAFETY: initialised in `new`; the path is a constant.
        check_number(unsafe {
            libc::posix_spawn_file_actions_addopen(
                &raw mut self.0,
                number,
                c"/dev/null".as_ptr(),
                libc::O_RDWR,
                0,
            )
        })
    }

    fn dup(&mut self, from: c_int, to: c_int) -> io::Result<()> {
        // SAFETY: initialised in `new`; plain integers.
        check_number(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.0, from, to) })
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed once.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    /// A new session, no blocked signals, and default handling of all of them.
    fn new() -> io::Result<Attributes> {
        // SAFETY: initialised by the call right below, before any other use.
        let mut attributes = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live local of the right type.
        check_number(unsafe { libc::posix_spawnattr_init(&raw mut attributes) })?;
        let mut attributes = Attributes(attributes);
        // SAFETY: an all-zero set is initialised by the calls below.
        let (mut none, mut all): (libc::sigset_t, libc::sigset_t) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        const SETSID: c_int = 0x80;
        let flags = SETSID | libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        // SAFETY: every pointer is to a live local of the right type.
        unsafe {
            libc::sigemptyset(&raw mut none);
            libc::sigfillset(&raw mut all);
            let at = &raw mut attributes.0;
            check_number(libc::posix_spawnattr_setsigmask(at, &raw const none))?;
            check_number(libc::posix_spawnattr_setsigdefault(at, &raw const all))?;
            check_number(libc::posix_spawnattr_setflags(at, flags as libc::c_short))?;
        }
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed once.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

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

/// The number of a loop device nobody uses at this moment.
pub(crate) fn free_loop(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: this ioctl takes no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Puts `image` behind a loop device that frees itself after its last use.
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

/// Gives a mounted ext4 this many blocks.
pub(crate) fn resize_ext4(directory: BorrowedFd<'_>, blocks: u64) -> io::Result<()> {
    /// `EXT4_IOC_RESIZE_FS` of the kernel.
    const RESIZE: libc::Ioctl = 0x4008_6610;
    // SAFETY: the kernel reads one u64, which lives through the call.
    let result = unsafe { libc::ioctl(directory.as_raw_fd(), RESIZE, std::ptr::from_ref(&blocks)) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Tells the disk below a mounted ext4 which blocks are free.
pub(crate) fn trim_ext4(directory: BorrowedFd<'_>) -> io::Result<()> {
    /// `FITRIM` of the kernel.
    const TRIM: libc::Ioctl = 0xC018_5879_u32 as libc::Ioctl;
    // Where to begin, how far to go, and the shortest run that is worth it.
    let mut range = [0u64, u64::MAX, 0];
    // SAFETY: the kernel reads and writes three u64, which live through the call.
    let result = unsafe { libc::ioctl(directory.as_raw_fd(), TRIM, range.as_mut_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The version of Landlock, if the kernel has it.
pub(crate) fn landlock_version() -> Option<i64> {
    const CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no attributes and only returns a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0usize,
            CREATE_RULESET_VERSION,
        )
    };
    (version > 0).then_some(version)
}

/// How a process ended, of the kernel's own memory, where it keeps that (6.15).
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

/// An executable file in memory that nobody can ever change.
pub(crate) fn sealed_program(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    const MFD_EXEC: u32 = 0x10;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag and need none.
    let file = memfd_create(name, flags | MemfdFlags::from_bits_retain(MFD_EXEC))
        .or_else(|_| memfd_create(name, flags))?;
    let mut file = std::fs::File::from(file);
    io::Write::write_all(&mut file, bytes)?;
    // A file open for writing cannot be executed; a second, read-only opening can.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let program = std::fs::File::open(path)?;
    fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    Ok(program.into())
}
