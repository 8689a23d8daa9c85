//! Environments as images of the engine: imported once, removed with the environment.

use crate::api::{Api, ApiError};
use crate::archive;
use crate::prepare::{HOME_LABEL, ROOT_LABEL};
use motu_core::Error;
use std::collections::HashSet;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// The prefix of an environment's directory in the store.
const DIGEST: &str = "sha256-";

/// Images known to exist.
#[derive(Debug, Default)]
pub(crate) struct Images {
    known: Mutex<HashSet<(PathBuf, String)>>,
    /// Serializes imports.
    importing: tokio::sync::Mutex<()>,
}

/// The name of an environment's image. The digest is in the name, not in the tag: Podman ignores
/// tags of imports.
pub(crate) fn name(identity: &str, root: &Path) -> Result<String, Error> {
    let directory = root
        .parent()
        .and_then(Path::file_name)
        .and_then(|n| n.to_str());
    let digest = directory.and_then(|name| name.strip_prefix(DIGEST));
    let digest = digest
        .filter(|digest| digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let digest = digest
        .ok_or_else(|| Error::internal(format!("{} is no environment's root", root.display())))?;
    Ok(format!("localhost/motu-{identity}/{digest}"))
}

/// Hex-encodes a path: the engine parses labels with a syntax of its own.
fn in_digits(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_digits(text: &str) -> Option<PathBuf> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
    Some(PathBuf::from(std::ffi::OsString::from_vec(bytes?)))
}

impl Images {
    fn known(&self) -> MutexGuard<'_, HashSet<(PathBuf, String)>> {
        self.known
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The image of an environment; imports it if the engine does not have it.
    pub(crate) async fn ensure(
        &self,
        api: &Api,
        identity: &str,
        root: &Path,
    ) -> Result<String, Error> {
        let name = name(identity, root)?;
        let key = (api.socket().to_path_buf(), name.clone());
        if self.known().contains(&key) {
            return Ok(name);
        }
        let _turn = self.importing.lock().await;
        if !api.has_image(&name).await? {
            import(api, identity, root, &name).await?;
        }
        self.known().insert(key);
        Ok(name)
    }

    /// Forgets an image that was removed by somebody else.
    pub(crate) fn forget(&self, api: &Api, name: &str) {
        let key = (api.socket().to_path_buf(), name.to_string());
        self.known().remove(&key);
    }

    /// Removes images of this state directory: all unused ones, or only those whose environment is
    /// gone. Returns the bytes freed.
    pub(crate) async fn remove(
        &self,
        api: &Api,
        identity: &str,
        only_orphans: bool,
    ) -> Result<u64, Error> {
        let _turn = self.importing.lock().await;
        let mut freed = 0;
        for image in api.images(&format!("{HOME_LABEL}={identity}")).await? {
            let labels = image.labels.unwrap_or_default();
            // Check again: an engine that ignores the filter must not make us remove foreign
            // images.
            if labels.get(HOME_LABEL).map(String::as_str) != Some(identity) {
                continue;
            }
            let root = labels.get(ROOT_LABEL).and_then(|text| from_digits(text));
            if only_orphans && root.is_some_and(|root| root.exists()) {
                continue;
            }
            self.known().clear();
            match api.remove_image(&image.id).await {
                Ok(()) => freed += u64::try_from(image.size).unwrap_or(0),
                // A container still uses it; a later call removes it.
                Err(error) if error.is_conflict() || error.is_missing() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(freed)
    }
}

async fn import(api: &Api, identity: &str, root: &Path, name: &str) -> Result<(), Error> {
    let begun = Instant::now();
    tracing::info!(root = %root.display(), engine = %api.socket().display(), "importing an environment into the engine");
    let pieces = archive::of(root)?;
    let labels = [(HOME_LABEL, identity), (ROOT_LABEL, &*in_digits(root))];
    let imported: Result<(), ApiError> = api.import(name, &labels, pieces).await;
    imported?;
    tracing::info!(
        root = %root.display(),
        milliseconds = begun.elapsed().as_millis() as u64,
        "the environment is imported"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_by_its_home_and_digest() {
        let digest = "a".repeat(64);
        let root = PathBuf::from(format!("/e/blobs/sha256-{digest}/root"));
        let name = name("0123", &root).unwrap();
        assert_eq!(name, format!("localhost/motu-0123/{digest}"));
        assert!(super::name("0123", Path::new("/etc")).is_err());
        assert!(super::name("0123", Path::new("/")).is_err());
    }

    #[test]
    fn paths_survive_as_digits() {
        let path = Path::new("/a \"b\"/ü");
        assert_eq!(from_digits(&in_digits(path)).unwrap(), path);
        assert_eq!(from_digits("zz"), None);
    }
}
