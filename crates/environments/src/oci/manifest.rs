//! The documents that describe images.
//!
//! Parses manifests and indexes, chooses an image for this machine, and interprets configurations.
//! Pure: bytes in, facts out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{digest, error::EnvironmentError, tree::MAX_ROOT_BYTES};

/// Largest manifest, index or configuration.
pub(crate) const MAX_DOCUMENT_BYTES: u64 = 4 << 20;
/// Most layers of one image; no known builder makes more than half of it.
const MAX_LAYERS: usize = 256;

/// The accepted manifest types, best first.
pub(crate) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";
const CONFIG_TYPES: [&str; 2] = [
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
];
/// The annotation that names an image in a layout.
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Points at another document or at a layer.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: String,
    pub size: u64,
    #[serde(default)]
    pub platform: Option<Platform>,
    #[serde(default)]
    pub annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Platform {
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub os: String,
}

/// Either kind of top document.
#[derive(Debug)]
pub(crate) enum Document {
    /// An index of images for several platforms.
    Index(Vec<Descriptor>),
    Image(Manifest),
}

/// One image.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDocument {
    schema_version: u32,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

/// What an image says about how it is used.
#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub config: Option<Settings>,
    pub rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RootFs {
    pub diff_ids: Vec<String>,
}

/// The `config` object. Builders write `null` for missing fields, so everything is optional.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Settings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmd: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_build: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<Vec<String>>,
}

impl Document {
    pub fn parse(what: &str, bytes: &[u8]) -> Result<Self, EnvironmentError> {
        let raw: RawDocument = json(what, bytes)?;
        if raw.schema_version != 2 {
            let reason = format!("schema version {} is not supported", raw.schema_version);
            return Err(malformed(what, reason));
        }
        match raw {
            // A document with both forms could mean different images to different readers.
            RawDocument {
                manifests: Some(manifests),
                config: None,
                layers: None,
                ..
            } => Ok(Self::Index(manifests)),
            RawDocument {
                manifests: None,
                config: Some(config),
                layers: Some(layers),
                ..
            } => {
                let manifest = Manifest { config, layers };
                manifest.check(what)?;
                Ok(Self::Image(manifest))
            }
            _ => Err(malformed(what, "it is neither an image nor a list of them")),
        }
    }
}

impl Manifest {
    fn check(&self, what: &str) -> Result<(), EnvironmentError> {
        let kind = &self.config.media_type;
        if !kind.is_empty() && !CONFIG_TYPES.contains(&kind.as_str()) {
            return Err(malformed(
                what,
                format!("it holds {kind}, no container image"),
            ));
        }
        if self.layers.len() > MAX_LAYERS {
            return Err(EnvironmentError::TooLarge {
                what: "layers",
                limit: MAX_LAYERS as u64,
            });
        }
        let mut total = 0_u64;
        for part in self.layers.iter().chain([&self.config]) {
            part.check(what)?;
            total = total.saturating_add(part.size);
        }
        if total > MAX_ROOT_BYTES {
            return Err(EnvironmentError::TooLarge {
                what: "bytes",
                limit: MAX_ROOT_BYTES,
            });
        }
        Ok(())
    }
}

impl Descriptor {
    pub fn check(&self, what: &str) -> Result<(), EnvironmentError> {
        if digest::is_valid(&self.digest) {
            return Ok(());
        }
        let shown: String = self.digest.chars().take(80).collect();
        Err(malformed(what, format!("{shown:?} is no sha256 digest")))
    }
}

/// The entry of an index for this machine.
pub(crate) fn choose(name: &str, entries: &[Descriptor]) -> Result<Descriptor, EnvironmentError> {
    let platform = |entry: &Descriptor| entry.platform.clone();
    let fits = |entry: &&Descriptor| match platform(entry) {
        Some(platform) => platform.os == "linux" && platform.architecture == architecture(),
        None => false,
    };
    let only = match entries {
        // A single entry need not state its platform; the configuration will.
        [only] if only.platform.is_none() => Some(only),
        _ => None,
    };
    let Some(found) = entries.iter().find(fits).or(only) else {
        return Err(no_platform(
            name,
            entries
                .iter()
                .filter_map(platform)
                .filter(|platform| platform.os != "unknown")
                .map(|platform| format!("{}/{}", platform.os, platform.architecture))
                .collect(),
        ));
    };
    found.check(name)?;
    Ok(found.clone())
}

/// The entries of a layout with this tag; without one, all.
pub(crate) fn tagged(entries: Vec<Descriptor>, tag: Option<&str>) -> Vec<Descriptor> {
    let Some(tag) = tag else {
        return entries;
    };
    let has_tag = |entry: &Descriptor| {
        let annotations = entry.annotations.as_ref();
        annotations
            .and_then(|all| all.get(REF_NAME))
            .map(String::as_str)
            == Some(tag)
    };
    entries.into_iter().filter(has_tag).collect()
}

impl Config {
    pub fn parse(name: &str, bytes: &[u8], layers: usize) -> Result<Self, EnvironmentError> {
        let what = format!("configuration of {name}");
        let config: Self = json(&what, bytes)?;
        let found = config.rootfs.diff_ids.len();
        if found != layers {
            let reason = format!("it names {found} layers, the image has {layers}");
            return Err(malformed(&what, reason));
        }
        if config
            .rootfs
            .diff_ids
            .iter()
            .any(|id| !digest::is_valid(id))
        {
            return Err(malformed(&what, "it names a layer without a sha256 digest"));
        }
        let foreign = |value: &str, ours: &str| !value.is_empty() && value != ours;
        if foreign(&config.os, "linux") || foreign(&config.architecture, architecture()) {
            let available = format!("{}/{}", config.os, config.architecture);
            return Err(no_platform(name, vec![available]));
        }
        Ok(config)
    }
}

/// What image builders call this machine's architecture.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn no_platform(name: &str, mut available: Vec<String>) -> EnvironmentError {
    available.sort();
    available.dedup();
    available.truncate(20);
    EnvironmentError::NoPlatform {
        name: name.to_owned(),
        wanted: format!("linux/{}", architecture()),
        available,
    }
}

pub(crate) fn json<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, EnvironmentError> {
    serde_json::from_slice(bytes).map_err(|error| malformed(what, error.to_string()))
}

pub(crate) fn malformed(what: &str, reason: impl Into<String>) -> EnvironmentError {
    EnvironmentError::Malformed {
        what: what.to_owned(),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(extra: &str) -> String {
        format!(
            r#"{{"digest":"sha256:{}","size":7{extra}}}"#,
            "a".repeat(64)
        )
    }

    #[test]
    fn a_document_is_an_image_or_a_list_and_never_both() {
        let one = descriptor("");
        let image = format!(r#"{{"schemaVersion":2,"config":{one},"layers":[{one}]}}"#);
        let list = format!(r#"{{"schemaVersion":2,"manifests":[{one}]}}"#);
        let both =
            format!(r#"{{"schemaVersion":2,"manifests":[],"config":{one},"layers":[{one}]}}"#);
        let parse = |text: &str| Document::parse("it", text.as_bytes());
        assert!(matches!(parse(&image), Ok(Document::Image(_))));
        assert!(matches!(parse(&list), Ok(Document::Index(_))));
        for bad in [
            &both,
            r#"{"schemaVersion":1}"#,
            r#"{"schemaVersion":2}"#,
            "[",
            "",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(matches!(error, EnvironmentError::Malformed { .. }), "{bad}");
        }
        let chart = image.replace(
            r#""config":{"#,
            r#""config":{"mediaType":"application/vnd.cncf.helm.config.v1+json","#,
        );
        assert!(parse(&chart).is_err());
        let odd = image.replace("sha256:", "md5:");
        assert!(parse(&odd).is_err());
    }

    #[test]
    fn the_image_for_this_machine_is_chosen() {
        let entry = |os: &str, arch: &str| {
            let platform = format!(r#","platform":{{"os":"{os}","architecture":"{arch}"}}"#);
            serde_json::from_str::<Descriptor>(&descriptor(&platform)).unwrap()
        };
        let all = [
            entry("windows", architecture()),
            entry("linux", architecture()),
        ];
        let found = choose("it", &all).unwrap().platform.unwrap();
        assert_eq!(found.os, "linux");
        let error = choose(
            "it",
            &[entry("linux", "s390x"), entry("unknown", "unknown")],
        );
        let error = error.unwrap_err();
        assert_eq!(error.hint().as_deref(), Some("it has linux/s390x"));
        let plain: Descriptor = serde_json::from_str(&descriptor("")).unwrap();
        assert!(choose("it", &[plain]).is_ok());
    }

    #[test]
    fn null_and_missing_settings_are_the_same() {
        let text = r#"{"rootfs":{"diff_ids":[]},"config":{"Env":null,"Cmd":["sh"]}}"#;
        let config = Config::parse("it", text.as_bytes(), 0).unwrap();
        let settings = config.config.unwrap();
        assert!(settings.env.is_none());
        assert_eq!(settings.cmd.unwrap(), ["sh"]);
        assert!(Config::parse("it", text.as_bytes(), 1).is_err());
    }
}
