//! Privileges for file owners.
//!
//! Owns the difference between root and an unprivileged user: as a user, trees are made, read and
//! deleted inside a user namespace in which the caller is root, and ids from 1 are the caller's
//! subordinate ids. Nothing else in the crate checks who it runs as.

use std::{ffi::OsStr, fs, io, os::unix::fs::MetadataExt as _, path::Path, process::Command};

use motu_packages::Need;
use serde::{Deserialize, Serialize};

use crate::{
    error::{EnvironmentError, IoContext as _},
    process,
};

/// The privileges that environments are built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Privilege {
    /// Files have the ids they state.
    Root,
    /// Files belong to the caller (id 0) and to subordinate ids (1 and up).
    User,
}

impl Privilege {
    /// The privilege of this process.
    pub fn detect() -> Self {
        if rustix::process::geteuid().is_root() {
            Self::Root
        } else {
            Self::User
        }
    }

    /// Fails early, with a remedy, if files cannot get their owners.
    pub(crate) fn check(self) -> Result<(), EnvironmentError> {
        process::require("unshare", &motu_packages::install(Need::Namespaces))?;
        process::require("tar", &motu_packages::install(Need::Tar))?;
        if self == Self::Root {
            return Ok(());
        }
        let uid = rustix::process::geteuid().as_raw();
        Ok(motu_packages::ids::check(uid)?)
    }

    /// A command that sees the ids inside environments.
    pub(crate) fn mapped(self, program: &str) -> Command {
        match self {
            Self::Root => Command::new(program),
            Self::User => {
                let mut command = Command::new("unshare");
                command.args(["--map-root-user", "--map-auto", "--", program]);
                command
            }
        }
    }

    /// Like [`Self::mapped`], in its own mount and pid namespaces: when its first process ends,
    /// everything it started or mounted is gone. It is also killed when the calling thread ends
    /// (PDEATHSIG), as in a killed daemon.
    pub(crate) fn contained(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "unshare"]);
        if self == Self::User {
            command.args(["--map-root-user", "--map-auto"]);
        }
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.arg("--").arg(program);
        command
    }

    /// Deletes a file or tree with any owners. A missing path is no error.
    pub(crate) fn remove_path(self, path: &Path) -> Result<(), EnvironmentError> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(meta) if !meta.is_dir() && fs::remove_file(path).is_ok() => return Ok(()),
            _ => {}
        }
        self.remove_tree(path)
    }

    /// Deletes a tree with any owners. A missing path is no error.
    pub(crate) fn remove_tree(self, path: &Path) -> Result<(), EnvironmentError> {
        let first = match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => error,
        };
        if self == Self::Root {
            return Err(first).at("removing", path);
        }
        // The rest belongs to subordinate ids.
        let mut command = self.mapped("rm");
        command.args(["-rf", "--one-file-system", "--"]).arg(path);
        let status = command.status().at("removing", path)?;
        if status.success() && !path.exists() {
            return Ok(());
        }
        Err(first).at("removing", path)
    }
}

/// Disk usage of a tree, for reports. Unreadable parts do not count.
pub(crate) fn disk_usage(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return 0;
    };
    let own = meta.blocks().saturating_mul(512);
    if !meta.is_dir() {
        return own;
    }
    let Ok(entries) = fs::read_dir(path) else {
        return own;
    };
    entries
        .flatten()
        .map(|entry| disk_usage(&entry.path()))
        .fold(own, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_what_is_not_there_is_fine() {
        let dir = tempfile::tempdir().unwrap();
        Privilege::detect()
            .remove_tree(&dir.path().join("none"))
            .unwrap();
    }
}
