//! The interface: list, inspect, pull, resolve, remove and prune environments.
//!
//! Coordinates builds: one build per name at a time, in this process and among processes, shared by
//! all callers. Blocking work runs on blocking threads; the steps of a build are in `build`.

use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::broadcast};

use crate::{
    build::{self, Build},
    catalog::{self, CatalogEntry},
    describe::{self, Environment, EnvironmentInfo, catalog_info, installed_info},
    error::EnvironmentError,
    held::Hold,
    image::Import,
    name,
    oci::{Account, RegistryOptions},
    privilege::Privilege,
    process::Cancel,
    progress::{Progress, ProgressEvent},
    reference::{self, Origin},
    remembered::{Remembered, Stamp},
    store::{NameRecord, Store},
    title::{OfOlder, Title},
    verify,
};

/// Longest time one build may take.
pub const BUILD_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Longest time one pull of an image may take. Downloaded data is kept, and the next pull resumes.
pub const PULL_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Events a slow watcher of a shared pull may lag behind before it misses some.
const SHARED_EVENTS: usize = 256;

/// The environments of one home directory. Clones share everything.
#[derive(Clone)]
pub struct Environments {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<Store>,
    catalog: Vec<CatalogEntry>,
    flights: Mutex<HashMap<(Account, String), Arc<Flight>>>,
    remembered: Remembered,
    options: RegistryOptions,
}

/// One name being pulled in this process.
struct Flight {
    turn: tokio::sync::Mutex<()>,
    events: broadcast::Sender<ProgressEvent>,
    /// Number of successful pulls.
    arrivals: AtomicU64,
}

/// What a name refers to.
enum Target {
    Catalog(CatalogEntry),
    Image(Origin),
}

impl Environments {
    /// Opens, and creates where missing, the store under `home`. Leftovers of
    /// interrupted builds are removed.
    pub fn open(home: &Path, privilege: Privilege) -> Result<Self, EnvironmentError> {
        Self::open_with(home, privilege, RegistryOptions::default())
    }

    /// Like [`Self::open`], with options for registries.
    pub fn open_with(
        home: &Path,
        privilege: Privilege,
        options: RegistryOptions,
    ) -> Result<Self, EnvironmentError> {
        Ok(Self {
            inner: Arc::new(Inner {
                store: Arc::new(Store::open(home, privilege)?),
                catalog: catalog::embedded(),
                flights: Mutex::default(),
                remembered: Remembered::default(),
                options,
            }),
        })
    }

    /// Says how it is known whose environments are that are older than owners. Without it they are
    /// the host's.
    pub fn read_older_by(&self, rule: OfOlder) {
        self.inner.store.read_older_by(rule);
    }

    /// Fails with the reason if no environment can be installed on this host.
    pub fn check(&self) -> Result<(), EnvironmentError> {
        self.inner.store.privilege().check()
    }

    /// The environments that can be pulled.
    pub fn catalog(&self) -> &[CatalogEntry] {
        &self.inner.catalog
    }

    /// The catalog, followed by other installed environments.
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

    /// [`Self::pull_for`] whoever runs this host.
    pub async fn pull(
        &self,
        name: &str,
        progress: Progress,
    ) -> Result<EnvironmentInfo, EnvironmentError> {
        self.pull_for(Account::Operator, None, name, progress).await
    }

    /// Builds or downloads the environment unless it is installed. A tag of an image is looked up
    /// again each time. Concurrent pulls of the same name on the same account share one pull and its
    /// progress. Dropping the future cancels the pull it started. An image gets this title; without
    /// one it is the host's, under its own name. What the catalog has is always the host's.
    pub async fn pull_for(
        &self,
        account: Account,
        title: Option<Title>,
        name: &str,
        progress: Progress,
    ) -> Result<EnvironmentInfo, EnvironmentError> {
        name::validate(name)?;
        let target = self.target(name)?;
        let account = match &target {
            // What the catalog's are made from, and from where, is the operator's choice.
            Target::Catalog(_) => Account::Operator,
            Target::Image(_) => account,
        };
        let title = match (&target, title) {
            (Target::Image(_), Some(title)) => title,
            _ => Title::of_host(target.name()),
        };
        let stored = title.name.clone();
        name::validate(&stored)?;
        if self.is_current(&target).await? {
            return self.inspect(&stored).await;
        }
        let flight = self.flight((account.clone(), stored.clone()));
        let arrivals = flight.arrivals.load(Ordering::SeqCst);
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
        let arrived = flight.arrivals.load(Ordering::SeqCst) > arrivals;
        let mut held = None;
        if !arrived && !self.is_current(&target).await? {
            let shared = flight.events.clone();
            let everyone = Progress::new(move |event: ProgressEvent| {
                // An error means that nobody else waits.
                let _ = shared.send(event.clone());
                progress.send(event);
            });
            // Drop our own subscription: nobody reads it.
            drop(events);
            held = Some(self.make(target, title, account, everyone).await?);
            flight.arrivals.fetch_add(1, Ordering::SeqCst);
        }
        let found = self.inspect(&stored).await;
        drop(held);
        found
    }

    /// Whose the installed environment of that name is, empty for the host's; `None` when there is
    /// none.
    pub async fn whose(&self, name: &str) -> Result<Option<String>, EnvironmentError> {
        name::validate(name)?;
        let stored = self.stored_name(name);
        let file = self.inner.store.name_file(&stored);
        if let Some(found) = self.inner.remembered.find(&stored, &file) {
            return Ok(Some(found.owner));
        }
        let store = self.inner.store.clone();
        let record = blocking(move || store.name(&stored)).await?;
        Ok(record.map(|record| record.owner().to_owned()))
    }

    /// Keeps a tree that is installed from being collected.
    pub async fn hold(&self, digest: &str) -> Result<Hold, EnvironmentError> {
        let (store, digest) = (self.inner.store.clone(), digest.to_owned());
        blocking(move || store.hold_there(&digest).map(|(hold, _)| hold)).await
    }

    /// Digests that work in progress holds.
    pub fn held(&self) -> Vec<String> {
        let mut held = self.inner.store.holds().all();
        held.retain(|what| crate::digest::is_valid(what));
        held
    }

    /// The installed environment of that name.
    pub async fn resolve(&self, name: &str) -> Result<Environment, EnvironmentError> {
        name::validate(name)?;
        let stored = self.stored_name(name);
        let file = self.inner.store.name_file(&stored);
        if let Some(found) = self.inner.remembered.find(&stored, &file) {
            return Ok(found);
        }
        let (this, name) = (self.clone(), name.to_owned());
        blocking(move || {
            let store = &this.inner.store;
            let stamp = Stamp::of(&file);
            let Some(record) = store.name(&stored)? else {
                return Err(this.missing(&name));
            };
            let blob = store.blob_record(&record.digest)?;
            let root = store.root_of(&record.digest);
            let read = describe::environment(record, &blob, this.entry(&stored), root)?;
            if let Some(stamp) = stamp {
                let remembered = &this.inner.remembered;
                remembered.note(stored, stamp, read.clone());
            }
            Ok(read)
        })
        .await
    }

    /// Reads an installed environment back and compares it with its digest. Takes seconds.
    pub async fn verify(&self, name: &str) -> Result<(), EnvironmentError> {
        let digest = self.resolve(name).await?.digest;
        let store = self.inner.store.clone();
        let cancel = Cancel::default();
        let _ends_the_reader = cancel.on_drop();
        let watched = cancel.clone();
        blocking(move || verify::verify(&store, &digest, &watched)).await
    }

    /// Gives an installed environment another, unused name.
    pub async fn tag(&self, name: &str, new: Title) -> Result<EnvironmentInfo, EnvironmentError> {
        name::validate(name)?;
        self.check_own_name(&new)?;
        let (this, name) = (self.clone(), name.to_owned());
        blocking(move || {
            let store = &this.inner.store;
            let _guard = store.lock()?;
            let Some(record) = store.name(&this.stored_name(&name))? else {
                return Err(this.missing(&name));
            };
            match store.name(&new.name)? {
                Some(other) if other.digest != record.digest => {
                    return Err(EnvironmentError::NameTaken { name: new.name });
                }
                _ => {}
            }
            store.write_name(&NameRecord {
                format_version: NameRecord::VERSION,
                name: new.name.clone(),
                owner: Some(new.owner),
                made_for: new.made_for,
                ..record
            })?;
            this.describe(&new.name)
        })
        .await
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.inner.store
    }

    pub(crate) fn options(&self) -> RegistryOptions {
        self.inner.options.clone()
    }

    /// Checks a name chosen by a caller: not in the catalog, and not one that states an origin.
    pub fn check_own_name(&self, title: &Title) -> Result<(), EnvironmentError> {
        let name = &title.name;
        name::validate(name)?;
        let explicit = [name, &title.short].map(|name| reference::is_explicit(name));
        if self.entry(name).is_some() || explicit.contains(&true) {
            let name = title.short.clone();
            return Err(EnvironmentError::NameTaken { name });
        }
        Ok(())
    }

    /// Whether there is nothing to do. For images the registry must be asked.
    async fn is_current(&self, target: &Target) -> Result<bool, EnvironmentError> {
        let Target::Catalog(entry) = target else {
            return Ok(false);
        };
        let (store, entry) = (self.inner.store.clone(), entry.clone());
        blocking(move || build::is_current(&store, &entry)).await
    }

    async fn make(
        &self,
        target: Target,
        title: Title,
        account: Account,
        progress: Progress,
    ) -> Result<Hold, EnvironmentError> {
        let cancel = Cancel::default();
        let store = self.inner.store.clone();
        match target {
            Target::Catalog(entry) => {
                let name = entry.name.clone();
                let build = Build {
                    store,
                    entry,
                    progress,
                    cancel: cancel.clone(),
                };
                within(BUILD_TIMEOUT, name, cancel, move || build.run()).await
            }
            Target::Image(origin) => {
                let name = origin.name();
                let import = Import {
                    store,
                    name: name.clone(),
                    title,
                    origin,
                    progress,
                    cancel: cancel.clone(),
                    options: self.inner.options.clone(),
                    account,
                    runtime: Handle::current(),
                };
                within(PULL_TIMEOUT, name, cancel, move || import.run()).await
            }
        }
    }

    fn flight(&self, whose: (Account, String)) -> Arc<Flight> {
        let mut flights = self
            .inner
            .flights
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Those that nobody waits for are over: names are callers' words, and there are many.
        flights.retain(|_, flight| Arc::strong_count(flight) > 1);
        let flight = flights.entry(whose).or_insert_with(|| {
            Arc::new(Flight {
                turn: tokio::sync::Mutex::default(),
                events: broadcast::Sender::new(SHARED_EVENTS),
                arrivals: AtomicU64::new(0),
            })
        });
        flight.clone()
    }

    fn entry(&self, name: &str) -> Option<&CatalogEntry> {
        self.catalog().iter().find(|entry| entry.name == name)
    }

    /// The catalog comes first, then images.
    fn target(&self, name: &str) -> Result<Target, EnvironmentError> {
        if let Some(entry) = self.entry(name) {
            return Ok(Target::Catalog(entry.clone()));
        }
        let origin = Origin::parse(name).ok_or_else(|| self.unknown(name))?;
        Ok(Target::Image(origin))
    }

    /// The spelling a name is stored under.
    pub(crate) fn stored_name(&self, name: &str) -> String {
        let is_known =
            self.entry(name).is_some() || !matches!(self.inner.store.name(name), Ok(None));
        match Origin::parse(name) {
            Some(origin) if !is_known => origin.name(),
            _ => name.to_owned(),
        }
    }

    /// The error for a name that is not installed.
    fn missing(&self, name: &str) -> EnvironmentError {
        if self.entry(name).is_some() || reference::is_explicit(name) {
            return EnvironmentError::NotInstalled {
                name: name.to_owned(),
            };
        }
        self.unknown(name)
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
        let stored = self.stored_name(name);
        let entry = self.entry(&stored);
        let installed = match store.name(&stored) {
            Ok(Some(record)) => store.blob_record(&record.digest).map(|blob| (record, blob)),
            Ok(None) => Err(self.missing(name)),
            Err(error) => Err(error),
        };
        match (installed, entry) {
            (Ok((record, blob)), _) => installed_info(record, &blob, entry),
            // A missing or broken one can be pulled.
            (
                Err(EnvironmentError::NotInstalled { .. } | EnvironmentError::Corrupt { .. }),
                Some(entry),
            ) => Ok(catalog_info(entry)),
            (Err(error), _) => Err(error),
        }
    }
}

impl Target {
    fn name(&self) -> String {
        match self {
            Self::Catalog(entry) => entry.name.clone(),
            Self::Image(origin) => origin.name(),
        }
    }
}

/// Whether pulling `name` reads files of the daemon's host. Such names are only for callers who may
/// read these files themselves.
pub fn reads_host_files(name: &str) -> bool {
    Origin::parse(name).is_some_and(|origin| origin.is_host_path())
}

impl fmt::Debug for Environments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environments")
            .field("store", &self.inner.store)
            .finish_non_exhaustive()
    }
}

/// The full name of an image in a registry, under which the host has it.
pub fn full_name(name: &str) -> Option<String> {
    Origin::parse(name)
        .filter(|origin| !origin.is_host_path())
        .map(|origin| origin.name())
}

/// Runs blocking work until its time limit, or until the future is dropped.
pub(crate) async fn within<T: Send + 'static>(
    limit: Duration,
    name: String,
    cancel: Cancel,
    work: impl FnOnce() -> Result<T, EnvironmentError> + Send + 'static,
) -> Result<T, EnvironmentError> {
    let _ends_the_work = cancel.on_drop();
    let mut work = std::pin::pin!(blocking(work));
    tokio::select! {
        result = &mut work => result,
        () = tokio::time::sleep(limit) => {
            cancel.cancel();
            // It may have finished in the last moment.
            work.await.map_err(|_| EnvironmentError::TimedOut {
                name,
                seconds: limit.as_secs(),
            })
        }
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
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
