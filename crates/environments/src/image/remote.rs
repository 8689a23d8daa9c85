//! Images in registries.
//!
//! Resolves a reference to layers: whether it is installed already, which manifest is for this
//! machine, which layers it has.

use super::{Found, Import, made_from, obtain::Supply};
use crate::{
    error::EnvironmentError,
    oci::{
        manifest::{self, Config, Document, Manifest},
        registry::Registry,
    },
    reference::{Reference, Version},
};

impl Import {
    /// `None` if the installed image is the one in the registry.
    pub(super) fn read_registry(
        &self,
        reference: &Reference,
        installed: Option<&str>,
    ) -> Result<Option<Found>, EnvironmentError> {
        if let (Version::Digest(pin), Some(installed)) = (&reference.version, installed)
            && made_from(pin) == installed
        {
            return Ok(None);
        }
        let registry = Registry::new(reference.clone(), &self.account, &self.options);
        if let Some(installed) = installed {
            let current = self.wait(|| false, registry.current_digest())?;
            if current.is_some_and(|digest| made_from(&digest) == installed) {
                return Ok(None);
            }
        }
        let version = reference.version.as_str();
        let (bytes, digest) = self.wait(|| false, registry.manifest(version))?;
        // Not every registry answers HEAD requests, so compare here too.
        if installed == Some(made_from(&digest).as_str()) {
            return Ok(None);
        }
        let (manifest, manifest_digest) = self.for_this_machine(&registry, &bytes, &digest)?;
        let name = self.name.clone();
        let config = self.wait(|| false, registry.document(&manifest.config.digest))?;
        let config = Config::parse(&name, &config, manifest.layers.len())?;
        let supply = Supply::Registry(&registry, &manifest.layers);
        let layers = self.obtain(&supply, Some(&config.rootfs.diff_ids))?;
        Ok(Some(Found {
            made_from: made_from(&digest),
            manifest_digest: Some(manifest_digest),
            settings: config.config.unwrap_or_default(),
            layers,
        }))
    }

    fn for_this_machine(
        &self,
        registry: &Registry,
        bytes: &[u8],
        digest: &str,
    ) -> Result<(Manifest, String), EnvironmentError> {
        let name = self.name.clone();
        let what = format!("the manifest of {name}");
        let entries = match Document::parse(&what, bytes)? {
            Document::Image(manifest) => return Ok((manifest, digest.to_owned())),
            Document::Index(entries) => entries,
        };
        let chosen = manifest::choose(&name, &entries)?;
        let (bytes, digest) = self.wait(|| false, registry.manifest(&chosen.digest))?;
        match Document::parse(&what, &bytes)? {
            Document::Image(manifest) => Ok((manifest, digest)),
            Document::Index(_) => Err(manifest::malformed(&what, "it lists a list of images")),
        }
    }
}
