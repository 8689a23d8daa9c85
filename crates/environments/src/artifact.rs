//! One file from a registry, believed for its digest alone.
//!
//! An OCI artifact here is a manifest with one layer, which is the file: what `oras push` makes. The digest of the manifest
//! is part of its name, and the manifest has the file's, so a registry is believed as little as a mirror.

use std::path::Path;

use crate::{
    download::{Pinned, Staged},
    error::EnvironmentError,
    oci::{
        Account, RegistryOptions,
        manifest::{Descriptor, json, malformed},
        registry::Registry,
    },
    reference::{Origin, Reference, Version},
};

/// The most bytes an artifact may have.
pub const MAX_ARTIFACT_BYTES: u64 = 512 << 20;

#[derive(serde::Deserialize)]
struct Listed {
    layers: Vec<Descriptor>,
}

/// The repository and the digest of an artifact.
fn parse(name: &str) -> Option<(Reference, String)> {
    match Origin::parse(name)? {
        Origin::Registry(reference) => match reference.version.clone() {
            Version::Digest(digest) => Some((reference, digest)),
            Version::Tag(_) => None,
        },
        _ => None,
    }
}

/// Downloads the one file of an artifact to `to`, which exists only if everything is as expected. `what` is for messages.
pub async fn artifact(name: &str, what: &str, to: &Path) -> Result<(), EnvironmentError> {
    let Some((reference, digest)) = parse(name) else {
        return Err(malformed(
            what,
            format!("{name:?} names no artifact by its digest"),
        ));
    };
    // Looking for a login may run a program.
    let made = tokio::task::spawn_blocking(move || {
        // Its name is in the operator's configuration.
        Registry::new(reference, &Account::Operator, &RegistryOptions::default())
    });
    let registry = made
        .await
        .map_err(|_| malformed(what, "looking for a login panicked"))?;
    let (bytes, _) = registry.manifest(&digest).await?;
    let listed: Listed = json(what, &bytes)?;
    let [file] = &listed.layers[..] else {
        let reason = format!("{name} has {} layers instead of one", listed.layers.len());
        return Err(malformed(what, reason));
    };
    if file.size > MAX_ARTIFACT_BYTES {
        let reason = format!(
            "{name} has {} bytes, more than {MAX_ARTIFACT_BYTES}",
            file.size
        );
        return Err(malformed(what, reason));
    }
    let Some(sha256) = file.digest.strip_prefix("sha256:") else {
        return Err(malformed(
            what,
            format!("{name} has another digest than SHA-256"),
        ));
    };
    let pinned = Pinned {
        what,
        sha256,
        bytes: file.size,
    };
    let mut body = registry.blob(&file.digest, 0).await?.into_body();
    let mut staged = Staged::new(to)?;
    while let Some(piece) = registry.piece(&mut body).await? {
        if !staged.add(&piece, pinned)? {
            break;
        }
    }
    staged.finish(name, pinned, to)
}
