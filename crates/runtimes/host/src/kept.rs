//! Workspaces that outlive their machine: plain copies of the baseline.
//!
//! ```text
//!   DIR/
//!     workspace/   what commands work in
//!     copied       made when the copy was complete: what changed later changed after this file
//!     lock         held by the guest that has the workspace
//! ```

use motu_core::Error;
use motu_core::runtime::Kept;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where commands of a machine work.
pub const WORKSPACE: &str = "workspace";
const STAGED: &str = "workspace.new";
const COPIED: &str = "copied";
const LOCK: &str = "lock";

pub fn workspace(dir: &Path) -> PathBuf {
    dir.join(WORKSPACE)
}

/// An exclusively locked workspace.
#[derive(Debug)]
pub struct Copied {
    pub workspace: PathBuf,
    /// The workspace is locked while this is open.
    pub lock: OwnedFd,
    pub copied_unix_ns: i64,
}

/// Locks the workspace; makes it at the first start.
pub fn open(kept: &Kept) -> Result<Copied, Error> {
    let failed = |error: io::Error| Error::io("the machine's workspace", &error);
    let lock = lock(&kept.dir)?;
    let workspace = workspace(&kept.dir);
    if !workspace.exists() {
        copy(kept, &workspace)?;
    }
    let copied = std::fs::metadata(kept.dir.join(COPIED)).map_err(failed)?;
    Ok(Copied {
        workspace,
        lock,
        copied_unix_ns: copied
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(copied.mtime_nsec()),
    })
}

fn lock(dir: &Path) -> Result<OwnedFd, Error> {
    let failed = |errno: Errno| Error::io("the machine's workspace", &errno.into());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fd = rustix::fs::open(dir.join(LOCK), flags, mode).map_err(failed)?;
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Error::conflict(
            "the workspace is in use by another machine",
        )),
        other => other.map(|()| fd).map_err(failed),
    }
}

/// Staged and renamed, so that a workspace is a complete copy or missing.
fn copy(kept: &Kept, workspace: &Path) -> Result<(), Error> {
    let failed = |error: io::Error| Error::io("copying the baseline", &error);
    let staged = kept.dir.join(STAGED);
    match std::fs::remove_dir_all(&staged) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => other.map_err(failed)?,
    }
    // `cp -a` keeps links, holes, times, attributes and, for root, owners.
    let output = Command::new("cp")
        .arg("-a")
        .arg("--")
        .arg(&kept.baseline)
        .arg(&staged)
        .stdin(Stdio::null())
        .output()
        .map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("cp failed").to_string();
        return Err(failed(io::Error::other(said)));
    }
    // The file system's clock is coarse, so its time is taken from this file.
    let marker = kept.dir.join(COPIED);
    match std::fs::remove_file(&marker) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => other.map_err(failed)?,
    }
    File::create(&marker).map_err(failed)?;
    std::fs::rename(&staged, workspace).map_err(failed)
}

/// Syncs everything to disk.
pub fn settle(dir: &Path) -> Result<(), Error> {
    match File::open(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("the machine's workspace", &error)),
        Ok(dir) => rustix::fs::syncfs(dir)
            .map_err(|errno| Error::io("the machine's workspace", &errno.into())),
    }
}
