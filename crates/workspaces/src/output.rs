//! Writes a machine's output to the host.
//!
//! ```text
//! contents ──► a random name beside it ──rename──► PATH
//! ```
//!
//! PATH is a new name or an empty directory; a regular file is replaced only if that was asked for.
//! A device, socket, pipe, symbolic link or non-empty directory is never replaced, nor is anything
//! beside PATH. Zeros become holes, and output beyond the limit is refused. All of it appears at
//! once, or nothing.

use std::{
    collections::HashMap,
    fs::{self, File, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use motu_core::{Error, Result, limits, sparse::SparseWriter};
use rustix::{
    fs::{CWD, RenameFlags},
    io::Errno,
};

use crate::{
    archive::{self, ArchiveError, Item, Limits, Totals},
    seed::{Options, SeedError, place::dress, unpack_into},
};

/// What may be replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replace {
    #[default]
    Nothing,
    PlainFiles,
}

impl From<bool> for Replace {
    fn from(force: bool) -> Replace {
        match force {
            true => Replace::PlainFiles,
            false => Replace::Nothing,
        }
    }
}

/// What is at a path now (`lstat`).
enum There {
    Nothing,
    PlainFile,
    Directory,
    Other(&'static str),
}

fn there(path: &Path) -> Result<There> {
    use std::os::unix::fs::FileTypeExt as _;
    let kind = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(There::Nothing),
        Err(error) => return Err(failed("look at", path)(error)),
    };
    Ok(match kind {
        kind if kind.is_file() => There::PlainFile,
        kind if kind.is_dir() => There::Directory,
        kind if kind.is_symlink() => There::Other("a symbolic link"),
        kind if kind.is_socket() => There::Other("a socket"),
        kind if kind.is_fifo() => There::Other("a pipe"),
        _ => There::Other("a device"),
    })
}

fn failed(what: &str, path: &Path) -> impl Fn(io::Error) -> Error {
    let context = format!("{what} {}", path.display());
    move |error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::not_found(format!("{context}: its directory is not there"))
        }
        _ => Error::io(&context, &error),
    }
}

fn exists(path: &Path) -> Error {
    Error::conflict(format!("{} exists already", path.display()))
        .hint("name a file that does not exist, or say that it may be replaced (force)")
}

fn never_replaced(path: &Path, what: &str) -> Error {
    Error::conflict(format!(
        "{} is {what}, which is never replaced",
        path.display()
    ))
    .hint("name a file that does not exist")
}

/// The directory a path is in.
fn beside(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    }
}

/// Whether a file may be put at a path.
fn check(path: &Path, replace: Replace) -> Result<()> {
    match there(path)? {
        There::Nothing => Ok(()),
        There::PlainFile if replace == Replace::PlainFiles => Ok(()),
        There::PlainFile => Err(exists(path)),
        There::Directory => Err(
            Error::conflict(format!("{} is a directory", path.display()))
                .hint("name the file it should become"),
        ),
        There::Other(what) => Err(never_replaced(path, what)),
    }
}

/// Opens a file to be written in place: a new one, or an existing regular one.
pub fn grow(path: &Path, replace: Replace) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    check(path, replace)?;
    let mut options = File::options();
    options.write(true).create_new(true);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        opened => return opened.map_err(failed("write", path)),
    }
    check(path, replace)?;
    // Whatever took the name since must neither be followed (symbolic link) nor block (pipe).
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = File::options()
        .write(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)
        .map_err(failed("write", path))?;
    let kind = file.metadata().map_err(failed("write", path))?.file_type();
    if !kind.is_file() {
        return Err(never_replaced(path, "no plain file"));
    }
    file.set_len(0).map_err(failed("write", path))?;
    Ok(file)
}

/// A file being written beside its target; removed unless it is finished.
#[derive(Debug)]
pub struct OutputFile {
    staged: tempfile::TempPath,
    file: File,
    target: PathBuf,
    replace: Replace,
}

impl OutputFile {
    pub fn create(target: &Path, replace: Replace) -> Result<OutputFile> {
        check(target, replace)?;
        let staged = tempfile::Builder::new()
            .prefix(".motu-")
            .tempfile_in(beside(target))
            .map_err(failed("write", target))?;
        let (file, staged) = staged.into_parts();
        Ok(OutputFile {
            staged,
            file,
            target: target.to_path_buf(),
            replace,
        })
    }

    /// The temporary path, for programs that need one.
    pub fn path(&self) -> &Path {
        &self.staged
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Fills it, up to `most` bytes; zeros become holes.
    pub fn fill(&mut self, contents: &mut dyn Read, most: u64) -> Result<u64> {
        let mut sparse = SparseWriter::new(&self.file);
        let copied = io::copy(&mut contents.take(most.saturating_add(1)), &mut sparse);
        let copied = copied.map_err(|error| reason(error, &self.target))?;
        if copied > most {
            return Err(too_much(&self.target, most));
        }
        sparse.flush().map_err(failed("write", &self.target))?;
        sparse.finish().map_err(failed("write", &self.target))
    }

    /// Sets its permissions and renames it into place.
    pub fn finish(self, mode: u32) -> Result<()> {
        let wrong = failed("write", &self.target);
        self.file
            .set_permissions(Permissions::from_mode(mode & 0o777))
            .map_err(wrong)?;
        self.put()
    }

    fn put(self) -> Result<()> {
        let wrong = failed("write", &self.target);
        match rename(&self.staged, &self.target, RenameFlags::NOREPLACE) {
            Ok(()) => {
                let _ = self.staged.keep();
                return Ok(());
            }
            Err(Errno::EXIST) => check(&self.target, self.replace)?,
            Err(error) => return Err(wrong(error.into())),
        }
        // Sync first: the old contents are removed only when the new ones are on disk.
        self.file.sync_all().map_err(&wrong)?;
        match rename(&self.staged, &self.target, RenameFlags::EXCHANGE) {
            // The old entry now has our temporary name: it is removed only if it is a regular file.
            Ok(()) => match there(&self.staged)? {
                There::PlainFile => Ok(()),
                _ => {
                    rename(&self.staged, &self.target, RenameFlags::EXCHANGE)
                        .map_err(|error| wrong(error.into()))?;
                    Err(never_replaced(&self.target, "no plain file"))
                }
            },
            // The file system does not support RENAME_EXCHANGE.
            Err(Errno::INVAL | Errno::NOSYS) => self
                .staged
                .persist(&self.target)
                .map_err(|e| wrong(e.error)),
            Err(error) => Err(wrong(error.into())),
        }
    }
}

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> std::result::Result<(), Errno> {
    rustix::fs::renameat_with(CWD, from, CWD, to, flags)
}

fn too_much(path: &Path, most: u64) -> Error {
    let name = limits::EXPORT_BYTES.name;
    Error::limit(format!(
        "{}: there is more than {name} allows, which is {most} bytes",
        path.display()
    ))
    .details(serde_json::json!({"limit": name, "max": most}))
}

/// The cause behind a stream that broke while it was read.
fn reason(error: io::Error, path: &Path) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => failed("write", path)(error),
    }
}

/// Extracts one file from a machine's archive, with its time, attributes and holes.
pub fn unpack_file(archive: impl Read, target: &Path, replace: Replace, most: u64) -> Result<u64> {
    let mut output = Some(OutputFile::create(target, replace)?);
    let limits = Limits {
        bytes: most,
        entries: 1,
    };
    let mut file = None;
    let read = archive::read(archive, limits, |about, item| {
        let (Item::File { size, contents }, Some(made)) = (item, output.take()) else {
            return Ok(());
        };
        let mut sparse = SparseWriter::new(&made.file);
        io::copy(contents, &mut sparse)?;
        sparse.finish()?;
        dress(&made.file, (about.meta, about.attributes), None)?;
        file = Some((made, size));
        Ok(())
    });
    read.map_err(|error| match error {
        ArchiveError::Limit { limit, .. } if limit == most => too_much(target, most),
        ArchiveError::Io(error) => reason(error, target),
        error => Error::from(error),
    })?;
    let Some((made, size)) = file else {
        return Err(Error::invalid("it is not a plain file")
            .hint("copy what it points to, or the directory it is in"));
    };
    made.put()?;
    Ok(size)
}

/// Unpacks a machine's archive to a new name or an empty directory; into a non-empty one only if
/// regular files may be replaced.
pub fn unpack_tree(
    archive: impl Read,
    target: &Path,
    replace: Replace,
    most: u64,
) -> Result<Totals> {
    let over = match there(target)? {
        There::Nothing => false,
        There::Directory => !is_empty(target)?,
        There::PlainFile => return Err(exists(target)),
        There::Other(what) => return Err(never_replaced(target, what)),
    };
    if over && replace == Replace::Nothing {
        return Err(
            Error::conflict(format!("{} exists and is not empty", target.display()))
                .hint("name a directory that does not exist, or is empty"),
        );
    }
    let (staging, totals) = stage(archive, target, most)?;
    let made = staging.path().join(STAGED);
    if over {
        merge(&made, target, &Sent::default())?;
        return Ok(totals);
    }
    // `rename` replaces an empty directory only.
    match fs::rename(&made, target) {
        Ok(()) => Ok(totals),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Err(exists(target)),
        Err(error) => Err(failed("write", target)(error)),
    }
}

/// The tree in a staging directory.
const STAGED: &str = "tree";

/// Unpacks an archive into a staging directory beside its target.
fn stage(archive: impl Read, target: &Path, most: u64) -> Result<(tempfile::TempDir, Totals)> {
    let staging = tempfile::Builder::new()
        .prefix(".motu-")
        .tempdir_in(beside(target))
        .map_err(failed("write", target))?;
    let made = staging.path().join(STAGED);
    fs::create_dir(&made).map_err(failed("write", target))?;
    let options = Options {
        owner: None,
        root: true,
        limits: Limits {
            bytes: most,
            entries: limits::SEED_ENTRIES.max,
        },
    };
    let totals = unpack_into(archive, &target.display().to_string(), &made, options);
    let totals = totals.map_err(|error| match error {
        SeedError::Archive {
            error: ArchiveError::Limit { limit, .. },
            ..
        } if limit == most => too_much(target, most),
        error => Error::from(error),
    })?;
    Ok((staging, totals))
}

/// The contents of a directory when it was sent to a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent(HashMap<PathBuf, Facts>);

/// Metadata that tells whether a file was written to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    mode: u32,
    size: u64,
    modified: (i64, i64),
    link: Option<PathBuf>,
}

impl Facts {
    fn of(path: &Path) -> io::Result<Facts> {
        let found = fs::symlink_metadata(path)?;
        let link = match found.is_symlink() {
            true => Some(fs::read_link(path)?),
            false => None,
        };
        // For a symbolic link only its target counts.
        Ok(match link {
            Some(link) => Facts {
                mode: 0,
                size: 0,
                modified: (0, 0),
                link: Some(link),
            },
            None => Facts {
                mode: found.mode() & !0o7000,
                size: found.len(),
                modified: (found.mtime(), found.mtime_nsec()),
                link: None,
            },
        })
    }
}

impl Sent {
    /// Records a directory that is about to be sent.
    pub fn of(root: &Path) -> Result<Sent> {
        let mut all = HashMap::new();
        let mut rest = vec![PathBuf::new()];
        while let Some(below) = rest.pop() {
            let directory = root.join(&below);
            for entry in fs::read_dir(&directory).map_err(failed("read", &directory))? {
                let entry = entry.map_err(failed("read", &directory))?;
                let path = below.join(entry.file_name());
                let kind = entry.file_type().map_err(failed("read", &directory))?;
                if kind.is_dir() {
                    rest.push(path);
                    continue;
                }
                let facts = Facts::of(&entry.path()).map_err(failed("read", &entry.path()))?;
                all.insert(path, facts);
            }
        }
        Ok(Sent(all))
    }

    fn has(&self, path: &Path, staged: &Path) -> bool {
        let sent = self.0.get(path);
        sent.is_some_and(|sent| Facts::of(staged).is_ok_and(|now| now == *sent))
    }
}

/// Copies back what a machine changed in a directory that was sent to it: new entries, and changed
/// regular files. Nothing is deleted, and entries that the machine did not touch keep their current
/// state here. Returns the number of files and directories.
pub fn bring_back(archive: impl Read, target: &Path, sent: &Sent, most: u64) -> Result<u64> {
    let (staging, _) = stage(archive, target, most)?;
    merge(&staging.path().join(STAGED), target, sent)
}

fn is_empty(directory: &Path) -> Result<bool> {
    let mut entries = fs::read_dir(directory).map_err(failed("look at", directory))?;
    Ok(entries.next().is_none())
}

/// Moves a tree into an existing one, without entries that came back unchanged. Everything is
/// checked first, so that a conflict changes nothing.
fn merge(from: &Path, to: &Path, sent: &Sent) -> Result<u64> {
    let mut moves = Vec::new();
    plan((from, to), Path::new(""), sent, &mut moves)?;
    let count = moves.len() as u64;
    for (from, to) in moves {
        fs::rename(&from, &to).map_err(failed("write", &to))?;
    }
    Ok(count)
}

fn plan(
    (from, to): (&Path, &Path),
    below: &Path,
    sent: &Sent,
    moves: &mut Vec<(PathBuf, PathBuf)>,
) -> Result<()> {
    for entry in fs::read_dir(from).map_err(failed("read", from))? {
        let entry = entry.map_err(failed("read", from))?;
        let is_directory = entry.file_type().map_err(failed("read", from))?.is_dir();
        let below = below.join(entry.file_name());
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if sent.has(&below, &from) {
            continue;
        }
        match there(&to)? {
            There::Directory if is_directory => plan((&from, &to), &below, sent, moves)?,
            There::Nothing => moves.push((from, to)),
            There::PlainFile if !is_directory => moves.push((from, to)),
            There::PlainFile | There::Directory => {
                return Err(Error::conflict(format!(
                    "{} is a directory on one side only",
                    to.display()
                )));
            }
            There::Other(what) => return Err(never_replaced(&to, what)),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
