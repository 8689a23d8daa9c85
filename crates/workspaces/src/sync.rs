//! Pushes a directory or an archive into a running workspace.
//!
//! ```text
//! host directory ─┐
//!                 ├─plan()──► what differs ──write_to()──► tar ──► the machine
//! its listing ────┘
//! ```
//!
//! Decides what has to be sent: a file with the same type, size, time and permissions as at the
//! destination counts as unchanged, as in rsync. Other entries of the destination are left alone.
//! An archive passes through the rules of [`crate::archive`] and is repacked.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Write},
    os::{
        fd::OwnedFd,
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            fs::MetadataExt as _,
        },
    },
    path::{Path, PathBuf},
};

use ignore::WalkBuilder;
use motu_core::{Error, ErrorKind};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::{
    archive::{self, ArchiveError, Item, Limits, Totals},
    diff::Kind,
    seed::place::{attributes, open_directory},
    tarball::{Meta, TarWriter},
};

const NANOSECONDS: i64 = 1_000_000_000;

/// A path at the destination, relative to the target of the push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub path: Vec<u8>,
    /// Type and permission bits, as in `stat`.
    pub mode: u32,
    pub size: u64,
    pub modified_unix_ns: i64,
    pub symlink_target: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Skip files that `.gitignore` files in the source exclude.
    pub gitignore: bool,
    /// Owner in the machine.
    pub owner: (u32, u32),
    pub limits: Limits,
}

#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error("{path} is no directory")]
    NotDirectory { path: String },
    #[error("{path} changed while it was read")]
    Changed { path: String },
    #[error("{what} is more than {limit}")]
    Limit { what: &'static str, limit: u64 },
    #[error("{context}: {source}")]
    Io {
        context: String,
        #[source]
        source: io::Error,
    },
}

impl From<SyncError> for Error {
    fn from(error: SyncError) -> Error {
        let message = error.to_string();
        let kind = match error {
            SyncError::NotDirectory { .. } => ErrorKind::Invalid,
            SyncError::Changed { .. } => ErrorKind::Conflict,
            SyncError::Limit { .. } => ErrorKind::Limit,
            SyncError::Io { context, source } => return Error::io(context, &source),
        };
        Error::new(kind, message)
    }
}

/// What has to be sent.
#[derive(Debug)]
pub struct Plan {
    source: PathBuf,
    owner: (u32, u32),
    send: Vec<Sent>,
    /// All paths of the source, sent or not.
    pub entries: u64,
    /// Paths the destination has already.
    pub unchanged: u64,
    /// Bytes of the files to send.
    pub bytes: u64,
    /// Devices, pipes and sockets left out.
    pub skipped: u64,
}

#[derive(Debug)]
struct Sent {
    path: Vec<u8>,
    mode: u32,
    modified_unix_ns: i64,
    target: Vec<u8>,
}

/// Compares a host directory with the destination.
pub fn plan(source: &Path, destination: &[Listed], options: Options) -> Result<Plan, SyncError> {
    if !source.is_dir() {
        let path = source.display().to_string();
        return Err(SyncError::NotDirectory { path });
    }
    let there: HashMap<&[u8], &Listed> = destination
        .iter()
        .map(|listed| (listed.path.as_slice(), listed))
        .collect();
    let mut plan = Plan {
        source: source.to_owned(),
        owner: options.owner,
        send: Vec::new(),
        entries: 0,
        unchanged: 0,
        bytes: 0,
        skipped: 0,
    };
    let walk = WalkBuilder::new(source)
        .standard_filters(false)
        .git_ignore(options.gitignore)
        .require_git(false)
        .follow_links(false)
        .sort_by_file_name(Ord::cmp)
        .build();
    let failed = |error: ignore::Error| SyncError::Io {
        context: format!("reading {}", source.display()),
        source: error
            .into_io_error()
            .unwrap_or_else(|| io::Error::other("an ignore file is wrong")),
    };
    for entry in walk {
        let entry = entry.map_err(failed)?;
        let Ok(path) = entry.path().strip_prefix(source) else {
            continue;
        };
        if path == Path::new("") {
            continue;
        }
        let meta = entry.metadata().map_err(failed)?;
        plan.add(path, entry.path(), &meta, &there, options.limits)?;
    }
    Ok(plan)
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.send.is_empty()
    }

    /// The paths to send.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.send.iter().map(|sent| sent.path.as_slice())
    }

    fn add(
        &mut self,
        path: &Path,
        full: &Path,
        meta: &std::fs::Metadata,
        there: &HashMap<&[u8], &Listed>,
        limits: Limits,
    ) -> Result<(), SyncError> {
        let kind = Kind::of(meta.mode());
        if kind == Kind::Other {
            self.skipped += 1;
            return Ok(());
        }
        self.entries += 1;
        if self.entries > limits.entries {
            return Err(SyncError::Limit {
                what: "the number of entries",
                limit: limits.entries,
            });
        }
        let target = match kind {
            Kind::Symlink => std::fs::read_link(full)
                .map_err(|source| SyncError::Io {
                    context: format!("reading {}", full.display()),
                    source,
                })?
                .into_os_string()
                .into_vec(),
            _ => Vec::new(),
        };
        let seconds = meta.mtime().saturating_mul(NANOSECONDS);
        let sent = Sent {
            path: path.as_os_str().as_bytes().to_vec(),
            mode: meta.mode(),
            modified_unix_ns: seconds.saturating_add(meta.mtime_nsec()),
            target,
        };
        if there
            .get(sent.path.as_slice())
            .is_some_and(|listed| sent.is_at(listed, meta.len()))
        {
            self.unchanged += 1;
            return Ok(());
        }
        if kind == Kind::File {
            self.bytes = self.bytes.saturating_add(meta.len());
            if self.bytes > limits.bytes {
                return Err(SyncError::Limit {
                    what: "the size of the contents in bytes",
                    limit: limits.bytes,
                });
            }
        }
        self.send.push(sent);
        Ok(())
    }

    /// Writes the files to send as an archive, with `below` before every path. After an error it
    /// lacks the end mark.
    pub fn write_to<W: Write>(&self, below: &[u8], out: W) -> Result<W, SyncError> {
        let failed = |path: &[u8]| {
            let context = format!("sending {}", String::from_utf8_lossy(path));
            move |source: io::Error| SyncError::Io { context, source }
        };
        let root = File::open(&self.source).map_err(failed(b"the directory"))?;
        let root = OwnedFd::from(root);
        let mut tar = TarWriter::new(out);
        for sent in &self.send {
            let (uid, gid) = self.owner;
            let meta = Meta {
                mode: sent.mode & 0o777,
                uid,
                gid,
                modified_unix_ns: sent.modified_unix_ns,
            };
            let path = joined(below, &sent.path);
            let written = match Kind::of(sent.mode) {
                Kind::Directory => {
                    let directory = open_directory(&root, &sent.path).map_err(|_| changed(sent))?;
                    let own = attributes(directory).map_err(failed(&sent.path))?;
                    tar.directory(&path, meta, &own)
                }
                Kind::Symlink => tar.symlink(&path, meta, &sent.target),
                _ => {
                    let file = open(&root, sent)?;
                    let own = attributes(&file).map_err(failed(&sent.path))?;
                    match tar.disk_file(&path, meta, &own, &file) {
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                            return Err(changed(sent));
                        }
                        written => written,
                    }
                }
            };
            written.map_err(failed(&sent.path))?;
        }
        tar.finish().map_err(failed(b"the end"))
    }
}

impl Sent {
    /// Whether the destination has the same entry already.
    fn is_at(&self, listed: &Listed, size: u64) -> bool {
        if Kind::of(self.mode) != Kind::of(listed.mode) {
            return false;
        }
        let same_mode = (self.mode ^ listed.mode) & 0o777 == 0;
        match Kind::of(self.mode) {
            Kind::Directory => same_mode,
            Kind::Symlink => self.target == listed.symlink_target,
            _ => {
                same_mode && size == listed.size && self.modified_unix_ns == listed.modified_unix_ns
            }
        }
    }
}

fn changed(sent: &Sent) -> SyncError {
    SyncError::Changed {
        path: String::from_utf8_lossy(&sent.path).into_owned(),
    }
}

/// Opens a source file, if it is still a regular one, without following symbolic links.
fn open(root: &OwnedFd, sent: &Sent) -> Result<File, SyncError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(root, sent.path.as_slice(), flags, Mode::empty(), resolve);
    let file = file.map_err(|_| changed(sent))?;
    let file = File::from(file);
    let meta = file.metadata().map_err(|_| changed(sent))?;
    if !meta.is_file() {
        return Err(changed(sent));
    }
    Ok(file)
}

/// Joins a possibly empty directory and a path.
fn joined(below: &[u8], path: &[u8]) -> Vec<u8> {
    match below {
        [] => path.to_vec(),
        below => [below, b"/", path].concat(),
    }
}

/// Repacks an archive by the rules, with `below` before every path.
pub fn repack<W: Write>(
    archive: &Path,
    below: &[u8],
    options: Options,
    out: W,
) -> Result<(Totals, W), ArchiveError> {
    let mut tar = TarWriter::new(out);
    let source = archive::open(archive)?;
    let totals = archive::read(source, options.limits, |about, item| {
        let (uid, gid) = options.owner;
        let meta = Meta {
            uid,
            gid,
            ..about.meta
        };
        let path = &joined(below, about.path.as_bytes());
        match item {
            Item::Directory => tar.directory(path, meta, about.attributes),
            Item::Symlink { target } => tar.symlink(path, meta, target),
            Item::HardLink { target } => {
                tar.hard_link(path, meta, &joined(below, target.as_bytes()))
            }
            Item::File { size, mut contents } => {
                tar.file(path, meta, about.attributes, size, &mut contents)
            }
        }
    })?;
    Ok((totals, tar.finish().map_err(ArchiveError::Io)?))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use motu_environments::archive::Archive;
    use tempfile::TempDir;

    use super::*;
    use crate::tarball::Attributes;

    fn example() -> TempDir {
        let source = TempDir::new().unwrap();
        let path = |name: &str| source.path().join(name);
        fs::create_dir_all(path("src/deep")).unwrap();
        fs::write(path("src/deep/a.rs"), "a").unwrap();
        fs::write(path("src/b.rs"), "bb").unwrap();
        fs::write(path("ignored.log"), "log").unwrap();
        fs::write(path(".gitignore"), "*.log\n").unwrap();
        symlink("src", path("link")).unwrap();
        source
    }

    fn names(bytes: &[u8]) -> Vec<String> {
        let mut archive = Archive::new(bytes);
        let mut names = Vec::new();
        while let Some(entry) = archive.next_entry().unwrap() {
            names.push(String::from_utf8(entry.path).unwrap());
        }
        names
    }

    /// The destination's listing after `plan` was sent.
    fn listing(plan: &Plan) -> Vec<Listed> {
        let listed = plan.send.iter().map(|sent| Listed {
            path: sent.path.clone(),
            mode: sent.mode,
            size: plan
                .source
                .join(std::ffi::OsStr::from_bytes(&sent.path))
                .symlink_metadata()
                .unwrap()
                .len(),
            modified_unix_ns: sent.modified_unix_ns,
            symlink_target: sent.target.clone(),
        });
        listed.collect()
    }

    #[test]
    fn only_what_differs_is_sent() {
        let source = example();
        let first = plan(source.path(), &[], Options::default()).unwrap();
        assert_eq!((first.entries, first.unchanged, first.bytes), (7, 0, 12));
        let tar = first.write_to(b"", Vec::new()).unwrap();
        assert_eq!(
            names(&tar),
            [
                ".gitignore",
                "ignored.log",
                "link",
                "src/",
                "src/b.rs",
                "src/deep/",
                "src/deep/a.rs"
            ]
        );
        let there = listing(&first);
        let again = plan(source.path(), &there, Options::default()).unwrap();
        assert!(again.is_empty());
        assert_eq!(again.unchanged, 7);
        fs::write(source.path().join("src/b.rs"), "changed").unwrap();
        fs::remove_file(source.path().join("link")).unwrap();
        symlink("elsewhere", source.path().join("link")).unwrap();
        let again = plan(source.path(), &there, Options::default()).unwrap();
        let paths: Vec<_> = again.paths().collect();
        assert_eq!(paths, [&b"link"[..], b"src/b.rs"]);
    }

    #[test]
    fn gitignore_is_honoured_when_asked() {
        let source = example();
        let options = Options {
            gitignore: true,
            ..Options::default()
        };
        let plan = plan(source.path(), &[], options).unwrap();
        assert!(plan.paths().all(|path| path != b"ignored.log"));
        assert!(plan.paths().any(|path| path == b".gitignore"));
    }

    #[test]
    fn a_file_that_changes_is_noticed() {
        let source = example();
        let plan = plan(source.path(), &[], Options::default()).unwrap();
        fs::remove_file(source.path().join("src/b.rs")).unwrap();
        symlink("/etc/passwd", source.path().join("src/b.rs")).unwrap();
        let error = plan.write_to(b"", Vec::new()).unwrap_err();
        assert!(matches!(error, SyncError::Changed { .. }), "{error}");
    }

    #[test]
    fn limits_hold() {
        let source = example();
        for (bytes, entries) in [(5, 100), (100, 3)] {
            let options = Options {
                limits: Limits { bytes, entries },
                ..Options::default()
            };
            let error = plan(source.path(), &[], options).unwrap_err();
            assert!(matches!(error, SyncError::Limit { .. }));
        }
    }

    #[test]
    fn an_archive_is_passed_on_clean() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("a.tar");
        let meta = Meta {
            mode: 0o4755,
            uid: 9,
            gid: 9,
            modified_unix_ns: 0,
        };
        let mut tar = TarWriter::new(Vec::new());
        tar.file(b"./d//f", meta, &Attributes::new(), 1, &mut &b"x"[..])
            .unwrap();
        fs::write(&path, tar.finish().unwrap()).unwrap();
        let options = Options {
            owner: (1000, 1000),
            ..Options::default()
        };
        let (totals, out) = repack(&path, b"", options, Vec::new()).unwrap();
        assert_eq!(totals.entries, 2);
        assert_eq!(names(&out), ["d/", "d/f"]);
        let mut archive = Archive::new(out.as_slice());
        let _directory = archive.next_entry().unwrap().unwrap();
        let file = archive.next_entry().unwrap().unwrap();
        assert_eq!((file.meta.mode, file.meta.uid), (0o755, 1000));
        let mut tar = TarWriter::new(Vec::new());
        tar.symlink(b"out", meta, b"/tmp").unwrap();
        tar.file(b"out/f", meta, &Attributes::new(), 1, &mut &b"x"[..])
            .unwrap();
        fs::write(&path, tar.finish().unwrap()).unwrap();
        assert!(matches!(
            repack(&path, b"", options, Vec::new()),
            Err(ArchiveError::Refused { .. })
        ));
    }
}
