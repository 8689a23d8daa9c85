//! Mounts, and the move into the machine's own root.

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
    /// Boot fails without it.
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

/// All groups.
const PING_GROUPS: &str = "0 2147483647";

/// In mount order: parents first.
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

/// Mounts in the initramfs that modules and devices need.
pub(crate) fn early() -> Result<(), BootError> {
    for kernel in &KERNEL[..3] {
        mount_kernel(kernel, Path::new("/"))?;
    }
    Ok(())
}

/// Mounts the machine's disks, grown to the size of their devices.
pub(crate) fn root(stage: &Path) -> Result<(), BootError> {
    mount_disk(ROOT_DISK, stage, MountFlags::empty())?;
    let workspace = stage.join("workspace");
    let step = "give /workspace to its owner";
    make_dir(&workspace).map_err(BootError::step(step))?;
    // A new disk has no owner; the environment determines who owns /workspace.
    let owner = std::fs::metadata(&workspace).map_err(BootError::step(step))?;
    mount_disk(WORKSPACE_DISK, &workspace, MountFlags::NODEV)?;
    std::os::unix::fs::chown(&workspace, Some(owner.uid()), Some(owner.gid()))
        .and_then(|()| std::fs::set_permissions(&workspace, owner.permissions()))
        .map_err(BootError::step(step))
}

/// The mount points of the two sides of `/workspace`, invisible once the root is `/`.
const BASELINE: &str = "/baseline";
const WRITTEN: &str = "/written";

/// Mounts the disks of a kept machine: `/workspace` is an overlay over its baseline.
pub(crate) fn kept(stage: &Path) -> Result<Workspace, BootError> {
    for disk in [ROOT_DISK, WORKSPACE_DISK, BASELINE_DISK] {
        // Drop buffers of the disks that were here before the machine was copied.
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

/// Makes the overlay's upper root at the first start, with the metadata of the baseline's.
fn begin_upper(lower: &Path, upper: &Path) -> std::io::Result<()> {
    if upper.exists() {
        return Ok(());
    }
    // Renamed when complete: an interrupted machine starts over.
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

/// Copies a small seed into the upper layer; a large one stays in the lower layer.
fn own_seed(lower: &Path, upper: &Path) -> std::io::Result<()> {
    let (below, above) = (File::open(lower)?, File::open(upper)?);
    if let Err(error) = seeded::own(&below, &above, Notes::Trusted) {
        eprintln!("motu-boot: the seed is not copied: {error}");
    }
    Ok(())
}

/// Mounts all other kernel file systems.
pub(crate) fn kernel(stage: &Path) -> Result<(), BootError> {
    for kernel in &KERNEL {
        match mount_kernel(kernel, stage) {
            Err(error) if kernel.needed => return Err(error),
            _ => {}
        }
    }
    // Everyone may ping: the machine has no network that this could harm.
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
        // Some roots have these already; failures show when a program needs one.
        let _ = std::os::unix::fs::symlink(target, stage.join("dev").join(name));
    }
    Ok(())
}

/// Writes a machine id; every fork overwrites it in place.
pub(crate) fn name(stage: &Path) -> Result<(), BootError> {
    let step = "give the machine an id";
    let id = news::fresh_id().map_err(BootError::step(step))?;
    make_dir(&stage.join("etc"))
        .and_then(|()| std::fs::write(stage.join("etc/machine-id"), id))
        .map_err(BootError::step(step))
}

/// Makes `stage` the root of this process and its children.
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
    // New block groups of a grown file system read as zeros: no inode table initialization. Block
    // bitmaps are read on demand, not ahead in every fork. After an error the file system becomes
    // read-only, so that no write is acknowledged that was not kept.
    let options = c"noinit_itable,no_prefetch_block_bitmaps,errors=remount-ro";
    let flags = flags | MountFlags::NOATIME;
    make_dir(at)
        .and_then(|()| mount(&device, at, "ext4", flags, options).map_err(Into::into))
        .map_err(|error| BootError::Mount {
            what: disk,
            at: at.to_path_buf(),
            error,
        })?;
    // fsck never runs on these disks, and an empty disk should look empty.
    let _ = std::fs::remove_dir(at.join("lost+found"));
    sys::grow(&device, at).map_err(BootError::step("grow a disk to its size"))
}

/// Makes a mount point that the environment lacks.
fn make_dir(at: &Path) -> std::io::Result<()> {
    match std::fs::create_dir_all(at) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
