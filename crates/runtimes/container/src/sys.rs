//! The system calls that `rustix` does not wrap, on the daemon's side.
//!
//! All unsafe code of this crate is here.

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Descriptors for a new process: ours, and its number there.
pub(crate) type Handover<'a> = [(BorrowedFd<'a>, c_int)];

/// Starts `program` in a new session with exactly the given descriptors and only `PATH` in its
/// environment.
///
/// `posix_spawn` shares the daemon's memory with the child until exec, so the cost does not grow
/// with the daemon, and the child cannot inherit a held lock.
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

/// `posix_spawn` functions return the error instead of setting errno.
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
    /// A new session, no blocked signals, and default signal handling.
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

/// The kernel's Landlock version, if it has Landlock.
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

/// An executable, immutable file in memory (a sealed memfd).
pub(crate) fn sealed_program(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    const MFD_EXEC: u32 = 0x10;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not have MFD_EXEC and do not need it.
    let file = memfd_create(name, flags | MemfdFlags::from_bits_retain(MFD_EXEC))
        .or_else(|_| memfd_create(name, flags))?;
    let mut file = std::fs::File::from(file);
    io::Write::write_all(&mut file, bytes)?;
    // A file open for writing cannot be executed (ETXTBSY): open it again read-only.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let program = std::fs::File::open(path)?;
    fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    Ok(program.into())
}
/// Whether the running kernel has a call with this number, tried in a process of its own with arguments that no call accepts.
#[cfg(test)]
pub(crate) fn has_call(number: u32) -> bool {
    let none: libc::c_long = -1;
    // SAFETY: between fork and exit the child only makes system calls; the kernel refuses these pointers.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            let made = libc::syscall(number.into(), none, none, none, none, none, none);
            let absent = made == none && *libc::__errno_location() == libc::ENOSYS;
            libc::_exit(i32::from(!absent));
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        status
    };
    // One that ended the process is there, too.
    !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) == 1
}
