//! The memory of the daemon, kept small, and a descriptor that is waited for.

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime, which owns it from now on.
pub fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` always gives the same open descriptor, and the result keeps it open.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// Few arenas, and big buffers go straight back to the kernel. Call it before there are threads.
pub fn limit_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only sets tunables; no other thread exists yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 20);
    }
}

/// Gives unused memory back to the kernel.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets go of the program's code and constants: most of it was needed to start only. What is used
/// again comes from the page cache.
pub fn release_code() {
    // Defined by every linker of Linux: where the program begins, and where its code ends.
    unsafe extern "C" {
        static __executable_start: u8;
        static etext: u8;
    }
    let page = rustix::param::page_size();
    let (start, end) = (&raw const __executable_start, &raw const etext);
    let bytes = (end as usize & !(page - 1)).saturating_sub(start as usize);
    // SAFETY: the range is mapped from the program's file, read-only, and nobody wrote to it: its
    // pages come back unchanged.
    let done = unsafe {
        rustix::mm::madvise(
            start.cast_mut().cast(),
            bytes,
            rustix::mm::Advice::LinuxDontNeed,
        )
    };
    if let Err(error) = done {
        tracing::debug!(%error, "the program's pages stay");
    }
}
