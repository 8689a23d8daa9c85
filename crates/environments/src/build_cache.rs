//! The build cache.
//!
//! ```text
//! <home>/cache/build/       of the host's users; build-of/<project>/ has the same of a project
//!   key                     goes into every other key, so that nobody else can make one
//!   layers/sha256-<hex>     what one step changed, by its digest
//!   steps/<key>             which layer a step made; the key says all that it depends on
//!   roots/<key>             which tree a base and its layers make
//!   trees/sha256-<hex>      what is in a tree (see `growing`)
//!   mounts/<key>            what a cache mount held last
//! <home>/cache/contexts/<owner>/<id>    files on their way into a build, which are no cache
//! ```
//!
//! Everything is staged and renamed; a layer is verified by digest whenever it is used, so a
//! damaged one is never used. Anything may be removed while no build holds the cache: it is made
//! again.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use rustix::rand::GetRandomFlags;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    digest,
    error::{EnvironmentError, IoContext as _},
    held::{Hold, Holds},
    layer::write::LayerWriter,
    store::private_directory,
};

const FORMAT_VERSION: u32 = 1;
const DIRECTORIES: [&str; 5] = ["layers", "steps", "roots", "trees", "mounts"];

/// The result of one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    format_version: u32,
    /// Its layer and the layer's size; `None` if it changed nothing.
    pub layer: Option<(String, u64)>,
}

impl StepRecord {
    pub fn new(layer: Option<(String, u64)>) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            layer,
        }
    }
}

/// Most records of steps, and of trees, that one cache keeps; the oldest go first.
const MAX_RECORDS: usize = 10_000;
/// The length of a cache's key.
const KEY_BYTES: usize = 32;

/// One build cache: of the host's users, or of one project. It stays for as long as this lives.
#[derive(Debug, Clone)]
pub struct BuildCache {
    dir: PathBuf,
    contexts: PathBuf,
    key: [u8; KEY_BYTES],
    holds: Holds,
    hold: Arc<Hold>,
}

/// Files that are on their way into builds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    pub contexts: u64,
    pub bytes: u64,
}

/// A layer, or the contents of a mount, being written; removed on drop unless kept.
#[derive(Debug)]
pub struct NewLayer {
    path: PathBuf,
}

impl Drop for NewLayer {
    fn drop(&mut self) {
        // After it was kept there is nothing under this name.
        let _ = fs::remove_file(&self.path);
    }
}

impl BuildCache {
    pub(crate) fn open(
        dir: PathBuf,
        contexts: PathBuf,
        holds: &Holds,
    ) -> Result<Self, EnvironmentError> {
        private_directory(&contexts)?;
        let (hold, made) = holds.take_cache(&dir, || {
            let mut names = DIRECTORIES.iter();
            names.try_for_each(|name| private_directory(&dir.join(name)))?;
            key(&dir.join("key"))
        });
        Ok(Self {
            key: made?,
            dir,
            contexts,
            holds: holds.clone(),
            hold: Arc::new(hold),
        })
    }

    /// A secret of this cache: what is hashed with it cannot be guessed by trying values.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    pub fn layer(&self, digest: &str) -> PathBuf {
        self.dir.join("layers").join(digest.replace(':', "-"))
    }

    /// The result of a step with this key, if its layer still exists.
    pub fn step(&self, key: &str) -> Option<StepRecord> {
        let record: StepRecord = read(&self.dir.join("steps").join(key))?;
        let whole = match &record.layer {
            None => true,
            Some((digest, size)) => {
                let path = self.layer(digest);
                // Update the mtime: the least recently used layers are removed first.
                let used = File::options().append(true).open(&path);
                let used = used.and_then(|file| {
                    file.set_modified(SystemTime::now())?;
                    file.metadata()
                });
                digest::is_valid(digest) && used.is_ok_and(|meta| meta.len() == *size)
            }
        };
        (record.format_version == FORMAT_VERSION && whole).then_some(record)
    }

    pub fn keep_step(&self, key: &str, record: &StepRecord) -> Result<(), EnvironmentError> {
        write(&self.dir.join("steps").join(key), record)
    }

    /// Removes a damaged layer.
    pub fn forget_layer(&self, digest: &str) {
        let _ = fs::remove_file(self.layer(digest));
    }

    /// The digest of the tree made from a base and layers, and whether it contains sudo.
    pub fn root(&self, key: &str) -> Option<(String, bool)> {
        let root: (String, bool) = read(&self.dir.join("roots").join(key))?;
        digest::is_valid(&root.0).then_some(root)
    }

    pub fn keep_root(&self, key: &str, root: &(String, bool)) -> Result<(), EnvironmentError> {
        write(&self.dir.join("roots").join(key), root)
    }

    pub fn new_layer(&self) -> Result<(NewLayer, LayerWriter), EnvironmentError> {
        let name = format!(".new-{}", Uuid::now_v7().simple());
        let path = self.dir.join("layers").join(name);
        let writer = LayerWriter::create(&path)?;
        Ok((NewLayer { path }, writer))
    }

    /// Stores a layer under its digest; `None` if it is empty.
    pub fn keep_layer(
        &self,
        new: NewLayer,
        writer: LayerWriter,
    ) -> Result<Option<(String, u64)>, EnvironmentError> {
        if writer.is_empty() {
            return Ok(None);
        }
        let (digest, size) = writer.finish()?;
        let path = self.layer(&digest);
        fs::rename(&new.path, &path).at("storing", &path)?;
        Ok(Some((digest, size)))
    }

    /// The last contents of a cache mount as an archive; `None` if it was never used or was
    /// trimmed.
    pub fn mount(&self, key: &str) -> Option<File> {
        File::open(self.mount_path(key)).ok()
    }

    /// A file that becomes the contents of a cache mount.
    pub fn new_mount(&self) -> Result<(NewLayer, File), EnvironmentError> {
        let name = format!(".new-{}", Uuid::now_v7().simple());
        let path = self.dir.join("mounts").join(name);
        let file = File::create_new(&path).at("creating", &path)?;
        Ok((NewLayer { path }, file))
    }

    pub fn keep_mount(&self, key: &str, new: NewLayer) -> Result<(), EnvironmentError> {
        let path = self.mount_path(key);
        fs::rename(&new.path, &path).at("storing", &path)
    }

    /// Removes contents that cannot be unpacked.
    pub fn forget_mount(&self, key: &str) {
        let _ = fs::remove_file(self.mount_path(key));
    }

    fn mount_path(&self, key: &str) -> PathBuf {
        self.dir.join("mounts").join(key)
    }

    /// The path for a new context.
    pub fn new_context(&self) -> PathBuf {
        let name = Uuid::now_v7().simple().to_string();
        self.contexts.join(name)
    }

    pub fn context(&self, id: &str) -> Option<PathBuf> {
        let plain = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let path = self.contexts.join(id);
        (plain && path.is_file()).then_some(path)
    }

    /// What waits for a build, after contexts that nobody came for have been removed.
    pub fn waiting(&self, stale: std::time::Duration) -> Waiting {
        let mut waiting = Waiting::default();
        for (path, at, size) in files(&self.contexts) {
            let age = SystemTime::now().duration_since(at);
            if age.is_ok_and(|age| age > stale) {
                let _ = fs::remove_file(path);
                continue;
            }
            waiting.contexts += 1;
            waiting.bytes += size;
        }
        waiting
    }

    /// Removes the least recently used files until at most `most` bytes are left, and unfinished
    /// contexts and layers: unless another build works with this cache, which needs its layers.
    pub fn trim(&self, most: u64, stale: std::time::Duration) {
        self.waiting(stale);
        self.holds
            .if_alone(&self.hold, || self.trim_alone(most, stale));
    }

    fn trim_alone(&self, most: u64, stale: std::time::Duration) {
        for name in ["steps", "roots"] {
            let mut records = files(&self.dir.join(name));
            records.sort_by_key(|(_, at, _)| *at);
            let extra = records.len().saturating_sub(MAX_RECORDS);
            for (path, ..) in records.into_iter().take(extra) {
                let _ = fs::remove_file(path);
            }
        }
        let now = SystemTime::now();
        let is_stale = |at: SystemTime| now.duration_since(at).is_ok_and(|age| age > stale);
        let mut left = Vec::new();
        for name in ["layers", "mounts"] {
            for (path, at, size) in files(&self.dir.join(name)) {
                let file = path.file_name();
                let unfinished = file.is_some_and(|file| file.as_encoded_bytes().starts_with(b"."));
                if unfinished {
                    if is_stale(at) {
                        let _ = fs::remove_file(path);
                    }
                    continue;
                }
                left.push((at, size, path));
            }
        }
        left.sort();
        let mut total: u64 = left.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in left {
            if total <= most {
                return;
            }
            total -= size;
            let _ = fs::remove_file(path);
        }
    }
}

/// The key of a cache, made where there is none. With a new one nothing in the cache is found again.
fn key(path: &Path) -> Result<[u8; KEY_BYTES], EnvironmentError> {
    let mut key = [0; KEY_BYTES];
    if let Ok(mut file) = File::open(path)
        && file.read_exact(&mut key).is_ok()
    {
        return Ok(key);
    }
    let mut filled = 0;
    while filled < KEY_BYTES {
        let random = rustix::rand::getrandom(&mut key[filled..], GetRandomFlags::empty());
        filled += random.at("making", path)?;
    }
    let staged = path.with_extension(format!("new-{}", Uuid::now_v7().simple()));
    let mut options = File::options();
    let file = options
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&staged);
    let written = file.and_then(|mut file| {
        file.write_all(&key)?;
        file.sync_all()?;
        fs::rename(&staged, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&staged);
    }
    written.at("writing", path)?;
    Ok(key)
}

fn files(dir: &Path) -> Vec<(PathBuf, SystemTime, u64)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let file = |entry: fs::DirEntry| {
        let meta = entry.metadata().ok()?;
        Some((entry.path(), meta.modified().ok()?, meta.len()))
    };
    entries.filter_map(file).collect()
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), EnvironmentError> {
    let text = serde_json::to_vec(value).map_err(io::Error::from);
    let text = text.at("encoding", path)?;
    replace(path, &text).at("writing", path)
}

/// Replaces a file atomically.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    fs::create_dir_all(dir)?;
    let staged = dir.join(format!(".new-{}", Uuid::now_v7().simple()));
    let written = File::create_new(&staged)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&staged, path));
    if written.is_err() {
        let _ = fs::remove_file(&staged);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn records_are_bounded_and_nothing_is_trimmed_beside_another_build() {
        let home = tempfile::tempdir().unwrap();
        let holds = Holds::default();
        let open = || {
            let (dir, contexts) = (home.path().join("cache"), home.path().join("contexts"));
            BuildCache::open(dir, contexts, &holds).unwrap()
        };
        let (one, other) = (open(), open());
        for number in 0..=MAX_RECORDS {
            fs::write(one.dir.join("steps").join(number.to_string()), "").unwrap();
        }
        let count = || fs::read_dir(one.dir.join("steps")).unwrap().count();
        one.trim(0, Duration::ZERO);
        assert_eq!(count(), MAX_RECORDS + 1);
        drop(other);
        one.clone().trim(0, Duration::ZERO);
        assert_eq!(count(), MAX_RECORDS);
    }
}
