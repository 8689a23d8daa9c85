//! The metadata of a session, beside its transcript.

use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// What a session is, for those who find its directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The version of this file.
    pub version: u32,
    pub session_id: String,
    pub sandbox_id: String,
    pub runtime: String,
    pub isolation: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub command: Vec<String>,
    pub started_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_ms: Option<u64>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// It was ended for good.
    pub terminated: bool,
    pub cols: u16,
    pub rows: u16,
    /// The last directory that is known, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

impl Metadata {
    pub const VERSION: u32 = 1;

    pub fn path(dir: &Path) -> PathBuf {
        dir.join("session.json")
    }

    /// Replaces the file atomically. The directory must exist: that of a session which was forgotten
    /// is not made again.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let staged = dir.join("session.json.new");
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let mut file = options.open(&staged)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        fs::rename(staged, Metadata::path(dir))
    }

    pub fn read(dir: &Path) -> io::Result<Metadata> {
        Ok(serde_json::from_slice(&fs::read(Metadata::path(dir))?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_no_directory_is_made_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut metadata = Metadata {
            version: Metadata::VERSION,
            session_id: "build".to_owned(),
            ..Metadata::default()
        };
        for code in [None, Some(3)] {
            metadata.exit_code = code;
            metadata.write(dir.path()).unwrap();
            assert_eq!(Metadata::read(dir.path()).unwrap(), metadata);
        }
        let gone = dir.path().join("gone");
        let error = metadata.write(&gone).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!gone.exists());
    }
}
