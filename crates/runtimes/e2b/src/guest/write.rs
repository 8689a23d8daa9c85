//! Writes a file: staged beside its target, then moved into place. An abandoned write changes
//! nothing.

use super::files::{below, parent, text};
use super::{Guest, NO_CALL};
use crate::wire::FileInfo;
use motu_link::message::{Entry, Failure, Write};
use motu_link::{Event, LinkError, Stream};
use motu_peer::PeerError;
use motu_peer::answer::Failed;

/// Pieces buffered for the service.
const PIECES: usize = 4;
/// Mode of a new file.
const MODE: u32 = 0o644;
/// Adds one file to another.
const APPEND: &str = r#"cat "$1" >>"$2""#;

impl Guest {
    pub(super) async fn receive(&self, write: Write, stream: &mut Stream) -> Result<Entry, Failed> {
        if write.sync {
            return Err(Failed::unsupported("flush a file to its disk", NO_CALL));
        }
        let path = text(&write.path)?;
        let there = self.found(path).await?;
        if write.create_new && there.is_some() {
            return Err(Failed::exists(path));
        }
        // Write through a symbolic link; a dangling one is replaced.
        let meant = match there {
            Some(_) => self.meant(path).await?,
            None => None,
        };
        if meant.as_ref().is_some_and(|(_, info)| info.is_directory()) {
            return Err(Failed::invalid(format!("{path:?} is a directory")));
        }
        let place = meant.as_ref().map_or(path, |(place, _)| place);
        let directory = parent(place);
        if !write.parents && self.meant(directory).await?.is_none() {
            return Err(Failed::missing(directory));
        }
        let name = format!(".motu-{}", motu_core::id::random_name(16));
        let staged = below(directory, &name);
        let user = self.user(&write.user);
        let mut placed = self.upload(&staged, &user, stream).await;
        if placed.is_ok() {
            let info = meant.as_ref().map(|(_, info)| info);
            placed = self.place(&write, (&staged, place), info).await;
        }
        // After success it has been renamed, except for an append or a hard link.
        if placed.is_err() || write.append || write.create_new {
            let removed = self.envd.remove(&staged).await;
            if let Err(error) = removed {
                tracing::debug!(id = self.id, %error, "removing a staged file from the machine failed");
            }
        }
        placed?;
        self.entry(path, true).await
    }

    /// Sets the mode of the staged file and moves it into place.
    async fn place(
        &self,
        write: &Write,
        (staged, place): (&str, &str),
        there: Option<&FileInfo>,
    ) -> Result<(), Failed> {
        if write.append && there.is_some() {
            return self
                .command(("/bin/sh", &["-c", APPEND, "motu", staged, place]))
                .await;
        }
        let mode = match (there, write.mode) {
            (Some(info), _) => info.mode(),
            (None, 0) => MODE,
            (None, mode) => mode & 0o7777,
        };
        let new = self.found(staged).await?;
        if new.is_none_or(|new| new.mode() != mode) {
            self.set_mode(staged, mode).await?;
        }
        // The agent knows no conditions: the file is looked at right before it is replaced, and no
        // other write of this daemon comes in between.
        let _turn = self.writing.take(place).await;
        if write.expected.is_some() {
            let found = self.entry(place, true).await.map(|found| found.version());
            if found.ok() != write.expected {
                return Err(Failed::replaced(place));
            }
        }
        match write.create_new {
            // Unlike a rename, a hard link never replaces an existing file.
            true => self.command(("ln", &["--", staged, place])).await,
            false => self.told(self.envd.rename(staged, place).await).await,
        }
    }

    /// Sends the content piece by piece. If the caller leaves before the end, the call is dropped
    /// with an incomplete body, and nothing is written.
    async fn upload(&self, path: &str, user: &str, stream: &mut Stream) -> Result<(), Failed> {
        let what = "write a file";
        let patience = self.envd.patience().call;
        let (pieces, body) = motu_peer::feed(PIECES);
        let sending = self.envd.write(path, user, body);
        tokio::pin!(sending);
        let feeding = async {
            let pieces = pieces;
            loop {
                match stream.rx.recv().await? {
                    Event::Data { bytes, .. } => {
                        let taken = tokio::time::timeout(patience, pieces.send(bytes)).await;
                        match taken {
                            Ok(Ok(())) => {}
                            // The call has ended: its result has the reason.
                            Ok(Err(_)) => return Ok(()),
                            Err(_) => return Err(PeerError::Slow { what, patience }.into()),
                        }
                    }
                    Event::Eof => return Ok(()),
                    Event::Message(_) => {}
                    Event::Reset | Event::End(_) => return Err(LinkError::Reset.into()),
                }
            }
        };
        let fed: Result<(), Failed> = tokio::select! {
            sent = &mut sending => {
                // The service did not wait for the end of the body.
                self.told(sent).await?;
                let message = "the service answered before it had the whole file";
                return Err(Failed::new(Failure::Io, message));
            }
            fed = feeding => fed,
        };
        fed?;
        let sent = tokio::time::timeout(patience, sending).await;
        let sent = sent.unwrap_or(Err(PeerError::Slow { what, patience }));
        self.told(sent).await
    }
}
