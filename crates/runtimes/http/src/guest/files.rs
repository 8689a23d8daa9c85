//! File verbs, each one or a few calls to the service.

use super::look::Found;
use super::{Guest, NO_CALL};
use crate::wire;
use bytes::{Bytes, BytesMut};
use motu_core::files::{encode_base64, format_mode};
use motu_core::limits;
use motu_link::frame::CHANNEL_IN;
use motu_link::message::{
    Digest, Entries, Entry, Failure, FileType, Glob, List, Mkdir, Move, Read, Said, Stat, Verb,
    Write,
};
use motu_link::{Event, LinkError, Stream};
use motu_peer::PeerError;
use motu_peer::answer::{Failed, fitting, note, one};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Default page size.
const PAGE: usize = 1000;
/// The deepest listing.
const MAX_DEPTH: u32 = 64;

/// Answers a file verb.
pub(super) async fn answer(
    guest: &Arc<Guest>,
    verb: Verb,
    stream: &mut Stream,
) -> Result<(), Failed> {
    let entry = match verb {
        Verb::Read(read) => return guest.send(read, stream).await,
        Verb::Write(write) => guest.receive(write, stream).await?,
        Verb::Stat(stat) => guest.describe(stat).await?,
        Verb::List(list) => return guest.list(list, stream).await,
        Verb::Glob(glob) => return guest.glob(glob, stream).await,
        Verb::Hash(hash) => {
            let digest = guest.hash(text(&hash.path)?).await?;
            return Ok(note(&stream.tx, Said::Digest(digest)).await?);
        }
        Verb::Mkdir(mkdir) => guest.mkdir(mkdir).await?,
        Verb::Remove(remove) => {
            let path = text(&remove.path)?;
            let removed = guest.peer.remove(&guest.id, path, remove.recursive).await;
            return guest.told(path, removed).await;
        }
        Verb::Move(wanted) => guest.rename(wanted).await?,
        Verb::Chmod(chmod) => {
            let path = text(&chmod.path)?;
            let changed = guest.peer.chmod(&guest.id, path, chmod.mode).await;
            guest.told(path, changed).await?;
            guest.entry(path, true).await?
        }
        Verb::Watch(_) => return Err(Failed::unsupported("watch files", NO_CALL)),
        Verb::TreeOut(_) | Verb::TreeIn(_) => {
            return Err(Failed::unsupported("copy whole trees", NO_CALL));
        }
        Verb::Symlink(_) => return Err(Failed::unsupported("make symbolic links", NO_CALL)),
        Verb::DoneAs(_) => {
            return Err(Failed::unsupported("look after files as a user", NO_CALL));
        }
        Verb::Long(_) => {
            let what = "start a command that is longer than 256 KiB or has input";
            return Err(Failed::unsupported(what, NO_CALL));
        }
        _ => return Err(Failed::unsupported("do that", NO_CALL)),
    };
    one(&stream.tx, entry).await
}

/// A path as the protocol requires it.
fn text(path: &Bytes) -> Result<&str, Failed> {
    match std::str::from_utf8(path) {
        Ok("") => Err(Failed::invalid("no path")),
        Ok(text) => Ok(text),
        Err(_) => Err(Failed::unsupported(
            "reach paths that are no text",
            "the protocol is JSON",
        )),
    }
}

fn below(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}

fn is_directory(entry: &Entry) -> bool {
    entry.kind == FileType::Directory as i32
}

impl Guest {
    async fn told<T>(&self, path: &str, outcome: Result<T, PeerError>) -> Result<T, Failed> {
        match outcome {
            Ok(found) => Ok(found),
            Err(error) => Err(self.file_failed(error, path).await),
        }
    }

    async fn entry(&self, path: &str, follow: bool) -> Result<Entry, Failed> {
        let found = self.peer.stat(&self.id, path, follow).await;
        self.told(path, found).await.map(|info| info.entry(path))
    }

    async fn describe(&self, stat: Stat) -> Result<Entry, Failed> {
        if !stat.within.is_empty() {
            return Err(Failed::unsupported("keep workspaces", NO_CALL));
        }
        self.entry(text(&stat.path)?, stat.follow).await
    }

    async fn send(&self, read: Read, stream: &mut Stream) -> Result<(), Failed> {
        if !read.within.is_empty() {
            return Err(Failed::unsupported("keep workspaces", NO_CALL));
        }
        let path = text(&read.path)?;
        let entry = self.entry(path, true).await?;
        if is_directory(&entry) {
            return Err(Failed::invalid(format!("{path:?} is a directory")));
        }
        let answer = self.peer.read(&self.id, path).await;
        let mut answer = self.told(path, answer).await?;
        one(&stream.tx, entry).await?;
        // The protocol has no ranges: unwanted bytes are skipped.
        let mut skip = read.offset;
        let mut left = match read.length {
            0 => u64::MAX,
            length => length,
        };
        let patience = self.peer.connections.patience.call;
        while left > 0 {
            let piece = tokio::select! {
                piece = answer.piece_within(patience) => piece,
                gone = stream.tx.closed() => return Err(gone.into()),
            };
            let Some(mut piece) = self.told(path, piece).await? else {
                break;
            };
            let over = skip.min(piece.len() as u64);
            skip -= over;
            let mut piece = piece.split_off(over as usize);
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= piece.len() as u64;
            stream.tx.data(CHANNEL_IN, piece).await?;
        }
        Ok(())
    }

    async fn hash(&self, path: &str) -> Result<Digest, Failed> {
        let answer = self.peer.read(&self.id, path).await;
        let mut answer = self.told(path, answer).await?;
        let patience = self.peer.connections.patience.call;
        let (mut hasher, mut size) = (Sha256::new(), 0);
        loop {
            let piece = answer.piece_within(patience).await;
            let Some(piece) = self.told(path, piece).await? else {
                break;
            };
            hasher.update(&piece);
            size += piece.len() as u64;
        }
        let sha256 = Bytes::copy_from_slice(&hasher.finalize());
        Ok(Digest { sha256, size })
    }

    async fn receive(&self, write: Write, stream: &mut Stream) -> Result<Entry, Failed> {
        if !write.user.is_empty() {
            return Err(Failed::unsupported("give files to a user", NO_CALL));
        }
        let options = write.append || write.create_new || !write.parents;
        if options && !self.offer.has("write_options") {
            let why = "the service does not offer the extension `write_options`";
            return Err(Failed::unsupported(
                "append, make only new files, or leave out parents",
                why,
            ));
        }
        let path = text(&write.path)?.to_string();
        let whole = content(stream).await?;
        let (content, content_base64) = match String::from_utf8(whole.into()) {
            Ok(text) => (Some(text), None),
            Err(error) if self.offer.has("binary") => (None, Some(encode_base64(error.as_bytes()))),
            Err(_) => {
                let why = "the service does not offer the extension `binary`";
                return Err(Failed::unsupported("write bytes that are no text", why));
            }
        };
        let mode = match write.mode {
            0 => String::new(),
            mode => format_mode(mode),
        };
        let asked = wire::Write {
            sandbox_id: self.id.clone(),
            path: path.clone(),
            content,
            content_base64,
            mode,
            append: write.append,
            create_new: write.create_new,
            no_parents: !write.parents,
        };
        // The protocol has no conditions: the file is looked at right before it is replaced, and no
        // other write of this daemon comes in between.
        let name = format!("{} {path}", self.id);
        let _turn = self.peer.writing.take(&name).await;
        if write.expected.is_some() {
            let found = self.entry(&path, true).await.map(|found| found.version());
            if found.ok() != write.expected {
                return Err(Failed::replaced(&path));
            }
        }
        let written = self.peer.write(&asked).await;
        self.told(&path, written).await?;
        self.entry(&path, true).await
    }

    /// Services without a mkdir call create the parents of files they write: write a file into the
    /// directory and remove it again.
    async fn mkdir(&self, mkdir: Mkdir) -> Result<Entry, Failed> {
        if !mkdir.user.is_empty() {
            return Err(Failed::unsupported("give files to a user", NO_CALL));
        }
        let path = text(&mkdir.path)?;
        if self.offer.has("mkdir") {
            let made = self.peer.mkdir(&self.id, path, mkdir.mode).await;
            self.told(path, made).await?;
            return self.entry(path, true).await;
        }
        let name = format!(".motu-{}", motu_core::id::random_name(12));
        let inside = below(path, &name);
        let written = wire::Write {
            sandbox_id: self.id.clone(),
            path: inside.clone(),
            content: Some(String::new()),
            ..wire::Write::default()
        };
        let written = self.peer.write(&written).await;
        self.told(path, written).await?;
        let removed = self.peer.remove(&self.id, &inside, false).await;
        self.told(&inside, removed).await?;
        if mkdir.mode > 0 {
            let changed = self.peer.chmod(&self.id, path, mkdir.mode).await;
            self.told(path, changed).await?;
        }
        self.entry(path, true).await
    }

    async fn rename(&self, wanted: Move) -> Result<Entry, Failed> {
        let (from, to) = (text(&wanted.from)?, text(&wanted.to)?);
        // If the service does not support it, this check is racy.
        let asks = wanted.overwrite || self.offer.has("overwrite");
        if !asks && matches!(self.look(to).await, Found::File | Found::Directory) {
            return Err(Failed::exists(to));
        }
        let moved = self
            .peer
            .rename(&self.id, (from, to), wanted.overwrite)
            .await;
        self.told(from, moved).await?;
        self.entry(to, false).await
    }

    /// The entries of one directory, sorted.
    async fn directory(&self, path: &str) -> Result<Vec<Entry>, Failed> {
        let listed = match self.peer.list(&self.id, path).await {
            Ok(listed) => listed,
            Err(error) => {
                let failed = self.file_failed(error, path).await;
                let vague = matches!(failed.kind, Failure::Io | Failure::Invalid);
                return Err(match vague && self.look(path).await == Found::File {
                    true => Failed::invalid(format!("{path:?} is not a directory")),
                    false => failed,
                });
            }
        };
        if listed.len() as u64 > limits::PROVIDER_ENTRIES.max {
            let most = limits::PROVIDER_ENTRIES.max;
            let message = format!("{path:?} has more entries than provider_entries ({most})");
            return Err(Failed::new(Failure::Limit, message));
        }
        let mut entries: Vec<Entry> = listed
            .iter()
            .filter(|info| !matches!(info.name(), "" | "." | ".."))
            .map(|info| info.entry(&below(path, info.name())))
            .collect();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    async fn list(&self, list: List, stream: &mut Stream) -> Result<(), Failed> {
        let depth = list.depth.max(1);
        if depth > MAX_DEPTH {
            let message = format!("depth {depth} is more than {MAX_DEPTH}");
            return Err(Failed::invalid(message));
        }
        let limit = match list.limit as usize {
            0 => PAGE,
            limit => limit,
        };
        // In tree order: a directory, then its contents. The next entry to visit is last.
        let mut waiting: Vec<(Entry, u32)> = Vec::new();
        let push = |waiting: &mut Vec<(Entry, u32)>, entries: Vec<Entry>, level: u32| {
            waiting.extend(entries.into_iter().rev().map(|entry| (entry, level)));
        };
        push(&mut waiting, self.directory(text(&list.path)?).await?, 1);
        let mut entries: Vec<Entry> = Vec::new();
        while let Some((entry, level)) = waiting.pop() {
            if is_directory(&entry) && level < depth && entries.len() <= limit {
                let inside = self.directory(text(&entry.path)?).await?;
                push(&mut waiting, inside, level + 1);
            }
            if list.after.is_empty() || later(&entry.path, &list.after) {
                entries.push(entry);
            }
            if entries.len() > limit {
                break;
            }
        }
        let fit = fitting(&entries, limit);
        let more = entries.len() > fit;
        entries.truncate(fit);
        let last = entries.last().map(|entry| entry.path.clone());
        let next = last.filter(|_| more).unwrap_or_default();
        Ok(note(&stream.tx, Said::Entries(Entries { entries, next })).await?)
    }

    async fn glob(&self, glob: Glob, stream: &mut Stream) -> Result<(), Failed> {
        let limit = match glob.limit as usize {
            0 => PAGE,
            limit => limit,
        };
        let pattern = text(&glob.pattern)?;
        let found = match self.peer.glob(&self.id, pattern).await {
            Ok(found) => found,
            Err(error) => return Err(self.failed(error).await),
        };
        let mut paths: Vec<String> = found
            .into_iter()
            .filter(|path| path.starts_with('/'))
            .collect();
        paths.sort();
        let more = paths.len() > limit;
        paths.truncate(limit);
        let mut entries = self.described(paths).await?;
        let last = entries.last().map(|entry| entry.path.clone());
        let last = last.filter(|_| more).unwrap_or_default();
        loop {
            let rest = entries.split_off(fitting(&entries, entries.len()));
            let next = match rest.is_empty() {
                true => last.clone(),
                false => Bytes::new(),
            };
            note(&stream.tx, Said::Entries(Entries { entries, next })).await?;
            if rest.is_empty() {
                return Ok(());
            }
            entries = rest;
        }
    }

    /// The entries at these paths: one listing per parent directory.
    async fn described(&self, paths: Vec<String>) -> Result<Vec<Entry>, Failed> {
        let mut parents: BTreeMap<String, BTreeMap<Bytes, Entry>> = BTreeMap::new();
        let mut entries = Vec::with_capacity(paths.len());
        for path in paths {
            let path = path.trim_end_matches('/');
            let Some((parent, _)) = path.rsplit_once('/') else {
                entries.push(self.entry("/", false).await?);
                continue;
            };
            let parent = if parent.is_empty() { "/" } else { parent };
            if !parents.contains_key(parent) {
                let listed = self.directory(parent).await?;
                let listed = listed.into_iter().map(|entry| (entry.path.clone(), entry));
                parents.insert(parent.to_string(), listed.collect());
            }
            // Removed since: left out.
            let known = parents
                .get(parent)
                .and_then(|known| known.get(path.as_bytes()));
            entries.extend(known.cloned());
        }
        Ok(entries)
    }
}

/// Whether a path comes after another in tree order.
fn later(path: &[u8], other: &[u8]) -> bool {
    path.split(|byte| *byte == b'/')
        .gt(other.split(|byte| *byte == b'/'))
}

/// The whole content, as the protocol sends it: an abandoned write changes nothing.
async fn content(stream: &mut Stream) -> Result<Bytes, Failed> {
    let most = limits::HTTP_BODY_BYTES.default as usize;
    let mut content = BytesMut::new();
    loop {
        match stream.rx.recv().await? {
            Event::Data { bytes, .. } => {
                if content.len() + bytes.len() > most {
                    let message = format!(
                        "the file is larger than http_body_bytes ({most}): the protocol sends it in one piece"
                    );
                    return Err(Failed::new(Failure::Limit, message));
                }
                content.extend_from_slice(&bytes);
            }
            Event::Eof => return Ok(content.freeze()),
            Event::Message(_) => {}
            Event::Reset | Event::End(_) => return Err(LinkError::Reset.into()),
        }
    }
}
