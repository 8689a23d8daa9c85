//! Images in registries: asking for them and keeping what was downloaded.
//!
//! Owns the protocol (manifests, blobs, logins, retries), its connections and the cache of layers.
//! It never looks inside a layer; `layer` does.

mod auth;
pub(crate) mod cache;
mod challenge;
mod credentials;
pub(crate) mod http;
pub(crate) mod manifest;
pub(crate) mod registry;

use std::{env, path::PathBuf, time::Duration};

/// Longest silence of a registry before a pull gives up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait a busy registry may ask for.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(30);

/// Options for registries.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RegistryOptions {
    /// Longest silence of a registry before a pull gives up.
    pub idle_timeout: Duration,
    /// Longest wait a busy registry may ask for; more is cut down to this.
    pub max_retry_wait: Duration,
    /// The file `docker login` writes, if there may be one.
    pub docker_config: Option<PathBuf>,
}

impl Default for RegistryOptions {
    fn default() -> Self {
        let directory = env::var_os("DOCKER_CONFIG")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".docker")));
        Self {
            idle_timeout: IDLE_TIMEOUT,
            max_retry_wait: MAX_RETRY_WAIT,
            docker_config: directory.map(|directory| directory.join("config.json")),
        }
    }
}
