//! Pid 1's side: the steps inside the machine.
//!
//! This process starts with every capability in its own user namespace and none on the host, and
//! drops what it does not need as its last steps: the seccomp filter comes last because the steps
//! before it use what it forbids.

use crate::overlay::{Layers, Life, Workspace, Xattrs, overlay, workspace};
use crate::plan::{AskedCalls, GuestStart, Inner, Plan, Upper, WorkspaceDirs};
use crate::report::{Failure, Reporter, receive_packet};
use crate::view::{self, QUIET};
use crate::{Side, sys};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags, mount, mount_bind,
    mount_change, mount_remount, move_mount, unmount,
};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Harmless device nodes.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Standard symbolic links in `/dev`.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Pseudoterminals per machine; the kernel has a few thousand for all of them.
const TERMINALS: u32 = 320;
/// Where `/workspace` is.
const WORKSPACE: &str = "/workspace";

/// The message that tells pid 1 that the last descriptor is a `/dev` with device nodes.
pub(crate) const WITH_DEVICES: &[u8] = b"go+dev";

/// What the launcher passes to pid 1.
pub(crate) struct Given {
    pub(crate) socket: OwnedFd,
    pub(crate) dir: OwnedFd,
    pub(crate) listener: Option<OwnedFd>,
    pub(crate) lock: Option<OwnedFd>,
}

/// The state of pid 1 so far.
struct Machine {
    dir: OwnedFd,
    /// A `/dev` with its own device nodes.
    devices: Option<OwnedFd>,
    root: Option<OwnedFd>,
    workspace: Option<Workspace>,
    host: Option<OwnedFd>,
    /// A directory that is masked, and so an empty one.
    empty: Option<String>,
    processors: Vec<u16>,
    calls: Option<AskedCalls>,
}

/// Waits for the launcher, then does every step.
pub(crate) fn run(plan: &Plan, report: &Reporter, given: Given) -> Result<Side, Failure> {
    let Given {
        socket,
        dir,
        listener,
        lock,
    } = given;
    let mut word = [0u8; 8];
    let (length, fds) = receive_packet(socket.as_fd(), &mut word)
        .map_err(|e| Failure::new("wait for the launcher", e))?;
    if length == 0 {
        // The launcher failed and has reported it itself.
        std::process::exit(1);
    }
    let mut fds = fds;
    let devices = match word.get(..length) == Some(WITH_DEVICES) {
        true => fds.pop(),
        false => None,
    };
    let mut fds = fds.into_iter();
    let mut machine = Machine {
        dir,
        devices,
        root: fds.next(),
        workspace: match (fds.next(), fds.next(), fds.next()) {
            (Some(mount), Some(upper), Some(lower)) => Some(Workspace {
                mount,
                upper,
                lower,
            }),
            _ => None,
        },
        host: None,
        empty: None,
        processors: Vec::new(),
        calls: None,
    };
    for step in &plan.inner {
        machine.step(step).map_err(|e| Failure::new(step, e))?;
    }
    report.ready();
    Ok(match listener {
        Some(listener) => Side::Machine(GuestStart {
            listener,
            restrict: plan.restrict,
            workspace: machine.workspace.map(|sides| WorkspaceDirs {
                path: WORKSPACE.into(),
                lower: sides.lower,
                upper: Some(Upper {
                    dir: sides.upper,
                    user_attributes: true,
                }),
                copied_unix_ns: None,
            }),
            lock,
            calls: machine.calls,
        }),
        None => Side::Done,
    })
}

impl Machine {
    fn step(&mut self, step: &Inner) -> io::Result<()> {
        match step {
            Inner::BecomeRoot { groups } => become_root(*groups),
            Inner::PrivateMounts => private_mounts(),
            Inner::MakeRoot {
                lower,
                disk,
                allow_setuid,
                thrown_away,
            } => {
                let life = Life::of(*thrown_away);
                self.root = Some(make_root(lower, disk, *allow_setuid, life)?);
                Ok(())
            }
            Inner::MakeWorkspace {
                baseline,
                disk,
                allow_setuid,
            } => {
                let sides = workspace(open(baseline)?, open(disk)?, *allow_setuid)?;
                self.workspace = Some(sides);
                Ok(())
            }
            Inner::EnterRoot => self.enter_root(),
            Inner::MountWorkspace => self.mount_workspace(),
            Inner::MountProc => mount_at("proc", "/proc", QUIET, ""),
            Inner::MountSys => mount_at("sysfs", "/sys", QUIET | MountFlags::RDONLY, ""),
            Inner::MountCgroups(groups) => view::control_groups(groups),
            Inner::ShowMemory { kib } => view::memory(*kib),
            Inner::ShowProcessors { which } => {
                self.processors.clone_from(which);
                view::processors(which)
            }
            Inner::AllowPing { last_group } => view::allow_ping(*last_group),
            Inner::MountDev {
                size_mib,
                tty_group,
            } => self.mount_dev(*size_mib, *tty_group),
            Inner::Mask { path, directory } => self.mask(path, *directory),
            Inner::ReadOnly { path } => read_only(path),
            Inner::ShowOnly { top, paths } => view::only(top, paths),
            Inner::LeaveHost => self.leave_host(),
            Inner::Hostname { name } => Ok(rustix::system::sethostname(name.as_bytes())?),
            Inner::Loopback => sys::interface_up(c"lo"),
            Inner::Keyring => keyring(),
            Inner::NoCoreDumps => no_core_dumps(),
            Inner::Capabilities { keep } => keep_capabilities(*keep),
            Inner::RemoveContents => remove_contents(&self.dir),
            Inner::Seccomp { filter } => self.install_filter(filter),
        }
    }

    fn install_filter(&mut self, filter: &[u8]) -> io::Result<()> {
        // Afterwards this is one of the calls that wait for the guest.
        let set_bytes = sys::processor_set_bytes();
        self.calls = sys::install_filter(filter)?.map(|listener| AskedCalls {
            listener,
            processors: std::mem::take(&mut self.processors),
            set_bytes,
        });
        Ok(())
    }

    /// Mounts the root over the host's and makes it `/`. The host's root stays reachable through a
    /// descriptor until [`Inner::LeaveHost`]: the kernel lets a user namespace mount `/proc` and
    /// `/sys` only while the host's are visible.
    fn enter_root(&mut self) -> io::Result<()> {
        let root = self.root.take().ok_or(Errno::PROTO)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let host = rustix::fs::open("/", flags, Mode::empty())?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&root, "", CWD, "/", flags)?;
        rustix::process::fchdir(&root)?;
        rustix::process::pivot_root(".", ".")?;
        rustix::process::chdir("/")?;
        self.host = Some(host);
        Ok(())
    }

    /// Mounts the workspace at its path. The mount point is the environment's directory, or made
    /// now; a symbolic link is not followed.
    fn mount_workspace(&mut self) -> io::Result<()> {
        let workspace = self.workspace.as_ref().ok_or(Errno::PROTO)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = match rustix::fs::open(WORKSPACE, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(CWD, WORKSPACE, Mode::from_raw_mode(0o755))?;
                rustix::fs::open(WORKSPACE, flags, Mode::empty())?
            }
            other => other?,
        };
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(move_mount(&workspace.mount, "", place, "", flags)?)
    }

    /// Masks a file with `/dev/null`, or a directory with an empty one: a tmpfs for the first, which
    /// the others share. A missing path needs no mask.
    fn mask(&mut self, path: &str, directory: bool) -> io::Result<()> {
        let masked = match (directory, &self.empty) {
            (false, _) => mount_bind("/dev/null", path),
            (true, Some(empty)) => mount_bind(empty.as_str(), path),
            (true, None) => {
                let options = c"size=4k,nr_inodes=2,mode=0555";
                let made = mount("tmpfs", path, "tmpfs", QUIET | MountFlags::RDONLY, options);
                self.empty = made.is_ok().then(|| path.to_string());
                made
            }
        };
        match masked {
            Err(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    fn leave_host(&mut self) -> io::Result<()> {
        let host = self.host.take().ok_or(Errno::PROTO)?;
        rustix::process::fchdir(&host)?;
        unmount(".", UnmountFlags::DETACH)?;
        Ok(rustix::process::chdir("/")?)
    }

    /// Mounts a small `/dev`: with the nodes the launcher made, or else with the host's
    /// bind-mounted, because a user namespace cannot create any.
    fn mount_dev(&self, size_mib: u32, tty_group: Option<u32>) -> io::Result<()> {
        match &self.devices {
            Some(devices) => {
                make_place("/dev")?;
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                move_mount(devices, "", CWD, "/dev", flags)?;
                rustix::process::chdir("/dev")?;
            }
            None => self.bind_devices(size_mib)?,
        }
        for (name, target) in LINKS {
            rustix::fs::symlinkat(target, CWD, name)?;
        }
        for (name, mode) in [("pts", 0o755), ("shm", 0o1777), ("mqueue", 0o1777)] {
            rustix::fs::mkdirat(CWD, name, Mode::from_raw_mode(mode))?;
            rustix::fs::chmod(name, Mode::from_raw_mode(mode))?;
        }
        let group = tty_group.map_or(String::new(), |gid| format!(",gid={gid}"));
        let options = format!("newinstance,ptmxmode=0666,mode=0620,max={TERMINALS}{group}");
        let quiet = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount_at("devpts", "pts", quiet, &options)?;
        match mount_at("mqueue", "mqueue", QUIET, "") {
            // A kernel without POSIX message queues.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            other => other?,
        }
        own_standard_streams()?;
        Ok(rustix::process::chdir("/")?)
    }

    fn bind_devices(&self, size_mib: u32) -> io::Result<()> {
        let host = self.host.as_ref().ok_or(Errno::PROTO)?;
        let quiet = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount_at(
            "tmpfs",
            "/dev",
            quiet,
            &format!("mode=0755,size={size_mib}m"),
        )?;
        rustix::process::chdir("/dev")?;
        for name in DEVICES {
            rustix::fs::mknodat(
                CWD,
                name,
                FileType::RegularFile,
                Mode::from_raw_mode(0o666),
                0,
            )?;
            mount_bind(format!("{}/dev/{name}", sys::fd_path(host)), name)?;
        }
        Ok(())
    }
}

fn make_place(at: &str) -> io::Result<()> {
    match rustix::fs::mkdirat(CWD, at, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Replaces the standard streams by the machine's own `/dev/null`.
fn own_standard_streams() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

fn become_root(groups: bool) -> io::Result<()> {
    use rustix::process::{Gid, Uid};
    if groups {
        rustix::thread::set_thread_groups(&[])?;
    }
    rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    // The change of ids made this process non-dumpable, so its own /proc files were inaccessible;
    // the guest makes it non-dumpable again.
    sys::dumpable();
    Ok(())
}

fn private_mounts() -> io::Result<()> {
    let propagation = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount_change("/", propagation)?)
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

fn make_root(lower: &Path, disk: &Path, allow_setuid: bool, life: Life) -> io::Result<OwnedFd> {
    let lower = open(lower)?;
    let layers = Layers {
        lower: lower.as_fd(),
        upper: open(&disk.join("upper"))?,
        work: open(&disk.join("work"))?,
    };
    overlay(&layers, allow_setuid, Xattrs::User, life)
}

/// Mounts a file system, making the mount point if the environment has none.
fn mount_at(kind: &str, at: &str, flags: MountFlags, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    match mount(kind, at, kind, flags, &*options) {
        Err(Errno::NOENT) => {
            rustix::fs::mkdirat(CWD, at, Mode::from_raw_mode(0o755))?;
            Ok(mount(kind, at, kind, flags, &*options)?)
        }
        other => Ok(other?),
    }
}

fn read_only(path: &str) -> io::Result<()> {
    match mount_bind(path, path) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    }
    let flags = MountFlags::BIND | MountFlags::RDONLY | QUIET;
    Ok(mount_remount(path, flags, "")?)
}

/// Joins a new session keyring; a kernel without keyrings needs none.
fn keyring() -> io::Result<()> {
    match sys::join_new_session_keyring() {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        other => other,
    }
}

fn no_core_dumps() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    Ok(setrlimit(Resource::Core, none)?)
}

/// Drop from the bounding set first: that needs CAP_SETPCAP, which may be among the dropped ones.
fn keep_capabilities(keep: u64) -> io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    sys::drop_bounding(keep)?;
    let keep = CapabilitySet::from_bits_retain(keep);
    Ok(set_capabilities(
        None,
        CapabilitySets {
            effective: keep,
            permitted: keep,
            inheritable: CapabilitySet::empty(),
        },
    )?)
}

/// Removes everything in a directory, without following symbolic links.
fn remove_contents(dir: &OwnedFd) -> io::Result<()> {
    for entry in std::fs::read_dir(sys::fd_path(dir))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
