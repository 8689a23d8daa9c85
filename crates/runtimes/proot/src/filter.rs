//! A seccomp filter for everything below proot.
//!
//! proot shows a machine its tree by rewriting the paths in its system calls. A call that proot
//! does not know reaches the kernel unchanged, and so the host's files: by accident in most
//! programs (`ls` uses `statx`), on purpose in others. All of these get ENOSYS, as on an older
//! kernel, and programs fall back to calls that proot knows.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Calls that are newer than proot or invisible to a tracer: each takes a path, or makes calls of
/// its own.
const UNKNOWN: [i64; 21] = [
    libc::SYS_statx,
    libc::SYS_openat2,
    libc::SYS_faccessat2,
    libc::SYS_execveat,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // The kernel itself performs their operations.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Its flags are in memory, where a filter cannot see them; see `UNTRACED`.
    libc::SYS_clone3,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_quotactl_fd,
    libc::SYS_kexec_file_load,
];

/// `fchmodat2` and all later calls, up to the end of the regular numbers.
const NEWER: std::ops::Range<i64> = 452..512;

/// Calls whose effect would outlive the machine, or that affect the whole host. The kernel refuses
/// them to an unprivileged user anyway; this is for root.
const REFUSED: [i64; 11] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
];

/// The flag of `clone` that makes the child invisible to the tracer.
const UNTRACED: u64 = libc::CLONE_UNTRACED as u64;

/// Both filters: missing calls (ENOSYS) and refused ones (EPERM).
pub fn filters() -> Result<[BpfProgram; 2], seccompiler::Error> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let always = |number: i64| (number, Vec::new());
    let missing = UNKNOWN.into_iter().chain(NEWER).map(always).collect();
    let mut refused: BTreeMap<_, _> = REFUSED.into_iter().map(always).collect();
    let untraced = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(UNTRACED),
        UNTRACED,
    )?;
    refused.insert(libc::SYS_clone, vec![SeccompRule::new(vec![untraced])?]);
    Ok([
        compile(missing, libc::ENOSYS, arch)?,
        compile(refused, libc::EPERM, arch)?,
    ])
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    errno: i32,
    arch: TargetArch,
) -> Result<BpfProgram, seccompiler::Error> {
    let told = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, told, arch)?;
    Ok(filter.try_into()?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_filters_compile() {
        let [missing, refused] = super::filters().expect("two filters");
        assert!(missing.len() > super::UNKNOWN.len() && !refused.is_empty());
    }
}
