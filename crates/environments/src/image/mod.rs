//! Environments from images: registries, layouts, archives, directories.
//!
//! ```text
//! origin ──resolve──► config + layers ──index──► merge ──emit──► unpack ──► blob + name
//!          same as installed? done
//! ```
//!
//! Owns the order of these steps, as `build` does for the catalog. It runs on blocking threads, and
//! ends early by cancelling.

mod info;
mod local;
mod obtain;
mod remote;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use jiff::Timestamp;
use tokio::runtime::Handle;

pub(crate) use local::name_in;
use obtain::Layer;

use crate::{
    about::{ImageInfo, LayerInfo},
    error::EnvironmentError,
    finish,
    held::Hold,
    layer::{self, Merged, index::Section},
    oci::{Account, RegistryOptions, manifest::Settings},
    process::Cancel,
    progress::{Progress, ProgressEvent},
    reference::Origin,
    store::{BlobRecord, NameRecord, Staging, Store},
    title::Title,
    tree::{Captured, Summary},
    unpack::{Failure, unpack},
};

/// Raised when motu unpacks the same image differently, so that the next pull replaces installed
/// ones.
const IMAGE_REVISION: u32 = 1;
/// Bytes between progress events.
const REPORT_BYTES: u64 = 8 << 20;

/// One import and what it may use.
pub(crate) struct Import {
    pub store: Arc<Store>,
    /// The image in messages.
    pub name: String,
    /// What the environment is stored as.
    pub title: Title,
    pub origin: Origin,
    pub progress: Progress,
    pub cancel: Cancel,
    pub options: RegistryOptions,
    /// On whose account the network is asked.
    pub account: Account,
    /// The runtime that drives connections.
    pub runtime: Handle,
}

/// An image whose layers are local, verified and indexed.
struct Found {
    /// Changes when the image does.
    made_from: String,
    manifest_digest: Option<String>,
    settings: Settings,
    layers: Vec<Layer>,
}

impl Import {
    /// Makes the environment, unless the same one is installed. It is held until the caller has
    /// looked at it.
    pub fn run(&self) -> Result<Hold, EnvironmentError> {
        let result = self.run_unless_cancelled();
        if result.is_err() && self.cancel.is_cancelled() {
            return Err(EnvironmentError::Cancelled {
                name: self.name.clone(),
            });
        }
        result
    }

    fn run_unless_cancelled(&self) -> Result<Hold, EnvironmentError> {
        let name = self.name.clone();
        let _alone = self.store.lock_pull(&self.title.name, &self.cancel, || {
            self.progress
                .say("wait", "another process pulls this environment");
        })?;
        self.progress.say("resolve", format!("looking for {name}"));
        self.store.privilege().check()?;
        let (installed, there) = self.installed()?.unzip();
        let staging = self.store.stage()?;
        let layers = self.store.layer_cache();
        let (_layers_stay, ()) = self.store.holds().take_cache(&layers, || ());
        let found = match &self.origin {
            Origin::Registry(reference) => self.read_registry(reference, installed.as_deref())?,
            Origin::OciLayout(path, tag) => {
                self.read_layout(path, tag.as_deref(), installed.as_deref())?
            }
            Origin::DockerArchive(path) => {
                self.read_docker_archive(path, &staging, installed.as_deref())?
            }
            Origin::OciArchive(path) => {
                self.read_oci_archive(path, &staging, installed.as_deref())?
            }
            Origin::Tar(path) => self.read_tar(path, installed.as_deref())?,
            Origin::Directory(path) => Some(self.read_directory(path, &staging)?),
        };
        match (found, there) {
            (Some(found), _) => self.store(&name, &staging, found),
            (None, Some(there)) => Ok(there),
            (None, None) => Err(EnvironmentError::NotInstalled { name }),
        }
    }

    /// The origin of the installed environment with this title, if it is complete, and a hold on it.
    fn installed(&self) -> Result<Option<(String, Hold)>, EnvironmentError> {
        match self.store.name(&self.title.name) {
            Ok(Some(record)) => {
                self.title.check(record.owner.as_deref())?;
                let there = self.store.hold_there(&record.digest).ok();
                Ok(there.map(|(hold, _)| (record.recipe_hash, hold)))
            }
            // Unreadable records are replaced.
            Ok(None) | Err(EnvironmentError::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn store(&self, name: &str, staging: &Staging, found: Found) -> Result<Hold, EnvironmentError> {
        let layers = found
            .layers
            .iter()
            .map(|layer| layer.info.clone())
            .collect();
        let sections: Vec<Section> = found
            .layers
            .iter()
            .map(|layer| layer.section.clone())
            .collect();
        let mut merged = Merged::default();
        for layer in found.layers {
            merged.add(layer.index)?;
        }
        let mut info = ImageInfo::new(
            &self.title.name,
            found.manifest_digest,
            layers,
            found.settings,
        );
        info.complete(&mut merged);
        let summary = self.unpack(name, staging, &merged, &sections)?;
        self.progress
            .say("seal", format!("storing {} files", summary.entries));
        self.commit(staging, summary, &mut merged, info, found.made_from)
    }

    fn unpack(
        &self,
        name: &str,
        staging: &Staging,
        merged: &Merged,
        sections: &[Section],
    ) -> Result<Summary, EnvironmentError> {
        let total = merged.bytes();
        let (done, said) = (AtomicU64::new(0), AtomicU64::new(0));
        let report = |size: u64| {
            let now = done.fetch_add(size, Ordering::Relaxed) + size;
            if now >= said.load(Ordering::Relaxed) + REPORT_BYTES || now == total {
                said.store(now, Ordering::Relaxed);
                self.unpacked(now, total);
            }
        };
        self.unpacked(0, total);
        let unpacked = unpack(&self.store, staging, &self.cancel, |tree| {
            layer::emit::emit(merged, sections, tree, &self.cancel, report)
        });
        match unpacked {
            Ok((summary, ())) => Ok(summary),
            Err(Failure::Other(error)) => Err(error),
            Err(Failure::Unpacker(tail)) if tail.contains("No space left on device") => {
                Err(EnvironmentError::NoSpace {
                    context: format!("unpacking {name}"),
                })
            }
            Err(Failure::Unpacker(tail)) => Err(EnvironmentError::BuildFailed {
                name: name.to_owned(),
                stage: "unpack".to_owned(),
                tail_of_log: tail,
            }),
        }
    }

    fn unpacked(&self, done: u64, total: u64) {
        self.progress.send(ProgressEvent {
            stage: "unpack".to_owned(),
            message: "unpacking".to_owned(),
            done: Some(done),
            total: Some(total),
        });
    }

    fn commit(
        &self,
        staging: &Staging,
        summary: Summary,
        merged: &mut Merged,
        info: ImageInfo,
        made_from: String,
    ) -> Result<Hold, EnvironmentError> {
        let captured = captured(merged);
        let now = Timestamp::now().to_string();
        let blob = BlobRecord {
            format_version: BlobRecord::VERSION,
            digest: summary.digest.clone(),
            size_bytes: summary.bytes,
            entries: summary.entries,
            created_at: now.clone(),
            architecture: std::env::consts::ARCH.to_owned(),
            os: finish::os_name(&captured).unwrap_or_else(|| "linux".to_owned()),
            packages: finish::packages(&captured),
            recipe: None,
        };
        let hold = self.store.hold(&summary.digest);
        let name = NameRecord {
            format_version: NameRecord::VERSION,
            name: self.title.name.clone(),
            digest: summary.digest,
            pulled_at: now,
            recipe_hash: made_from,
            image: Some(info),
            owner: Some(self.title.owner.clone()),
            made_for: self.title.made_for.clone(),
        };
        if self.cancel.is_cancelled() {
            return Err(EnvironmentError::Cancelled { name: name.name });
        }
        self.store.commit(staging, &blob, &name)?;
        Ok(hold)
    }
}

/// The files by which a system describes itself.
fn captured(merged: &mut Merged) -> Captured {
    let mut captured = Captured::new();
    for (path, key) in [
        ("etc/os-release", finish::OS_RELEASE),
        (finish::OS_RELEASE, finish::OS_RELEASE),
        (finish::DPKG_STATUS, finish::DPKG_STATUS),
    ] {
        if let Some(text) = merged.text(path) {
            captured.insert(key.into(), text.to_vec());
        }
    }
    captured
}

/// Combines the origin with the revision of the importer.
fn made_from(what: &str) -> String {
    format!("image {IMAGE_REVISION} {what}")
}
