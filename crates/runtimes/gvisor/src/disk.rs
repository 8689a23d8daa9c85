//! The disk of a machine: of bounded size, if possible.
//!
//! A disk that ends with its machine comes from the pool that all runtimes share. A kept one is a
//! named image with a journal.

use crate::prepare::{DISK, Disk};
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::runtime::{Ask, AtRest, Kept, MachineSpec, RestLayer};
use motu_core::sandbox::AppliedLimit;
use motu_core::{Error, ErrorKind};
use motu_local::disk::{Disks, find_mke2fs, plain_directory};
use motu_local::mount::{Life, mount_image};
use motu_local::own_seed;
use rustix::fs::{AtFlags, Gid, Mode, Uid};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The image in a kept disk's directory.
const IMAGE: &str = "disk.img";
/// How long the previous machine may take to release an image.
const RELEASE_PATIENCE: Duration = Duration::from_secs(10);
const MIB: u64 = 1024 * 1024;

/// A disk and its applied limit.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) disk: Disk,
    /// The disk's detached mount.
    pub(crate) mount: Option<OwnedFd>,
    pub(crate) limit: AppliedLimit,
}

/// How the disk's size is enforced, or why it is not; refuses an explicit size that cannot be
/// enforced.
pub(crate) fn judge(bounded: Result<(), &str>, ask: Ask) -> Result<AppliedLimit, Error> {
    let limit = |enforced, by: &str| AppliedLimit {
        name: "disk_mib".into(),
        value: ask.value,
        enforced,
        by: by.into(),
    };
    match bounded {
        Ok(()) => Ok(limit(true, "ext4 image")),
        Err(reason) if ask.explicit => Err(Error::unsupported(format!(
            "disk_mib cannot be enforced: {reason}"
        ))
        .hint(hint![
            "leave the limit out; ",
            verb("doctor"),
            " says what would make it possible"
        ])),
        Err(reason) => Ok(limit(false, reason)),
    }
}

/// Creates or finds the disk of a machine.
pub(crate) fn obtain(
    disks: &Disks,
    bounded: Result<(), &str>,
    spec: &MachineSpec,
) -> Result<Ready, Error> {
    let failed = |error: io::Error| Error::io("the machine's disk", &error);
    let mut limit = judge(bounded, spec.limits.disk_mib)?;
    std::fs::create_dir(spec.dir.join(DISK)).map_err(failed)?;
    if !limit.enforced {
        let disk = directory(spec).map_err(failed)?;
        let mount = None;
        return Ok(Ready { disk, mount, limit });
    }
    let mount = match &spec.kept {
        None => disks.take(spec.limits.disk_mib.value).map_err(failed)?,
        Some(kept) => {
            let (mount, mib) = kept_image(kept, spec.limits.disk_mib.value)?;
            limit.value = mib;
            mount
        }
    };
    Ok(Ready {
        disk: Disk::Mounted,
        mount: Some(mount),
        limit,
    })
}

/// A directory in place of a disk, for hosts that cannot limit one.
fn directory(spec: &MachineSpec) -> io::Result<Disk> {
    let place = match &spec.kept {
        Some(kept) => kept.dir.join("files"),
        None => spec.dir.join(DISK).join("files"),
    };
    if !place.exists() {
        plain_directory(&place)?;
    }
    if let Some(kept) = &spec.kept {
        workspace_layers(File::open(&place)?.as_fd(), &kept.baseline)?;
    }
    Ok(Disk::Directory(place))
}

/// The file systems to read while no machine runs.
pub(crate) fn at_rest(kept: &Kept, root: &Path) -> Result<AtRest, Error> {
    let (image, files) = (kept.dir.join(IMAGE), kept.dir.join("files"));
    let layer = |directory: &str| match (image.exists(), files.exists()) {
        (true, _) => Ok(RestLayer::Disk {
            chain: vec![image.clone()],
            directory: directory.to_string(),
        }),
        (false, true) => Ok(RestLayer::Directory(files.join(directory))),
        (false, false) => Err(Error::not_found("the machine was never started")),
    };
    Ok(AtRest {
        root: vec![layer("upper")?, RestLayer::Directory(root.to_path_buf())],
        workspace: vec![
            layer("workspace-upper")?,
            RestLayer::Directory(kept.baseline.clone()),
        ],
    })
}

/// Where the image of a kept disk is.
pub(crate) fn image(dir: &Path) -> std::path::PathBuf {
    dir.join(IMAGE)
}

/// Whether a machine was started on these disks before.
pub(crate) fn is_there(kept: &Kept) -> bool {
    kept.dir.join(IMAGE).exists() || kept.dir.join("files").exists()
}

/// The kept image, created at the first start; returns its mount and size.
fn kept_image(kept: &Kept, mib: u64) -> Result<(OwnedFd, u64), Error> {
    let failed = |error: io::Error| Error::io("the kept disk", &error);
    let image = kept.dir.join(IMAGE);
    if !image.exists() {
        make_image(&kept.dir, &image, mib).map_err(failed)?;
    }
    let file = File::options()
        .read(true)
        .write(true)
        .open(&image)
        .map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    released(&image)?;
    let mount = mount_image(&file, Life::Kept).map_err(failed)?;
    for (name, mode) in [("upper", 0o755), ("work", 0o700)] {
        make_dir(mount.as_fd(), name, mode).map_err(failed)?;
    }
    workspace_layers(mount.as_fd(), &kept.baseline).map_err(failed)?;
    Ok((mount, size / MIB))
}

/// Staged and renamed, so that an image is complete or missing.
fn make_image(dir: &Path, image: &Path, mib: u64) -> io::Result<()> {
    let mke2fs = find_mke2fs().ok_or(io::ErrorKind::NotFound)?;
    let staged = dir.join("disk.img.new");
    match std::fs::remove_file(&staged) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let output = std::process::Command::new(mke2fs)
        .args(["-q", "-F", "-t", "ext4", "-m", "0"])
        .args(["-O", "^resize_inode"])
        .args(["-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"])
        .arg(&staged)
        .arg(format!("{mib}M"))
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("mke2fs: {}", said.trim())));
    }
    File::open(&staged)?.sync_all()?;
    std::fs::rename(&staged, image)?;
    File::open(dir)?.sync_all()
}

/// Waits until no loop device uses the image: mounting one image twice would destroy it.
fn released(image: &Path) -> Result<(), Error> {
    let end = Instant::now() + RELEASE_PATIENCE;
    let mut pause = Duration::from_millis(1);
    while in_use(image) {
        if Instant::now() > end {
            return Err(Error::new(
                ErrorKind::Conflict,
                "the kept disk is in use by another machine",
            ));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    Ok(())
}

fn in_use(image: &Path) -> bool {
    let Ok(image) = image.canonicalize() else {
        return false;
    };
    let devices = std::fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten();
    let mut backing =
        devices.filter_map(|entry| std::fs::read(entry.path().join("loop/backing_file")).ok());
    backing.any(|path| path.trim_ascii_end() == image.as_os_str().as_encoded_bytes())
}

/// Makes the two directories of the workspace's overlay. The upper one determines the root's owner
/// and mode, so it gets the baseline's.
fn workspace_layers(at: BorrowedFd<'_>, baseline: &Path) -> io::Result<()> {
    const UPPER: &str = "workspace-upper";
    const STAGED: &str = "workspace-upper.new";
    make_dir(at, "workspace-work", 0o700)?;
    if rustix::fs::statat(at, UPPER, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Ok(());
    }
    // Renamed when complete: an interrupted start begins again.
    let was = std::fs::metadata(baseline)?;
    make_dir(at, STAGED, was.mode() & 0o7777)?;
    let (uid, gid) = (Uid::from_raw(was.uid()), Gid::from_raw(was.gid()));
    rustix::fs::chownat(at, STAGED, Some(uid), Some(gid), AtFlags::empty())?;
    own_seed(at, STAGED, baseline)?;
    Ok(rustix::fs::renameat(at, STAGED, at, UPPER)?)
}

fn make_dir(at: BorrowedFd<'_>, name: &str, mode: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode);
    match rustix::fs::mkdirat(at, name, mode) {
        Ok(()) => {
            // The daemon's umask must not apply.
            rustix::fs::chmodat(at, name, mode, AtFlags::empty())?;
            Ok(())
        }
        Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
