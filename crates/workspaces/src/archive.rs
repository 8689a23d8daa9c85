//! Reads untrusted archives safely.
//!
//! Owns the rules for a `.tar`, `.tar.gz` or `.tgz` that becomes part of a workspace. The format is
//! detected by its contents, not its name. The callback of [`read`] never sees a path that leaves
//! the workspace, a path below something that is no directory, or a hard link to anything but an
//! earlier file.
//!
//! | in the archive | what happens |
//! |---|---|
//! | absolute path, `..`, zero byte, name too long | refused |
//! | hard link to what is not in the archive yet | refused |
//! | attributes of users | kept |
//! | other attributes, special permission bits | left out |
//! | symbolic link | kept as it is, wherever it points; nothing is written through it |
//! | device, pipe, socket | left out and counted |
//! | the same file twice | the later one counts, as for every tar |
//! | a file where a directory was, or the other way round | refused |
//! | more bytes or entries than allowed, holes included | refused |
//! | missing parent directories | made |

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead as _, BufReader, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use flate2::bufread::MultiGzDecoder;
use motu_core::{Error, ErrorKind};
use motu_environments::archive::{Archive, Entry, EntryKind};

use crate::{
    PathError, WorkspacePath,
    tarball::{Attributes, Meta},
};

const GZIP: &[u8] = &[0x1f, 0x8b];
const BUFFER_BYTES: usize = 256 << 10;
/// Allowance per entry besides its contents: headers, records, padding.
const ENTRY_OVERHEAD_BYTES: u64 = 8 << 10;
/// Permissions of implied directories.
const IMPLIED_MODE: u32 = 0o755;

/// Limits on the result of an archive or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of file contents, holes included.
    pub bytes: u64,
    /// Paths.
    pub entries: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bytes: 16 << 30,
            entries: 1_000_000,
        }
    }
}

/// Totals of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub entries: u64,
    pub bytes: u64,
    /// Devices, pipes and sockets left out.
    pub skipped: u64,
}

/// One entry that passed the rules.
#[expect(missing_debug_implementations, reason = "it holds a reader")]
pub enum Item<'a> {
    Directory,
    File {
        size: u64,
        contents: &'a mut dyn Read,
    },
    Symlink {
        target: &'a [u8],
    },
    HardLink {
        target: WorkspacePath,
    },
}

/// What is known about an [`Item`] beside its kind.
#[derive(Debug)]
pub struct About<'a> {
    pub path: &'a WorkspacePath,
    pub meta: Meta,
    pub attributes: &'a Attributes,
    /// The path was handed out before; this entry replaces it.
    pub replaces: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("it is no tar archive, plain or gzipped")]
    NotArchive,
    #[error("the archive is damaged: {reason}")]
    Damaged { reason: String },
    #[error("the archive has a path that is not accepted: {path:?}: {error}")]
    Path { path: String, error: PathError },
    #[error("the archive has an entry that is not accepted: {path:?}: {reason}")]
    Refused { path: String, reason: &'static str },
    #[error("{what} is more than {limit}")]
    Limit { what: &'static str, limit: u64 },
    #[error("{0}")]
    Io(#[source] io::Error),
}

impl From<ArchiveError> for Error {
    fn from(error: ArchiveError) -> Error {
        let kind = match &error {
            ArchiveError::Limit { .. } => ErrorKind::Limit,
            ArchiveError::Io(error) => return Error::io("unpacking an archive", error),
            _ => ErrorKind::Invalid,
        };
        Error::new(kind, error.to_string())
    }
}

/// Opens an archive, unzipping it if its first bytes say so.
pub fn open(path: &Path) -> Result<impl Read + use<>, ArchiveError> {
    // A pipe would keep its reader waiting for somebody to write.
    let mut options = File::options();
    options.read(true);
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path).map_err(ArchiveError::Io)?;
    if !file.metadata().map_err(ArchiveError::Io)?.is_file() {
        return Err(ArchiveError::NotArchive);
    }
    unzip(file)
}

/// See [`open`].
pub fn unzip<R: Read>(source: R) -> Result<impl Read, ArchiveError> {
    let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
    let start = source.fill_buf().map_err(ArchiveError::Io)?;
    match start {
        [] => Err(ArchiveError::NotArchive),
        start if start.starts_with(GZIP) => Ok(Source::Gzip(Box::new(MultiGzDecoder::new(source)))),
        _ => Ok(Source::Plain(source)),
    }
}

enum Source<R: Read> {
    Plain(BufReader<R>),
    Gzip(Box<MultiGzDecoder<BufReader<R>>>),
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Plain(source) => source.read(buffer),
            Source::Gzip(source) => source.read(buffer),
        }
    }
}

/// Hands every entry of an unzipped archive to `visit`, whose failure ends it.
pub fn read(
    source: impl Read,
    limits: Limits,
    visit: impl FnMut(About<'_>, Item<'_>) -> io::Result<()>,
) -> Result<Totals, ArchiveError> {
    read_rooted(source, limits, visit).map(|(totals, _)| totals)
}

/// Reads an archive, and returns what it says of its root as well.
pub fn read_rooted(
    source: impl Read,
    limits: Limits,
    mut visit: impl FnMut(About<'_>, Item<'_>) -> io::Result<()>,
) -> Result<(Totals, Option<Root>), ArchiveError> {
    let overhead = limits.entries.saturating_mul(ENTRY_OVERHEAD_BYTES);
    let source = Bounded {
        inner: source,
        left: limits.bytes.saturating_add(overhead),
    };
    let mut archive = Archive::new(source);
    let mut rules = Rules {
        limits,
        totals: Totals::default(),
        kinds: HashMap::new(),
        root: None,
    };
    let mut first = true;
    loop {
        let entry = archive.next_entry().map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => rules.too_many_bytes(),
            _ if first => ArchiveError::NotArchive,
            _ => damaged(error),
        })?;
        let Some(entry) = entry else {
            return Ok((rules.totals, rules.root));
        };
        first = false;
        rules.entry(&entry, &mut archive, &mut visit)?;
    }
}

/// Fails for an input that is longer than the limits allow.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(count)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Directory,
    /// A directory that has no entry of its own yet.
    Implied,
    File,
    Link,
}

struct Rules {
    limits: Limits,
    totals: Totals,
    kinds: HashMap<Vec<u8>, Seen>,
    root: Option<Root>,
}

/// Metadata of the archive's root entry.
pub type Root = (Meta, Attributes);

/// Only `user.*` attributes are kept: an archive must not set capabilities or the like.
fn users(entry: &Entry) -> Attributes {
    let own = entry.attributes.iter();
    let own = own.filter(|(name, _)| name.starts_with("user."));
    own.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

impl Rules {
    fn too_many_bytes(&self) -> ArchiveError {
        ArchiveError::Limit {
            what: "the size of the contents in bytes",
            limit: self.limits.bytes,
        }
    }

    fn entry(
        &mut self,
        entry: &Entry,
        contents: &mut impl Read,
        visit: &mut impl FnMut(About<'_>, Item<'_>) -> io::Result<()>,
    ) -> Result<(), ArchiveError> {
        // The root exists already; only its metadata is recorded.
        if matches!(entry.path.as_slice(), b"." | b"./") && entry.kind == EntryKind::Directory {
            self.root = Some((meta_of(entry), users(entry)));
            return Ok(());
        }
        let refused = |reason| ArchiveError::Refused {
            path: String::from_utf8_lossy(&entry.path).into_owned(),
            reason,
        };
        let seen = match entry.kind {
            EntryKind::Device | EntryKind::Pipe => {
                self.totals.skipped += 1;
                return Ok(());
            }
            EntryKind::Other => return Err(refused("neither file, directory nor link")),
            EntryKind::Directory => Seen::Directory,
            EntryKind::File | EntryKind::HardLink => Seen::File,
            EntryKind::Symlink => Seen::Link,
        };
        let path = relative(&entry.path)?;
        self.parents(&path, entry, visit)?;
        let before = self.kinds.get(path.as_bytes()).copied();
        let is_directory = |seen| matches!(seen, Seen::Directory | Seen::Implied);
        if before.is_some_and(|before| is_directory(before) != is_directory(seen)) {
            return Err(refused(
                "a file takes the place of a directory, or a directory that of a file",
            ));
        }
        let mut failed = None;
        let mut contents = Watched {
            inner: contents,
            left: entry.size,
            failed: &mut failed,
        };
        let item = match entry.kind {
            EntryKind::Directory => Item::Directory,
            EntryKind::File => {
                self.totals.bytes = self.totals.bytes.saturating_add(entry.size);
                if self.totals.bytes > self.limits.bytes {
                    return Err(self.too_many_bytes());
                }
                Item::File {
                    size: entry.size,
                    contents: &mut contents,
                }
            }
            EntryKind::HardLink => {
                let target = relative(&entry.link)?;
                if target == path {
                    return Err(refused("a hard link to itself"));
                }
                if self.kinds.get(target.as_bytes()) != Some(&Seen::File) {
                    return Err(refused("a hard link to what is no file of the archive"));
                }
                Item::HardLink { target }
            }
            _ => match entry.link.as_slice() {
                b"" => return Err(refused("a symbolic link to nowhere")),
                link if link.contains(&0) || link.len() > crate::path::MAX_PATH_BYTES => {
                    return Err(refused("a symbolic link to what is no path"));
                }
                target => Item::Symlink { target },
            },
        };
        if before.is_none() {
            self.count()?;
        }
        self.kinds.insert(path.as_bytes().to_vec(), seen);
        let about = About {
            path: &path,
            meta: meta_of(entry),
            attributes: &users(entry),
            replaces: before.is_some(),
        };
        let visited = visit(about, item);
        // Errors of the reader mean a damaged archive, others a failing disk.
        match failed {
            Some(io::ErrorKind::FileTooLarge) => Err(self.too_many_bytes()),
            Some(kind) => Err(damaged(kind.into())),
            None => visited.map_err(ArchiveError::Io),
        }
    }

    /// Makes parents without an entry; refuses ones that are no directories.
    fn parents(
        &mut self,
        path: &WorkspacePath,
        entry: &Entry,
        visit: &mut impl FnMut(About<'_>, Item<'_>) -> io::Result<()>,
    ) -> Result<(), ArchiveError> {
        let bytes = path.as_bytes();
        let slashes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (at, _) in slashes {
            let above = &bytes[..at];
            match self.kinds.get(above) {
                Some(Seen::Directory | Seen::Implied) => continue,
                Some(_) => {
                    return Err(ArchiveError::Refused {
                        path: path.to_string(),
                        reason: "what is above it is no directory",
                    });
                }
                None => {}
            }
            self.count()?;
            self.kinds.insert(above.to_vec(), Seen::Implied);
            let above = relative(above)?;
            let about = About {
                path: &above,
                meta: Meta {
                    mode: IMPLIED_MODE,
                    ..meta_of(entry)
                },
                attributes: &Attributes::new(),
                replaces: false,
            };
            visit(about, Item::Directory).map_err(ArchiveError::Io)?;
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), ArchiveError> {
        self.totals.entries += 1;
        if self.totals.entries > self.limits.entries {
            return Err(ArchiveError::Limit {
                what: "the number of entries",
                limit: self.limits.entries,
            });
        }
        Ok(())
    }
}

/// Records that reading failed, whatever the consumer makes of it.
struct Watched<'a, R> {
    inner: &'a mut R,
    /// Bytes that must still come.
    left: u64,
    failed: &'a mut Option<io::ErrorKind>,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match self.inner.read(buffer) {
            Ok(0) if self.left > 0 && !buffer.is_empty() => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            result => result,
        };
        let count = count.inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                *self.failed = Some(error.kind());
            }
        })?;
        self.left = self.left.saturating_sub(count as u64);
        Ok(count)
    }
}

fn relative(path: &[u8]) -> Result<WorkspacePath, ArchiveError> {
    let refused = |error| ArchiveError::Path {
        path: String::from_utf8_lossy(path).into_owned(),
        error,
    };
    // Even `/workspace/a` is refused: an archive's paths are relative.
    if path.starts_with(b"/") {
        return Err(refused(PathError::Absolute));
    }
    WorkspacePath::parse(path).map_err(refused)
}

fn meta_of(entry: &Entry) -> Meta {
    let seconds = i64::try_from(entry.meta.mtime).unwrap_or(0);
    Meta {
        mode: entry.meta.mode & 0o777,
        uid: u32::try_from(entry.meta.uid).unwrap_or(0),
        gid: u32::try_from(entry.meta.gid).unwrap_or(0),
        modified_unix_ns: seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(entry.mtime_nanos)),
    }
}

fn damaged(error: io::Error) -> ArchiveError {
    ArchiveError::Damaged {
        reason: match error.kind() {
            io::ErrorKind::UnexpectedEof => "it ends too early".to_owned(),
            _ => error.to_string(),
        },
    }
}
