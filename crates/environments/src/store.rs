//! The directory environments are kept in.
//!
//! ```text
//! <home>/environments/
//!   lock                       held while names or blobs change
//!   pulls/<name>.lock          held by the one process that builds a name
//!   names/<name>.json          which digest a name means, and whose the name is
//!   blobs/sha256-<hex>/        one environment: root/ and environment.json
//!   staging/<id>/              a build in progress, with a held `lock`
//! ```
//!
//! Owns the layout, the records and the order of writes: staged, synced, renamed. It never builds,
//! and never deletes what a caller reports as in use. Directory names contain no colon because
//! mount options are split at colons.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::OnceLock,
    thread,
    time::Duration,
};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use crate::{
    about::ImageInfo,
    catalog::CatalogEntry,
    digest,
    error::{EnvironmentError, IoContext as _},
    held::{Hold, Holds},
    name::{self, Decoded},
    privilege::Privilege,
    process::Cancel,
    reference,
    title::{OfOlder, Title},
};

/// Version 2 added environments that are not from the catalog, version 3 owners of names.
const FORMAT_VERSION: u32 = 3;
/// How often the lock of another process is retried.
const LOCK_POLL: Duration = Duration::from_millis(50);

/// One installed Debian package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Package {
    pub name: String,
    pub version: String,
}

/// `environment.json`: the record of a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlobRecord {
    pub format_version: u32,
    pub digest: String,
    pub size_bytes: u64,
    pub entries: u64,
    pub created_at: String,
    pub architecture: String,
    pub os: String,
    pub packages: Vec<Package>,
    /// The catalog entry it was built from, if any.
    #[serde(default)]
    pub recipe: Option<CatalogEntry>,
}

impl BlobRecord {
    /// What a tree is has not changed since.
    pub const VERSION: u32 = 2;
}

/// `names/<name>.json`: the record of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameRecord {
    pub format_version: u32,
    pub name: String,
    pub digest: String,
    pub pulled_at: String,
    /// What it was made from: a recipe, a manifest, a file. A pull with the same origin has nothing
    /// to do.
    pub recipe_hash: String,
    /// The image's configuration, if it was an image. Stored with the name: images with the same
    /// files may differ in it.
    #[serde(default)]
    pub image: Option<ImageInfo>,
    /// Whose it is; empty for the host's. Records of older versions have none: see
    /// [`Store::name`], which gives them one.
    #[serde(default)]
    pub owner: Option<String>,
    /// The template whose setup made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_for: Option<String>,
}

impl NameRecord {
    pub const VERSION: u32 = FORMAT_VERSION;

    /// Whose it is; empty for the host's.
    pub fn owner(&self) -> &str {
        self.owner.as_deref().unwrap_or_default()
    }

    pub fn title(&self) -> Title {
        Title {
            name: self.name.clone(),
            short: self.name.clone(),
            owner: self.owner().to_owned(),
            made_for: self.made_for.clone(),
        }
    }
}

/// The store of one home directory.
#[derive(Debug)]
pub(crate) struct Store {
    home: PathBuf,
    root: PathBuf,
    privilege: Privilege,
    holds: Holds,
    /// Whose names of older versions are; without it they are the host's.
    older: OnceLock<OfOlder>,
}

impl Store {
    /// Creates the layout if it is missing, and removes abandoned builds.
    pub fn open(home: &Path, privilege: Privilege) -> Result<Self, EnvironmentError> {
        let home = std::path::absolute(home).at("resolving", home)?;
        let store = Self {
            root: home.join("environments"),
            home,
            privilege,
            holds: Holds::default(),
            older: OnceLock::new(),
        };
        for dir in ["", "names", "blobs", "staging", "pulls"] {
            private_directory(&store.root.join(dir))?;
        }
        store.sweep()?;
        Ok(store)
    }

    pub fn privilege(&self) -> Privilege {
        self.privilege
    }

    /// Says how owners of older names are known. Once said, it stays.
    pub fn read_older_by(&self, rule: OfOlder) {
        let _ = self.older.set(rule);
    }

    /// What work in progress needs.
    pub fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Keeps a tree from being removed. The caller holds the lock, or something else that keeps it.
    pub fn hold(&self, digest: &str) -> Hold {
        self.holds.take(digest)
    }

    /// A tree that is there, and stays for as long as it is held.
    pub fn hold_there(&self, digest: &str) -> Result<(Hold, BlobRecord), EnvironmentError> {
        let _guard = self.lock()?;
        let record = self.blob_record(digest)?;
        Ok((self.hold(digest), record))
    }

    /// Where all caches are.
    pub fn caches(&self) -> PathBuf {
        self.home.join("cache")
    }

    /// Packages kept between builds.
    pub fn package_cache(&self) -> PathBuf {
        self.home.join("cache").join("apt")
    }

    /// Layers kept between pulls.
    pub fn layer_cache(&self) -> PathBuf {
        self.home.join("cache").join("oci")
    }

    /// What builds of the host's users leave for the next one.
    pub fn build_cache(&self) -> PathBuf {
        self.home.join("cache").join("build")
    }

    /// The list of what is in a tree, kept for builds that begin with it.
    pub fn list_of(&self, digest: &str) -> PathBuf {
        let file = digest.replace(':', "-");
        self.build_cache().join("trees").join(file)
    }

    /// What builds of projects leave, each in a directory of its own.
    pub fn build_caches_of_projects(&self) -> PathBuf {
        self.home.join("cache").join("build-of")
    }

    /// What builds of one project leave.
    pub fn build_cache_of(&self, owner: &str) -> PathBuf {
        self.build_caches_of_projects().join(name::encode(owner))
    }

    /// Files on their way into builds of a project, or of the host's users.
    pub fn contexts_of(&self, project: Option<&str>) -> PathBuf {
        let whose = name::encode(project.unwrap_or("host"));
        self.caches().join("contexts").join(whose)
    }

    pub fn blob(&self, digest: &str) -> PathBuf {
        self.root.join("blobs").join(digest.replace(':', "-"))
    }

    pub fn root_of(&self, digest: &str) -> PathBuf {
        self.blob(digest).join("root")
    }

    pub(crate) fn name_file(&self, name: &str) -> PathBuf {
        let file = format!("{}.json", name::encode(name));
        self.root.join("names").join(file)
    }

    /// Every name that has a record, readable or not, sorted.
    pub fn names(&self) -> Result<Vec<String>, EnvironmentError> {
        let files = children(&self.root.join("names"))?;
        let mut names = Vec::new();
        for stem in files.iter().filter_map(|file| file.strip_suffix(".json")) {
            match name::decode(stem) {
                Decoded::Name(name) => names.push(name),
                Decoded::Hashed => {
                    let path = self.root.join("names").join(format!("{stem}.json"));
                    let record: Option<NameRecord> = read_record(&path, stem)?;
                    names.extend(record.map(|record| record.name));
                }
                Decoded::Foreign => {}
            }
        }
        names.sort();
        Ok(names)
    }

    pub fn name(&self, name: &str) -> Result<Option<NameRecord>, EnvironmentError> {
        let path = self.name_file(name);
        let record: Option<NameRecord> = read_record(&path, name)?;
        match record {
            Some(record) if !digest::is_valid(&record.digest) => Err(EnvironmentError::Corrupt {
                digest: record.digest,
                reason: format!("{} holds no valid digest", path.display()),
            }),
            Some(record) => Ok(Some(self.owned(record))),
            None => Ok(None),
        }
    }

    /// A record with its owner, also where it is older than owners.
    fn owned(&self, mut record: NameRecord) -> NameRecord {
        if record.owner.is_none() {
            let rule = self.older.get();
            let elsewhere = reference::is_explicit(&record.name);
            let (owner, of_template) = match rule {
                Some(rule) => rule(&record.name, elsewhere),
                None => (String::new(), false),
            };
            record.owner = Some(owner);
            record.made_for = of_template.then(|| record.name.clone());
        }
        record
    }

    /// The record of a complete blob.
    pub fn blob_record(&self, digest: &str) -> Result<BlobRecord, EnvironmentError> {
        let corrupt = |reason: &str| EnvironmentError::Corrupt {
            digest: digest.to_owned(),
            reason: reason.to_owned(),
        };
        if !self.root_of(digest).is_dir() {
            return Err(corrupt("its root directory is missing"));
        }
        let path = self.blob(digest).join("environment.json");
        let record: Option<BlobRecord> = read_record(&path, digest)?;
        let record = record.ok_or_else(|| corrupt("environment.json is missing"))?;
        if record.digest != digest {
            return Err(corrupt("environment.json names another digest"));
        }
        Ok(record)
    }

    /// Digests with a directory, complete or not.
    pub fn blobs(&self) -> Result<Vec<String>, EnvironmentError> {
        let files = children(&self.root.join("blobs"))?;
        let digests = files.iter().map(|file| file.replacen('-', ":", 1));
        Ok(digests.filter(|digest| digest::is_valid(digest)).collect())
    }

    /// Waits until this process is the only one building `name`; calls `on_wait` if it has to wait.
    pub fn lock_pull(
        &self,
        name: &str,
        cancel: &Cancel,
        on_wait: impl FnOnce(),
    ) -> Result<File, EnvironmentError> {
        let file = format!("{}.lock", name::encode(name));
        let path = self.root.join("pulls").join(file);
        let lock = lock_file(&path)?;
        if try_lock(&lock).at("locking", &path)? {
            return Ok(lock);
        }
        on_wait();
        while !try_lock(&lock).at("locking", &path)? {
            if cancel.is_cancelled() {
                return Err(EnvironmentError::Cancelled {
                    name: name.to_owned(),
                });
            }
            thread::sleep(LOCK_POLL);
        }
        Ok(lock)
    }

    /// Held briefly while names, blobs or stagings change.
    pub fn lock(&self) -> Result<File, EnvironmentError> {
        let path = self.root.join("lock");
        let lock = lock_file(&path)?;
        loop {
            match rustix::fs::flock(&lock, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(lock),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).at("locking", &path),
            }
        }
    }

    /// A directory for one build.
    pub fn stage(&self) -> Result<Staging, EnvironmentError> {
        // Under the lock: a sweep must not see the directory before its own lock is held.
        let _guard = self.lock()?;
        let path = self
            .root
            .join("staging")
            .join(Uuid::now_v7().simple().to_string());
        private_directory(&path)?;
        let lock = lock_file(&path.join("lock"))?;
        if !try_lock(&lock).at("locking", &path)? {
            let busy = io::Error::from(io::ErrorKind::ResourceBusy);
            return Err(EnvironmentError::io("locking a new directory", busy));
        }
        for dir in [
            path.join("scratch"),
            path.join("blob"),
            path.join("blob/root"),
        ] {
            private_directory(&dir)?;
        }
        Ok(Staging {
            path,
            privilege: self.privilege,
            _lock: lock,
        })
    }

    /// Publishes a finished build: the blob first, then the name.
    pub fn commit(
        &self,
        staging: &Staging,
        blob: &BlobRecord,
        name: &NameRecord,
    ) -> Result<(), EnvironmentError> {
        write_record(&staging.blob().join("environment.json"), blob)?;
        // One `syncfs` is cheaper than a hundred thousand `fsync`.
        let dir = File::open(staging.blob()).at("opening", &staging.blob())?;
        rustix::fs::syncfs(&dir).at("syncing", &staging.blob())?;
        let _guard = self.lock()?;
        self.check_owner(name)?;
        let target = self.blob(&blob.digest);
        if self.blob_record(&blob.digest).is_err() {
            if target.exists() {
                let broken = staging.path.join("broken");
                fs::rename(&target, &broken).at("setting aside", &target)?;
            }
            fs::rename(staging.blob(), &target).at("storing", &target)?;
            sync_directory(&self.root.join("blobs"))?;
        }
        write_record(&self.name_file(&name.name), name)
    }

    /// Refuses a name that is somebody else's. The caller holds the lock.
    fn check_owner(&self, record: &NameRecord) -> Result<(), EnvironmentError> {
        match self.name(&record.name) {
            Ok(Some(there)) => record.title().check(there.owner.as_deref()),
            // Unreadable records are replaced.
            Ok(None) | Err(EnvironmentError::Corrupt { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Points a name at a digest. The caller holds the lock.
    pub fn write_name(&self, record: &NameRecord) -> Result<(), EnvironmentError> {
        self.check_owner(record)?;
        write_record(&self.name_file(&record.name), record)
    }

    /// Forgets a name. The caller holds the lock.
    pub fn remove_name(&self, name: &str) -> Result<(), EnvironmentError> {
        let path = self.name_file(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).at("removing", &path)
            }
            _ => sync_directory(&self.root.join("names")),
        }
    }

    /// Removes a blob from the store by a rename; it is deleted with `staging`. The caller holds
    /// the lock.
    pub fn discard_blob(&self, digest: &str, staging: &Staging) -> Result<(), EnvironmentError> {
        let path = self.blob(digest);
        let aside = staging.path.join(digest.replace(':', "-"));
        fs::rename(&path, aside).at("removing", &path)?;
        // The list of what was in it goes along; there may be none.
        drop(fs::remove_file(self.list_of(digest)));
        sync_directory(&self.root.join("blobs"))
    }

    /// Removes builds whose process has ended.
    fn sweep(&self) -> Result<(), EnvironmentError> {
        let _guard = self.lock()?;
        for child in children(&self.root.join("staging"))? {
            let path = self.root.join("staging").join(child);
            let lock = lock_file(&path.join("lock"));
            // A directory without a lock file was never used.
            let abandoned = match &lock {
                Ok(lock) => try_lock(lock).at("locking", &path)?,
                Err(_) => true,
            };
            if abandoned && let Err(error) = self.privilege.remove_tree(&path) {
                tracing::warn!(%error, "an abandoned build could not be removed");
            }
        }
        Ok(())
    }
}

/// A build in progress. Dropping it removes everything in it.
#[derive(Debug)]
pub(crate) struct Staging {
    path: PathBuf,
    privilege: Privilege,
    _lock: File,
}

impl Staging {
    /// The directory that becomes the blob.
    pub fn blob(&self) -> PathBuf {
        self.path.join("blob")
    }

    /// The directory that becomes the root filesystem.
    pub fn root(&self) -> PathBuf {
        self.path.join("blob").join("root")
    }

    /// Temporary files of the builder.
    pub fn scratch(&self) -> PathBuf {
        self.path.join("scratch")
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = self.privilege.remove_tree(&self.path) {
            tracing::warn!(%error, "removing a build directory failed; the next start removes it");
        }
    }
}

/// Creates a directory with mode 0700: its contents may be setuid.
pub(crate) fn private_directory(path: &Path) -> Result<(), EnvironmentError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .at("creating", path)
}

fn children(dir: &Path) -> Result<Vec<String>, EnvironmentError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).at("listing", dir)? {
        let entry = entry.at("listing", dir)?;
        names.extend(entry.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

fn lock_file(path: &Path) -> Result<File, EnvironmentError> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .at("opening", path)
}

fn try_lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Replaces a record atomically.
fn write_record<T: Serialize>(path: &Path, record: &T) -> Result<(), EnvironmentError> {
    let dir = path.parent().expect("records live in a directory");
    let text = serde_json::to_vec_pretty(record)
        .map_err(io::Error::from)
        .at("encoding", path)?;
    let staged = dir.join(format!(".{}", Uuid::now_v7().simple()));
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&staged)
        .at("creating", &staged)?;
    let written = file.write_all(&text).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&staged, path)) {
        drop(fs::remove_file(&staged));
        return Err(error).at("writing", path);
    }
    sync_directory(dir)
}

/// Reads a record; `None` when there is none. `subject` names it in errors.
fn read_record<T: DeserializeOwned>(
    path: &Path,
    subject: &str,
) -> Result<Option<T>, EnvironmentError> {
    #[derive(Deserialize)]
    struct Versioned {
        format_version: u32,
    }

    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).at("reading", path),
    };
    let corrupt = |reason: String| EnvironmentError::Corrupt {
        digest: subject.to_owned(),
        reason,
    };
    let parse = |error: serde_json::Error| corrupt(format!("{}: {error}", path.display()));
    // Read the version alone first: a newer record may not parse otherwise.
    let version: Versioned = serde_json::from_slice(&text).map_err(parse)?;
    if version.format_version > FORMAT_VERSION {
        return Err(corrupt(format!(
            "{} has format version {}, this motu reads up to {FORMAT_VERSION}",
            path.display(),
            version.format_version
        )));
    }
    serde_json::from_slice(&text).map(Some).map_err(parse)
}

fn sync_directory(path: &Path) -> Result<(), EnvironmentError> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .at("syncing", path)
}

#[cfg(test)]
#[path = "store_tests.rs"]
pub(crate) mod tests;
