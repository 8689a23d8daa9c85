//! What is mounted where, and the step into the machine's own root.

use crate::{BASELINE_DISK, BootError, ROOT_DISK, WORKSPACE_DISK, Workspace, news, sys};
use motu_launch::seeded::{self, Notes};
use rustix::mount::{MountFlags, mount, mount_move};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// One file system of the kernel's own.
struct Kernel {
    kind: &'static str,
    at: &'static str,
    flags: MountFlags,
    options: &'static str,
    /// The machine is of no use without it.
    needed: bool,
}

const fn kernel_fs(kind: &'static str, at: &'static str, options: &'static str) -> Kernel {
    Kernel {
        kind,
        at,
        flags: MountFlags::NOSUID,
        options,
        needed: true,
    }
}

const PLAIN: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);

/// Every group there can be.
const PING_GROUPS: &str = "0 2147483647";

/// In the order of mounting: a parent comes before what is inside it.
const KERNEL: [Kernel; 8] = [
    Kernel {
        flags: PLAIN,
        ..kernel_fs("proc", "proc", "")
    },
    Kernel {
        flags: PLAIN,
        ..kernel_fs("sysfs", "sys", "")
    },
    kernel_fs("devtmpfs", "dev", "mode=755"),
    Kernel {
        flags: MountFlags::NOSUID.union(MountFlags::NOEXEC),
        ..kernel_fs("devpts", "dev/pts", "gid=5,mode=620,ptmxmode=666")
    },
    Kernel {
        flags: MountFlags::NOSUID.union(MountFlags::NODEV),
        ..kernel_fs("tmpfs", "dev/shm", "mode=1777")
    },
    Kernel {
        flags: PLAIN,
        needed: false,
        ..kernel_fs("mqueue", "dev/mqueue", "")
    },
    Kernel {
        flags: MountFlags::NOSUID.union(MountFlags::NODEV),
        ..kernel_fs("tmpfs", "run", "mode=755")
    },
    Kernel {
        flags: PLAIN,
        needed: false,
        ..kernel_fs("cgroup2", "sys/fs/cgroup", "")
    },
];

/// What modules and devices need, in the initial file system.
pub(crate) fn early() -> Result<(), BootError> {
    for kernel in &KERNEL[..3] {
        mount_kernel(kernel, Path::new("/"))?;
    }
    Ok(())
}

/// The machine's disks, each as large as its device.
pub(crate) fn root(stage: &Path) -> Result<(), BootError> {
    mount_disk(ROOT_DISK, stage, MountFlags::empty())?;
    let workspace = stage.join("workspace");
    let step = "give /workspace to its owner";
    make_dir(&workspace).map_err(BootError::step(step))?;
    // A new disk belongs to nobody in particular; the environment says who uses /workspace.
    let owner = std::fs::metadata(&workspace).map_err(BootError::step(step))?;
    mount_disk(WORKSPACE_DISK, &workspace, MountFlags::NODEV)?;
    std::os::unix::fs::chown(&workspace, Some(owner.uid()), Some(owner.gid()))
        .and_then(|()| std::fs::set_permissions(&workspace, owner.permissions()))
        .map_err(BootError::step(step))
}

/// Where the two sides of `/workspace` are, out of sight once the root is `/`.
const BASELINE: &str = "/baseline";
const WRITTEN: &str = "/written";

/// The disks of a machine that is kept: `/workspace` is what was written to it over its baseline.
pub(crate) fn kept(stage: &Path) -> Result<Workspace, BootError> {
    for disk in [ROOT_DISK, WORKSPACE_DISK, BASELINE_DISK] {
        // What was read of other disks in this place, before the machine was copied.
        sys::forget_content(&Path::new("/dev").join(disk))
            .map_err(BootError::step("look at the disks anew"))?;
    }
    mount_disk(ROOT_DISK, stage, MountFlags::empty())?;
    let (lower, written) = (Path::new(BASELINE), Path::new(WRITTEN));
    mount_baseline(lower)?;
    mount_disk(WORKSPACE_DISK, written, MountFlags::NODEV)?;
    let (upper, work) = (written.join("upper"), written.join("work"));
    let step = "prepare what is written to /workspace";
    begin_upper(lower, &upper)
        .and_then(|()| make_dir(&work))
        .map_err(BootError::step(step))?;
    let at = stage.join("workspace");
    let options = format!(
        "lowerdir={BASELINE},upperdir={},workdir={},redirect_dir=off,metacopy=off,index=off",
        upper.display(),
        work.display()
    );
    let options = CString::new(options).unwrap_or_default();
    let flags = MountFlags::NODEV | MountFlags::NOATIME;
    make_dir(&at)
        .and_then(|()| {
            mount("overlay", &at, "overlay", flags, options.as_c_str()).map_err(Into::into)
        })
        .map_err(|error| BootError::Mount {
            what: "overlay",
            at,
            error,
        })?;
    let open = |path: &Path| File::open(path).map(OwnedFd::from);
    let step = "open the two sides of /workspace";
    Ok(Workspace {
        upper: open(&upper).map_err(BootError::step(step))?,
        lower: open(lower).map_err(BootError::step(step))?,
    })
}

fn mount_baseline(at: &Path) -> Result<(), BootError> {
    let device = Path::new("/dev").join(BASELINE_DISK);
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOATIME;
    make_dir(at)
        .and_then(|()| mount(&device, at, "ext4", flags, c"").map_err(Into::into))
        .map_err(|error| BootError::Mount {
            what: BASELINE_DISK,
            at: at.to_path_buf(),
            error,
        })
}

/// At the first start: the root of what is written, which looks like that of the baseline.
fn begin_upper(lower: &Path, upper: &Path) -> std::io::Result<()> {
    if upper.exists() {
        return Ok(());
    }
    // Renamed when it is whole: a machine that ends in the middle begins again.
    let staged = upper.with_extension("new");
    make_dir(&staged)?;
    own_seed(lower, &staged)?;
    let like = std::fs::metadata(lower)?;
    std::os::unix::fs::chown(&staged, Some(like.uid()), Some(like.gid()))?;
    std::fs::set_permissions(&staged, like.permissions())?;
    let times = std::fs::FileTimes::new().set_modified(like.modified()?);
    File::open(&staged)?.set_times(times)?;
    std::fs::rename(&staged, upper)
}

/// The seed as files of the disk, if it is small; else it stays below.
fn own_seed(lower: &Path, upper: &Path) -> std::io::Result<()> {
    let (below, above) = (File::open(lower)?, File::open(upper)?);
    if let Err(error) = seeded::own(&below, &above, Notes::Trusted) {
        eprintln!("motu-boot: the seed is not copied: {error}");
    }
    Ok(())
}

/// Everything else a program expects to find.
pub(crate) fn kernel(stage: &Path) -> Result<(), BootError> {
    for kernel in &KERNEL {
        match mount_kernel(kernel, stage) {
            Err(error) if kernel.needed => return Err(error),
            _ => {}
        }
    }
    // Everybody may ping: the machine has no network that this could harm.
    let _ = std::fs::write(
        stage.join("proc/sys/net/ipv4/ping_group_range"),
        PING_GROUPS,
    );
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        // Present already in some roots; a program that needs one will say so.
        let _ = std::os::unix::fs::symlink(target, stage.join("dev").join(name));
    }
    Ok(())
}

/// Gives the machine an id; every copy of it will overwrite it in place.
pub(crate) fn name(stage: &Path) -> Result<(), BootError> {
    let step = "give the machine an id";
    let id = news::fresh_id().map_err(BootError::step(step))?;
    make_dir(&stage.join("etc"))
        .and_then(|()| std::fs::write(stage.join("etc/machine-id"), id))
        .map_err(BootError::step(step))
}

/// Makes `stage` the root of everything that runs from now on.
pub(crate) fn become_root(stage: &Path) -> Result<(), BootError> {
    let step = "move into the root";
    rustix::process::chdir(stage).map_err(BootError::step(step))?;
    mount_move(".", "/").map_err(BootError::step(step))?;
    rustix::process::chroot(".").map_err(BootError::step(step))?;
    rustix::process::chdir("/").map_err(BootError::step(step))
}

fn mount_kernel(kernel: &Kernel, base: &Path) -> Result<(), BootError> {
    let at = base.join(kernel.at);
    let options = CString::new(kernel.options).unwrap_or_default();
    make_dir(&at)
        .and_then(|()| {
            mount(
                kernel.kind,
                &at,
                kernel.kind,
                kernel.flags,
                options.as_c_str(),
            )
            .map_err(Into::into)
        })
        .map_err(|error| BootError::Mount {
            what: kernel.kind,
            at,
            error,
        })
}

fn mount_disk(disk: &'static str, at: &Path, flags: MountFlags) -> Result<(), BootError> {
    let device = Path::new("/dev").join(disk);
    // New groups of a grown file system lie on disk that reads as zero: nothing to initialise.
    // Which blocks are free is read when somebody writes, not ahead in every copy.
    // After an error nothing more is written: nobody is told that something was kept which was not.
    let options = c"noinit_itable,no_prefetch_block_bitmaps,errors=remount-ro";
    let flags = flags | MountFlags::NOATIME;
    make_dir(at)
        .and_then(|()| mount(&device, at, "ext4", flags, options).map_err(Into::into))
        .map_err(|error| BootError::Mount {
            what: disk,
            at: at.to_path_buf(),
            error,
        })?;
    // Nothing repairs these disks, and an empty disk should look empty.
    let _ = std::fs::remove_dir(at.join("lost+found"));
    sys::grow(&device, at).map_err(BootError::step("grow a disk to its size"))
}

/// The mount point may be missing from an environment.
fn make_dir(at: &Path) -> std::io::Result<()> {
    match std::fs::create_dir_all(at) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
