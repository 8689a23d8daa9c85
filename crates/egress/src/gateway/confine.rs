//! Drops files, privileges and system calls before the first frame is read.

use super::sys;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetError, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::io;

/// The newest Landlock ABI requested; an older kernel enforces what it knows.
const RULES: ABI = ABI::V6;
/// Twice the descriptors that a gateway with the most connections needs.
const FILES: u64 = 65_536;

/// Drops everything that is not needed to pass frames.
pub(super) fn confine(user: Option<(u32, u32)>) -> io::Result<()> {
    limits()?;
    let root = rustix::process::geteuid().is_root();
    if root {
        for capability in 0..64 {
            let one = CapabilitySet::from_bits_retain(1 << capability);
            if rustix::thread::remove_capability_from_bounding_set(one).is_err() {
                // Beyond the kernel's last capability.
                break;
            }
        }
        if let Some((uid, gid)) = user {
            sys::become_user(uid, gid)?;
        }
    }
    let _ = rustix::thread::clear_ambient_capability_set();
    let nothing = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, nothing)?;
    rustix::thread::set_no_new_privs(true)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    no_files().map_err(io::Error::other)?;
    filter()
}

fn limits() -> io::Result<()> {
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    let files = most.map_or(FILES, |most| most.min(FILES));
    let set = |resource, value| {
        let limit = Rlimit {
            current: Some(value),
            maximum: Some(value),
        };
        rustix::process::setrlimit(resource, limit)
    };
    set(Resource::Nofile, files)?;
    set(Resource::Core, 0)?;
    Ok(())
}

/// Landlock: no file can be opened, no TCP port bound, no process outside signalled. Open
/// descriptors stay usable.
fn no_files() -> Result<(), RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(RULES))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(RULES))?
        .create()?
        .restrict_self()
        .map(drop)
}

/// The system calls of an event loop over sockets.
const CALLS: [i64; 37] = [
    libc::SYS_accept4,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_connect,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_ioctl,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_write,
    libc::SYS_writev,
];

fn filter() -> io::Result<()> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        CALLS.into_iter().map(|call| (call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_epoll_wait, Vec::new());
    let only = |argument, operation, value| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value);
        condition.and_then(|condition| SeccompRule::new(vec![condition]))
    };
    let build = || {
        let family = |family: i32| only(0, SeccompCmpOp::Eq, family as u64);
        let families = vec![family(libc::AF_INET)?, family(libc::AF_INET6)?];
        rules.insert(libc::SYS_socket, families);
        // Never executable memory.
        let code = libc::PROT_EXEC as u64;
        for call in [libc::SYS_mmap, libc::SYS_mprotect] {
            rules.insert(call, vec![only(2, SeccompCmpOp::MaskedEq(code), 0)?]);
        }
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let arch = std::env::consts::ARCH.try_into()?;
        let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)?;
        seccompiler::BpfProgram::try_from(filter)
    };
    let program = build().map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}
