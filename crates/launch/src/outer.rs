//! The launcher's side: the steps on the host.
//!
//! Owns the process that becomes pid 1 until that process has its root. Everything the launcher
//! makes is either inside the machine's namespaces or a detached mount, so nothing is left if it
//! fails half-way: pid 1 sees its end of the socket close and exits.

use crate::directory;
use crate::inner::{self, WITH_DEVICES};
use crate::overlay::{Layers, Life, Workspace, Xattrs, open_dir, overlay, workspace};
use crate::plan::{Disk, IdMap, IdRange, Mapper, Namespaces, Outer, Plan};
use crate::report::{Failure, Reporter, send_packet};
use crate::sys::{self, Cloned};
use crate::{LINK_SOCKET, Side};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Backlog of the link's socket.
const LINK_BACKLOG: i32 = 64;

/// The state of the launcher so far.
struct Launcher<'a> {
    plan: &'a Plan,
    report: &'a Reporter,
    dir: OwnedFd,
    listener: Option<OwnedFd>,
    lock: Option<OwnedFd>,
    child: Option<Child>,
    lower: Option<OwnedFd>,
    /// The open files that the daemon sent, for the steps that take one.
    given: std::vec::IntoIter<OwnedFd>,
    disk: Option<OwnedFd>,
    root: Option<OwnedFd>,
    baseline: Option<OwnedFd>,
    workspace: Option<Workspace>,
    directory: Option<OwnedFd>,
}

/// Pid 1, seen from the host.
struct Child {
    pid: i32,
    socket: OwnedFd,
    userns: Option<OwnedFd>,
}

/// Executes a plan. Returns twice: in the launcher and in pid 1.
pub(crate) fn run(plan: &Plan, given: Vec<OwnedFd>, report: &Reporter) -> Result<Side, Failure> {
    let dir =
        open_dir(CWD, &plan.dir).map_err(|e| Failure::new("open the machine's directory", e))?;
    let mut launcher = Launcher {
        plan,
        report,
        dir,
        listener: None,
        lock: None,
        child: None,
        lower: None,
        given: given.into_iter(),
        disk: None,
        root: None,
        baseline: None,
        workspace: None,
        directory: None,
    };
    for step in &plan.outer {
        let side = launcher.step(step).map_err(|e| Failure::new(step, e))?;
        if let Some(socket) = side {
            let Launcher {
                dir,
                listener,
                lock,
                ..
            } = launcher;
            return inner::run(
                plan,
                report,
                inner::Given {
                    socket,
                    dir,
                    listener,
                    lock,
                },
            );
        }
    }
    Ok(Side::Done)
}

impl Launcher<'_> {
    /// Executes one step. The socket is returned in pid 1 only.
    fn step(&mut self, step: &Outer) -> io::Result<Option<OwnedFd>> {
        match step {
            Outer::EnterCgroup { file } => enter_cgroup(file)?,
            Outer::Listen => self.listener = Some(listen(self.dir.as_fd())?),
            Outer::Lock { file } => self.lock = Some(lock(file)?),
            Outer::StartClocks => start_clocks()?,
            Outer::HideMounts => self.hide_mounts()?,
            Outer::Clone(namespaces) => return self.clone_child(*namespaces),
            Outer::MapIds(map) => self.map_ids(map)?,
            Outer::TakeLower { root } => self.lower = Some(self.take(CWD, root)?),
            Outer::TakeDisk(disk) => self.disk = Some(self.take_disk(disk)?),
            Outer::TakeBaseline { baseline } => {
                self.baseline = Some(self.take_baseline(baseline)?);
            }
            Outer::AttachLayers => self.attach_layers()?,
            Outer::TakeDirectory => {
                let given = self.given.next().ok_or_else(out_of_order)?;
                self.directory = Some(directory::take(given.as_fd(), self.userns()?)?);
            }
            Outer::EnterMachine => {
                directory::enter(self.given.next().ok_or_else(out_of_order)?.as_fd())?;
            }
            Outer::AttachDirectory { at } => {
                let directory = self.directory.take().ok_or_else(out_of_order)?;
                directory::attach(&directory, at)?;
            }
            Outer::ActAs { id } => act_as(*id)?,
            Outer::MakeRoot {
                allow_setuid,
                thrown_away,
            } => self.root = Some(self.make_root(*allow_setuid, Life::of(*thrown_away))?),
            Outer::MakeWorkspace { allow_setuid } => {
                self.workspace = Some(self.make_workspace(*allow_setuid)?);
            }
            Outer::Release => self.release()?,
        }
        Ok(None)
    }

    fn hide_mounts(&mut self) -> io::Result<()> {
        sys::unshare(libc::CLONE_NEWNS)?;
        let propagation = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", propagation)?;
        // The old descriptor still refers to the previous mount namespace.
        self.dir = open_dir(CWD, &self.plan.dir)?;
        Ok(())
    }

    fn clone_child(&mut self, namespaces: Namespaces) -> io::Result<Option<OwnedFd>> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let owner = self.owner();
        owner.map_or(Ok(()), effective)?;
        let cloned = sys::clone_process(flags(namespaces));
        match cloned? {
            Cloned::Child => Ok(Some(theirs)),
            Cloned::Parent { pid, pidfd } => {
                owner.map_or(Ok(()), |_| effective(0))?;
                let places = match namespaces {
                    Namespaces::User => Vec::new(),
                    Namespaces::Machine => vec![namespace(pid, "net")?, namespace(pid, "user")?],
                };
                let fds: Vec<_> = [&pidfd]
                    .into_iter()
                    .chain(&places)
                    .map(AsFd::as_fd)
                    .collect();
                self.report.started(pid, &fds);
                self.child = Some(Child {
                    pid,
                    socket: ours,
                    userns: None,
                });
                Ok(None)
            }
        }
    }

    /// The owner of the namespaces: the machine's root, if that is an id of the host. Per-user
    /// limits (inotify, pending signals, locked memory) are then counted separately for each
    /// machine.
    fn owner(&self) -> Option<u32> {
        self.plan.outer.iter().find_map(|step| match step {
            Outer::MapIds(IdMap {
                uids,
                by: Mapper::Direct,
                ..
            }) => uids
                .iter()
                .find(|range| range.inside == 0)
                .map(|range| range.outside),
            _ => None,
        })
    }

    fn map_ids(&mut self, map: &IdMap) -> io::Result<()> {
        let child = self.child.as_mut().ok_or_else(out_of_order)?;
        let proc = format!("/proc/{}", child.pid);
        match map.by {
            Mapper::Direct => {
                std::fs::write(format!("{proc}/uid_map"), lines(&map.uids))?;
                std::fs::write(format!("{proc}/gid_map"), lines(&map.gids))?;
            }
            Mapper::Single => {
                // An unprivileged process must deny setgroups before it may map its group.
                std::fs::write(format!("{proc}/setgroups"), "deny")?;
                std::fs::write(format!("{proc}/uid_map"), lines(&map.uids))?;
                std::fs::write(format!("{proc}/gid_map"), lines(&map.gids))?;
            }
            Mapper::Helpers => {
                map_with("newuidmap", child.pid, &map.uids)?;
                map_with("newgidmap", child.pid, &map.gids)?;
            }
        }
        child.userns = Some(namespace(child.pid, "user")?);
        Ok(())
    }

    /// A detached copy of the mount at `path`, with the machine's id mapping.
    fn take(&self, at: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = rustix::mount::open_tree(at, path, flags)?;
        sys::mount_setattr(tree.as_fd(), 0, Some(self.userns()?))?;
        Ok(tree)
    }

    /// A read-only detached copy: a baseline must never be written to.
    fn take_baseline(&self, path: &Path) -> io::Result<OwnedFd> {
        let tree = self.take(CWD, path)?;
        sys::mount_setattr(tree.as_fd(), libc::MOUNT_ATTR_RDONLY, None)?;
        Ok(tree)
    }

    fn take_disk(&mut self, disk: &Disk) -> io::Result<OwnedFd> {
        match disk {
            Disk::Directory(path) => self.take(&self.dir, path),
            Disk::Mounted => {
                let mount = self.given.next().ok_or_else(out_of_order)?;
                sys::mount_setattr(mount.as_fd(), 0, Some(self.userns()?))?;
                Ok(mount)
            }
        }
    }

    fn userns(&self) -> io::Result<BorrowedFd<'_>> {
        let child = self.child.as_ref().ok_or_else(out_of_order)?;
        child
            .userns
            .as_ref()
            .map(AsFd::as_fd)
            .ok_or_else(out_of_order)
    }

    /// Attaches the detached layers where overlayfs of older kernels accepts them. The mounts exist
    /// only in the launcher's private mount namespace.
    fn attach_layers(&mut self) -> io::Result<()> {
        let layers = [
            (&self.lower, "lower"),
            (&self.disk, "layers"),
            (&self.baseline, "baseline"),
        ];
        for (layer, name) in layers {
            let Some(layer) = layer else {
                continue;
            };
            match rustix::fs::mkdirat(&self.dir, name, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            rustix::mount::move_mount(layer, "", &self.dir, name, flags)?;
        }
        Ok(())
    }

    /// The root file system as a detached mount.
    fn make_root(&self, allow_setuid: bool, life: Life) -> io::Result<OwnedFd> {
        let lower = self.lower.as_ref().ok_or_else(out_of_order)?;
        let disk = self.disk.as_ref().ok_or_else(out_of_order)?;
        let layers = Layers {
            lower: lower.as_fd(),
            upper: open_dir(disk, Path::new("upper"))?,
            work: open_dir(disk, Path::new("work"))?,
        };
        overlay(&layers, allow_setuid, Xattrs::Trusted, life)
    }

    fn make_workspace(&mut self, allow_setuid: bool) -> io::Result<Workspace> {
        let lower = self.baseline.take().ok_or_else(out_of_order)?;
        let disk = self.disk.as_ref().ok_or_else(out_of_order)?;
        workspace(lower, disk, allow_setuid)
    }

    fn release(&mut self) -> io::Result<()> {
        let child = self.child.as_ref().ok_or_else(out_of_order)?;
        let mut given: Vec<BorrowedFd<'_>> = self.root.iter().map(AsFd::as_fd).collect();
        if let Some(workspace) = &self.workspace {
            let Workspace {
                mount,
                upper,
                lower,
            } = workspace;
            given.extend([mount.as_fd(), upper.as_fd(), lower.as_fd()]);
        }
        // An unprivileged user cannot create device nodes; pid 1 bind-mounts the host's instead.
        let devices = device_nodes().ok();
        given.extend(devices.as_ref().map(AsFd::as_fd));
        let word = match devices {
            Some(_) => WITH_DEVICES,
            None => b"go",
        };
        send_packet(child.socket.as_fd(), word, &given)
    }
}

/// A namespace of the new process.
fn namespace(pid: i32, kind: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let path = format!("/proc/{pid}/ns/{kind}");
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The size limit of `/dev`, shared memory included.
const DEV_SIZE: &str = "64m";
/// Harmless device nodes with their numbers.
const NODES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// Switches the effective uid while keeping all capabilities.
fn effective(id: u32) -> io::Result<()> {
    use rustix::process::Uid;
    sys::keep_capabilities_over_setuid()?;
    rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::from_raw(id), Uid::ROOT)?;
    // The change made this process non-dumpable, which hides its own /proc files.
    sys::dumpable();
    Ok(())
}

/// A `/dev` as a detached mount with its own device nodes: on the host's nodes a machine could
/// watch accesses (inotify).
fn device_nodes() -> io::Result<OwnedFd> {
    let fs = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&fs, "mode", "0755")?;
    rustix::mount::fsconfig_set_string(&fs, "size", DEV_SIZE)?;
    rustix::mount::fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let mode = Mode::from_raw_mode(0o666);
    let mask = rustix::process::umask(Mode::empty());
    let made = NODES.iter().try_for_each(|(name, major, minor)| {
        let device = rustix::fs::makedev(*major, *minor);
        rustix::fs::mknodat(&mount, *name, FileType::CharacterDevice, mode, device)
    });
    rustix::process::umask(mask);
    made?;
    Ok(mount)
}

fn flags(namespaces: Namespaces) -> i32 {
    match namespaces {
        Namespaces::User => libc::CLONE_NEWUSER,
        Namespaces::Machine => {
            libc::CLONE_NEWUSER
                | libc::CLONE_NEWNS
                | libc::CLONE_NEWPID
                | libc::CLONE_NEWNET
                | libc::CLONE_NEWIPC
                | libc::CLONE_NEWUTS
                | libc::CLONE_NEWCGROUP
        }
    }
}

/// The error for a plan with steps in the wrong order.
fn out_of_order() -> io::Error {
    io::Error::from_raw_os_error(libc::EPROTO)
}

/// Moves this process. "0" means the writer; with `tasks` of cgroup v1 the kernel then moves only
/// this thread and skips the global lock over all forks and exits, which costs a grace period of
/// several milliseconds.
fn enter_cgroup(file: &Path) -> io::Result<()> {
    std::fs::write(file, "0")
}

/// Binds through the directory's descriptor: a Unix socket address has only 107 bytes.
fn listen(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let address = SocketAddrUnix::new(format!("{}/{LINK_SOCKET}", sys::fd_path(dir)))?;
    let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let bound = rustix::net::bind(&socket, &address);
    rustix::process::umask(mask);
    bound?;
    rustix::net::listen(&socket, LINK_BACKLOG)?;
    Ok(socket)
}

/// The lock belongs to the open file: it is released when the last process that has it open ends.
fn lock(file: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(file, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::flock(&fd, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    Ok(fd)
}

/// Creates a time namespace for children, with clocks that start now.
fn start_clocks() -> io::Result<()> {
    use rustix::time::{ClockId, clock_gettime};
    sys::unshare(libc::CLONE_NEWTIME)?;
    let mut offsets = String::new();
    for (name, clock) in [
        ("monotonic", ClockId::Monotonic),
        ("boottime", ClockId::Boottime),
    ] {
        offsets.push_str(&format!("{name} -{} 0\n", clock_gettime(clock).tv_sec));
    }
    std::fs::write("/proc/self/timens_offsets", offsets)
}

/// Overlayfs does its own work (whiteouts, the work directory) with the credentials of its mounter,
/// and on id-mapped layers the host's uid 0 is not mapped. So it is mounted as the machine's root,
/// with the launcher's capabilities kept for that.
fn act_as(id: u32) -> io::Result<()> {
    let uid = rustix::process::Uid::from_raw(id);
    let gid = rustix::process::Gid::from_raw(id);
    sys::keep_capabilities_over_setuid()?;
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    Ok(rustix::thread::set_thread_res_uid(uid, uid, uid)?)
}

/// A map in the kernel's format.
fn lines(ranges: &[IdRange]) -> String {
    ranges
        .iter()
        .map(|r| format!("{} {} {}\n", r.inside, r.outside, r.count))
        .collect()
}

fn map_with(program: &str, pid: i32, ranges: &[IdRange]) -> io::Result<()> {
    let mut command = std::process::Command::new(program);
    command.arg(pid.to_string());
    for range in ranges {
        command.args([range.inside, range.outside, range.count].map(|n| n.to_string()));
    }
    let output = command.output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_written_one_range_per_line() {
        let ranges = [(0, 1000, 1), (1, 100_000, 65_535)].map(|(inside, outside, count)| IdRange {
            inside,
            outside,
            count,
        });
        assert_eq!(lines(&ranges), "0 1000 1\n1 100000 65535\n");
    }
}
