//! Makes the baseline of a workspace.
//!
//! ```text
//! directory ──copy──┐
//! archive ──unpack──┴──► staging ──rename──► BASELINE
//! ```
//!
//! Turns the given source into an immutable tree: nothing, a directory, or a tar archive, detected
//! by its contents. The tree appears atomically. All files get the given owner; permissions are
//! kept without special bits; times, hard links, symbolic links and `user.*` attributes are kept.
//! Devices, pipes and sockets are skipped and counted.
//!
//! The tree survives a crash of the daemon at any moment. It is not synced here: what survives a
//! power cut right after depends on the file system.

mod copy;
pub(crate) mod place;
mod unpack;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use motu_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

use crate::archive::{self, ArchiveError, Limits, Totals};

/// Where the contents of a workspace came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Empty,
    Directory,
    TarArchive,
}

/// How a workspace was seeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seeded {
    pub mode: Mode,
    /// The directory or archive, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_path: Option<String>,
    pub entry_count: u64,
    pub bytes: u64,
    /// Devices, pipes and sockets that were left out.
    pub skipped: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Owner of everything; `None` keeps the owner of this process.
    pub owner: Option<(u32, u32)>,
    pub limits: Limits,
    /// Also apply the archive's metadata of the root.
    pub root: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    #[error("seed {path} does not exist")]
    Missing { path: String },
    #[error("seed {path} is neither a directory nor a file")]
    Neither { path: String },
    #[error("seed {path}: {error}")]
    Archive { path: String, error: ArchiveError },
    #[error("seed {path}: {what} is more than {limit}")]
    Limit {
        path: String,
        what: &'static str,
        limit: u64,
    },
    #[error("the baseline {path} exists already")]
    Exists { path: String },
    #[error("{context}: {source}")]
    Io {
        context: String,
        #[source]
        source: io::Error,
    },
}

impl SeedError {
    fn io(context: &str, path: &Path) -> impl FnOnce(io::Error) -> SeedError {
        let context = format!("{context} {}", path.display());
        move |source| SeedError::Io { context, source }
    }
}

impl From<SeedError> for Error {
    fn from(error: SeedError) -> Error {
        let message = error.to_string();
        let kind = match error {
            SeedError::Missing { .. } => ErrorKind::NotFound,
            SeedError::Neither { .. } => ErrorKind::Invalid,
            SeedError::Limit { .. } => ErrorKind::Limit,
            SeedError::Exists { .. } => ErrorKind::Conflict,
            SeedError::Archive { error, .. } => {
                let inner = Error::from(error);
                return Error { message, ..inner };
            }
            SeedError::Io { context, source } => return Error::io(context, &source),
        };
        Error::new(kind, message)
    }
}

/// Makes the tree `baseline`, which must not exist, from `source`, or empty.
pub fn seed(source: Option<&Path>, baseline: &Path, options: Options) -> Result<Seeded, SeedError> {
    let staging = Staging::create(baseline)?;
    let (mode, totals) = match source {
        None => (Mode::Empty, Totals::default()),
        Some(path) => fill(path, &staging.path, options)?,
    };
    if let Some((uid, gid)) = options.owner {
        std::os::unix::fs::lchown(&staging.path, Some(uid), Some(gid))
            .map_err(SeedError::io("changing the owner of", &staging.path))?;
    }
    staging.finish(baseline)?;
    Ok(Seeded {
        mode,
        source_path: source.map(|path| path.display().to_string()),
        entry_count: totals.entries,
        bytes: totals.bytes,
        skipped: totals.skipped,
    })
}

/// Unpacks an archive, named `source` in errors, into an empty directory.
pub(crate) fn unpack_into(
    archive: impl io::Read,
    source: &str,
    target: &Path,
    options: Options,
) -> Result<Totals, SeedError> {
    unpack::unpack(archive, target, options).map_err(|error| {
        let path = source.to_string();
        SeedError::Archive { path, error }
    })
}

fn fill(source: &Path, staging: &Path, options: Options) -> Result<(Mode, Totals), SeedError> {
    let path = source.display().to_string();
    let kind = match fs::metadata(source) {
        Ok(meta) => meta.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(SeedError::Missing { path });
        }
        Err(error) => return Err(SeedError::io("reading", source)(error)),
    };
    if kind.is_dir() {
        let totals = copy::copy(source, staging, options)?;
        return Ok((Mode::Directory, totals));
    }
    if !kind.is_file() {
        return Err(SeedError::Neither { path });
    }
    let unpacked =
        archive::open(source).and_then(|archive| unpack::unpack(archive, staging, options));
    match unpacked {
        Ok(totals) => Ok((Mode::TarArchive, totals)),
        Err(error) => Err(SeedError::Archive { path, error }),
    }
}

/// A tree being made; removed unless it is finished.
struct Staging {
    path: PathBuf,
    finished: bool,
}

impl Staging {
    /// Made beside the baseline, so that a rename suffices. Remains of an earlier attempt are
    /// removed.
    fn create(baseline: &Path) -> Result<Staging, SeedError> {
        let mut name = baseline.file_name().unwrap_or_default().to_owned();
        name.push(".staging");
        let path = baseline.with_file_name(name);
        if path.symlink_metadata().is_ok() {
            fs::remove_dir_all(&path).map_err(SeedError::io("removing", &path))?;
        }
        fs::create_dir(&path).map_err(SeedError::io("creating", &path))?;
        Ok(Staging {
            path,
            finished: false,
        })
    }

    fn finish(mut self, baseline: &Path) -> Result<(), SeedError> {
        let cwd = rustix::fs::CWD;
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(cwd, &self.path, cwd, baseline, flags) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => {
                let path = baseline.display().to_string();
                return Err(SeedError::Exists { path });
            }
            Err(error) => return Err(SeedError::io("creating", baseline)(error.into())),
        }
        self.finished = true;
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.finished {
            // If it stays, the next attempt removes it.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
