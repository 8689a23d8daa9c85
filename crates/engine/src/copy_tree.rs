//! Copies whole trees.

use motu_core::{Error, Result};
use std::path::Path;
use std::process::{Command, Stdio};

/// Copies a file or a tree with `cp -a`: owners, times, links, attributes and holes are preserved.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let failed = |error| Error::io(format_args!("copy {}", from.display()), &error);
    let output = Command::new("cp")
        .args(["-a", "-T", "--"])
        .args([from, to])
        .stdin(Stdio::null())
        .output()
        .map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("cp failed").to_string();
    Err(match said.contains("No space left") {
        true => Error::limit(format!("copy {}: {said}", from.display())),
        false => failed(std::io::Error::other(said)),
    })
}
