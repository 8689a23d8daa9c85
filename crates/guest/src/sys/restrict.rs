//! Drops privileges of the programs that the guest runs, in the child before exec.

use std::ptr;

/// The highest capability number that can exist in the two words of `capset`.
const CAPABILITIES: u32 = 64;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

const LANDLOCK_MAKE_CHAR: u64 = 1 << 6;
const LANDLOCK_MAKE_BLOCK: u64 = 1 << 11;
const LANDLOCK_REFER: u64 = 1 << 13;
const LANDLOCK_RULE_PATH_BENEATH: i32 = 1;

/// The kernel's `landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// The privileges taken from every process the guest starts. The guest itself keeps its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restrict {
    /// Capability bits a child may keep in its bounding set, and as uid 0 in its permitted and
    /// effective sets. Inheritable and ambient sets are emptied.
    pub drop_caps_keep: u64,
    /// Set `no_new_privs`: set-user-id programs gain nothing.
    pub no_new_privs: bool,
    /// Forbid creating device nodes with Landlock, if the kernel has it; a Landlock domain also
    /// forbids changing mounts.
    pub landlock: bool,
    /// Soft and hard limit of open files.
    pub nofile: Option<(u64, u64)>,
    /// Processes and threads of one user, for kernels that cannot limit those of the machine as a
    /// whole without harm.
    pub nproc: Option<u64>,
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

impl Restrict {
    /// The part that needs privileges, before the user changes; `bounding` is the inherited
    /// bounding set. Returns an errno on failure.
    pub(super) fn before_user(&self, bounding: u64) -> Result<(), i32> {
        let files = self.nofile.map(|most| (libc::RLIMIT_NOFILE, most));
        let processes = self.nproc.map(|most| (libc::RLIMIT_NPROC, (most, most)));
        for (resource, (soft, hard)) in files.into_iter().chain(processes) {
            let limit = libc::rlimit {
                rlim_cur: soft,
                rlim_max: hard,
            };
            // SAFETY: the pointer is to a live rlimit.
            check(unsafe { libc::setrlimit(resource, &raw const limit) } as i64)?;
        }
        if self.no_new_privs {
            // SAFETY: prctl with integer arguments.
            check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } as i64)?;
        }
        if self.landlock {
            forbid_devices()?;
        }
        let excess = bounding & !self.drop_caps_keep;
        for capability in (0..CAPABILITIES).filter(|bit| excess & (1 << bit) != 0) {
            // SAFETY: prctl with integer arguments.
            let dropped =
                unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability as libc::c_ulong, 0, 0, 0) };
            match check(dropped as i64) {
                // Beyond the kernel's last capability.
                Err(libc::EINVAL) => break,
                // Without CAP_SETPCAP the process has no privileges worth bounding.
                Err(libc::EPERM) if !is_privileged() => break,
                other => other?,
            }
        }
        Ok(())
    }

    /// The part that drops the last privileges, after the user has changed.
    pub(super) fn after_user(&self) -> Result<(), i32> {
        const AMBIENT_CLEAR: libc::c_ulong = 4;
        // SAFETY: prctl with integer arguments. A kernel without ambient sets has nothing to clear.
        unsafe { libc::prctl(libc::PR_CAP_AMBIENT, AMBIENT_CLEAR, 0, 0, 0) };
        let (header, mut sets) = capabilities()?;
        let keep = [
            self.drop_caps_keep as u32,
            (self.drop_caps_keep >> 32) as u32,
        ];
        for (set, keep) in sets.iter_mut().zip(keep) {
            set.permitted &= keep;
            set.effective = set.permitted;
            set.inheritable = 0;
        }
        // SAFETY: version 3 of the call reads a header and two sets, which is what is passed.
        check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) })
    }
}

fn capabilities() -> Result<(CapHeader, [CapData; 2]), i32> {
    let mut header = CapHeader {
        version: CAPABILITY_VERSION_3,
        pid: 0,
    };
    let mut sets = [CapData::default(); 2];
    // SAFETY: version 3 of the call writes two sets, which is what is passed.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) })?;
    Ok((header, sets))
}

fn is_privileged() -> bool {
    matches!(capabilities(), Ok((_, sets)) if sets[0].effective | sets[1].effective != 0)
}

/// Enters a Landlock domain that forbids device nodes. Every domain forbids renames and hard links
/// between directories, so those are allowed explicitly, everywhere. Kernels without Landlock are
/// skipped, and so are those before 5.19, which cannot allow them: `git`, `apt` and `rsync` need
/// them, and user namespaces cannot create device nodes anyway.
fn forbid_devices() -> Result<(), i32> {
    let handled: u64 = LANDLOCK_MAKE_CHAR | LANDLOCK_MAKE_BLOCK | LANDLOCK_REFER;
    // SAFETY: the attribute is one u64, whose size is passed; older kernels accept that prefix.
    let ruleset = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const handled,
            size_of::<u64>(),
            0u32,
        )
    };
    match check(ruleset) {
        Err(libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL) => return Ok(()),
        other => other?,
    }
    let result = allow_refer(ruleset).and_then(|()| {
        // SAFETY: the ruleset is an open descriptor.
        check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0u32) })
    });
    // SAFETY: the ruleset was opened by the caller's system call and is not used again.
    unsafe { libc::close(ruleset as i32) };
    result
}

/// Allows renames and links between all directories below the root.
fn allow_refer(ruleset: i64) -> Result<(), i32> {
    // SAFETY: the path is a C string.
    let root = unsafe { libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
    check(i64::from(root))?;
    let rule = PathBeneath {
        allowed: LANDLOCK_REFER,
        parent: root,
    };
    // SAFETY: the rule is the kernel's struct and lives until the call returns.
    let added = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset,
            LANDLOCK_RULE_PATH_BENEATH,
            &raw const rule,
            0u32,
        )
    });
    // SAFETY: the root was opened above and is not used again.
    unsafe { libc::close(root) };
    added
}

/// Turns a system call's result into its errno.
pub(super) fn check(result: i64) -> Result<(), i32> {
    if result >= 0 { Ok(()) } else { Err(errno()) }
}

pub(super) fn errno() -> i32 {
    // SAFETY: the location is this thread's own errno.
    unsafe { *libc::__errno_location() }
}

/// Switches users by raw system calls: the C library's wrappers would synchronize with threads that
/// a forked child does not have.
pub(super) fn become_user(
    uid: u32,
    gid: u32,
    groups: &[u32],
    must: bool,
) -> Result<(), (Switch, i32)> {
    // SAFETY: the pointer and length describe one live slice.
    let grouped = check(unsafe {
        let list = if groups.is_empty() {
            ptr::null()
        } else {
            groups.as_ptr()
        };
        libc::syscall(libc::SYS_setgroups, groups.len(), list)
    });
    match grouped {
        // A user namespace may forbid `setgroups`; that matters only if the user really changes.
        Err(code) if must => return Err((Switch::Groups, code)),
        _ => {}
    }
    // SAFETY: integers only.
    let group = check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) });
    group.map_err(|code| (Switch::Group, code))?;
    // SAFETY: integers only.
    let user = check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) });
    user.map_err(|code| (Switch::User, code))
}

/// Which part of a user switch failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Switch {
    Groups,
    Group,
    User,
}
