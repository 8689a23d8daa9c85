//! Environments as archives, and as the service describes them.

use super::Environments;
use super::upload::Guarded;
use crate::admission::environment_error;
use crate::blocking::blocking;
use crate::pipe;
use crate::titles::title;
use motu_core::files::ByteStream;
use motu_core::report::{Environment, EnvironmentLayer, ImportAs};
use motu_core::{Error, Result};
use motu_environments::Progress;

impl Environments {
    pub(crate) async fn export(&self, name: &str) -> Result<ByteStream> {
        let pack = async {
            let export = self.store().export(name).await;
            export.map_err(environment_error)
        };
        let export = self.while_space(pack).await?;
        Ok(pipe::written(move |out| {
            export.write_to(out).map_err(environment_error)
        }))
    }

    pub(crate) async fn import(&self, ask: ImportAs, content: ByteStream) -> Result<Environment> {
        let named = ask.name.as_deref().map(|name| title(&ask.owner, name));
        let _place = match &named {
            Some(title) => Some(self.place(title).await?),
            None => None,
        };
        self.sandboxes.gate().check_disk()?;
        let arriving = self.store().arriving().await;
        let arriving = arriving.map_err(environment_error)?;
        let sandboxes = self.sandboxes.clone();
        let mut source = Guarded::new(pipe::reader(content), move || sandboxes.gate().check_disk());
        let arrived = blocking(move || match arriving.fill(&mut source) {
            Ok(0) => Err(Error::invalid("the archive is empty")),
            Ok(_) => Ok(arriving),
            Err(error) => Err(source.refusal().unwrap_or_else(|| environment_error(error))),
        })
        .await?;
        let titled = |name: &str| title(&ask.owner, name);
        let import = async {
            let name = ask.name.as_deref();
            let made = self.store().import(arrived, name, titled, Progress::none());
            made.await.map(environment).map_err(environment_error)
        };
        self.telling(named.as_ref(), self.while_space(import)).await
    }
}

pub(crate) fn environment(found: motu_environments::EnvironmentInfo) -> Environment {
    let (manifest_digest, layers, entrypoint, cmd) = match found.image {
        Some(image) => (
            image.manifest_digest,
            image.layers,
            image.entrypoint,
            image.cmd,
        ),
        None => Default::default(),
    };
    let layer = |layer: motu_environments::LayerInfo| EnvironmentLayer {
        digest: layer.digest,
        size_bytes: layer.size_bytes,
    };
    Environment {
        name: found.name,
        owner: found.owner,
        description: found.description,
        installed: found.installed,
        digest: found.digest,
        size_bytes: Some(found.size_bytes),
        created_at: found.created_at,
        architecture: found.architecture,
        default_user: found.default_user,
        default_workdir: found.default_workdir,
        source: found.source,
        packages: found
            .packages
            .into_iter()
            .map(|(name, version)| format!("{name} {version}"))
            .collect(),
        manifest_digest,
        layers: layers.into_iter().map(layer).collect(),
        entrypoint,
        cmd,
        build: None,
    }
}
