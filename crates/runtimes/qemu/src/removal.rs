//! The end of a machine: its process, its control groups, its directory.

use crate::blocking::blocking;
use crate::error::QemuError;
use crate::record::Record;
use crate::{cgroup, place, process};
use motu_core::{Error, ErrorKind};
use std::path::Path;

/// Ends the machine in a directory and empties the directory. May be done twice.
pub(crate) async fn remove(dir: &Path) -> Result<(), QemuError> {
    remove_known(dir, Record::load(dir)).await
}

/// Does it by what is known of the machine, whose directory may be gone.
pub(crate) async fn remove_known(dir: &Path, record: Option<Record>) -> Result<(), QemuError> {
    if let Some(record) = record {
        if let Some(pidfd) = record.open_ended() {
            process::end(pidfd).await?;
        }
        let leaving = move || {
            cgroup::remove(&record.cgroups);
            Ok(())
        };
        blocking(leaving).await?;
    }
    place::clear(dir).map_err(QemuError::io("cannot empty the machine's directory"))
}

/// An error of cleaning up, for the border.
pub(crate) fn left_behind(error: QemuError) -> Error {
    Error::new(ErrorKind::Cleanup, error.to_string())
}
