//! The C allocator of the daemon, kept small.

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
