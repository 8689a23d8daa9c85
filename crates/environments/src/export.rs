//! Environments as archives: out, and in again.
//!
//! ```text
//! root ──tar──► layer ─┐
//! settings ──► config ─┴► manifest ──► index ──► one archive in the OCI image layout
//! ```
//!
//! Owns the layout that is written. What comes in is read by `image`, like any
//! other image of a stranger.

use std::{
    fs::File,
    io::{self, Read, Write},
    sync::Arc,
};

use jiff::Timestamp;
use motu_archive::{Header, Writer};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

use crate::{
    about::ImageInfo,
    describe::{Environment, EnvironmentInfo},
    digest::hex,
    environments::{Environments, PULL_TIMEOUT, blocking, within},
    error::{EnvironmentError, IoContext as _},
    image::Import,
    oci::{
        Account,
        manifest::{REF_NAME, architecture},
    },
    pack,
    process::Cancel,
    progress::Progress,
    reference::Origin,
    store::{Staging, Store},
    title::Title,
};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An environment that is ready to be written as an archive.
#[derive(Debug)]
pub struct Export {
    /// Small documents by their digests.
    documents: Vec<Vec<u8>>,
    index: Vec<u8>,
    layer: File,
    layer_digest: String,
    layer_bytes: u64,
    created: i64,
    /// Holds the layer.
    _staging: Staging,
}

/// An archive on its way in. It is gone with this value.
#[derive(Debug)]
pub struct Arriving {
    staging: Staging,
}

impl Environments {
    /// Packs an installed environment.
    pub async fn export(&self, name: &str) -> Result<Export, EnvironmentError> {
        let found = self.resolve(name).await?;
        let info = self.inspect(name).await?;
        let _stays = self.hold(&found.digest).await?;
        let store = self.store().clone();
        let cancel = Cancel::default();
        let _ends_the_reader = cancel.on_drop();
        let watched = cancel.clone();
        blocking(move || Export::pack(&store, &found, info, &watched)).await
    }

    /// A place for an archive that comes in.
    pub async fn arriving(&self) -> Result<Arriving, EnvironmentError> {
        let store = self.store().clone();
        blocking(move || {
            store.privilege().check()?;
            let staging = store.stage()?;
            Ok(Arriving { staging })
        })
        .await
    }

    /// Makes an environment of an archive, under a name of the caller's own or the one in it, with
    /// the title that such a name gets. A name that meant something else means this afterwards.
    pub async fn import(
        &self,
        archive: Arriving,
        name: Option<&str>,
        titled: impl FnOnce(&str) -> Title,
        progress: Progress,
    ) -> Result<EnvironmentInfo, EnvironmentError> {
        let path = archive.path();
        let name = match name {
            Some(name) => name.to_owned(),
            None => {
                let path = path.clone();
                blocking(move || crate::image::name_in(&path)).await?
            }
        };
        let title = titled(&name);
        self.check_own_name(&title)?;
        let name = title.name.clone();
        let cancel = Cancel::default();
        let import = Import {
            store: self.store().clone(),
            name: name.clone(),
            title,
            origin: Origin::OciArchive(path),
            progress,
            cancel: cancel.clone(),
            options: self.options(),
            account: Account::Operator,
            runtime: Handle::current(),
        };
        let held = within(PULL_TIMEOUT, name.clone(), cancel, move || import.run()).await?;
        drop(archive);
        let found = self.inspect(&name).await;
        drop(held);
        found
    }
}

impl Arriving {
    fn path(&self) -> std::path::PathBuf {
        self.staging.scratch().join("arrived.tar")
    }

    /// Takes the archive. Blocks.
    pub fn fill(&self, source: impl Read) -> Result<u64, EnvironmentError> {
        let path = self.path();
        let mut file = File::create_new(&path).at("creating", &path)?;
        pack::copy_limited(source, &mut file)
    }
}

impl Export {
    fn pack(
        store: &Arc<Store>,
        found: &Environment,
        info: EnvironmentInfo,
        cancel: &Cancel,
    ) -> Result<Self, EnvironmentError> {
        let staging = store.stage()?;
        let mut layer = pack::spool(store, &found.root, &staging, cancel, pack::is_whole)?;
        let (layer_digest, layer_bytes) = digest_of(&mut layer)?;
        let created = info.created_at.clone().unwrap_or_default();
        let name = info.name.clone();
        let image = info.image.unwrap_or_else(|| plain(found));
        let config = json!({
            "created": created,
            "architecture": architecture(),
            "os": "linux",
            "config": image.settings(),
            "rootfs": { "type": "layers", "diff_ids": [layer_digest] },
            "history": [{ "created": created, "created_by": "motu env export", "comment": name }],
        });
        let config = text(&config)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &of(&config), config.len() as u64),
            "layers": [descriptor(LAYER, &layer_digest, layer_bytes)],
        });
        let manifest = text(&manifest)?;
        let mut entry = descriptor(MANIFEST, &of(&manifest), manifest.len() as u64);
        entry["platform"] = json!({ "architecture": architecture(), "os": "linux" });
        entry["annotations"] = json!({ REF_NAME: name });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [entry] });
        let seconds = created.parse::<Timestamp>().map(Timestamp::as_second);
        Ok(Self {
            index: text(&index)?,
            documents: vec![config, manifest],
            layer,
            layer_digest,
            layer_bytes,
            created: seconds.unwrap_or(0).max(0),
            _staging: staging,
        })
    }

    /// Writes the archive. The same environment is the same archive, to the byte.
    pub fn write_to(self, out: impl Write) -> Result<(), EnvironmentError> {
        let failed = |error: io::Error| EnvironmentError::io("writing an archive", error);
        let mut out = Writer::new(out);
        let mut add = |path: &str, size: u64, mut content: &mut dyn Read| {
            let header = Header {
                path: path.as_bytes().to_vec(),
                mode: 0o644,
                mtime: self.created,
                size,
                ..Header::default()
            };
            out.file(&header, &mut content).map_err(failed)
        };
        let version = br#"{"imageLayoutVersion":"1.0.0"}"#;
        add("oci-layout", version.len() as u64, &mut version.as_slice())?;
        add(
            "index.json",
            self.index.len() as u64,
            &mut self.index.as_slice(),
        )?;
        for document in &self.documents {
            let path = blob_path(&of(document));
            add(&path, document.len() as u64, &mut document.as_slice())?;
        }
        let path = blob_path(&self.layer_digest);
        add(&path, self.layer_bytes, &mut &self.layer)?;
        out.finish().map(drop).map_err(failed)
    }
}

/// What an environment of the catalog would say of itself as an image.
fn plain(found: &Environment) -> ImageInfo {
    ImageInfo {
        reference: found.name.clone(),
        manifest_digest: None,
        layers: Vec::new(),
        default_user: found.default_user.clone(),
        default_workdir: found.default_workdir.clone(),
        env: found.env.clone(),
        entrypoint: found.entrypoint.clone(),
        cmd: found.cmd.clone(),
        labels: Default::default(),
        exposed_ports: Vec::new(),
        stop_signal: None,
        volumes: Vec::new(),
        healthcheck: None,
        on_build: Vec::new(),
        shell: Vec::new(),
        wants_sudo: found.wants_sudo,
    }
}

fn descriptor(kind: &str, digest: &str, size: u64) -> Value {
    json!({ "mediaType": kind, "digest": digest, "size": size })
}

fn text(value: &Value) -> Result<Vec<u8>, EnvironmentError> {
    serde_json::to_vec(value)
        .map_err(|error| EnvironmentError::io("encoding a manifest", error.into()))
}

fn of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

fn blob_path(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

/// Reads a file to its end and rewinds it.
fn digest_of(file: &mut File) -> Result<(String, u64), EnvironmentError> {
    use std::io::Seek as _;
    let failed = |error: io::Error| EnvironmentError::io("reading an archive", error);
    let mut hash = Sha256::new();
    let size = io::copy(file, &mut hash).map_err(failed)?;
    file.rewind().map_err(failed)?;
    Ok((format!("sha256:{}", hex(&hash.finalize())), size))
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
