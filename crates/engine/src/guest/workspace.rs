//! `/workspace` of a machine, compared with its baseline.

use super::files::data;
use super::system::send_all;
use super::{Guest, broken, decode_note, finish, next_note, outcome, unexpected};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::{iter, unfold};
use motu_core::files::{ByteStream, TreeWritten};
use motu_core::{Error, Result};
use motu_link::frame::CHANNEL_IN;
use motu_link::message as link;
use motu_link::message::{Said, Verb};
use motu_link::{Event, LinkError};

/// Longest encoded list of operations in one change.
const MAX_APPLY_LIST: usize = 240 * 1024;
/// Bytes of the notes of one `changes` answer: enough for about half a million paths.
const MAX_CHANGED_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of paths sent at once.
const LIST_CHUNK: usize = 64 * 1024;

impl Guest {
    /// The differences from the baseline, sorted by path; an error after `max` entries.
    pub async fn changes(&self, max: u64) -> Result<Vec<link::ChangedEntry>> {
        let request = link::Changes { path: Bytes::new() };
        let mut stream = self.open(Verb::Changes(request)).await?;
        let mut all = Vec::new();
        let mut bytes_heard = 0;
        loop {
            match stream.recv().await? {
                Event::Message(bytes) => match decode_note(&bytes)? {
                    // An honest guest sends no empty pages; a hostile one could send them forever.
                    Said::Changed(page) if page.entries.is_empty() => {
                        return Err(self.breach("the guest sent an empty page").await);
                    }
                    Said::Changed(page) => {
                        bytes_heard += bytes.len();
                        all.extend(page.entries);
                    }
                    _ => return Err(unexpected()),
                },
                Event::End(bytes) => return outcome(&bytes).map(|()| all),
                Event::Reset => return Err(broken(LinkError::Reset)),
                Event::Data { .. } | Event::Eof => {}
            }
            if all.len() as u64 > max || bytes_heard > MAX_CHANGED_BYTES {
                return Err(Error::limit(format!(
                    "more than {max} paths differ from the baseline"
                ))
                .hint("take what was built out of /workspace, or begin a new workspace"));
            }
        }
    }

    /// A file of the baseline, up to `max` bytes.
    pub async fn read_base(&self, path: &[u8], max: u64) -> Result<Bytes> {
        let request = link::ReadBase {
            path: Bytes::copy_from_slice(path),
            offset: 0,
            length: max,
        };
        let stream = self.open(Verb::ReadBase(request)).await?;
        collect(data(stream), max).await
    }

    /// An archive of exactly these paths; paths that no longer exist are left out.
    pub async fn pick(&self, paths: Vec<Bytes>) -> Result<ByteStream> {
        let request = link::Pick {
            paths: Vec::new(),
            more: true,
        };
        let stream = self.open(Verb::Pick(request)).await?;
        // Send the list in a task of its own: the guest may begin to answer before it has read all
        // of it.
        let tx = stream.tx.clone();
        tokio::spawn(async move {
            let mut list = name_list(paths);
            while let Some(Ok(piece)) = list.next().await {
                if tx.data(CHANNEL_IN, piece).await.is_err() {
                    return;
                }
            }
            let _ = tx.eof().await;
        });
        Ok(data(stream))
    }

    /// Brings a fresh `/workspace` to a saved state.
    pub async fn restore(&self, remove: Vec<Bytes>, archive: ByteStream) -> Result<TreeWritten> {
        let list_bytes: usize = remove.iter().map(|path| path.len() + 1).sum();
        let request = link::Restore {
            remove: Vec::new(),
            list_bytes: list_bytes as u64,
        };
        let mut stream = self.open(Verb::Restore(request)).await?;
        send_all(&mut stream, name_list(remove).chain(archive).boxed()).await?;
        let done = match next_note(&mut stream).await? {
            Said::TreeDone(done) => done,
            _ => return Err(unexpected()),
        };
        finish(&mut stream).await?;
        self.settle().await?;
        Ok(TreeWritten {
            entries: done.entries,
            bytes: done.bytes,
        })
    }

    /// Changes files, all or none. A refusal names the operation and the reason.
    pub async fn apply(
        &self,
        operations: Vec<link::Operation>,
        contents: Vec<Bytes>,
    ) -> Result<Option<link::Refused>> {
        let request = link::Apply {
            operations,
            user: String::new(),
        };
        // The list is sent in one message, whose size the link bounds.
        if prost::Message::encoded_len(&request) > MAX_APPLY_LIST {
            return Err(Error::limit(format!(
                "{} files are changed at once, which is too long a list",
                request.operations.len()
            ))
            .hint("apply the change in parts"));
        }
        let mut stream = self.open(Verb::Apply(request)).await?;
        send_all(&mut stream, iter(contents.into_iter().map(Ok)).boxed()).await?;
        match next_note(&mut stream).await? {
            Said::Applied(applied) => match (applied.refused, finish(&mut stream).await) {
                (Some(refused), Err(error)) if refused.why() == link::RefusedWhy::Failed => {
                    Err(error)
                }
                (Some(refused), _) => Ok(Some(refused)),
                (None, done) => done.map(|()| None),
            },
            _ => Err(unexpected()),
        }
    }
}

/// Paths, each followed by a NUL byte, in pieces.
fn name_list(paths: Vec<Bytes>) -> ByteStream {
    let pieces = unfold(paths.into_iter(), |mut paths| async move {
        let mut piece = BytesMut::new();
        for path in paths.by_ref() {
            piece.extend_from_slice(&path);
            piece.extend_from_slice(b"\0");
            if piece.len() >= LIST_CHUNK {
                break;
            }
        }
        (!piece.is_empty()).then(|| (Ok(piece.freeze()), paths))
    });
    pieces.boxed()
}

/// Collects a stream into one buffer, cut at `max` bytes.
pub async fn collect(mut stream: ByteStream, max: u64) -> Result<Bytes> {
    let mut whole = BytesMut::new();
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        let room = (max as usize).saturating_sub(whole.len());
        whole.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() >= room {
            break;
        }
    }
    Ok(whole.freeze())
}
