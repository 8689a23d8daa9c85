//! Writes a root filesystem to disk.
//!
//! Runs tar with the privilege to set owners, fed by a [`TreeWriter`] that has checked and hashed
//! every entry.

use std::{
    io::{self, BufWriter},
    process::ChildStdin,
};

use crate::{
    confine,
    error::{EnvironmentError, IoContext as _},
    process::{Cancel, Running},
    store::{Staging, Store},
    tree::{KEPT_ATTRIBUTES, Summary, TreeWriter},
};

pub(crate) const PIPE_BUFFER_BYTES: usize = 1 << 20;

/// The stream into the unpacker.
pub(crate) type Output = BufWriter<ChildStdin>;

/// Why unpacking failed.
pub(crate) enum Failure {
    /// The unpacker failed; the end of its output.
    Unpacker(String),
    Other(EnvironmentError),
}

impl From<EnvironmentError> for Failure {
    fn from(error: EnvironmentError) -> Self {
        Self::Other(error)
    }
}

/// Unpacks what `fill` writes into the root of a staging directory.
pub(crate) fn unpack<T>(
    store: &Store,
    staging: &Staging,
    cancel: &Cancel,
    fill: impl FnOnce(&mut TreeWriter<Output>) -> Result<T, EnvironmentError>,
) -> Result<(Summary, T), Failure> {
    unpack_into(store, staging, cancel, TreeWriter::new, fill)
}

/// Like [`unpack`], but continues a tree that `begin` sets up.
pub(crate) fn unpack_into<T>(
    store: &Store,
    staging: &Staging,
    cancel: &Cancel,
    begin: impl FnOnce(Output) -> Result<TreeWriter<Output>, EnvironmentError>,
    fill: impl FnOnce(&mut TreeWriter<Output>) -> Result<T, EnvironmentError>,
) -> Result<(Summary, T), Failure> {
    let (unpacker, output) = start(store, staging, cancel)?;
    let filled = begin(output).and_then(|mut tree| {
        let result = fill(&mut tree)?;
        let (summary, output) = tree.finish()?;
        drop(output);
        Ok((summary, result))
    });
    let unpacker_died = matches!(&filled, Err(EnvironmentError::Io { source, .. })
        if source.kind() == io::ErrorKind::BrokenPipe);
    if filled.is_err() && !unpacker_died {
        unpacker.kill();
    }
    let exit = unpacker.finish().at("waiting for", &staging.root())?;
    if unpacker_died || (filled.is_ok() && !exit.status.success()) {
        return Err(Failure::Unpacker(exit.tail));
    }
    Ok(filled?)
}

/// Starts the unpacker. It trusts its input: every entry has passed the rules.
fn start(
    store: &Store,
    staging: &Staging,
    cancel: &Cancel,
) -> Result<(Running, Output), EnvironmentError> {
    let root = staging.root();
    let mut command = store.privilege().mapped("tar");
    command
        .args(["--extract", "--file=-", "--numeric-owner", "--same-owner"])
        .args([
            "--same-permissions",
            "--delay-directory-restore",
            "--xattrs",
        ])
        .args(KEPT_ATTRIBUTES.map(|name| format!("--xattrs-include={name}")))
        .arg("--directory")
        .arg(&root);
    let mut unpacker = confine::start(
        command,
        store.privilege(),
        cancel,
        &staging.scratch(),
        &root,
    )
    .at("starting tar for", &root)?;
    let output = BufWriter::with_capacity(PIPE_BUFFER_BYTES, unpacker.take_stdin());
    drop(unpacker.take_stdout());
    Ok((unpacker, output))
}
