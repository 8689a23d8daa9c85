//! Files of a machine.

use super::call::Call;
use super::system::{expect_entry, send_all};
use super::{Guest, broken, finish, next_note, note_some_day, outcome, unexpected};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt, unfold};
use jiff::Timestamp;
use motu_core::files::{
    ByteStream, ChangeKind, FileChange, FileEntry, FileHash, FilePage, FileType, GuestPath,
    ListOptions, ReadRange, TreeWritten, WriteOptions,
};
use motu_core::{Error, Result, limits};
use motu_link::message as link;
use motu_link::message::{Said, Verb};
use motu_link::{Event, LinkError};
use prost::Message as _;
use std::sync::Arc;

impl Guest {
    /// Access to the files of one directory of this machine, and to nothing outside of it.
    pub fn within(self: &Arc<Self>, top: GuestPath) -> Within {
        Within {
            guest: self.clone(),
            top: top.as_bytes().clone(),
        }
    }

    /// The files of this machine with the rights of a user; without one, of the guest.
    pub fn files<'a>(&'a self, user: Option<&'a str>) -> Files<'a> {
        Files { guest: self, user }
    }

    pub async fn stat(&self, path: &GuestPath, follow: bool) -> Result<FileEntry> {
        self.files(None).stat(path, follow).await
    }

    pub async fn read(
        &self,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<(FileEntry, ByteStream)> {
        self.files(None).read(path, range).await
    }

    pub async fn write(
        &self,
        path: &GuestPath,
        options: WriteOptions,
        content: ByteStream,
    ) -> Result<FileEntry> {
        let user = options.user.clone();
        self.files(user.as_deref())
            .write(path, options, content)
            .await
    }

    pub async fn mkdir(&self, path: &GuestPath, mode: Option<u32>) -> Result<FileEntry> {
        self.files(None).mkdir(path, mode).await
    }

    pub async fn remove(&self, path: &GuestPath, recursive: bool) -> Result<()> {
        self.files(None).remove(path, recursive).await
    }

    pub async fn watch(
        &self,
        path: &GuestPath,
        recursive: bool,
    ) -> Result<BoxStream<'static, Result<FileChange>>> {
        self.files(None).watch(path, recursive).await
    }

    /// A tree with the owners that the archive names.
    pub async fn write_owned_tree(
        &self,
        path: &GuestPath,
        archive: ByteStream,
    ) -> Result<TreeWritten> {
        self.files(None).write_owned_tree(path, archive).await
    }
}

/// The files of a machine, with the rights of a user or those of the guest.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    guest: &'a Guest,
    user: Option<&'a str>,
}

impl Files<'_> {
    /// A request with these rights. A guest that does not know users refuses it.
    fn done(&self, verb: Verb) -> Verb {
        match self.user {
            None => verb,
            Some(user) => Verb::DoneAs(link::DoneAs {
                user: user.to_string(),
                request: link::Request::from(verb).encode_to_vec().into(),
            }),
        }
    }

    /// Whose new files are; empty: the default user's.
    fn owner(&self) -> String {
        self.user.unwrap_or_default().to_string()
    }

    pub async fn stat(&self, path: &GuestPath, follow: bool) -> Result<FileEntry> {
        self.stat_in(path, follow, Bytes::new()).await
    }

    async fn stat_in(&self, path: &GuestPath, follow: bool, within: Bytes) -> Result<FileEntry> {
        let request = link::Stat {
            path: path.as_bytes().clone(),
            follow,
            within,
        };
        expect_entry(self.guest.ask(self.done(Verb::Stat(request))).await?).map(entry)
    }

    pub async fn list(&self, path: &GuestPath, options: ListOptions) -> Result<FilePage> {
        let limit = limits::LIST_ENTRIES.resolve(options.limit)?;
        let said = self
            .guest
            .ask(self.done(Verb::List(link::List {
                path: path.as_bytes().clone(),
                depth: options.depth.unwrap_or(1),
                after: options.after.unwrap_or_default(),
                limit: limit as u32,
            })))
            .await?;
        let page = page(said)?;
        if page.entries.len() as u64 > limit || (page.entries.is_empty() && page.next.is_some()) {
            return Err(self
                .guest
                .breach("the guest's listing goes on nowhere")
                .await);
        }
        Ok(page)
    }

    pub async fn glob(&self, pattern: &GuestPath, limit: Option<u64>) -> Result<FilePage> {
        let limit = limits::LIST_ENTRIES.resolve(limit)? as u32;
        let pattern = pattern.as_bytes().clone();
        let notes = self
            .guest
            .ask_all(self.done(Verb::Glob(link::Glob { pattern, limit })))
            .await?;
        // One page may come in several notes; the last one says whether there is more.
        let mut whole = FilePage {
            entries: Vec::new(),
            next: None,
        };
        for note in notes {
            let piece = page(note)?;
            whole.entries.extend(piece.entries);
            whole.next = piece.next;
        }
        Ok(whole)
    }

    pub async fn read(
        &self,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<(FileEntry, ByteStream)> {
        self.read_in(path, range, Bytes::new()).await
    }

    async fn read_in(
        &self,
        path: &GuestPath,
        range: ReadRange,
        within: Bytes,
    ) -> Result<(FileEntry, ByteStream)> {
        // For the guest, length 0 means "to the end": a read of nothing only needs the file's
        // metadata.
        if range.length == Some(0) {
            return Ok((
                self.stat_in(path, true, within).await?,
                futures_util::stream::empty().boxed(),
            ));
        }
        let mut stream = self
            .guest
            .open(self.done(Verb::Read(link::Read {
                path: path.as_bytes().clone(),
                offset: range.offset,
                length: range.length.unwrap_or(0),
                within,
            })))
            .await?;
        let file = expect_entry(next_note(&mut stream).await?).map(entry)?;
        Ok((file, data(stream)))
    }

    pub async fn write(
        &self,
        path: &GuestPath,
        options: WriteOptions,
        content: ByteStream,
    ) -> Result<FileEntry> {
        let mut stream = self
            .guest
            .open(self.done(Verb::Write(link::Write {
                path: path.as_bytes().clone(),
                mode: options.mode.unwrap_or(0),
                parents: !options.no_parents,
                user: self.owner(),
                append: options.append,
                create_new: options.create_new,
                sync: false,
                expected: options.expected.map(|expected| link::Version {
                    modified_unix_ms: expected.modified_at.as_millisecond(),
                    size: expected.size_bytes,
                    revision: expected.revision,
                }),
                modified_unix_ns: 0,
            })))
            .await?;
        // An error in the caller's stream drops ours, and the guest then deletes its staged file.
        send_all(&mut stream, content).await?;
        let file = expect_entry(next_note(&mut stream).await?).map(entry)?;
        finish(&mut stream).await?;
        Ok(file)
    }

    pub async fn mkdir(&self, path: &GuestPath, mode: Option<u32>) -> Result<FileEntry> {
        let said = self
            .guest
            .ask(self.done(Verb::Mkdir(link::Mkdir {
                path: path.as_bytes().clone(),
                parents: true,
                mode: mode.unwrap_or(0),
                user: self.owner(),
            })))
            .await?;
        expect_entry(said).map(entry)
    }

    pub async fn remove(&self, path: &GuestPath, recursive: bool) -> Result<()> {
        let path = path.as_bytes().clone();
        self.guest
            .tell(self.done(Verb::Remove(link::Remove { path, recursive })))
            .await
    }

    pub async fn rename(
        &self,
        from: &GuestPath,
        to: &GuestPath,
        overwrite: bool,
    ) -> Result<FileEntry> {
        let said = self
            .guest
            .ask(self.done(Verb::Move(link::Move {
                from: from.as_bytes().clone(),
                to: to.as_bytes().clone(),
                overwrite,
            })))
            .await?;
        expect_entry(said).map(entry)
    }

    pub async fn chmod(&self, path: &GuestPath, mode: u32) -> Result<FileEntry> {
        let path = path.as_bytes().clone();
        let said = self
            .guest
            .ask(self.done(Verb::Chmod(link::Chmod { path, mode })))
            .await?;
        expect_entry(said).map(entry)
    }

    pub async fn hash(&self, path: &GuestPath) -> Result<FileHash> {
        let path = path.as_bytes().clone();
        match self
            .guest
            .ask(self.done(Verb::Hash(link::Hash { path })))
            .await?
        {
            Said::Digest(found) => Ok(FileHash {
                sha256: found
                    .sha256
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
                size_bytes: found.size,
            }),
            _ => Err(unexpected()),
        }
    }

    pub async fn watch(
        &self,
        path: &GuestPath,
        recursive: bool,
    ) -> Result<BoxStream<'static, Result<FileChange>>> {
        let path = path.as_bytes().clone();
        let mut stream = self
            .guest
            .open(self.done(Verb::Watch(link::Watch { path, recursive })))
            .await?;
        match next_note(&mut stream).await? {
            Said::Watching(_) => {}
            _ => return Err(unexpected()),
        }
        Ok(unfold(Some(stream), |stream| async move {
            let mut stream = stream?;
            match note_some_day(&mut stream).await {
                Ok(Said::Change(found)) => Some((Ok(change(found)), Some(stream))),
                Ok(_) => Some((Err(unexpected()), None)),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed())
    }

    pub async fn read_tree(&self, path: &GuestPath) -> Result<ByteStream> {
        self.tree_in(path, Bytes::new()).await
    }

    async fn tree_in(&self, path: &GuestPath, within: Bytes) -> Result<ByteStream> {
        let path = path.as_bytes().clone();
        let request = link::TreeOut { path, within };
        first_data(data(
            self.guest.open(self.done(Verb::TreeOut(request))).await?,
        ))
        .await
    }

    pub async fn write_tree(&self, path: &GuestPath, archive: ByteStream) -> Result<TreeWritten> {
        self.tree_of(path, &self.owner(), archive).await
    }

    /// Like [`Guest::write_tree`], with the owners that the archive names.
    pub async fn write_owned_tree(
        &self,
        path: &GuestPath,
        archive: ByteStream,
    ) -> Result<TreeWritten> {
        self.tree_of(path, "archive", archive).await
    }

    async fn tree_of(
        &self,
        path: &GuestPath,
        user: &str,
        archive: ByteStream,
    ) -> Result<TreeWritten> {
        let mut stream = self
            .guest
            .open(self.done(Verb::TreeIn(link::TreeIn {
                path: path.as_bytes().clone(),
                user: user.to_string(),
                max_bytes: 0,
                max_entries: 0,
            })))
            .await?;
        send_all(&mut stream, archive).await?;
        let done = match next_note(&mut stream).await? {
            Said::TreeDone(done) => done,
            _ => return Err(unexpected()),
        };
        finish(&mut stream).await?;
        self.guest.settle().await?;
        Ok(TreeWritten {
            entries: done.entries,
            bytes: done.bytes,
        })
    }
}

/// Files at or below one directory: a symbolic link that leads out of it is refused.
#[derive(Debug)]
pub struct Within {
    guest: Arc<Guest>,
    top: Bytes,
}

impl Within {
    pub async fn stat(&self, path: &GuestPath, follow: bool) -> Result<FileEntry> {
        self.guest
            .files(None)
            .stat_in(path, follow, self.top.clone())
            .await
    }

    pub async fn read(
        &self,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<(FileEntry, ByteStream)> {
        self.guest
            .files(None)
            .read_in(path, range, self.top.clone())
            .await
    }

    pub async fn read_tree(&self, path: &GuestPath) -> Result<ByteStream> {
        self.guest.files(None).tree_in(path, self.top.clone()).await
    }
}

/// The data of a stream; a failure at its end is the last item.
pub(super) fn data(stream: Call) -> ByteStream {
    unfold(Some(stream), |stream| async move {
        let mut stream = stream?;
        loop {
            match stream.recv().await {
                Ok(Event::Data { bytes, .. }) => return Some((Ok(bytes), Some(stream))),
                Ok(Event::End(last)) => {
                    return outcome(&last).err().map(|error| (Err(error), None));
                }
                Ok(Event::Reset) => return Some((Err(broken(LinkError::Reset)), None)),
                Ok(Event::Message(_) | Event::Eof) => {}
                Err(error) => return Some((Err(error), None)),
            }
        }
    })
    .boxed()
}

/// Waits for the first item, so that an early failure is an error and not a truncated body.
async fn first_data(mut stream: ByteStream) -> Result<ByteStream> {
    match stream.next().await {
        None => Ok(futures_util::stream::empty().boxed()),
        Some(first) => {
            let first: Bytes = first?;
            Ok(futures_util::stream::once(async move { Ok(first) })
                .chain(stream)
                .boxed())
        }
    }
}

fn page(said: Said) -> Result<FilePage> {
    match said {
        Said::Entries(found) => Ok(FilePage {
            entries: found.entries.into_iter().map(entry).collect(),
            next: (!found.next.is_empty()).then(|| BASE64.encode(&found.next)),
        }),
        _ => Err(unexpected()),
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn entry(found: link::Entry) -> FileEntry {
    let kind = match link::FileType::try_from(found.kind) {
        Ok(link::FileType::File) => FileType::File,
        Ok(link::FileType::Directory) => FileType::Directory,
        Ok(link::FileType::Symlink) => FileType::Symlink,
        _ => FileType::Other,
    };
    let name = found
        .path
        .rsplit(|&byte| byte == b'/')
        .next()
        .unwrap_or_default();
    FileEntry {
        name: lossy(name),
        path: lossy(&found.path),
        path_base64: std::str::from_utf8(&found.path)
            .is_err()
            .then(|| BASE64.encode(&found.path)),
        kind,
        size_bytes: found.size,
        mode: found.mode & 0o7777,
        permissions: permissions(kind, found.mode),
        owner: found.owner,
        group: found.group,
        uid: found.uid,
        gid: found.gid,
        modified_at: Timestamp::from_millisecond(found.modified_unix_ms).unwrap_or_default(),
        link_target: (kind == FileType::Symlink).then(|| lossy(&found.symlink_target)),
        revision: found.revision,
    }
}

/// Mode bits the way `ls` shows them.
fn permissions(kind: FileType, mode: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(match kind {
        FileType::File => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Other => '?',
    });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    text
}

fn change(found: link::Change) -> FileChange {
    FileChange {
        kind: match link::ChangeKind::try_from(found.kind) {
            Ok(link::ChangeKind::Created) => ChangeKind::Created,
            Ok(link::ChangeKind::Modified) => ChangeKind::Modified,
            Ok(link::ChangeKind::Removed) => ChangeKind::Removed,
            Ok(link::ChangeKind::Renamed) => ChangeKind::Renamed,
            Ok(link::ChangeKind::Attributes) => ChangeKind::Attributes,
            _ => ChangeKind::Lost,
        },
        path: lossy(&found.path),
        from: (!found.from.is_empty()).then(|| lossy(&found.from)),
    }
}

/// Parses a glob pattern; it is bounded like a path.
pub fn parse_pattern(pattern: &str) -> Result<GuestPath> {
    GuestPath::new(Bytes::copy_from_slice(pattern.as_bytes())).map_err(|error| Error {
        message: format!("the pattern: {}", error.message),
        ..error
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_read_like_ls() {
        assert_eq!(permissions(FileType::File, 0o644), "-rw-r--r--");
        assert_eq!(permissions(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(permissions(FileType::File, 0o4755), "-rwsr-xr-x");
        assert_eq!(permissions(FileType::File, 0o2640), "-rw-r-S---");
    }
}
