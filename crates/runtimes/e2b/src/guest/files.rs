//! File verbs, each one or a few calls to the agent.

use super::{Guest, NO_CALL, ROOT, script};
use crate::wire::FileInfo;
use bytes::Bytes;
use http::StatusCode;
use motu_core::files::format_mode;
use motu_link::Stream;
use motu_link::frame::CHANNEL_IN;
use motu_link::message::{
    Chmod, Digest, Entry, Failure, FileType, Mkdir, Move, Read, Remove, Said, Stat, Symlink, Verb,
};
use motu_peer::PeerError;
use motu_peer::answer::{Failed, note, one};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// Symbolic links followed per path.
const MAX_LINKS: usize = 16;

/// Answers a file verb.
pub(super) async fn answer(
    guest: &Arc<Guest>,
    verb: Verb,
    stream: &mut Stream,
) -> Result<(), Failed> {
    let entry = match verb {
        Verb::Read(read) => return guest.send_file(read, stream).await,
        Verb::Write(write) => guest.receive(write, stream).await?,
        Verb::Stat(stat) => guest.describe(stat).await?,
        Verb::List(list) => return guest.list(list, stream).await,
        Verb::Glob(glob) => return guest.glob(glob, stream).await,
        Verb::Hash(hash) => {
            let digest = guest.hash(text(&hash.path)?).await?;
            return Ok(note(&stream.tx, Said::Digest(digest)).await?);
        }
        Verb::Mkdir(mkdir) => guest.mkdir(mkdir).await?,
        Verb::Remove(remove) => return guest.remove(remove).await,
        Verb::Move(wanted) => guest.rename(wanted).await?,
        Verb::Chmod(chmod) => guest.chmod(chmod).await?,
        Verb::Symlink(symlink) => return guest.symlink(symlink).await,
        Verb::Watch(_) => return Err(Failed::unsupported("watch files", NO_CALL)),
        Verb::TreeOut(_) | Verb::TreeIn(_) => {
            return Err(Failed::unsupported("copy whole trees", NO_CALL));
        }
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

/// A path as the agent requires it.
pub(super) fn text(path: &Bytes) -> Result<&str, Failed> {
    match std::str::from_utf8(path) {
        Ok("") => Err(Failed::invalid("no path")),
        Ok(text) => Ok(text),
        Err(_) => Err(Failed::unsupported(
            "reach paths that are no text",
            "the protocol is JSON",
        )),
    }
}

pub(super) fn below(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}

/// The directory that a path is in.
pub(super) fn parent(path: &str) -> &str {
    match path.trim_end_matches('/').rsplit_once('/') {
        None | Some(("", _)) => "/",
        Some((parent, _)) => parent,
    }
}

impl Guest {
    /// The entry at a path, without following symbolic links; `None` if it does not exist.
    pub(super) async fn found(&self, path: &str) -> Result<Option<FileInfo>, Failed> {
        match self.told(self.envd.stat(path, "").await).await {
            Ok(info) => Ok(Some(info)),
            Err(failed) if failed.kind == Failure::NotFound => Ok(None),
            Err(failed) => Err(failed),
        }
    }

    /// The entry that a path refers to, with symbolic links followed. The agent reports the final
    /// target of a link.
    pub(super) async fn meant(&self, path: &str) -> Result<Option<(String, FileInfo)>, Failed> {
        let mut at = path.to_string();
        for _ in 0..MAX_LINKS {
            let Some(info) = self.found(&at).await? else {
                return Ok(None);
            };
            at = match info.target() {
                None => return Ok(Some((at, info))),
                Some("") => return Ok(None),
                Some(target) if target.starts_with('/') => target.to_string(),
                Some(target) => below(parent(&at), target),
            };
        }
        Err(Failed::invalid(format!(
            "{path:?} leads through too many links"
        )))
    }

    pub(super) async fn entry(&self, path: &str, follow: bool) -> Result<Entry, Failed> {
        let info = match follow {
            true => self.meant(path).await?.map(|(_, info)| info),
            false => self.found(path).await?,
        };
        info.map(|info| info.entry(path))
            .ok_or_else(|| Failed::missing(path))
    }

    async fn describe(&self, stat: Stat) -> Result<Entry, Failed> {
        if !stat.within.is_empty() {
            return Err(Failed::unsupported("keep workspaces", NO_CALL));
        }
        self.entry(text(&stat.path)?, stat.follow).await
    }

    async fn regular(&self, path: &str) -> Result<(String, Entry), Failed> {
        let meant = self.meant(path).await?;
        let (place, info) = meant.ok_or_else(|| Failed::missing(path))?;
        let entry = info.entry(path);
        match entry.kind == FileType::Directory as i32 {
            true => Err(Failed::invalid(format!("{path:?} is a directory"))),
            false => Ok((place, entry)),
        }
    }

    async fn send_file(&self, read: Read, stream: &mut Stream) -> Result<(), Failed> {
        if !read.within.is_empty() {
            return Err(Failed::unsupported("keep workspaces", NO_CALL));
        }
        let (place, entry) = self.regular(text(&read.path)?).await?;
        one(&stream.tx, entry).await?;
        let mut left = match read.length {
            0 => u64::MAX,
            length => length,
        };
        let mut content = Content::of(self, &place, read.offset).await?;
        while left > 0 {
            let piece = tokio::select! {
                piece = content.piece() => piece?,
                gone = stream.tx.closed() => return Err(gone.into()),
            };
            let Some(mut piece) = piece else {
                break;
            };
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= piece.len() as u64;
            stream.tx.data(CHANNEL_IN, piece).await?;
        }
        Ok(())
    }

    async fn hash(&self, path: &str) -> Result<Digest, Failed> {
        let (place, _) = self.regular(path).await?;
        let mut content = Content::of(self, &place, 0).await?;
        let (mut hasher, mut size) = (Sha256::new(), 0);
        while let Some(piece) = content.piece().await? {
            hasher.update(&piece);
            size += piece.len() as u64;
        }
        let sha256 = Bytes::copy_from_slice(&hasher.finalize());
        Ok(Digest { sha256, size })
    }

    async fn mkdir(&self, mkdir: Mkdir) -> Result<Entry, Failed> {
        let path = text(&mkdir.path)?;
        if !mkdir.parents && self.meant(parent(path)).await?.is_none() {
            return Err(Failed::missing(parent(path)));
        }
        let user = self.user(&mkdir.user);
        let made = match self.envd.mkdir(path, &user).await {
            // It exists already: fine if it is a directory.
            Err(PeerError::Refused { refusal, .. })
                if refusal.code == "already_exists" || refusal.status == 409 =>
            {
                let entry = self.entry(path, true).await?;
                return match (entry.kind == FileType::Directory as i32, mkdir.parents) {
                    (true, true) => Ok(entry),
                    _ => Err(Failed::exists(path)),
                };
            }
            other => other,
        };
        self.told(made).await?;
        if mkdir.mode > 0 {
            self.set_mode(path, mkdir.mode).await?;
        }
        self.entry(path, true).await
    }

    /// Checks first: the agent removes anything, and reports no error for a missing path.
    async fn remove(&self, remove: Remove) -> Result<(), Failed> {
        let path = text(&remove.path)?;
        let found = self.found(path).await?;
        let info = found.ok_or_else(|| Failed::missing(path))?;
        if info.is_directory() && !remove.recursive {
            return self.command(("rmdir", &["--", path])).await;
        }
        self.told(self.envd.remove(path).await).await
    }

    async fn rename(&self, wanted: Move) -> Result<Entry, Failed> {
        let (from, to) = (text(&wanted.from)?, text(&wanted.to)?);
        if self.found(from).await?.is_none() {
            return Err(Failed::missing(from));
        }
        // The agent does not support it, so this check is racy.
        if !wanted.overwrite && self.found(to).await?.is_some() {
            return Err(Failed::exists(to));
        }
        self.told(self.envd.rename(from, to).await).await?;
        self.entry(to, false).await
    }

    async fn chmod(&self, chmod: Chmod) -> Result<Entry, Failed> {
        let path = text(&chmod.path)?;
        if self.meant(path).await?.is_none() {
            return Err(Failed::missing(path));
        }
        self.set_mode(path, chmod.mode).await?;
        self.entry(path, true).await
    }

    pub(super) async fn set_mode(&self, path: &str, mode: u32) -> Result<(), Failed> {
        let mode = format_mode(mode & 0o7777);
        self.command(("chmod", &["--", &mode, path])).await
    }

    async fn symlink(&self, symlink: Symlink) -> Result<(), Failed> {
        let (path, target) = (text(&symlink.path)?, text(&symlink.target)?);
        if self.found(path).await?.is_some() {
            return Err(Failed::exists(path));
        }
        let user = self.user(&symlink.user);
        self.command_as(&user, ("ln", &["-s", "--", target, path]))
            .await
    }

    /// Runs a program that changes files as root, like the agent itself.
    pub(super) async fn command(&self, command: (&str, &[&str])) -> Result<(), Failed> {
        self.command_as(ROOT, command).await
    }

    async fn command_as(&self, user: &str, command: (&str, &[&str])) -> Result<(), Failed> {
        let done = self
            .told(script::run(&self.envd, user, command).await)
            .await?;
        let said = || format!("{}: {}", command.0, done.said());
        match done.code {
            0 => Ok(()),
            _ if done.said().contains("No such file") => {
                Err(Failed::new(Failure::NotFound, said()))
            }
            _ if done.said().contains("exists") => Err(Failed::new(Failure::Exists, said())),
            _ if done.said().contains("not permitted") => Err(Failed::new(Failure::Denied, said())),
            _ if done.said().contains("No space") => Err(Failed::new(Failure::NoSpace, said())),
            _ => Err(Failed::new(Failure::Io, said())),
        }
    }
}

/// The contents of a file from an offset.
struct Content<'a> {
    guest: &'a Guest,
    answer: Option<motu_peer::Answer>,
    skip: u64,
}

impl<'a> Content<'a> {
    async fn of(guest: &'a Guest, path: &str, from: u64) -> Result<Content<'a>, Failed> {
        let answer = guest.told(guest.envd.read(path, from).await).await?;
        let skip = match answer.status {
            StatusCode::PARTIAL_CONTENT => 0,
            // The whole file is sent: skip the unwanted part.
            _ => from,
        };
        let beyond = answer.status == StatusCode::RANGE_NOT_SATISFIABLE;
        Ok(Content {
            guest,
            answer: (!beyond).then_some(answer),
            skip,
        })
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, Failed> {
        let Some(answer) = self.answer.as_mut() else {
            return Ok(None);
        };
        let patience = self.guest.envd.patience().call;
        let piece = answer.piece_within(patience).await;
        let Some(mut piece) = self.guest.told(piece).await? else {
            return Ok(None);
        };
        let over = self.skip.min(piece.len() as u64);
        self.skip -= over;
        Ok(Some(piece.split_off(over as usize)))
    }
}
