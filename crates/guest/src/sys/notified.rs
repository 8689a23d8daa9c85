//! The listener of a system call filter: calls arrive, their callers wait, and are answered.

use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// A system call whose caller waits.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub id: u64,
    /// The thread, as this process numbers it.
    pub pid: u32,
    pub number: i64,
    pub arguments: [u64; 6],
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel does it.
    Go,
    Value(i64),
    Errno(i32),
}

/// Work for a thread of its own.
type Work = Box<dyn FnOnce() + Send>;

/// Runs work on a thread that the standard library does not know: its threads ask for their processors when they begin, and so
/// would wait for their own answer.
pub fn run_apart(stack_bytes: usize, work: Work) -> Result<(), Errno> {
    extern "C" fn begin(work: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the pointer is of the box that the creator of this thread gave up.
        let work = unsafe { Box::from_raw(work.cast::<Work>()) };
        work();
        std::ptr::null_mut()
    }
    let work = Box::into_raw(Box::new(work));
    let mut attributes = std::mem::MaybeUninit::uninit();
    let mut thread = std::mem::MaybeUninit::uninit();
    // SAFETY: the attributes are initialised before they are used and live through the calls; the thread takes the box over.
    let failed = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_bytes);
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let failed =
            libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), begin, work.cast());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        failed
    };
    if failed == 0 {
        return Ok(());
    }
    // SAFETY: there is no thread that has taken it over.
    drop(unsafe { Box::from_raw(work) });
    Err(Errno::from_raw_os_error(failed))
}

/// Waits for a call; `None` if its caller ended meanwhile.
pub fn receive(listener: BorrowedFd<'_>) -> Result<Option<Call>, Errno> {
    // SAFETY: all-zero is a valid value of this structure of integers, and what the kernel demands.
    let mut found: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the live structure, whose size is in the request's number.
    let done = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV,
            &raw mut found,
        )
    };
    match done {
        0 => Ok(Some(Call {
            id: found.id,
            pid: found.pid,
            number: found.data.nr.into(),
            arguments: found.data.args,
        })),
        _ => match last_error() {
            Errno::NOENT | Errno::INTR => Ok(None),
            other => Err(other),
        },
    }
}

/// Whether the caller still waits.
pub fn waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads the live number.
    let done = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
            &raw const id,
        )
    };
    done == 0
}

/// Answers a call. One whose caller has ended needs none.
pub fn answer(listener: BorrowedFd<'_>, id: u64, answer: Answer) {
    let (val, error, flags) = match answer {
        Answer::Go => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        Answer::Value(value) => (value, 0, 0),
        Answer::Errno(errno) => (0, -errno, 0),
    };
    let said = libc::seccomp_notif_resp {
        id,
        val,
        error,
        flags,
    };
    // SAFETY: the kernel reads the live structure, whose size is in the request's number.
    unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            &raw const said,
        )
    };
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
