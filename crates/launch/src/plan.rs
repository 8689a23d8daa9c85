//! The data of a plan.
//!
//! A plan is two lists: the launcher's steps on the host, and the steps of the machine's first
//! process inside. `Display` prints each step as one line. Nothing here touches the system.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Everything the launcher needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The machine's own directory on the host.
    pub dir: PathBuf,
    pub outer: Vec<Outer>,
    pub inner: Vec<Inner>,
    pub restrict: RestrictSpec,
}

/// The directory of `/workspace`'s layers on a disk.
pub const WORKSPACE_LAYERS: &str = "workspace";

/// How the guest must restrict the commands it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestrictSpec {
    /// Bit mask of the capabilities a command may ever have.
    pub keep_caps: u64,
    pub no_new_privs: bool,
    /// Also use Landlock, if the kernel has it.
    pub landlock: bool,
    /// Soft and hard limit of open files.
    pub nofile: Option<(u64, u64)>,
}

/// What the guest is given at its start.
#[derive(Debug)]
pub struct GuestStart {
    /// The listening socket of the link.
    pub listener: OwnedFd,
    pub restrict: RestrictSpec,
    /// `/workspace` and its baseline, if it has one.
    pub workspace: Option<WorkspaceDirs>,
    /// Held open as long as the guest lives: the lock on data that outlives it.
    pub lock: Option<OwnedFd>,
    /// System calls that the filter leaves to the guest.
    pub calls: Option<AskedCalls>,
}

/// The system calls of a machine that its guest answers.
#[derive(Debug)]
pub struct AskedCalls {
    /// Where they arrive.
    pub listener: OwnedFd,
    /// The host's processors that the machine is shown; empty: all of them.
    pub processors: Vec<u16>,
    /// The bytes of a set of processors in this kernel.
    pub set_bytes: usize,
}

impl GuestStart {
    /// Every descriptor the guest is given.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let workspace = self.workspace.as_ref();
        let lower = workspace.map(|dirs| dirs.lower.as_fd());
        let upper = workspace.and_then(|dirs| Some(dirs.upper.as_ref()?.dir.as_fd()));
        let lock = self.lock.as_ref().map(AsFd::as_fd);
        let calls = self.calls.as_ref().map(|calls| calls.listener.as_fd());
        let others = [lower, upper, lock, calls].into_iter().flatten();
        std::iter::once(self.listener.as_fd())
            .chain(others)
            .collect()
    }
}

/// `/workspace` and its initial state. The guest only reads through these descriptors; all its
/// changes go through `path`.
#[derive(Debug)]
pub struct WorkspaceDirs {
    /// The path that programs see.
    pub path: PathBuf,
    /// The baseline.
    pub lower: OwnedFd,
    /// The overlay's upper directory; without one, the trees are compared.
    pub upper: Option<Upper>,
    /// Without an overlay: when the tree at `path` was a fresh copy of the baseline, in nanoseconds
    /// since 1970 by the clock of its file system. A file with an older ctime is unchanged.
    pub copied_unix_ns: Option<i64>,
}

/// The upper directory of an overlay.
#[derive(Debug)]
pub struct Upper {
    pub dir: OwnedFd,
    /// Whether the overlay keeps its metadata in `user.*` attributes (mounted with `userxattr`)
    /// instead of `trusted.*`.
    pub user_attributes: bool,
}

/// A range of ids: `count` ids from `inside` map to the host's from `outside`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

/// How the id maps are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mapper {
    /// The launcher itself, privileged.
    Direct,
    /// `newuidmap` and `newgidmap`, which know `/etc/subuid` and `/etc/subgid`.
    Helpers,
    /// The launcher itself, for its own id only; groups cannot be changed inside then.
    Single,
}

/// The ids of a machine and the host's ids behind them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMap {
    pub uids: Vec<IdRange>,
    pub gids: Vec<IdRange>,
    pub by: Mapper,
}

/// Where the machine's writes go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Disk {
    /// A mounted disk handed over by the daemon.
    Mounted,
    /// A directory below the machine's own.
    Directory(PathBuf),
}

/// The namespaces of the first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Namespaces {
    /// All namespaces of a machine.
    Machine,
    /// Only a user namespace, to access files with a machine's ids.
    User,
}

/// A step on the host, before and beside the machine's first process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outer {
    EnterCgroup {
        file: PathBuf,
    },
    Listen,
    /// Locks a file for as long as the machine lives.
    Lock {
        file: PathBuf,
    },
    /// Create a time namespace: monotonic and boot clocks start at zero inside.
    StartClocks,
    /// Kernels before 6.15 need overlay layers to be attached; this makes a private mount namespace
    /// for them.
    HideMounts,
    Clone(Namespaces),
    MapIds(IdMap),
    TakeLower {
        root: PathBuf,
    },
    TakeDisk(Disk),
    /// Take the baseline of `/workspace`.
    TakeBaseline {
        baseline: PathBuf,
    },
    AttachLayers,
    /// Take the directory that the daemon handed over, so that it can only be read, with mapped ids.
    TakeDirectory,
    /// Enter the mount namespace of the machine whose first process the daemon handed over.
    EnterMachine,
    /// Attach the directory at a path of the machine.
    AttachDirectory {
        at: PathBuf,
    },
    ActAs {
        id: u32,
    },
    MakeRoot {
        allow_setuid: bool,
        /// What is written is thrown away with the machine, and never flushed.
        thrown_away: bool,
    },
    MakeWorkspace {
        allow_setuid: bool,
    },
    Release,
}

/// The machine's own control groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlGroups {
    /// cgroup v1 controllers in which the machine has a group.
    pub old: Vec<String>,
    /// The machine has a cgroup v2 group.
    pub unified: bool,
}

/// A step inside the machine, in its first process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inner {
    BecomeRoot {
        groups: bool,
    },
    PrivateMounts,
    /// An unprivileged user's overlay is made inside, by root of the user namespace.
    MakeRoot {
        lower: PathBuf,
        disk: PathBuf,
        allow_setuid: bool,
        thrown_away: bool,
    },
    /// An unprivileged user's overlay of `/workspace`, made inside as well.
    MakeWorkspace {
        baseline: PathBuf,
        disk: PathBuf,
        allow_setuid: bool,
    },
    EnterRoot,
    MountWorkspace,
    MountProc,
    MountSys,
    /// Show the machine's limits to programs that read them.
    MountCgroups(ControlGroups),
    /// Cover `/proc/meminfo`, for a machine with a memory limit.
    ShowMemory {
        kib: u64,
    },
    /// Name only these processors to programs that ask how many there are. Programs still run on all of them, as far as
    /// the machine's limit goes.
    ShowProcessors {
        which: Vec<u16>,
    },
    /// Every group of the machine may use ping sockets.
    AllowPing {
        last_group: u32,
    },
    MountDev {
        size_mib: u32,
        tty_group: Option<u32>,
    },
    Mask {
        path: String,
        directory: bool,
    },
    ReadOnly {
        path: String,
    },
    /// Replace a directory of the kernel by an empty one in which only these paths below it are.
    /// Those that are not there are left out.
    ShowOnly {
        top: String,
        paths: Vec<String>,
    },
    LeaveHost,
    Hostname {
        name: String,
    },
    Loopback,
    Keyring,
    NoCoreDumps,
    /// Bit mask of the capabilities that pid 1 keeps.
    Capabilities {
        keep: u64,
    },
    /// Remove the contents of the machine's directory, with the ids that own them.
    RemoveContents,
    /// A BPF program.
    Seccomp {
        filter: Vec<u8>,
    },
}

impl fmt::Display for IdMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, ranges) in [("uid", &self.uids), ("gid", &self.gids)] {
            for range in ranges {
                let IdRange {
                    inside,
                    outside,
                    count,
                } = range;
                let last = inside + (count - 1);
                write!(f, " {name} {inside}-{last} as {outside}+")?;
            }
        }
        match self.by {
            Mapper::Direct => Ok(()),
            Mapper::Helpers => f.write_str(" with newuidmap and newgidmap"),
            Mapper::Single => f.write_str(" (one id only)"),
        }
    }
}

impl fmt::Display for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outer::EnterCgroup { file } => write!(f, "enter cgroup {}", file.display()),
            Outer::Listen => f.write_str("listen on link.sock"),
            Outer::Lock { file } => write!(f, "lock {}", file.display()),
            Outer::StartClocks => f.write_str("start the clocks at zero"),
            Outer::HideMounts => f.write_str("take a private view of the mounts"),
            Outer::Clone(Namespaces::User) => {
                f.write_str("start a process in a new user namespace")
            }
            Outer::Clone(Namespaces::Machine) => f.write_str(
                "start pid 1 in new user, mount, pid, network, ipc, uts and cgroup namespaces",
            ),
            Outer::MapIds(map) => write!(f, "map ids:{map}"),
            Outer::TakeLower { root } => write!(
                f,
                "take {} as the lower layer, with mapped ids",
                root.display()
            ),
            Outer::TakeDisk(Disk::Mounted) => {
                f.write_str("take the mounted disk as the upper layer, with mapped ids")
            }
            Outer::TakeDisk(Disk::Directory(dir)) => write!(
                f,
                "take directory {} as the upper layer, with mapped ids",
                dir.display()
            ),
            Outer::TakeBaseline { baseline } => write!(
                f,
                "take {} as the baseline of /workspace, with mapped ids",
                baseline.display()
            ),
            Outer::AttachLayers => f.write_str("attach the layers in the private view"),
            Outer::TakeDirectory => f.write_str(
                "take the directory that was handed over, read-only, without devices and setuid, with mapped ids",
            ),
            Outer::EnterMachine => {
                f.write_str("enter the mount namespace of the machine that was handed over")
            }
            Outer::AttachDirectory { at } => write!(
                f,
                "attach the directory at {}, found from the machine's root",
                at.display()
            ),
            Outer::ActAs { id } => write!(f, "act as the machine's root, uid {id}"),
            Outer::MakeRoot {
                allow_setuid,
                thrown_away,
            } => write!(
                f,
                "make the root overlay{}{}",
                setuid(*allow_setuid),
                unflushed(*thrown_away)
            ),
            Outer::MakeWorkspace { allow_setuid } => {
                write!(f, "make the overlay of /workspace{}", setuid(*allow_setuid))
            }
            Outer::Release => f.write_str("hand the root to pid 1 and leave"),
        }
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inner::BecomeRoot { groups: true } => f.write_str("become uid 0 with no other group"),
            Inner::BecomeRoot { groups: false } => f.write_str("become uid 0"),
            Inner::PrivateMounts => f.write_str("make every mount private"),
            Inner::MakeRoot {
                lower,
                disk,
                allow_setuid,
                thrown_away,
            } => write!(
                f,
                "make the root overlay of {} and {}{}{}",
                lower.display(),
                disk.display(),
                setuid(*allow_setuid),
                unflushed(*thrown_away)
            ),
            Inner::MakeWorkspace {
                baseline,
                disk,
                allow_setuid,
            } => write!(
                f,
                "make the overlay of /workspace of {} and {}{}",
                baseline.display(),
                disk.display(),
                setuid(*allow_setuid)
            ),
            Inner::EnterRoot => f.write_str("pivot into the root"),
            Inner::MountWorkspace => f.write_str("mount /workspace"),
            Inner::MountProc => f.write_str("mount /proc"),
            Inner::MountSys => f.write_str("mount /sys read-only"),
            Inner::MountCgroups(_) => {
                f.write_str("mount the machine's own control groups read-only")
            }
            Inner::ShowMemory { kib } => write!(f, "show {kib} KiB of memory in /proc/meminfo"),
            Inner::ShowProcessors { which } => {
                write!(f, "show {} of the processors", which.len())
            }
            Inner::AllowPing { last_group } => write!(f, "let groups 0-{last_group} ping"),
            Inner::MountDev { size_mib, .. } => {
                write!(f, "mount /dev with the harmless devices ({size_mib} MiB)")
            }
            Inner::Mask { path, .. } => write!(f, "mask {path}"),
            Inner::ReadOnly { path } => write!(f, "make {path} read-only"),
            Inner::ShowOnly { top, paths } => {
                write!(f, "show nothing of {top} but {}", paths.join(", "))
            }
            Inner::LeaveHost => f.write_str("unmount the host's root"),
            Inner::Hostname { name } => write!(f, "set the hostname to {name}"),
            Inner::Loopback => f.write_str("bring up the loopback interface"),
            Inner::Keyring => f.write_str("join an empty session keyring"),
            Inner::NoCoreDumps => f.write_str("turn core dumps off"),
            Inner::Capabilities { keep } => write!(f, "keep capabilities {keep:#x} in pid 1"),
            Inner::RemoveContents => f.write_str("remove what is in the machine's directory"),
            Inner::Seccomp { filter } => write!(
                f,
                "install the system call filter ({} instructions)",
                filter.len() / 8
            ),
        }
    }
}

fn unflushed(thrown_away: bool) -> &'static str {
    match thrown_away {
        true => ", never flushed",
        false => "",
    }
}

fn setuid(allowed: bool) -> &'static str {
    if allowed {
        " (setuid programs work)"
    } else {
        " (no setuid)"
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.outer {
            writeln!(f, "host  {step}")?;
        }
        for step in &self.inner {
            writeln!(f, "pid 1 {step}")?;
        }
        let RestrictSpec {
            keep_caps,
            no_new_privs,
            landlock,
            nofile,
        } = self.restrict;
        write!(f, "guest restrict commands: capabilities {keep_caps:#x}")?;
        if no_new_privs {
            f.write_str(", no new privileges")?;
        }
        if landlock {
            f.write_str(", landlock")?;
        }
        if let Some((soft, _)) = nofile {
            write!(f, ", {soft} open files")?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_the_wire() {
        let plan = Plan {
            dir: "/m".into(),
            outer: vec![
                Outer::Listen,
                Outer::MapIds(IdMap {
                    uids: vec![IdRange {
                        inside: 0,
                        outside: 7,
                        count: 2,
                    }],
                    gids: Vec::new(),
                    by: Mapper::Direct,
                }),
            ],
            inner: vec![Inner::Seccomp {
                filter: vec![1, 2, 3],
            }],
            restrict: RestrictSpec::default(),
        };
        let bytes = postcard::to_allocvec(&plan).unwrap();
        assert_eq!(postcard::from_bytes::<Plan>(&bytes).unwrap(), plan);
    }

    #[test]
    fn a_map_reads_as_one_line() {
        let range = IdRange {
            inside: 0,
            outside: 1000,
            count: 1,
        };
        let map = IdMap {
            uids: vec![range],
            gids: vec![range],
            by: Mapper::Single,
        };
        assert_eq!(
            Outer::MapIds(map).to_string(),
            "map ids: uid 0-0 as 1000+ gid 0-0 as 1000+ (one id only)"
        );
    }
}
