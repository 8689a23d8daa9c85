//! The cache of layers.
//!
//! ```text
//! <home>/cache/oci/
//!   blobs/sha256-<hex>      whole layers, as the registry has them
//!   partial/sha256-<hex>    begun ones; locked while someone downloads
//!   of/<hash of a project>/ the same of one project
//! ```
//!
//! Owns downloading: resuming, hashing, moving into place. A layer is complete only after its
//! digest was verified. Two pulls that need the same layer download it once. Everything here may be
//! deleted at any time.

use std::{
    fs::{self, File, FileTimes, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use http::{Response, StatusCode, header};
use hyper::body::Incoming;
use rustix::fs::FlockOperation;
use sha2::{Digest as _, Sha256};

use super::{Account, manifest::Descriptor, registry::Registry};
use crate::{
    digest::hex,
    error::{EnvironmentError, IoContext as _},
    process::Cancel,
    progress::{Progress, ProgressEvent},
    store::private_directory,
};

/// Most bytes of whole layers that stay after a pull of the operator's.
const MAX_CACHE_BYTES: u64 = 8 << 30;
/// The same of one project.
const MAX_PROJECT_CACHE_BYTES: u64 = 1 << 30;
/// Begun downloads are given up after this time.
const MAX_PARTIAL_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often a broken connection is resumed.
const MAX_RESUMES: u32 = 5;
const POLL: Duration = Duration::from_millis(50);
/// Bytes and time between progress events.
const REPORT_BYTES: u64 = 4 << 20;
const REPORT_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub(crate) struct Cache {
    dir: PathBuf,
    limit: u64,
}

/// What a download needs besides the cache.
pub(crate) struct Download<'a> {
    pub registry: &'a Registry,
    pub progress: &'a Progress,
    pub cancel: &'a Cancel,
}

impl Cache {
    /// The cache of an account. Each has its own: a registry of somebody's names whatever layers it
    /// likes, and must not be given those that others could only have with their logins.
    pub fn open(dir: PathBuf, account: &Account) -> Result<Self, EnvironmentError> {
        let (dir, limit) = match account {
            Account::Operator => (dir, MAX_CACHE_BYTES),
            Account::Other(name) => {
                let name = hex(&Sha256::digest(name));
                (dir.join("of").join(&name[..32]), MAX_PROJECT_CACHE_BYTES)
            }
        };
        for part in ["blobs", "partial"] {
            private_directory(&dir.join(part))?;
        }
        Ok(Self { dir, limit })
    }

    /// The layer as an open file, downloaded where it is missing.
    pub async fn fetch(
        &self,
        layer: &Descriptor,
        download: &Download<'_>,
    ) -> Result<File, EnvironmentError> {
        let path = self.partial(&layer.digest);
        let mut partial = Partial::open(&path)?;
        while !partial.try_lock()? {
            tokio::time::sleep(POLL).await;
        }
        if let Some(file) = self.whole(layer) {
            drop(fs::remove_file(&path));
            return Ok(file);
        }
        partial.rehash(layer.size)?;
        let mut report = Report::new(download.progress, layer);
        let resumed = partial.length > 0;
        partial.fill(layer, download, &mut report).await?;
        if partial.digest() != layer.digest && resumed {
            // The data of an earlier pull may have been wrong: start over.
            partial.restart()?;
            partial.fill(layer, download, &mut report).await?;
        }
        let found = partial.digest();
        if found != layer.digest {
            drop(fs::remove_file(&path));
            return Err(EnvironmentError::DigestMismatch {
                what: "a downloaded layer".to_owned(),
                expected: layer.digest.clone(),
                found,
            });
        }
        // If the cache is emptied concurrently, this pull still has the open file.
        if let Err(error) = fs::rename(&path, self.blob(&layer.digest)) {
            tracing::debug!(%error, "caching a layer failed");
        }
        report.send(layer.size);
        Ok(partial.file)
    }

    /// Removes a damaged layer.
    pub fn forget(&self, digest: &str) {
        drop(fs::remove_file(self.blob(digest)));
    }

    /// Removes the least recently used layers until the rest fits.
    pub fn trim(&self) {
        let mut kept = entries(&self.dir.join("blobs"));
        kept.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        let mut total = 0_u64;
        for entry in kept {
            total = total.saturating_add(entry.size);
            if total > self.limit {
                drop(fs::remove_file(entry.path));
            }
        }
        for entry in entries(&self.dir.join("partial")) {
            let age = SystemTime::now().duration_since(entry.used);
            if age.is_ok_and(|age| age > MAX_PARTIAL_AGE) {
                drop(fs::remove_file(entry.path));
            }
        }
    }

    fn whole(&self, layer: &Descriptor) -> Option<File> {
        let file = File::open(self.blob(&layer.digest)).ok()?;
        if file.metadata().ok()?.len() != layer.size {
            return None;
        }
        // The mtime records the last use; failing to set it does no harm.
        let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
        Some(file)
    }

    fn blob(&self, digest: &str) -> PathBuf {
        self.dir.join("blobs").join(digest.replace(':', "-"))
    }

    fn partial(&self, digest: &str) -> PathBuf {
        self.dir.join("partial").join(digest.replace(':', "-"))
    }
}

/// A layer that is being downloaded.
struct Partial {
    path: PathBuf,
    file: File,
    length: u64,
    hash: Sha256,
}

impl Partial {
    fn open(path: &Path) -> Result<Self, EnvironmentError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path)
            .at("opening", path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            length: 0,
            hash: Sha256::new(),
        })
    }

    /// Locks the file for writing. If another process has finished and moved it, a new one is
    /// started.
    fn try_lock(&mut self) -> Result<bool, EnvironmentError> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(error).at("locking", &self.path),
        }
        let same = |one: &fs::Metadata, other: &fs::Metadata| {
            use std::os::unix::fs::MetadataExt as _;
            (one.dev(), one.ino()) == (other.dev(), other.ino())
        };
        let ours = self.file.metadata().at("reading", &self.path)?;
        if fs::metadata(&self.path).is_ok_and(|there| same(&there, &ours)) {
            return Ok(true);
        }
        *self = Self::open(&self.path)?;
        Ok(false)
    }

    /// Hashes the data of an earlier download.
    fn rehash(&mut self, size: u64) -> Result<(), EnvironmentError> {
        let mut buffer = vec![0; 256 << 10];
        loop {
            match self.file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    self.hash.update(&buffer[..count]);
                    self.length += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).at("reading", &self.path),
            }
        }
        if self.length > size {
            self.restart()?;
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<(), EnvironmentError> {
        self.file.set_len(0).at("emptying", &self.path)?;
        self.file
            .seek(SeekFrom::Start(0))
            .at("emptying", &self.path)?;
        self.length = 0;
        self.hash = Sha256::new();
        Ok(())
    }

    fn digest(&self) -> String {
        format!("sha256:{}", hex(&self.hash.clone().finalize()))
    }

    /// Downloads the missing part, over as many connections as it takes.
    async fn fill(
        &mut self,
        layer: &Descriptor,
        download: &Download<'_>,
        report: &mut Report<'_>,
    ) -> Result<(), EnvironmentError> {
        let mut resumes = 0;
        while self.length < layer.size {
            let before = self.length;
            let response = download.registry.blob(&layer.digest, before).await?;
            if !self.continues(&response)? {
                self.restart()?;
            }
            // A registry without data at this offset has another layer.
            if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
                resumes += 1;
                if resumes > MAX_RESUMES {
                    return Err(download.registry.unreachable("it sends no part of a layer"));
                }
                continue;
            }
            let received = self.receive(response, layer, download, report).await;
            match received {
                Ok(()) if self.length == layer.size => return Ok(()),
                Err(error) if !matches!(error, EnvironmentError::Unreachable { .. }) => {
                    return Err(error);
                }
                Ok(()) | Err(_) => {
                    // A connection that made progress resets the counter.
                    resumes = if self.length > before + REPORT_BYTES {
                        0
                    } else {
                        resumes + 1
                    };
                    if resumes > MAX_RESUMES {
                        return Err(match received {
                            Err(error) => error,
                            Ok(()) => download.registry.unreachable("it ends layers too early"),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a response continues where this file ends.
    fn continues(&self, response: &Response<Incoming>) -> Result<bool, EnvironmentError> {
        if self.length == 0 {
            return Ok(response.status() != StatusCode::RANGE_NOT_SATISFIABLE);
        }
        let range = response.headers().get(header::CONTENT_RANGE);
        let range = range.and_then(|value| value.to_str().ok());
        let start = range
            .and_then(|range| range.strip_prefix("bytes "))
            .and_then(|range| range.split('-').next())
            .and_then(|start| start.parse::<u64>().ok());
        Ok(response.status() == StatusCode::PARTIAL_CONTENT && start == Some(self.length))
    }

    async fn receive(
        &mut self,
        response: Response<Incoming>,
        layer: &Descriptor,
        download: &Download<'_>,
        report: &mut Report<'_>,
    ) -> Result<(), EnvironmentError> {
        let mut body = response.into_body();
        while let Some(piece) = download.registry.piece(&mut body).await? {
            if download.cancel.is_cancelled() {
                return Err(EnvironmentError::io(
                    "downloading",
                    io::Error::other("cancelled"),
                ));
            }
            if self.length + piece.len() as u64 > layer.size {
                drop(fs::remove_file(&self.path));
                return Err(EnvironmentError::Malformed {
                    what: format!("layer {}", layer.digest),
                    reason: format!("it is longer than the {} bytes announced", layer.size),
                });
            }
            self.file.write_all(&piece).at("writing", &self.path)?;
            self.hash.update(&piece);
            self.length += piece.len() as u64;
            report.at(self.length);
        }
        Ok(())
    }
}

/// Reports the progress of one layer, at a limited rate.
struct Report<'a> {
    progress: &'a Progress,
    message: String,
    total: u64,
    last: u64,
    when: Instant,
}

impl<'a> Report<'a> {
    fn new(progress: &'a Progress, layer: &Descriptor) -> Self {
        Self {
            progress,
            message: short(&layer.digest).to_owned(),
            total: layer.size,
            last: 0,
            when: Instant::now(),
        }
    }

    fn at(&mut self, done: u64) {
        if done >= self.last + REPORT_BYTES || self.when.elapsed() >= REPORT_EVERY {
            self.send(done);
        }
    }

    fn send(&mut self, done: u64) {
        (self.last, self.when) = (done, Instant::now());
        self.progress.send(ProgressEvent {
            stage: "download".to_owned(),
            message: self.message.clone(),
            done: Some(done),
            total: Some(self.total),
        });
    }
}

/// The short form of a digest.
pub(crate) fn short(digest: &str) -> &str {
    let digits = digest.split(':').next_back().unwrap_or(digest);
    digits.get(..12).unwrap_or(digits)
}

struct CacheEntry {
    path: PathBuf,
    size: u64,
    used: SystemTime,
}

fn entries(dir: &Path) -> Vec<CacheEntry> {
    let Ok(found) = fs::read_dir(dir) else {
        return Vec::new();
    };
    found
        .flatten()
        .filter_map(|entry| {
            let meta = entry.metadata().ok()?;
            Some(CacheEntry {
                path: entry.path(),
                size: meta.len(),
                used: meta.modified().ok()?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_layers_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path().to_owned(), &Account::Operator).unwrap();
        let to = |limit| Cache {
            limit,
            ..cache.clone()
        };
        let now = SystemTime::now();
        for (name, age) in [("old", 300), ("new", 100), ("middle", 200)] {
            let file = File::create(dir.path().join("blobs").join(name)).unwrap();
            file.set_len(100).unwrap();
            let used = now - Duration::from_secs(age);
            file.set_times(FileTimes::new().set_modified(used)).unwrap();
        }
        to(250).trim();
        let mut left: Vec<_> = entries(&dir.path().join("blobs"))
            .into_iter()
            .map(|entry| entry.path.file_name().unwrap().to_owned())
            .collect();
        left.sort();
        assert_eq!(left, ["middle", "new"]);
        to(0).trim();
        assert!(entries(&dir.path().join("blobs")).is_empty());
    }

    #[test]
    fn accounts_share_no_layers() {
        let dir = tempfile::tempdir().unwrap();
        let of = |account: &Account| Cache::open(dir.path().to_owned(), account).unwrap().dir;
        let other = |name: &str| of(&Account::Other(name.to_owned()));
        let all = [
            of(&Account::Operator),
            other("acme"),
            other("beta"),
            other("../.."),
        ];
        for (number, one) in all.iter().enumerate() {
            assert!(one.starts_with(dir.path()) && one.join("blobs").is_dir());
            assert!(!all[..number].contains(one), "{}", one.display());
        }
        assert_eq!(other("acme"), all[1]);
    }

    #[test]
    fn a_finished_download_of_another_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layer");
        let mut first = Partial::open(&path).unwrap();
        let mut second = Partial::open(&path).unwrap();
        assert!(first.try_lock().unwrap());
        assert!(!second.try_lock().unwrap());
        fs::rename(&path, dir.path().join("whole")).unwrap();
        drop(first);
        assert!(!second.try_lock().unwrap());
        assert!(second.try_lock().unwrap());
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }
}
