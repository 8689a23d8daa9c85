//! Reads back a session's output.

use super::Terminals;
use super::life::transcript_limits;
use super::owner::{Freshness, Owner};
use crate::blocking::blocking;
use bytes::Bytes;
use futures_util::stream::StreamExt as _;
use motu_core::files::ByteStream;
use motu_core::terminal::{ReadTranscript, TerminalId, TerminalState, TerminalTranscript};
use motu_core::{Error, Result, limits};
use motu_terminal::Size;
use motu_terminal::output::{self, MIN_BUDGET, Show, Span};
use motu_terminal::record::{Metadata, Transcript};
use motu_terminal::session::Shape;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Bytes of a recording sent at a time.
const PIECE: u64 = 256 * 1024;

/// The session's own answer to a reader.
struct Told {
    state: TerminalState,
    size: Size,
    from: u64,
    end: u64,
    /// The text and its end, if it was still in memory.
    page: Option<(String, u64)>,
    pen: Option<super::writer::Pen>,
}

impl Terminals {
    pub(super) async fn read_transcript(
        &self,
        id: &TerminalId,
        read: ReadTranscript,
    ) -> Result<TerminalTranscript> {
        let budget = match read.max_bytes {
            Some(0) => 0,
            asked => limits::TERMINAL_OUTPUT_BYTES.resolve(asked)?,
        };
        let shape = Shape {
            budget: usize::try_from(budget).unwrap_or(MIN_BUDGET),
            raw: !read.strip_ansi.unwrap_or(true),
        };
        let tell = move |owner: &mut Owner| tell(owner, read.from, shape);
        let told = self.view_session(id, Freshness::Fresh, tell).await?;
        let dir = self.sandboxes.shared.home.terminal(id);
        if let Some(pen) = &told.pen {
            pen.reached().await;
        }
        blocking(move || page(&dir, told, shape)).await
    }

    pub(super) async fn recording(&self, id: &TerminalId) -> Result<ByteStream> {
        let entry = self.sessions.get(id)?;
        if let Some(handle) = entry.handle() {
            let pen = |owner: &mut Owner| owner.pen.clone();
            if let Some(pen) = handle.ask(Freshness::Any, pen).await? {
                pen.reached().await;
            }
        }
        let path = recording(&self.sandboxes.shared.home.terminal(id));
        let file = blocking(move || {
            let file = File::open(&path);
            let file = file.map_err(|error| Error::io("cannot open the recording", &error))?;
            let length = file.metadata();
            let length = length.map_err(|error| Error::io("cannot open the recording", &error))?;
            // Up to its current length: a recording that is being written has no end.
            Ok(file.take(length.len()))
        })
        .await?;
        let next = |mut file: std::io::Take<File>| async move {
            let read = blocking(move || {
                let mut piece = Vec::new();
                let got = file.by_ref().take(PIECE).read_to_end(&mut piece);
                got.map_err(|error| Error::io("cannot read the recording", &error))?;
                Ok((Bytes::from(piece), file))
            });
            Ok(match read.await? {
                (piece, _) if piece.is_empty() => None,
                more => Some(more),
            })
        };
        Ok(futures_util::stream::try_unfold(file, next).boxed())
    }
}

fn tell(owner: &mut Owner, from: Option<u64>, shape: Shape) -> Told {
    let session = &owner.session;
    let end = session.end();
    let from = from
        .unwrap_or(end.saturating_sub(shape.budget as u64))
        .min(end);
    Told {
        state: owner.state().into(),
        size: session.screen().size(),
        from,
        end,
        page: match shape.budget {
            0 => Some((String::new(), from)),
            _ => session.read(from, end, shape),
        },
        pen: owner.pen.clone(),
    }
}

fn recording(dir: &Path) -> PathBuf {
    dir.join("recording.cast")
}

fn page(dir: &Path, told: Told, shape: Shape) -> Result<TerminalTranscript> {
    let failed = |error| Error::io("cannot read the transcript", &error);
    let transcript = Transcript::open(dir, transcript_limits()).map_err(failed)?;
    let (from, (text, next)) = match told.page {
        Some(page) => (told.from, page),
        None => {
            let most = shape.budget.max(MIN_BUDGET);
            // Control sequences take bytes that are not shown, so read more than `most`.
            let read = transcript.read(told.from, told.end, most.saturating_mul(4));
            let read = read.map_err(failed)?;
            let span = Span {
                from: read.from,
                bytes: &read.bytes,
            };
            let show = Show {
                size: told.size,
                budget: shape.budget,
                raw: shape.raw,
            };
            (read.from, output::page(span, &show))
        }
    };
    Ok(TerminalTranscript {
        state: told.state,
        directory: dir.display().to_string(),
        transcript: Some(transcript.path().display().to_string()),
        recording: recording(dir).display().to_string(),
        interactions: dir.join("interactions.jsonl").display().to_string(),
        metadata: Some(Metadata::path(dir))
            .filter(|path| path.exists())
            .map(|path| path.display().to_string()),
        text,
        from,
        next_cursor: next,
        oldest: transcript.start(),
        end: told.end,
    })
}
