//! The writing task: control frames first, complete frames, few system calls.

use super::WRITE_QUEUE;
use crate::frame::{Frame, Kind};
use std::io::IoSlice;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Drains both queues into the connection until they close or it fails.
pub(super) async fn write_frames<W: AsyncWrite + Unpin>(
    mut write: W,
    mut data: mpsc::Receiver<Frame>,
    mut control: mpsc::Receiver<Frame>,
) -> std::io::Result<()> {
    let mut batch: Vec<Frame> = Vec::new();
    loop {
        tokio::select! {
            biased;
            frame = control.recv() => match frame { Some(frame) => batch.push(frame), None => return Ok(()) },
            frame = data.recv() => match frame { Some(frame) => batch.push(frame), None => return Ok(()) },
        }
        while batch.len() < 32 {
            match control.try_recv() {
                Ok(frame) => batch.push(frame),
                Err(_) => break,
            }
        }
        // A reset must not overtake frames of its stream, least of all the open: the peer would
        // ignore it and then wait forever. The data queue bounds how many frames that can be.
        let resets: Vec<Frame> = batch
            .extract_if(.., |frame| frame.kind == Kind::Reset)
            .collect();
        let most = match resets.is_empty() {
            true => 32,
            false => batch.len() + WRITE_QUEUE,
        };
        while batch.len() < most {
            match data.try_recv() {
                Ok(frame) => batch.push(frame),
                Err(_) => break,
            }
        }
        batch.extend(resets);
        write_batch(&mut write, &batch).await?;
        batch.clear();
    }
}

/// Writes whole frames with as few system calls as possible and no copying.
pub(super) async fn write_batch<W: AsyncWrite + Unpin>(
    write: &mut W,
    batch: &[Frame],
) -> std::io::Result<()> {
    let headers: Vec<_> = batch.iter().map(Frame::header).collect();
    let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(batch.len() * 2);
    for (header, frame) in headers.iter().zip(batch) {
        slices.push(IoSlice::new(header));
        if !frame.payload.is_empty() {
            slices.push(IoSlice::new(&frame.payload));
        }
    }
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let written = write.write_vectored(rest).await?;
        if written == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, written);
    }
    write.flush().await
}
