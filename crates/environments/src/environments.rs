//! The interface: list, inspect, pull, resolve, remove and prune environments.
//!
//! Owns who builds what when: one build per name at a time, in this process and
//! among processes, shared by everyone who asks. Blocking work runs on threads
//! for blocking work; the steps of a build are in `build`.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::{
    build::{self, Build},
    catalog::{self, CatalogEntry},
    error::EnvironmentError,
    name,
    privilege::{self, Privilege},
    process::Cancel,
    progress::{Progress, ProgressEvent},
    store::{BlobRecord, NameRecord, Store},
    verify,
};

/// Longest time one build may take.
pub const BUILD_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Events a slow watcher of a shared pull may lag behind before it misses some.
const SHARED_EVENTS: usize = 256;

/// What can be said about an environment, installed or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EnvironmentInfo {
    pub name: String,
    pub description: String,
    pub installed: bool,
    /// Installed, but made from an older recipe: a pull would rebuild it.
    pub outdated: bool,
    /// Content digest, `sha256:<hex>`, when installed.
    pub digest: Option<String>,
    /// Bytes of file contents; an estimate while not installed.
    pub size_bytes: u64,
    /// Estimated duration of a pull.
    pub pull_seconds: u64,
    /// When it was built, RFC 3339.
    pub created_at: Option<String>,
    /// Number of Debian packages in it.
    pub packages_count: Option<u64>,
    /// Versions of the packages the recipe asks for by name.
    pub packages: BTreeMap<String, String>,
    pub default_user: String,
    pub default_workdir: String,
    pub architecture: String,
    pub os: String,
    /// Where its packages come from.
    pub source: String,
    /// Sandboxes need working setuid programs.
    pub wants_sudo: bool,
}

/// An installed environment, ready to start sandboxes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    pub name: String,
    /// Content digest, `sha256:<hex>`.
    pub digest: String,
    /// The root filesystem. Nobody may write to it.
    pub root: PathBuf,
    pub default_user: String,
    pub default_workdir: String,
    pub env: BTreeMap<String, String>,
    /// Sandboxes need working setuid programs, so `no_new_privs` must stay off.
    pub wants_sudo: bool,
}

/// What a prune or a removal freed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Pruned {
    /// Names that are no longer installed.
    pub names: Vec<String>,
    /// Digests that were removed.
    pub digests: Vec<String>,
    /// Disk space freed.
    pub bytes: u64,
}

/// The environments of one home directory. Clones share everything.
#[derive(Clone)]
pub struct Environments {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<Store>,
    catalog: Vec<CatalogEntry>,
    flights: Mutex<HashMap<String, Arc<Flight>>>,
}

/// One name being pulled in this process.
struct Flight {
    turn: tokio::sync::Mutex<()>,
    events: broadcast::Sender<ProgressEvent>,
}

impl Environments {
    /// Opens, and creates where missing, the store under `home`. Leftovers of
    /// interrupted builds are removed.
    pub fn open(home: &Path, privilege: Privilege) -> Result<Self, EnvironmentError> {
        Ok(Self {
            inner: Arc::new(Inner {
                store: Arc::new(Store::open(home, privilege)?),
                catalog: catalog::embedded(),
                flights: Mutex::default(),
            }),
        })
    }

    /// The environments that can be pulled.
    pub fn catalog(&self) -> &[CatalogEntry] {
        &self.inner.catalog
    }

    /// The catalog, then what is installed beyond it.
    pub async fn list(&self) -> Result<Vec<EnvironmentInfo>, EnvironmentError> {
        let this = self.clone();
        blocking(move || {
            let mut known: Vec<String> = this
                .catalog()
                .iter()
                .map(|entry| entry.name.clone())
                .collect();
            for name in this.inner.store.names()? {
                if !known.contains(&name) {
                    known.push(name);
                }
            }
            let mut list = Vec::new();
            for name in known {
                match this.describe(&name) {
                    Ok(info) => list.push(info),
                    // One broken record must not hide the others.
                    Err(EnvironmentError::Corrupt { reason, .. }) => {
                        tracing::warn!(name, reason, "an environment cannot be listed");
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(list)
        })
        .await
    }

    /// One environment of the catalog or of the store.
    pub async fn inspect(&self, name: &str) -> Result<EnvironmentInfo, EnvironmentError> {
        name::validate(name)?;
        let (this, name) = (self.clone(), name.to_owned());
        blocking(move || this.describe(&name)).await
    }

    /// Builds the environment unless it is installed. Everyone who pulls the same
    /// name at the same time shares one build and sees its progress. Dropping
    /// the future ends the build it started and leaves nothing behind.
    pub async fn pull(
        &self,
        name: &str,
        progress: Progress,
    ) -> Result<EnvironmentInfo, EnvironmentError> {
        name::validate(name)?;
        let entry = self.entry(name).ok_or_else(|| self.unknown(name))?.clone();
        if self.is_current(&entry).await? {
            return self.inspect(name).await;
        }
        let flight = self.flight(name);
        let mut events = flight.events.subscribe();
        let _turn = loop {
            tokio::select! {
                biased;
                turn = flight.turn.lock() => break turn,
                event = events.recv() => {
                    // A watcher that lags misses events, not the result.
                    if let Ok(event) = event {
                        progress.send(event);
                    }
                }
            }
        };
        if !self.is_current(&entry).await? {
            let shared = flight.events.clone();
            let everyone = Progress::new(move |event: ProgressEvent| {
                // An error means that nobody else waits.
                let _ = shared.send(event.clone());
                progress.send(event);
            });
            // The own subscription would only fill up.
            drop(events);
            self.build(entry, everyone).await?;
        }
        self.inspect(name).await
    }

    /// The installed environment of that name.
    pub async fn resolve(&self, name: &str) -> Result<Environment, EnvironmentError> {
        name::validate(name)?;
        let (this, name) = (self.clone(), name.to_owned());
        blocking(move || {
            let store = &this.inner.store;
            let Some(record) = store.name(&name)? else {
                return Err(match this.entry(&name) {
                    Some(_) => EnvironmentError::NotInstalled { name },
                    None => this.unknown(&name),
                });
            };
            let recipe = store.blob_record(&record.digest)?.recipe;
            Ok(Environment {
                name,
                root: store.root_of(&record.digest),
                digest: record.digest,
                default_user: recipe.default_user,
                default_workdir: recipe.default_workdir,
                env: recipe.env,
                wants_sudo: recipe.wants_sudo,
            })
        })
        .await
    }

    /// Reads an installed environment back and compares it with its digest:
    /// seconds, not milliseconds.
    pub async fn verify(&self, name: &str) -> Result<(), EnvironmentError> {
        let digest = self.resolve(name).await?.digest;
        let store = self.inner.store.clone();
        let cancel = Cancel::default();
        let _ends_the_reader = cancel.on_drop();
        let watched = cancel.clone();
        blocking(move || verify::verify(&store, &digest, &watched)).await
    }

    /// Removes one installed environment, unless its digest is in use.
    pub async fn remove(
        &self,
        name: &str,
        in_use: &HashSet<String>,
    ) -> Result<Pruned, EnvironmentError> {
        name::validate(name)?;
        let (store, in_use) = (self.inner.store.clone(), in_use.clone());
        let name = name.to_owned();
        blocking(move || {
            let Some(record) = store.name(&name)? else {
                return Err(EnvironmentError::NotInstalled { name });
            };
            if in_use.contains(&record.digest) {
                return Err(EnvironmentError::InUse {
                    name,
                    digest: record.digest,
                });
            }
            sweep(
                &store,
                |names| {
                    names.retain(|other| other.digest == record.digest && other.name == name);
                },
                &in_use,
            )
        })
        .await
    }

    /// Removes blobs that no name means; with `all`, also every installed
    /// environment and all cached packages. A digest in use is never removed.
    pub async fn prune(
        &self,
        in_use: &HashSet<String>,
        all: bool,
    ) -> Result<Pruned, EnvironmentError> {
        let (store, in_use) = (self.inner.store.clone(), in_use.clone());
        blocking(move || {
            let mut pruned = sweep(
                &store,
                |names| {
                    names.retain(|name| all && !in_use.contains(&name.digest));
                },
                &in_use,
            )?;
            if all {
                let cache = store.package_cache();
                pruned.bytes += privilege::disk_usage(&cache);
                store.privilege().remove_tree(&cache)?;
            }
            Ok(pruned)
        })
        .await
    }

    async fn is_current(&self, entry: &CatalogEntry) -> Result<bool, EnvironmentError> {
        let (store, entry) = (self.inner.store.clone(), entry.clone());
        blocking(move || build::is_current(&store, &entry)).await
    }

    async fn build(&self, entry: CatalogEntry, progress: Progress) -> Result<(), EnvironmentError> {
        let cancel = Cancel::default();
        let _ends_the_build = cancel.on_drop();
        let name = entry.name.clone();
        let build = Build {
            store: self.inner.store.clone(),
            entry,
            progress,
            cancel: cancel.clone(),
        };
        let mut work = std::pin::pin!(blocking(move || build.run()));
        tokio::select! {
            result = &mut work => result,
            () = tokio::time::sleep(BUILD_TIMEOUT) => {
                cancel.cancel();
                // It may have finished in the last moment.
                work.await.map_err(|_| EnvironmentError::TimedOut {
                    name,
                    seconds: BUILD_TIMEOUT.as_secs(),
                })
            }
        }
    }

    fn flight(&self, name: &str) -> Arc<Flight> {
        let mut flights = self
            .inner
            .flights
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let flight = flights.entry(name.to_owned()).or_insert_with(|| {
            Arc::new(Flight {
                turn: tokio::sync::Mutex::default(),
                events: broadcast::Sender::new(SHARED_EVENTS),
            })
        });
        flight.clone()
    }

    fn entry(&self, name: &str) -> Option<&CatalogEntry> {
        self.catalog().iter().find(|entry| entry.name == name)
    }

    fn unknown(&self, name: &str) -> EnvironmentError {
        let known = self.catalog().iter().map(|entry| entry.name.as_str());
        EnvironmentError::Unknown {
            name: name.to_owned(),
            suggestions: name::suggest(name, known),
        }
    }

    fn describe(&self, name: &str) -> Result<EnvironmentInfo, EnvironmentError> {
        let store = &self.inner.store;
        let entry = self.entry(name);
        let installed = match store.name(name) {
            Ok(Some(record)) => store.blob_record(&record.digest).map(|blob| (record, blob)),
            Ok(None) => Err(self.unknown(name)),
            Err(error) => Err(error),
        };
        match (installed, entry) {
            (Ok((record, blob)), _) => Ok(installed_info(record, blob, entry)),
            // What is missing or broken can be pulled.
            (
                Err(EnvironmentError::Unknown { .. } | EnvironmentError::Corrupt { .. }),
                Some(entry),
            ) => Ok(catalog_info(entry)),
            (Err(error), _) => Err(error),
        }
    }
}

impl fmt::Debug for Environments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environments")
            .field("store", &self.inner.store)
            .finish_non_exhaustive()
    }
}

/// Removes the names that `choose` leaves in the list, then every blob that
/// neither a remaining name nor a sandbox needs.
fn sweep(
    store: &Store,
    choose: impl FnOnce(&mut Vec<NameRecord>),
    in_use: &HashSet<String>,
) -> Result<Pruned, EnvironmentError> {
    // Deleting takes long and happens, by dropping this, after the lock is free.
    let staging = store.stage()?;
    let mut pruned = Pruned::default();
    let _guard = store.lock()?;
    let mut all = Vec::new();
    for name in store.names()? {
        // A record that cannot be read stops here: its blob is not ours to remove.
        all.extend(store.name(&name)?);
    }
    let mut needed: HashSet<String> = in_use.clone();
    let mut chosen = all.clone();
    choose(&mut chosen);
    for record in all {
        if chosen.contains(&record) {
            store.remove_name(&record.name)?;
            pruned.names.push(record.name);
        } else {
            needed.insert(record.digest);
        }
    }
    for digest in store.blobs()? {
        if !needed.contains(&digest) {
            pruned.bytes += privilege::disk_usage(&store.blob(&digest));
            store.discard_blob(&digest, &staging)?;
            pruned.digests.push(digest);
        }
    }
    Ok(pruned)
}

fn catalog_info(entry: &CatalogEntry) -> EnvironmentInfo {
    EnvironmentInfo {
        name: entry.name.clone(),
        description: entry.description.clone(),
        installed: false,
        outdated: false,
        digest: None,
        size_bytes: entry.approximate_bytes,
        pull_seconds: entry.approximate_seconds,
        created_at: None,
        packages_count: None,
        packages: BTreeMap::new(),
        default_user: entry.default_user.clone(),
        default_workdir: entry.default_workdir.clone(),
        architecture: std::env::consts::ARCH.to_owned(),
        os: entry.source(),
        source: entry.source(),
        wants_sudo: entry.wants_sudo,
    }
}

fn installed_info(
    record: NameRecord,
    blob: BlobRecord,
    entry: Option<&CatalogEntry>,
) -> EnvironmentInfo {
    let recipe = &blob.recipe;
    let named = blob
        .packages
        .iter()
        .filter(|package| recipe.packages.contains(&package.name))
        .map(|package| (package.name.clone(), package.version.clone()));
    EnvironmentInfo {
        installed: true,
        outdated: entry.is_some_and(|entry| entry.recipe_hash() != record.recipe_hash),
        digest: Some(record.digest),
        size_bytes: blob.size_bytes,
        created_at: Some(blob.created_at.clone()),
        packages_count: Some(blob.packages.len() as u64),
        packages: named.collect(),
        architecture: blob.architecture.clone(),
        os: blob.os.clone(),
        name: record.name,
        ..catalog_info(recipe)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EnvironmentError> + Send + 'static,
) -> Result<T, EnvironmentError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(EnvironmentError::io(
            "running a blocking task",
            std::io::Error::other(error),
        )),
    }
}

#[cfg(test)]
#[path = "environments_tests.rs"]
mod tests;
