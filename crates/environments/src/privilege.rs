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

const SUBORDINATE_FILES: [&str; 2] = ["/etc/subuid", "/etc/subgid"];

/// The first subordinate id on a Debian system.
const FIRST_SUBORDINATE: u64 = 100_000;

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
        process::require("newuidmap", &motu_packages::install(Need::IdMap))?;
        let uid = rustix::process::geteuid().as_raw();
        let user = user_name(uid).unwrap_or_else(|| uid.to_string());
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        let texts = SUBORDINATE_FILES.map(read);
        for (file, text) in SUBORDINATE_FILES.into_iter().zip(&texts) {
            if !has_range(text, &user, uid) {
                let free = first_free(&texts);
                return Err(EnvironmentError::NoIdMap { user, file, free });
            }
        }
        Ok(())
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

fn user_name(uid: u32) -> Option<String> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string()).then(|| name.to_owned())
    })
}

fn has_range(text: &str, user: &str, uid: u32) -> bool {
    let uid = uid.to_string();
    text.lines().any(|line| {
        let mut fields = line.split(':');
        let owner = fields.next();
        let count = fields.nth(1).and_then(|count| count.trim().parse().ok());
        (owner == Some(user) || owner == Some(uid.as_str())) && count.unwrap_or(0_u64) > 0
    })
}

/// The first id above all ranges in these files and all ordinary users.
fn first_free(texts: &[String]) -> u64 {
    let end = |line: &str| {
        let mut fields = line.split(':').skip(1);
        let first: u64 = fields.next()?.trim().parse().ok()?;
        let count: u64 = fields.next()?.trim().parse().ok()?;
        first.checked_add(count)
    };
    let ends = texts.iter().flat_map(|text| text.lines()).filter_map(end);
    ends.fold(FIRST_SUBORDINATE, u64::max)
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
    fn subordinate_ranges_are_found_by_name_or_number() {
        let text = "ann:100000:65536\n1002:165536:65536\nbob:300000:0\n";
        assert!(has_range(text, "ann", 1001));
        assert!(has_range(text, "carl", 1002));
        assert!(!has_range(text, "bob", 1003));
        assert!(!has_range(text, "an", 100));
    }

    #[test]
    fn a_range_that_is_proposed_is_nobodys() {
        let (uids, gids) = (
            "ann:100000:65536\nbob:300000:65536\n",
            "x\n1:165536:65536\n",
        );
        assert_eq!(first_free(&[uids.into(), gids.into()]), 365_536);
        assert_eq!(first_free(&[String::new(), String::new()]), 100_000);
    }

    #[test]
    fn removing_what_is_not_there_is_fine() {
        let dir = tempfile::tempdir().unwrap();
        Privilege::detect()
            .remove_tree(&dir.path().join("none"))
            .unwrap();
    }
}
