//! Multiplexes many streams over one byte stream.
//!
//! Two tasks own the connection: a reader that only moves frames into per-stream queues, and a
//! writer that drains one bounded data queue and one queue of small control frames, the latter
//! first. A stream may have at most [`WINDOW`] unread data bytes in flight; the receiver returns
//! credit as it reads. So the reader never blocks, and memory per stream is bounded whatever the
//! peer does: a peer that exceeds its credit, sends empty data, ends a stream twice, floods with
//! messages or stops reading has broken the protocol and loses the link.

mod ended;
mod queue;
mod quiet;
mod write;

use crate::frame::{Frame, FrameError, Kind, MAX_PAYLOAD, Taken};
use bytes::{Bytes, BytesMut};
use ended::Ended;
use queue::Queue;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use write::write_frames;

/// Unread data bytes allowed per stream and direction.
pub const WINDOW: u32 = 1024 * 1024;
/// Unread messages allowed per stream.
pub const MAX_QUEUED_MESSAGES: usize = 4096;
/// Bytes of unread messages allowed per stream.
pub const MAX_QUEUED_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Control frames queued for a peer that does not read.
const MAX_QUEUED_CONTROL: usize = 16 * 1024;
/// Streams open at once on one link.
pub const MAX_STREAMS: usize = 4096;
/// Data frames waiting for the writer.
const WRITE_QUEUE: usize = 16;
/// Read buffer of a busy link.
const READ_CHUNK: usize = 128 * 1024;
/// Read buffer of an idle link.
const IDLE_CHUNK: usize = 512;

/// Why a link or a stream ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("the link is closed")]
    Closed,
    #[error("the link failed: {0}")]
    Io(String),
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
    #[error("too many streams are open on this link (limit {MAX_STREAMS})")]
    TooManyStreams,
    #[error("the peer reset the stream")]
    Reset,
    #[error("{0}")]
    Silent(String),
}

impl From<FrameError> for LinkError {
    fn from(error: FrameError) -> Self {
        LinkError::Protocol(error.to_string())
    }
}

/// An event on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Data {
        channel: u8,
        bytes: Bytes,
    },
    Message(Bytes),
    /// The peer will send no more data.
    Eof,
    /// The end of the stream, with its payload.
    End(Bytes),
    /// The peer abandoned the stream.
    Reset,
}

struct Slot {
    queue: Arc<Queue>,
    credit: Arc<Semaphore>,
    over: Arc<Semaphore>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.queue.close();
    }
}

struct Inner {
    slots: Mutex<HashMap<u32, Slot>>,
    next: AtomicU32,
    data: mpsc::Sender<Frame>,
    control: mpsc::Sender<Frame>,
    closed: watch::Sender<Option<LinkError>>,
    /// Counts arrivals.
    heard: AtomicU64,
    /// Notified when a stream is opened locally.
    opened: Notify,
}

impl Inner {
    fn slots(&self) -> MutexGuard<'_, HashMap<u32, Slot>> {
        self.slots
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Ends the link once; the first reason counts.
    fn close(&self, reason: LinkError) {
        self.closed.send_if_modified(|state| {
            let first = state.is_none();
            if first {
                *state = Some(reason.clone());
            }
            first
        });
        // Dropping the senders wakes every receiver; closing the semaphores wakes every sender.
        for (_, slot) in self.slots().drain() {
            slot.credit.close();
            slot.over.close();
        }
    }

    /// Queues a control frame without waiting. Ignored on a closed link.
    fn control(&self, frame: Frame) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.control.try_send(frame) {
            let what = "it has not read for too long".to_string();
            self.close(LinkError::Protocol(what));
        }
    }

    fn reason(&self) -> LinkError {
        self.closed.borrow().clone().unwrap_or(LinkError::Closed)
    }
}

/// One end of a link. Cheap to clone; the link closes when [`Link::close`] is
/// called, the peer goes away, or the protocol is broken.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("streams", &self.inner.slots().len())
            .field("closed", &*self.inner.closed.borrow())
            .finish()
    }
}

/// Streams opened by the peer, with their requests.
#[derive(Debug)]
pub struct Incoming {
    streams: mpsc::Receiver<(Bytes, Stream)>,
}

impl Incoming {
    /// The next stream, or `None` when the link is gone.
    pub async fn next(&mut self) -> Option<(Bytes, Stream)> {
        self.streams.recv().await
    }
}

/// A stream: two independent halves.
#[derive(Debug)]
pub struct Stream {
    pub tx: Sender,
    pub rx: Receiver,
}

impl Link {
    /// Starts a link on a synchronized connection (see [`crate::hello`]).
    ///
    /// `accepts`: whether the peer may open streams; only guests accept them.
    pub fn start<R, W>(read: R, write: W, accepts: bool) -> (Link, Incoming)
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (data, data_queue) = mpsc::channel(WRITE_QUEUE);
        let (control, control_queue) = mpsc::channel(MAX_QUEUED_CONTROL);
        let (closed, mut closing) = watch::channel(None);
        let inner = Arc::new(Inner {
            slots: Mutex::new(HashMap::new()),
            next: AtomicU32::new(1),
            data,
            control,
            closed,
            heard: AtomicU64::new(0),
            opened: Notify::new(),
        });
        // As large as the limit of streams: a burst of requests must not be refused.
        let (accept, streams) = mpsc::channel(MAX_STREAMS);
        let reader = inner.clone();
        let mut read_closing = closing.clone();
        tokio::spawn(async move {
            let accept = accepts.then_some(accept);
            let ended = tokio::select! {
                ended = read_frames(&reader, read, accept) => ended,
                _ = read_closing.wait_for(Option::is_some) => return,
            };
            reader.close(ended);
        });
        let writer = Arc::downgrade(&inner);
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = write_frames(write, data_queue, control_queue) => ended,
                _ = closing.wait_for(Option::is_some) => return,
            };
            if let (Err(error), Some(inner)) = (ended, writer.upgrade()) {
                inner.close(LinkError::Io(error.to_string()));
            }
        });
        (Link { inner }, Incoming { streams })
    }

    /// Opens a stream with an encoded request.
    pub async fn open(&self, request: Bytes) -> Result<Stream, LinkError> {
        if request.len() > MAX_PAYLOAD {
            return Err(LinkError::Protocol(format!(
                "request of {} bytes is larger than the limit of {MAX_PAYLOAD}",
                request.len()
            )));
        }
        let id = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let stream = register(&self.inner, id)?;
        self.inner.opened.notify_one();
        let frame = Frame {
            payload: request,
            ..Frame::bare(id, Kind::Open)
        };
        if self.inner.data.send(frame).await.is_err() {
            return Err(self.inner.reason());
        }
        Ok(stream)
    }

    /// Ends the link and everything on it.
    pub fn close(&self) {
        self.inner.close(LinkError::Closed);
    }

    /// Waits until the link has ended and says why.
    pub async fn closed(&self) -> LinkError {
        let mut watch = self.inner.closed.subscribe();
        match watch.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(LinkError::Closed),
            Err(_) => LinkError::Closed,
        }
    }

    /// Whether the link has ended.
    pub fn is_closed(&self) -> bool {
        self.inner.closed.borrow().is_some()
    }
}

fn register(inner: &Arc<Inner>, id: u32) -> Result<Stream, LinkError> {
    let queue = Arc::new(Queue::default());
    let credit = Arc::new(Semaphore::new(WINDOW as usize));
    let over = Arc::new(Semaphore::new(0));
    {
        let mut slots = inner.slots();
        // Checked under the lock that `close` drains under, so no stream outlives its link.
        if inner.closed.borrow().is_some() {
            return Err(inner.reason());
        }
        if slots.len() >= MAX_STREAMS {
            return Err(LinkError::TooManyStreams);
        }
        slots.insert(
            id,
            Slot {
                queue: queue.clone(),
                credit: credit.clone(),
                over: over.clone(),
            },
        );
    }
    let guard = Arc::new(Guard {
        inner: inner.clone(),
        id,
        finished: Mutex::new(false),
        eof: AtomicBool::new(false),
    });
    Ok(Stream {
        tx: Sender {
            guard: guard.clone(),
            credit,
            over,
        },
        rx: Receiver {
            guard,
            queue,
            owed: 0,
            over: false,
        },
    })
}

/// Resets a stream that is dropped before its end.
struct Guard {
    inner: Arc<Inner>,
    id: u32,
    finished: Mutex<bool>,
    /// Whether EOF was sent.
    eof: AtomicBool,
}

impl Guard {
    /// Marks the stream as ended on the wire; true the first time.
    fn finish(&self) -> bool {
        let mut finished = self.finished.lock().unwrap_or_else(|p| p.into_inner());
        !std::mem::replace(&mut *finished, true)
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stream {}", self.id)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.inner.slots().remove(&self.id);
        if self.finish() {
            self.inner.control(Frame::bare(self.id, Kind::Reset));
        }
    }
}

/// The sending half of a stream. Dropping both halves before an end resets the stream.
#[derive(Clone, Debug)]
pub struct Sender {
    guard: Arc<Guard>,
    credit: Arc<Semaphore>,
    /// Never has a permit; closed when the peer ends or resets the stream, or the link ends.
    over: Arc<Semaphore>,
}

impl Sender {
    /// Sends bytes, waiting for the peer to make room.
    pub async fn data(&self, channel: u8, mut bytes: Bytes) -> Result<(), LinkError> {
        // Data after EOF is dropped.
        if self.guard.eof.load(Ordering::Relaxed) {
            return Ok(());
        }
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(MAX_PAYLOAD));
            let cost = piece.len() as u32;
            match self.credit.acquire_many(cost).await {
                Ok(permit) => permit.forget(),
                Err(_) => return Err(self.ended()),
            }
            let frame = Frame {
                channel,
                payload: piece,
                ..Frame::bare(self.guard.id, Kind::Data)
            };
            self.queue(frame).await?;
        }
        Ok(())
    }

    /// Sends a message.
    pub async fn message(&self, payload: Bytes) -> Result<(), LinkError> {
        self.queue(Frame {
            payload,
            ..Frame::bare(self.guard.id, Kind::Message)
        })
        .await
    }

    /// Sends EOF; only once, however often it is called.
    pub async fn eof(&self) -> Result<(), LinkError> {
        if self.guard.eof.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.queue(Frame::bare(self.guard.id, Kind::Eof)).await
    }

    /// Ends the stream for both sides.
    pub async fn end(&self, payload: Bytes) -> Result<(), LinkError> {
        if !self.guard.finish() {
            return Err(LinkError::Reset);
        }
        self.queue(Frame {
            payload,
            ..Frame::bare(self.guard.id, Kind::End)
        })
        .await
    }

    /// Waits until the peer has ended the stream or the link is gone, even if the events before
    /// that are unread. Returns `Reset`, or the link's reason.
    pub async fn closed(&self) -> LinkError {
        // The semaphore has no permits, so this returns only when it is closed.
        let _ = self.over.acquire().await;
        self.ended()
    }

    /// Abandons the stream now.
    pub fn reset(&self) {
        if self.guard.finish() {
            let reset = Frame::bare(self.guard.id, Kind::Reset);
            self.guard.inner.control(reset);
        }
        self.credit.close();
        self.over.close();
        self.guard.inner.slots().remove(&self.guard.id);
    }

    async fn queue(&self, frame: Frame) -> Result<(), LinkError> {
        if frame.payload.len() > MAX_PAYLOAD {
            return Err(LinkError::Protocol(format!(
                "message of {} bytes is larger than the limit of {MAX_PAYLOAD}",
                frame.payload.len()
            )));
        }
        match self.guard.inner.data.send(frame).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.guard.inner.reason()),
        }
    }

    fn ended(&self) -> LinkError {
        match self.guard.inner.closed.borrow().clone() {
            Some(reason) => reason,
            None => LinkError::Reset,
        }
    }
}

/// The receiving half of a stream.
#[derive(Debug)]
pub struct Receiver {
    guard: Arc<Guard>,
    queue: Arc<Queue>,
    owed: u32,
    over: bool,
}

impl Receiver {
    /// The next event. After `End` or `Reset` nothing more comes (`Err(Reset)`).
    pub async fn recv(&mut self) -> Result<Event, LinkError> {
        if self.over {
            return Err(LinkError::Reset);
        }
        let Some(event) = self.queue.next().await else {
            return Err(match self.guard.inner.closed.borrow().clone() {
                Some(reason) => reason,
                None => LinkError::Reset,
            });
        };
        match &event {
            Event::Data { bytes, .. } => self.give_back(bytes.len() as u32),
            Event::End(_) | Event::Reset => {
                self.over = true;
                self.guard.finish();
            }
            Event::Message(_) | Event::Eof => {}
        }
        Ok(event)
    }

    fn give_back(&mut self, bytes: u32) {
        self.owed += bytes;
        // Return credit in steps of half a window: one small frame per half megabyte.
        if self.owed >= WINDOW / 2 {
            let frame = Frame {
                payload: Bytes::copy_from_slice(&self.owed.to_le_bytes()),
                ..Frame::bare(self.guard.id, Kind::Credit)
            };
            self.guard.inner.control(frame);
            self.owed = 0;
        }
    }
}

async fn read_frames<R: AsyncRead + Unpin>(
    inner: &Arc<Inner>,
    mut read: R,
    accept: Option<mpsc::Sender<(Bytes, Stream)>>,
) -> LinkError {
    let mut buffer = BytesMut::new();
    let mut ended = Ended::default();
    loop {
        let missing = loop {
            match Frame::take(&mut buffer) {
                Ok(Taken::Frame(frame)) => {
                    if let Err(error) = deliver(inner, frame, accept.as_ref(), &mut ended) {
                        return error;
                    }
                }
                Ok(Taken::Missing(missing)) => break missing,
                Err(error) => return error.into(),
            }
        };
        if buffer.is_empty() {
            // An idle link waits with a small buffer.
            buffer = BytesMut::with_capacity(IDLE_CHUNK);
        } else if missing > buffer.capacity() - buffer.len() || missing > IDLE_CHUNK {
            buffer.reserve(missing.max(READ_CHUNK));
        }
        match read.read_buf(&mut buffer).await {
            Ok(0) => return LinkError::Closed,
            Ok(_) => drop(inner.heard.fetch_add(1, Ordering::Relaxed)),
            Err(error) => return LinkError::Io(error.to_string()),
        }
    }
}

fn deliver(
    inner: &Arc<Inner>,
    frame: Frame,
    accept: Option<&mpsc::Sender<(Bytes, Stream)>>,
    ended: &mut Ended,
) -> Result<(), LinkError> {
    let broken = |what: &str| Err(LinkError::Protocol(what.to_string()));
    if frame.kind == Kind::Open {
        let Some(accept) = accept else {
            return broken("a guest may not open streams");
        };
        if inner.slots().contains_key(&frame.stream) {
            return broken("a stream was opened twice");
        }
        let stream = register(inner, frame.stream)?;
        return match accept.try_send((frame.payload, stream)) {
            Ok(()) => Ok(()),
            // Dropping the stream resets it: the host sees a refusal instead of a stall.
            Err(mpsc::error::TrySendError::Full(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(LinkError::Closed),
        };
    }
    if accept.is_none() && frame.stream >= inner.next.load(Ordering::Relaxed) {
        return broken("a frame of a stream that nobody opened");
    }
    let mut slots = inner.slots();
    let Some(slot) = slots.get(&frame.stream) else {
        return match frame.kind {
            // The stream was dropped here and the peer may not know it yet, so only these
            // violations can be detected.
            Kind::Data if frame.payload.is_empty() => broken("data without a byte"),
            Kind::End if !ended.add(frame.stream) => broken("a second end of a stream"),
            _ => Ok(()),
        };
    };
    let taken = |taken: Result<(), &'static str>| taken.or_else(broken);
    match frame.kind {
        Kind::Data => return taken(slot.queue.data(frame.channel, frame.payload)),
        Kind::Message => return taken(slot.queue.message(frame.payload)),
        Kind::Eof => return taken(slot.queue.eof()),
        Kind::Credit => {
            let Ok(bytes) = <[u8; 4]>::try_from(&frame.payload[..]) else {
                return broken("a credit of the wrong size");
            };
            let bytes = u32::from_le_bytes(bytes);
            if bytes > WINDOW || slot.credit.available_permits() + bytes as usize > WINDOW as usize
            {
                return broken("more credit than a window");
            }
            slot.credit.add_permits(bytes as usize);
        }
        Kind::End | Kind::Reset => {
            if let Some(slot) = slots.remove(&frame.stream) {
                slot.queue.last(match frame.kind {
                    Kind::End => {
                        ended.add(frame.stream);
                        Event::End(frame.payload)
                    }
                    _ => Event::Reset,
                });
                slot.credit.close();
                slot.over.close();
            }
        }
        Kind::Open => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
