//! Where the state directory is.

use motu_core::{Error, Result};
use motu_engine::OwnDirectory;
use std::path::{Path, PathBuf};

/// Files in it.
pub const LOCK: &str = "daemon.lock";
pub const LOG: &str = "daemon.log";

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

    /// Opens the directory, which is created for its owner only if it is not there. Nothing in it
    /// is opened before: it fails if the directory is another user's.
    pub fn open(&self) -> Result<OwnDirectory> {
        OwnDirectory::open(&self.path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn socket(&self) -> PathBuf {
        self.path.join("daemon.sock")
    }

    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
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
