//! From layers to trees: the cache, the tree a stage works on, and the environment at the end.

use super::Builder;
use super::state::Stage;
use crate::admission::environment_error;
use crate::blocking::blocking;
use crate::environment::archives::environment;
use crate::titles::title;
use motu_core::report::Environment;
use motu_core::{Error, Result};
use motu_environments::{EnvironmentError, ImageInfo, StepRecord, Title, layers_over};
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
            let place = self.sandboxes.environments.workplace(stage.base());
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
            .base()
            .into_iter()
            .map(str::as_bytes)
            .chain(stage.layers.iter().map(|(digest, _)| digest.as_bytes()))
            .collect();
        let key = self.key(&parts);
        let known = match (stage.base(), stage.layers.is_empty()) {
            (Some(base), true) => Some((base.to_string(), stage.image.wants_sudo)),
            _ => self.cache.root(key.as_str()),
        };
        let made_from = format!("build {}", key.as_str());
        if let Some((digest, wants_sudo)) = known
            && environments.is_installed(&digest)
        {
            stage.image.wants_sudo = wants_sudo;
            let (title, image) = (self.title(&digest), self.settings(&stage));
            let name = title.name.clone();
            let settled = environments.settle(&digest, title, image, made_from.clone());
            if let Some(_held) = settled.await.map_err(environment_error)? {
                let found = environments.inspect(&name).await;
                return found.map(environment).map_err(environment_error);
            }
        }
        self.lay_out(&mut stage).await?;
        let place = stage.place.take();
        let place = place.ok_or_else(|| Error::internal("a stage has no tree"))?;
        let (title, image) = (self.title(place.digest()), self.settings(&stage));
        environments
            .check_own_name(&title)
            .map_err(environment_error)?;
        let name = title.name.clone();
        let sealed = move || {
            place
                .seal(title, image, made_from)
                .map_err(environment_error)
        };
        let held = blocking(sealed).await?;
        let root = (held.digest().to_string(), stage.image.wants_sudo);
        self.cache
            .keep_root(key.as_str(), &root)
            .map_err(environment_error)?;
        let found = environments.inspect(&name).await;
        found.map(environment).map_err(environment_error)
    }

    /// What the result is called, and whose it is.
    fn title(&self, digest: &str) -> Title {
        if let Some(title) = &self.named {
            return title.clone();
        }
        let digits = digest.trim_start_matches("sha256:").chars().take(12);
        let made = format!("build:{}", digits.collect::<String>());
        title(&self.ask.owner, &made)
    }

    /// The image settings of the result.
    fn settings(&self, stage: &Stage) -> ImageInfo {
        let (user, workdir) = (
            self.ask.default_user.clone(),
            self.ask.default_workdir.clone(),
        );
        ImageInfo {
            manifest_digest: None,
            layers: layers_over(stage.base_image.as_ref(), &stage.layers),
            default_user: user.unwrap_or_else(|| stage.image.default_user.clone()),
            default_workdir: workdir.unwrap_or_else(|| stage.image.default_workdir.clone()),
            ..stage.image.clone()
        }
    }
}
