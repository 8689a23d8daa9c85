//! Baselines: the initial contents of `/workspace`.
//!
//! A baseline is a directory tree that is made once, renamed into place and never changed.
//! Workspaces with the same initial contents share one.

use crate::home::Home;
use motu_core::runtime::BASELINE_OWNER;
use motu_core::{Error, Result, id};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The tree inside a baseline's directory, which is mode 0700.
const TREE: &str = "tree";

/// Name prefix of baselines made from a seed; they are removed with their last workspace.
const SEEDED: &str = "base-";
/// Name prefix of baselines that are being made.
const STAGED: &str = "new-";

/// The name of the baseline a tree belongs to, if that one was made from a seed.
pub fn seeded(tree: &Path) -> Option<String> {
    let name = tree.parent()?.file_name()?.to_str()?;
    name.starts_with(SEEDED).then(|| name.to_string())
}

/// The owner of new files, as the machine sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl Owner {
    /// The owner to set; `None` without root, which alone may change owners.
    pub fn to_set(self) -> Option<(u32, u32)> {
        let root = rustix::process::geteuid().is_root();
        root.then_some((self.uid, self.gid))
    }
}

/// All baselines of one state directory.
#[derive(Clone, Debug)]
pub struct Baselines {
    dir: PathBuf,
}

impl Baselines {
    pub fn open(home: &Home) -> Result<Baselines> {
        let dir = home.baselines();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|error| Error::io("cannot make a directory for baselines", &error))?;
        Ok(Baselines { dir })
    }

    /// The baseline of an empty `/workspace`.
    pub fn empty(&self, owner: Owner) -> Result<PathBuf> {
        let name = format!("empty-{}-{}", owner.uid, owner.gid);
        let tree = self.tree(&name);
        if !tree.exists() {
            let staged = self.stage(owner)?;
            let options = motu_workspaces::seed::Options {
                owner: owner.to_set(),
                ..Default::default()
            };
            motu_workspaces::seed::seed(None, &Baselines::staged_tree(&staged), options)?;
            self.publish(&staged, &name)?;
        }
        Ok(tree)
    }

    /// Where a baseline's tree is.
    pub fn tree(&self, name: &str) -> PathBuf {
        self.dir.join(name).join(TREE)
    }

    /// A directory that becomes a baseline by [`Baselines::publish`], once its tree is made. An ordinary user cannot give
    /// files away: whose they are to be is written beside the tree.
    pub fn stage(&self, owner: Owner) -> Result<PathBuf> {
        let failed = |error: std::io::Error| Error::io("cannot make a baseline", &error);
        let staged = self.dir.join(format!("{STAGED}{}", id::random_name(12)));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&staged)
            .map_err(failed)?;
        if owner.to_set().is_none() {
            let ids = format!("{}:{}\n", owner.uid, owner.gid);
            std::fs::write(staged.join(BASELINE_OWNER), ids).map_err(failed)?;
        }
        Ok(staged)
    }

    pub fn staged_tree(staged: &Path) -> PathBuf {
        staged.join(TREE)
    }

    /// Renames a staged baseline to its name, or uses an existing one of that name. It is synced
    /// before and after the rename.
    pub fn publish(&self, staged: &Path, name: &str) -> Result<()> {
        let failed = |error: std::io::Error| Error::io("cannot keep a baseline", &error);
        let place = self.dir.join(name);
        flush(staged).map_err(failed)?;
        match std::fs::rename(staged, &place) {
            Ok(()) => std::fs::File::open(&self.dir)
                .and_then(|dir| dir.sync_all())
                .map_err(failed),
            Err(_) if place.join(TREE).exists() => {
                let _ = std::fs::remove_dir_all(staged);
                Ok(())
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// A name for a baseline that is made from a seed.
    pub fn new_name() -> String {
        format!("{SEEDED}{}", id::random_name(12))
    }

    /// Names of all baselines made from a seed.
    pub fn seeded(&self) -> Vec<String> {
        self.names(SEEDED)
    }

    /// Names of unfinished baselines, left by a crash.
    pub fn staged(&self) -> Vec<String> {
        self.names(STAGED)
    }

    fn names(&self, prefix: &str) -> Vec<String> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    pub fn discard(&self, trash: &crate::trash::Trash, name: &str) -> Result<()> {
        trash.discard(&self.dir.join(name))
    }
}

/// Syncs a tree to disk: file by file if it is small, because `syncfs` also waits for unrelated
/// data of the same file system.
fn flush(tree: &Path) -> std::io::Result<()> {
    const SMALL: usize = 64;
    let mut all = vec![tree.to_path_buf()];
    let mut at = 0;
    while let Some(directory) = all.get(at).cloned() {
        at += 1;
        if !directory.is_dir() || directory.is_symlink() {
            continue;
        }
        for entry in std::fs::read_dir(&directory)? {
            all.push(entry?.path());
            if all.len() > SMALL {
                return Ok(rustix::fs::syncfs(std::fs::File::open(tree)?)?);
            }
        }
    }
    // Deepest first: a directory is synced after the entries in it.
    for path in all.iter().rev() {
        let kind = path.symlink_metadata()?.file_type();
        if kind.is_file() || kind.is_dir() {
            std::fs::File::open(path)?.sync_all()?;
        }
    }
    Ok(())
}

/// The ids of an environment's user, by name or number; root where it is not known.
pub fn owner(root: &Path, user: &str) -> Owner {
    let (name, group) = user.split_once(':').unwrap_or((user, ""));
    let passwd = std::fs::read_to_string(root.join("etc/passwd")).unwrap_or_default();
    let known = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let found = fields.first() == Some(&name) || fields.get(2) == Some(&name);
        let ids = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
        found.then_some(ids)
    });
    let number = name.parse().ok();
    let (uid, gid) = known.unwrap_or((number.unwrap_or(0), number.unwrap_or(0)));
    Owner {
        uid,
        gid: group.parse().unwrap_or(gid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let text = "root:x:0:0::/root:/bin/sh\nuser:x:1000:1001::/home/user:/bin/sh\n";
        std::fs::write(root.path().join("etc/passwd"), text).unwrap();
        let owner = |user| super::owner(root.path(), user);
        let user = Owner {
            uid: 1000,
            gid: 1001,
        };
        assert_eq!(owner("user"), user);
        assert_eq!(owner("1000"), user);
        assert_eq!(owner("user:5"), Owner { gid: 5, ..user });
        assert_eq!(owner("42"), Owner { uid: 42, gid: 42 });
        assert_eq!(owner("nobody-here"), Owner::default());
    }
}
