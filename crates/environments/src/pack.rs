//! Reads a directory as an archive.
//!
//! Runs tar with the ids that files have inside environments, so that the files of an unprivileged
//! user are read with the right owners.

use std::{
    fs::File,
    io::{self, Read, Seek as _},
    path::Path,
    process::ExitStatus,
};

use crate::{
    error::{EnvironmentError, IoContext as _},
    process::{self, Cancel, Running},
    store::{Staging, Store},
    tree::{KEPT_ATTRIBUTES, MAX_ROOT_BYTES},
};

/// Starts packing a directory; the archive is the program's standard output.
pub(crate) fn start(
    store: &Store,
    path: &Path,
    staging: &Staging,
    cancel: &Cancel,
) -> Result<Running, EnvironmentError> {
    let mut command = store.privilege().mapped("tar");
    command
        .args(["--create", "--file=-", "--format=pax", "--numeric-owner"])
        .args(["--one-file-system", "--xattrs", "--sort=name"])
        // Access and change times are not part of the content.
        .arg("--pax-option=delete=atime,delete=ctime")
        .args(KEPT_ATTRIBUTES.map(|name| format!("--xattrs-include={name}")))
        .arg("--directory")
        .arg(path)
        .arg(".");
    let mut running =
        process::start(command, cancel, &staging.scratch(), |_| {}).at("reading", path)?;
    drop(running.take_stdin());
    Ok(running)
}

/// Whether a tree that nothing writes to was packed completely. A concurrent build that hard-links
/// its files changes their ctime, which tar reports as a change with exit code 1.
pub(crate) fn is_whole(status: ExitStatus) -> bool {
    matches!(status.code(), Some(0 | 1))
}

/// Packs a directory into a file of the staging directory; `is_fine` judges the exit status.
pub(crate) fn spool(
    store: &Store,
    path: &Path,
    staging: &Staging,
    cancel: &Cancel,
    is_fine: fn(ExitStatus) -> bool,
) -> Result<File, EnvironmentError> {
    let mut running = start(store, path, staging, cancel)?;
    let (mut spool, spooled) = spool_file(staging)?;
    let copied = copy_limited(running.take_stdout(), &mut spool);
    let exit = running.finish().at("reading", path)?;
    copied?;
    if !is_fine(exit.status) {
        return Err(EnvironmentError::BuildFailed {
            name: path.display().to_string(),
            stage: "resolve".to_owned(),
            tail_of_log: exit.tail,
        });
    }
    Ok(spooled)
}

/// A file of the staging directory to write, and the same to read.
pub(crate) fn spool_file(staging: &Staging) -> Result<(File, File), EnvironmentError> {
    let path = staging.scratch().join("spool.tar");
    let writer = File::create_new(&path).at("creating", &path)?;
    let reader = File::open(&path).at("opening", &path)?;
    Ok((writer, reader))
}

/// Copies an archive that is not larger than an environment may be.
pub(crate) fn copy_limited(source: impl Read, target: &mut File) -> Result<u64, EnvironmentError> {
    let failed = |error| EnvironmentError::io("copying an archive", error);
    let copied = io::copy(&mut source.take(MAX_ROOT_BYTES + 1), target).map_err(failed)?;
    if copied > MAX_ROOT_BYTES {
        return Err(EnvironmentError::TooLarge {
            what: "bytes",
            limit: MAX_ROOT_BYTES,
        });
    }
    target.rewind().map_err(failed)?;
    Ok(copied)
}
