//! The system calls that need `unsafe`. All unsafe code of this crate is here.

use rustix::thread::UnshareFlags;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes a command enter cgroups before it becomes its program, so that nothing
/// it ever starts is outside of them.
pub(crate) fn enter_cgroups(command: &mut Command, entries: Vec<OwnedFd>) {
    let enter = move || {
        for entry in &entries {
            // "0" is whoever writes it.
            rustix::io::write(entry, b"0").map_err(io::Error::from)?;
        }
        // A session of its own: a signal to the daemon's terminal is not for machines.
        rustix::process::setsid().map_err(io::Error::from)?;
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls; what it uses was made before.
    unsafe { command.pre_exec(enter) };
}

/// Gives the calling thread, and what it starts, mounts of their own.
pub(crate) fn private_mounts() -> io::Result<()> {
    // SAFETY: mounts and the working directory cease to be shared with other threads; the
    // caller is a thread made for this, and no other code relies on sharing them with it.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }?)
}
