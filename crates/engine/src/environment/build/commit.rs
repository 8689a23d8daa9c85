//! An environment from what is in a sandbox.
//!
//! The machine is stopped in order first, so that programs write their data to disk. Everything on
//! its disks that differs from its environment becomes one more layer.

use super::capture::Capture;
use super::nothing;
use crate::admission::environment_error;
use crate::blocking::blocking;
use crate::driver::Handle;
use crate::environment::Environments;
use crate::environment::archives::environment;
use crate::titles::title;
use motu_core::commit::{AfterCommit, CommitSandbox};
use motu_core::report::Environment;
use motu_core::runtime::AtRest;
use motu_core::sandbox::{Sandbox, State};
use motu_core::{Error, Result};
use motu_environments::{BuildCache, Hold, ImageInfo, Privilege, Title, Workplace, layers_over};

impl Environments {
    pub(crate) async fn commit(&self, handle: &Handle, ask: &CommitSandbox) -> Result<Environment> {
        let owner = handle.sandbox().owner;
        let title = title(&owner, &ask.name);
        let checked = self.store().check_own_name(&title);
        checked.map_err(environment_error)?;
        if Privilege::detect() == Privilege::User {
            return Err(Error::unsupported(
                "an environment is made of a sandbox by a daemon of root's: files that an ordinary \
                 user's machines leave belong to ids that stand for others",
            ));
        }
        // Asked for before the machine is stopped for it.
        let _place = self.place(&title).await?;
        self.sandboxes.gate().check_disk()?;
        let ran = matches!(handle.state(), State::Running | State::Paused);
        let sandbox = handle.stop().await?;
        let made = self.made_of(handle, &sandbox, title.clone());
        let made = self.telling(Some(&title), made).await;
        let then = match (&made, ask.then) {
            // Destroy only after success: otherwise the sandbox holds the only copy of its
            // contents.
            (Ok(_), AfterCommit::Destroy) => handle.destroy().await,
            (_, AfterCommit::Stop) => Ok(sandbox),
            _ if ran => handle.start().await,
            _ => Ok(sandbox),
        };
        let made = made?;
        then?;
        Ok(made)
    }

    async fn made_of(
        &self,
        handle: &Handle,
        sandbox: &Sandbox,
        title: Title,
    ) -> Result<Environment> {
        let launch = handle.launch().await?;
        let runtime = self.sandboxes.runtimes.named(&sandbox.runtime);
        let runtime = runtime.ok_or_else(|| Error::internal("its runtime is not in this build"))?;
        let kept = launch
            .kept
            .ok_or_else(|| Error::internal("a stopped sandbox has no disks"))?;
        let rest = runtime.at_rest(&kept, &launch.root)?;
        let base = self.image_of(sandbox).await;
        let cache = self.build_cache(&title.owner)?;
        let place = self.store().workplace(Some(&sandbox.digest)).await;
        let place = place.map_err(environment_error)?;
        let image = ImageInfo {
            manifest_digest: None,
            default_user: sandbox.user.clone(),
            default_workdir: sandbox.workdir.clone(),
            ..base.clone()
        };
        let made_from = format!("commit of {}", sandbox.sandbox_id);
        let name = title.name.clone();
        let sealed =
            blocking(move || seal(&cache, place, &rest, (base, image), (title, made_from)));
        let held = sealed.await?;
        let found = self.store().inspect(&name).await;
        drop(held);
        found.map(environment).map_err(environment_error)
    }

    /// The image settings of the sandbox's environment; defaults, if the name has been moved to
    /// another digest since.
    async fn image_of(&self, sandbox: &Sandbox) -> ImageInfo {
        let found = self.store().inspect(&sandbox.environment).await.ok();
        let same = found.filter(|found| found.digest.as_ref() == Some(&sandbox.digest));
        same.and_then(|found| found.image).unwrap_or_else(nothing)
    }
}

/// Writes the differences as a layer, applies it to the tree and registers that as an environment.
fn seal(
    cache: &BuildCache,
    mut place: Workplace,
    rest: &AtRest,
    (base, mut image): (ImageInfo, ImageInfo),
    (title, made_from): (Title, String),
) -> Result<Hold> {
    let (new, mut writer) = cache.new_layer().map_err(environment_error)?;
    let capture = Capture {
        rest,
        place: &place,
        without: &[],
    };
    capture.write(&mut writer)?;
    let layer = cache.keep_layer(new, writer).map_err(environment_error)?;
    let layers: Vec<(String, u64)> = layer.into_iter().collect();
    let files: Vec<_> = layers
        .iter()
        .map(|(digest, _)| (cache.layer(digest), digest.clone()))
        .collect();
    place.apply(&files, &mut image).map_err(environment_error)?;
    image.layers = layers_over(Some(&base), &layers);
    place
        .seal(title, image, made_from)
        .map_err(environment_error)
}
