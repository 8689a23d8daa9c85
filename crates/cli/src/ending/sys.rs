//! An alarm that SIGTERM sets.

use signal_hook_registry::register;
use std::sync::atomic::{AtomicBool, Ordering};

/// From now on, the first SIGTERM gives this program some seconds; then it exits with `code`.
pub fn alarm_on_sigterm(seconds: u32, code: u8) -> std::io::Result<()> {
    static SET: AtomicBool = AtomicBool::new(false);
    let set = move || {
        if !SET.swap(true, Ordering::Relaxed) {
            // SAFETY: alarm takes a number, and may be called in a signal handler.
            unsafe { libc::alarm(seconds) };
        }
    };
    // SAFETY: _exit takes a number, and may be called in a signal handler.
    let exit = move || unsafe { libc::_exit(code.into()) };
    // SAFETY: both do nothing but what a signal handler may do.
    unsafe {
        register(libc::SIGALRM, exit)?;
        register(libc::SIGTERM, set)?;
    }
    Ok(())
}
