//! Where the state directory is.

use motu_core::{Error, Result};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The state directory and the names in it that client and daemon share.
#[derive(Clone, Debug)]
pub struct Place {
    path: PathBuf,
}

impl Place {
    /// What was asked for, or the usual place of this user. Touches nothing.
    pub fn find(asked: Option<&Path>) -> Result<Place> {
        let path = match asked {
            Some(path) => path.to_path_buf(),
            None => usual()?,
        };
        let path = std::path::absolute(&path)
            .map_err(|error| Error::io(format_args!("find {}", path.display()), &error))?;
        Ok(Place { path })
    }

    /// Creates the directory, for its owner only, if it is not there.
    pub fn create(&self) -> Result<()> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .map_err(|error| Error::io(format_args!("create {}", self.path.display()), &error))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn socket(&self) -> PathBuf {
        self.path.join("daemon.sock")
    }

    pub fn lock(&self) -> PathBuf {
        self.path.join("daemon.lock")
    }

    pub fn log(&self) -> PathBuf {
        self.path.join("daemon.log")
    }
}

fn usual() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/motu"));
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(state) = set("XDG_STATE_HOME") {
        return Ok(Path::new(&state).join("motu"));
    }
    match set("HOME") {
        Some(home) => Ok(Path::new(&home).join(".local/state/motu")),
        None => Err(Error::invalid("no state directory is known").hint("set MOTU_HOME")),
    }
}
