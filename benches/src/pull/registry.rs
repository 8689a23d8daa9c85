//! A registry of this run with one image.

use super::Fallible;
use crate::noise::Noise;
use crate::rivals::quiet;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The share of each layer in the content.
const LAYERS: [(&str, u64); 3] = [("base", 60), ("libraries", 30), ("application", 10)];
/// The size of a layer's files; half of them are text and half noise.
const FILE: usize = 64 << 10;

/// The registry, stopped and removed on drop.
pub struct Registry {
    child: Child,
    address: String,
    dir: TempDir,
}

impl Registry {
    pub fn start(place: &Path) -> Fallible<Registry> {
        let dir = TempDir::with_prefix_in("bench-registry-", place)?;
        let config = dir.path().join("config.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: '127.0.0.1:0'}}\n",
            dir.path().join("data").display()
        );
        std::fs::write(&config, text)?;
        let mut child = Command::new("docker-registry")
            .arg("serve")
            .arg(config)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let output = child.stderr.take().ok_or("no output")?;
        let mut registry = Registry {
            child,
            address: String::new(),
            dir,
        };
        let mut lines = BufReader::new(output).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            Some(rest.split('"').next()?.to_string())
        });
        registry.address = address.ok_or("the registry does not say where it listens")?;
        // A registry whose output is not read would block.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(registry)
    }

    /// The name of the image.
    pub fn name(&self) -> String {
        format!("{}/bench/image:v1", self.address)
    }

    /// A path on the registry's file system.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates an image of this size and pushes it; returns its compressed size.
    pub fn push(&self, bytes: u64) -> Fallible<u64> {
        let layout = Layout::make(self.beside("layout"))?;
        let mut noise = Noise::new();
        let (mut layers, mut ids) = (Vec::new(), Vec::new());
        for (name, share) in LAYERS {
            let (layer, id) = layout.layer(name, bytes * share / 100, &mut noise)?;
            layers.push(layer);
            ids.push(id);
        }
        layout.image(&layers, &ids)?;
        let mut copy = Command::new("skopeo");
        copy.args(["--insecure-policy", "copy", "--dest-tls-verify=false"])
            .arg(format!("oci:{}:v1", layout.dir.display()))
            .arg(format!("docker://{}", self.name()));
        quiet(copy)?;
        std::fs::remove_dir_all(&layout.dir)?;
        Ok(layers
            .iter()
            .filter_map(|layer| layer["size"].as_u64())
            .sum())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An OCI image layout under construction.
struct Layout {
    dir: PathBuf,
}

impl Layout {
    fn make(dir: PathBuf) -> Fallible<Layout> {
        std::fs::create_dir_all(dir.join("blobs/sha256"))?;
        std::fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        Ok(Layout { dir })
    }

    /// Creates a layer; returns its descriptor and the digest of the uncompressed layer.
    fn layer(&self, name: &str, bytes: u64, noise: &mut Noise) -> Fallible<(Value, String)> {
        let tree = self.dir.join("tree");
        let directory = tree.join("opt").join(name);
        std::fs::create_dir_all(&directory)?;
        let mut block = vec![0; FILE];
        for number in 0..bytes / FILE as u64 {
            match number % 2 {
                0 => noise.fill(&mut block),
                _ => block = noise.text(FILE),
            }
            std::fs::write(directory.join(format!("file-{number}")), &block)?;
        }
        let tar = self.dir.join("layer.tar");
        let mut pack = Command::new("tar");
        pack.args(["--owner=0", "--group=0", "-C"])
            .arg(&tree)
            .arg("-cf")
            .arg(&tar)
            .arg("opt");
        quiet(pack)?;
        std::fs::remove_dir_all(&tree)?;
        let id = digest(&tar)?;
        let mut compress = Command::new("gzip");
        compress.arg("-f").arg(&tar);
        quiet(compress)?;
        let media = "application/vnd.oci.image.layer.v1.tar+gzip";
        Ok((self.take(&self.dir.join("layer.tar.gz"), media)?, id))
    }

    /// Writes the configuration, the manifest and the index.
    fn image(&self, layers: &[Value], ids: &[String]) -> Fallible<()> {
        let config = json!({
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": { "type": "layers", "diff_ids": ids },
        });
        let config = self.document(&config, "application/vnd.oci.image.config.v1+json")?;
        let media = "application/vnd.oci.image.manifest.v1+json";
        let manifest =
            json!({ "schemaVersion": 2, "mediaType": media, "config": config, "layers": layers });
        let mut manifest = self.document(&manifest, media)?;
        manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": "v1" });
        let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
        std::fs::write(self.dir.join("index.json"), index.to_string())?;
        Ok(())
    }

    fn document(&self, value: &Value, media: &str) -> Fallible<Value> {
        let file = self.dir.join("document");
        std::fs::write(&file, value.to_string())?;
        self.take(&file, media)
    }

    /// Moves a file to the blobs; returns its descriptor.
    fn take(&self, file: &Path, media: &str) -> Fallible<Value> {
        let digest = digest(file)?;
        let size = file.metadata()?.len();
        let blob = self.dir.join("blobs").join(digest.replace(':', "/"));
        std::fs::rename(file, blob)?;
        Ok(json!({ "mediaType": media, "digest": digest, "size": size }))
    }
}

fn digest(file: &Path) -> Fallible<String> {
    let output = Command::new("sha256sum").arg(file).output()?;
    let text = String::from_utf8(output.stdout)?;
    let hex = text.split(' ').next().unwrap_or_default();
    match hex.len() {
        64 => Ok(format!("sha256:{hex}")),
        _ => Err("sha256sum failed".into()),
    }
}
