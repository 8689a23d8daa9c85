//! The record of a machine, a file in its directory.

use motu_core::Error;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

const FILE: &str = "machine.json";
const WHAT: &str = "the machine's record";

/// The field that every record has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Loads a record; `None` if there is none.
pub fn load<T: DeserializeOwned>(dir: &Path, known: u32) -> Result<Option<T>, Error> {
    let text = match std::fs::read(dir.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(WHAT, &error)),
    };
    let unread =
        |error: serde_json::Error| Error::internal(format!("{WHAT} cannot be read: {error}"));
    let Versioned { version } = serde_json::from_slice(&text).map_err(unread)?;
    if version != known {
        return Err(Error::unsupported(format!(
            "{WHAT} is of version {version}; this build knows {known}"
        )));
    }
    serde_json::from_slice(&text).map(Some).map_err(unread)
}

/// Stores a record atomically and durably: written to a temporary file, flushed and renamed, before
/// the service is called. Variables may be secrets, so only the owner can read the file.
pub fn store(record: &impl Serialize, dir: &Path) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::io(WHAT, &error);
    let text = serde_json::to_vec(record).map_err(|e| Error::internal(e.to_string()))?;
    let staged = dir.join("machine.json.new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&staged)
        .map_err(failed)?;
    file.write_all(&text).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(staged, dir.join(FILE)).map_err(failed)
}

pub fn remove(dir: &Path) -> Result<(), Error> {
    match std::fs::remove_file(dir.join(FILE)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(WHAT, &error)),
        _ => Ok(()),
    }
}
