//! Environments from images: real registries, hostile ones, and files.
//!
//! Tests that need missing programs print a reason and skip; the others are self-contained,
//! including the registry.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod accounts;
mod fake;
mod files;
mod hostile;
mod misbehaving;
mod pull;
mod registry;
mod writer;

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use motu_environments::{
    EnvironmentError, EnvironmentInfo, Environments, Privilege, Progress, ProgressEvent,
    RegistryOptions,
};

/// A private home, and what a test needs of it.
struct Home {
    dir: tempfile::TempDir,
    environments: Environments,
}

impl Home {
    fn new() -> Self {
        Self::with(options())
    }

    fn with(options: RegistryOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let environments =
            Environments::open_with(dir.path(), Privilege::detect(), options).unwrap();
        Self { dir, environments }
    }

    async fn pull(&self, name: &str) -> Result<EnvironmentInfo, EnvironmentError> {
        self.environments.pull(name, Progress::none()).await
    }

    /// The path of the root of an installed environment.
    async fn root(&self, name: &str) -> std::path::PathBuf {
        self.environments.resolve(name).await.unwrap().root
    }

    /// Asserts that a failed pull left no names, blobs or stagings.
    async fn assert_empty(&self) {
        let store = self.dir.path().join("environments");
        for part in ["names", "blobs", "staging"] {
            assert_eq!(children(&store.join(part)), Vec::<String>::new(), "{part}");
        }
        let list = self.environments.list().await.unwrap();
        assert!(list.iter().all(|info| !info.installed));
    }

    fn cached(&self, part: &str) -> Vec<String> {
        children(&self.dir.path().join("cache/oci").join(part))
    }
}

/// Short timeouts, and no login of the user who runs the tests.
fn options() -> RegistryOptions {
    let mut options = RegistryOptions::default();
    options.idle_timeout = Duration::from_millis(500);
    options.max_retry_wait = Duration::from_millis(50);
    options.docker_config = None;
    options
}

fn children(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// Remembers every event.
fn watch() -> (Progress, Arc<Mutex<Vec<ProgressEvent>>>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = events.clone();
    let progress = Progress::new(move |event| seen.lock().unwrap().push(event));
    (progress, events)
}

/// The layers that were downloaded, by their short digests.
fn downloaded(events: &Mutex<Vec<ProgressEvent>>) -> Vec<String> {
    let events = events.lock().unwrap();
    let mut layers: Vec<String> = events
        .iter()
        .filter(|event| event.stage == "download")
        .map(|event| event.message.clone())
        .collect();
    layers.sort();
    layers.dedup();
    layers
}

fn text(path: std::path::PathBuf) -> String {
    fs::read_to_string(path).unwrap()
}
