//! Verifies a stored environment against its digest.
//!
//! Reads a root filesystem back, with the ids it has inside, and hashes it by the same rules as
//! when it was built. It never repairs.

use std::io::{self, BufReader};

use crate::{
    copying::copy_tar,
    error::{EnvironmentError, IoContext as _},
    pack,
    process::{self, Cancel},
    store::Store,
    tree::{KEPT_ATTRIBUTES, TreeWriter, Verdict},
};

/// Fails with `Corrupt` if the tree has changed.
pub(crate) fn verify(store: &Store, digest: &str, cancel: &Cancel) -> Result<(), EnvironmentError> {
    store.blob_record(digest)?;
    let root = store.root_of(digest);
    let staging = store.stage()?;
    let mut command = store.privilege().mapped("tar");
    command
        .args([
            "--create",
            "--file=-",
            "--format=pax",
            "--numeric-owner",
            "--xattrs",
        ])
        .args(KEPT_ATTRIBUTES.map(|name| format!("--xattrs-include={name}")))
        .arg("--directory")
        .arg(&root)
        .arg(".");
    let mut reader =
        process::start(command, cancel, &staging.scratch(), |_| {}).at("reading", &root)?;
    drop(reader.take_stdin());
    let mut tree = TreeWriter::new(io::sink())?;
    let stdout = BufReader::new(reader.take_stdout());
    let copied = copy_tar(stdout, &mut tree, |_, _| Verdict::Keep);
    let exit = reader.finish().at("reading", &root)?;
    let corrupt = |reason: String| EnvironmentError::Corrupt {
        digest: digest.to_owned(),
        reason,
    };
    copied.map_err(|error| corrupt(error.to_string()))?;
    if !pack::is_whole(exit.status) {
        return Err(corrupt(exit.tail));
    }
    let found = tree.finish()?.0.digest;
    if found != digest {
        return Err(corrupt(format!("its contents have digest {found}")));
    }
    Ok(())
}
