//! From layers to trees: the cache, the tree a stage works on, and the environment at the end.

use super::Builder;
use super::keys::Key;
use super::state::Stage;
use crate::admission::environment_error;
use crate::blocking::blocking;
use crate::environment::archives::environment;
use motu_core::report::Environment;
use motu_core::{Error, Project, Result};
use motu_environments::{EnvironmentError, ImageInfo, StepRecord, layers_over};
use std::path::PathBuf;

impl Builder<'_> {
    /// Takes the layer of the current step from the cache, if it is there.
    pub(super) async fn reuse(&mut self, stage: &mut Stage) -> bool {
        self.report.steps += 1;
        if self.ask.no_cache {
            return false;
        }
        let Some(record) = self.cache.step(stage.key.as_str()) else {
            return false;
        };
        self.report.cached += 1;
        stage.layers.extend(record.layer);
        true
    }

    /// Stores the layer of a step in the cache.
    pub(super) async fn keep(&mut self, stage: &mut Stage, record: StepRecord) -> Result<()> {
        let kept = self.cache.keep_step(stage.key.as_str(), &record);
        kept.map_err(environment_error)?;
        stage.layers.extend(record.layer);
        Ok(())
    }

    /// Builds the tree of a stage up to its last layer.
    pub(super) async fn lay_out(&self, stage: &mut Stage) -> Result<()> {
        if stage.place.is_none() {
            let place = self.sandboxes.environments.workplace(stage.base.as_deref());
            stage.place = Some(place.await.map_err(environment_error)?);
            stage.applied = 0;
        }
        // A `scratch` tree gets the directories that every machine needs together with its first
        // layer.
        if stage.applied == stage.layers.len() && (stage.base.is_some() || stage.applied > 0) {
            return Ok(());
        }
        let Some(mut place) = stage.place.take() else {
            return Err(Error::internal("a stage has no tree"));
        };
        let layers: Vec<(PathBuf, String)> = stage.layers[stage.applied..]
            .iter()
            .map(|(digest, _)| (self.cache.layer(digest), digest.clone()))
            .collect();
        let mut image = stage.image.clone();
        let cache = self.cache.clone();
        let (place, image) = blocking(move || match place.apply(&layers, &mut image) {
            Ok(()) => Ok((place, image)),
            Err(error) => {
                if let EnvironmentError::DigestMismatch { expected, .. } = &error {
                    cache.forget_layer(expected);
                }
                Err(environment_error(error))
            }
        })
        .await?;
        stage.place = Some(place);
        stage.image.wants_sudo = image.wants_sudo;
        stage.applied = stage.layers.len();
        Ok(())
    }

    /// Registers the last stage as an environment.
    pub(super) async fn finish(&mut self, mut stage: Stage) -> Result<Environment> {
        let environments = &self.sandboxes.environments;
        let parts: Vec<&[u8]> = stage
            .base
            .iter()
            .map(String::as_bytes)
            .chain(stage.layers.iter().map(|(digest, _)| digest.as_bytes()))
            .collect();
        let key = Key::begin(&parts);
        let known = match (&stage.base, stage.layers.is_empty()) {
            (Some(base), true) => Some((base.clone(), stage.image.wants_sudo)),
            _ => self.cache.root(key.as_str()),
        };
        let made_from = format!("build {}", key.as_str());
        if let Some((digest, wants_sudo)) = known
            && environments.is_installed(&digest)
        {
            stage.image.wants_sudo = wants_sudo;
            let image = self.named(&stage, &digest);
            let name = image.reference.clone();
            let settled = environments.settle(&digest, image, made_from.clone()).await;
            if settled.map_err(environment_error)? {
                let found = environments.inspect(&name).await;
                return found.map(environment).map_err(environment_error);
            }
        }
        self.lay_out(&mut stage).await?;
        let place = stage.place.take();
        let place = place.ok_or_else(|| Error::internal("a stage has no tree"))?;
        let digest = place.digest().to_string();
        let image = self.named(&stage, &digest);
        environments
            .check_own_name(&image.reference)
            .map_err(environment_error)?;
        let name = image.reference.clone();
        let sealed = blocking(move || place.seal(image, made_from).map_err(environment_error));
        let root = (sealed.await?, stage.image.wants_sudo);
        self.cache
            .keep_root(key.as_str(), &root)
            .map_err(environment_error)?;
        let found = environments.inspect(&name).await;
        found.map(environment).map_err(environment_error)
    }

    /// The image settings of the result.
    fn named(&self, stage: &Stage, digest: &str) -> ImageInfo {
        let digits: String = digest
            .trim_start_matches("sha256:")
            .chars()
            .take(12)
            .collect();
        let name = self.ask.name.clone();
        let (user, workdir) = (
            self.ask.default_user.clone(),
            self.ask.default_workdir.clone(),
        );
        ImageInfo {
            reference: name.unwrap_or_else(|| {
                let made = format!("build:{digits}");
                match Project::of_owner(&self.ask.owner) {
                    Some(project) => project.complete(&made),
                    None => made,
                }
            }),
            manifest_digest: None,
            layers: layers_over(stage.base_image.as_ref(), &stage.layers),
            default_user: user.unwrap_or_else(|| stage.image.default_user.clone()),
            default_workdir: workdir.unwrap_or_else(|| stage.image.default_workdir.clone()),
            ..stage.image.clone()
        }
    }
}
