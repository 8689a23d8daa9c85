//! A source tree of many small files and some large ones, with a git repository beside it.

use super::Fallible;
use crate::noise::Noise;
use crate::rivals::quiet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// One in this many files is large.
const LARGE_EVERY: usize = 500;
const LARGE: usize = 2 << 20;
const SMALL_MIN: usize = 4 << 10;
const SMALL_SPREAD: usize = 24 << 10;
/// Files per directory, and directories per directory.
const WIDTH: usize = 100;
/// Files that are changed in one round.
pub const CHANGES: usize = 20;

/// The tree, removed on drop.
pub struct Tree {
    dir: TempDir,
    count: usize,
    pub bytes: u64,
}

impl Tree {
    pub fn make(place: &Path, count: usize) -> Fallible<Tree> {
        let dir = TempDir::with_prefix_in("bench-tree-", place)?;
        let mut tree = Tree {
            dir,
            count,
            bytes: 0,
        };
        let mut noise = Noise::new();
        let text = noise.text(2 * LARGE);
        for number in 0..count {
            let path = tree.root().join(name(number));
            if number % WIDTH == 0
                && let Some(parent) = path.parent()
            {
                std::fs::create_dir_all(parent)?;
            }
            let size = match number % LARGE_EVERY {
                1 => LARGE,
                _ => SMALL_MIN + noise.word() as usize % SMALL_SPREAD,
            };
            let from = noise.word() as usize % (text.len() - size);
            let mut file = std::fs::File::create(path)?;
            // The first line makes each file unique.
            let head = format!("file {number}\n");
            file.write_all(head.as_bytes())?;
            file.write_all(&text[from..from + size])?;
            tree.bytes += (head.len() + size) as u64;
        }
        Ok(tree)
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    /// A path beside the tree, on the same file system.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Small files, spread over the tree.
    pub fn changing(&self) -> Vec<String> {
        let apart = self.count / CHANGES;
        (0..CHANGES).map(|at| name(at * apart)).collect()
    }

    /// Makes the same change on the host as [`super::change`] in the workspace.
    pub fn change(&self) -> Fallible<()> {
        for name in self.changing() {
            let path = self.root().join(name);
            let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
            file.write_all(b"changed\n")?;
        }
        Ok(())
    }

    pub fn git(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command
            .args(["-c", "core.compression=0", "-c", "core.fsync=none"])
            .args(["-c", "gc.auto=0", "-c", "user.name=bench"])
            .args(["-c", "user.email=bench@localhost"])
            .args(args)
            .current_dir(self.root())
            .env("GIT_DIR", self.beside("git"))
            .env("GIT_WORK_TREE", self.root())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::null());
        command
    }

    /// Commits everything, and refreshes the index.
    pub fn commit(&self) -> Fallible<()> {
        quiet(self.git(&["init", "-q"]))?;
        quiet(self.git(&["add", "-A"]))?;
        quiet(self.git(&["commit", "-q", "-m", "baseline"]))?;
        quiet(self.git(&["status", "--porcelain"]))
    }
}

/// The path of a file in the tree.
fn name(number: usize) -> String {
    let directory = number / WIDTH;
    format!("part-{}/dir-{directory}/file-{number}.txt", directory / 10)
}
