//! Connects async streams with blocking code.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use motu_core::files::ByteStream;
use motu_core::{Error, Result};
use std::io::{self, Read, Write};
use tokio::sync::mpsc;

/// Chunks buffered between the two sides.
const PIECES: usize = 16;
/// Size of a chunk that is written.
const PIECE: usize = 256 * 1024;

/// A blocking reader over a stream.
pub fn reader(mut stream: ByteStream) -> impl Read + Send + 'static {
    let (send, pieces) = mpsc::channel(PIECES);
    tokio::spawn(async move {
        while let Some(piece) = stream.next().await {
            let failed = piece.is_err();
            if send.send(piece).await.is_err() || failed {
                return;
            }
        }
    });
    Pieces {
        pieces,
        rest: Bytes::new(),
    }
}

struct Pieces {
    pieces: mpsc::Receiver<Result<Bytes>>,
    rest: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.blocking_recv() {
                None => return Ok(0),
                Some(Ok(piece)) => self.rest = piece,
                Some(Err(error)) => return Err(io::Error::other(error)),
            }
        }
        let count = buffer.len().min(self.rest.len());
        buffer[..count].copy_from_slice(&self.rest.split_to(count));
        Ok(count)
    }
}

/// Runs a blocking writer on a thread; the returned stream is what it writes. An error of the
/// writer is the stream's last item.
pub fn written<F>(work: F) -> ByteStream
where
    F: FnOnce(&mut dyn Write) -> Result<()> + Send + 'static,
{
    let (send, pieces) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let mut out = io::BufWriter::with_capacity(PIECE, Sending(send.clone()));
        let done = work(&mut out).and_then(|()| {
            out.flush()
                .map_err(|error| Error::io("cannot pass an archive on", &error))
        });
        if let Err(error) = done {
            let _ = send.blocking_send(Err(error));
        }
    });
    unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((piece, pieces))
    })
    .boxed()
}

struct Sending(mpsc::Sender<Result<Bytes>>);

impl Write for Sending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(bytes);
        match self.0.blocking_send(Ok(piece)) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
