//! Metadata of an image that is kept besides its files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An image as it was when it was pulled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ImageInfo {
    /// Where it came from, in full.
    pub reference: String,
    /// Digest of the manifest for this machine, where there is one.
    pub manifest_digest: Option<String>,
    /// From the lowest to the highest layer.
    pub layers: Vec<LayerInfo>,
    /// A name, a number, or either with a group: `app`, `1000`, `1000:1000`.
    pub default_user: String,
    pub default_workdir: String,
    pub env: BTreeMap<String, String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub labels: BTreeMap<String, String>,
    /// Such as `8080/tcp`. Nothing is opened because of it.
    pub exposed_ports: Vec<String>,
    /// Kept and passed on; nothing acts on these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub healthcheck: Option<serde_json::Value>,
    /// Instructions for builds that start from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_build: Vec<String>,
    /// The shell for builds that start from it; `/bin/sh -c` if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shell: Vec<String>,
    /// It contains a working sudo.
    pub wants_sudo: bool,
}

/// One layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LayerInfo {
    /// Digest of the layer as received.
    pub digest: String,
    /// Digest of the uncompressed layer.
    pub diff_id: String,
    /// Size as received.
    pub size_bytes: u64,
}
