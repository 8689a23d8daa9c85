//! What needs `unsafe`: work between fork and exec.

use seccompiler::BpfProgram;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;

/// Makes a command start with no_new_privs and these filters.
pub fn confine(command: &mut Command, filters: Arc<[BpfProgram; 2]>) {
    // SAFETY: between fork and exec the closure only makes system calls; the programs were
    // allocated before, and a failure is told by number.
    unsafe {
        command.pre_exec(move || {
            for filter in filters.iter() {
                seccompiler::apply_filter(filter)
                    .map_err(|_| io::Error::from_raw_os_error(libc::EPERM))?;
            }
            Ok(())
        });
    }
}
