//! Writing images: layers entry by entry, layouts, archives.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// A layer in the making.
pub struct Layer(Vec<u8>);

impl Layer {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    pub fn dir(self, path: &str) -> Self {
        self.entry(EntryType::Directory, path, "", b"")
    }

    pub fn file(self, path: &str, contents: &str) -> Self {
        self.entry(EntryType::Regular, path, "", contents.as_bytes())
    }

    pub fn bytes(self, path: &str, contents: &[u8]) -> Self {
        self.entry(EntryType::Regular, path, "", contents)
    }

    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, path, target, b"")
    }

    pub fn link(self, path: &str, target: &str) -> Self {
        self.entry(EntryType::Link, path, target, b"")
    }

    /// A file with extended attributes.
    pub fn noted(mut self, path: &str, attributes: &[(&str, &[u8])]) -> Self {
        let keys: Vec<String> = attributes
            .iter()
            .map(|(key, _)| format!("SCHILY.xattr.{key}"))
            .collect();
        let pairs = keys.iter().map(String::as_str);
        let mut builder = Builder::new(Vec::new());
        builder
            .append_pax_extensions(pairs.zip(attributes.iter().map(|(_, value)| *value)))
            .unwrap();
        let extension = std::mem::take(builder.get_mut());
        self.0.extend(extension);
        self.file(path, "")
    }

    /// An entry without the checks of the tar library.
    pub fn entry(self, kind: EntryType, path: &str, link: &str, contents: &[u8]) -> Self {
        self.owned(kind, path, link, contents, (0o755, 0, 0))
    }

    pub fn owned(
        mut self,
        kind: EntryType,
        path: &str,
        link: &str,
        contents: &[u8],
        (mode, uid, gid): (u32, u64, u64),
    ) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(uid);
        header.set_gid(gid);
        header.set_mtime(1_600_000_000);
        header.set_size(contents.len() as u64);
        let old = header.as_old_mut();
        old.name[..path.len()].copy_from_slice(path.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(contents);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// The archive, ended.
    pub fn tar(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

/// A layer as it is stored.
#[derive(Clone)]
pub struct Packed {
    pub bytes: Vec<u8>,
    pub diff_id: String,
    kind: &'static str,
}

pub fn plain(layer: Layer) -> Packed {
    let bytes = layer.tar();
    Packed {
        diff_id: digest(&bytes),
        bytes,
        kind: "application/vnd.oci.image.layer.v1.tar",
    }
}

pub fn gzip(layer: Layer) -> Packed {
    let tar = layer.tar();
    Packed {
        bytes: gzipped(&tar),
        diff_id: digest(&tar),
        kind: "application/vnd.oci.image.layer.v1.tar+gzip",
    }
}

pub fn zstd(layer: Layer) -> Packed {
    let tar = layer.tar();
    Packed {
        bytes: compress_to_vec(tar.as_slice(), CompressionLevel::Fastest),
        diff_id: digest(&tar),
        kind: "application/vnd.oci.image.layer.v1.tar+zstd",
    }
}

pub fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn digest(bytes: &[u8]) -> String {
    let digits: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{digits}")
}

/// An image: its documents and its layers.
#[derive(Clone)]
pub struct Image {
    pub layers: Vec<Packed>,
    pub config: Vec<u8>,
    pub manifest: Vec<u8>,
}

impl Image {
    pub fn new(layers: Vec<Packed>) -> Self {
        Self::with(layers, json!({}))
    }

    /// `settings` is the image's `config` object.
    pub fn with(layers: Vec<Packed>, settings: serde_json::Value) -> Self {
        let diff_ids: Vec<&String> = layers.iter().map(|layer| &layer.diff_id).collect();
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "config": settings,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest(&config),
                "size": config.len(),
            },
            "layers": layers.iter().map(|layer| json!({
                "mediaType": layer.kind,
                "digest": digest(&layer.bytes),
                "size": layer.bytes.len(),
            })).collect::<Vec<_>>(),
        });
        Self {
            manifest: manifest.to_string().into_bytes(),
            config,
            layers,
        }
    }

    pub fn digest(&self) -> String {
        digest(&self.manifest)
    }

    /// Everything that is asked for by digest.
    pub fn blobs(&self) -> Vec<&[u8]> {
        let layers = self.layers.iter().map(|layer| layer.bytes.as_slice());
        layers.chain([self.config.as_slice()]).collect()
    }

    /// Writes an OCI layout with one image.
    pub fn layout(&self, dir: &Path, tag: &str) {
        let blobs = dir.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        for blob in self.blobs().into_iter().chain([self.manifest.as_slice()]) {
            let name = digest(blob);
            fs::write(blobs.join(name.trim_start_matches("sha256:")), blob).unwrap();
        }
        let index = json!({
            "schemaVersion": 2,
            "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": self.digest(),
                "size": self.manifest.len(),
                "annotations": { "org.opencontainers.image.ref.name": tag },
            }],
        });
        fs::write(dir.join("index.json"), index.to_string()).unwrap();
        let version = json!({ "imageLayoutVersion": "1.0.0" });
        fs::write(dir.join("oci-layout"), version.to_string()).unwrap();
    }

    /// The archive `docker save` would write.
    pub fn docker_archive(&self) -> Vec<u8> {
        let names: Vec<String> = (0..self.layers.len())
            .map(|n| format!("{n}/layer.tar"))
            .collect();
        let manifest = json!([{ "Config": "config.json", "RepoTags": ["a:b"], "Layers": names }]);
        let mut archive = Layer::new();
        for (name, layer) in names.iter().zip(&self.layers) {
            archive = archive.bytes(name, &layer.bytes);
        }
        archive
            .bytes("config.json", &self.config)
            .file("manifest.json", &manifest.to_string())
            .tar()
    }
}

/// Writes bytes to a file of a directory; returns its path.
pub fn write(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    path
}
