//! Watchers of a session's live output.
//!
//! A watcher that falls behind loses output, gets a gap event, and sees the whole screen again once
//! it has caught up. It never slows the session down.

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _, unfold};
use motu_core::Result;
use motu_core::exec::{Channel, ExecEvent, Exited, Gap};
use motu_terminal::render;
use motu_terminal::session::Session;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Capacity of a watcher's queue.
const QUEUE: usize = 64;
/// How often a watcher that has fallen behind is checked.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct Watcher {
    events: mpsc::Sender<ExecEvent>,
    /// The position at which the gap begins.
    lost: Option<u64>,
}

/// All watchers of one session.
#[derive(Debug, Default)]
pub struct Watchers(Vec<Watcher>);

impl Watchers {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a watcher, which gets `first` and then new output.
    pub fn add(&mut self, first: Vec<ExecEvent>) -> BoxStream<'static, Result<ExecEvent>> {
        let (events, queue) = mpsc::channel(QUEUE);
        for event in first {
            // `first` is always shorter than the queue.
            let _ = events.try_send(event);
        }
        self.0.push(Watcher { events, lost: None });
        let next = |mut queue: mpsc::Receiver<ExecEvent>| async move {
            queue.recv().await.map(|event| (Ok(event), queue))
        };
        unfold(queue, next).boxed()
    }

    /// Sends output that begins at `from`.
    pub fn show(&mut self, from: u64, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        self.0.retain_mut(|watcher| {
            if watcher.lost.is_some() {
                return !watcher.events.is_closed();
            }
            match watcher.events.try_send(ExecEvent::Stdout(bytes.clone())) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    watcher.lost = Some(from);
                    true
                }
                Err(mpsc::error::TrySendError::Closed(_)) => false,
            }
        });
    }

    /// Sends the current screen to watchers that have emptied their queue after a gap.
    pub fn catch_up(&mut self, session: &Session) {
        for watcher in &mut self.0 {
            let Some(from) = watcher.lost.filter(|_| watcher.events.capacity() == QUEUE) else {
                continue;
            };
            watcher.lost = None;
            let gap = Gap {
                channel: Channel::Stdout,
                from,
                to: session.end(),
            };
            let _ = watcher.events.try_send(ExecEvent::Gap(gap));
            let screen = Bytes::from(render::redraw(&session.view()));
            let _ = watcher.events.try_send(ExecEvent::Stdout(screen));
        }
    }

    /// When a watcher is to be checked next.
    pub fn wake(&self) -> Option<Instant> {
        let behind = self.0.iter().any(|watcher| watcher.lost.is_some());
        // A watcher that has left is noticed with the next output, or when the session ends.
        behind.then(|| Instant::now() + PAUSE)
    }

    /// Ends all watchers.
    pub fn end(&mut self, exit_code: i32) {
        for watcher in self.0.drain(..) {
            let exited = Exited {
                exit_code,
                ..Exited::default()
            };
            // A watcher with a full queue only sees the end of its stream.
            let _ = watcher.events.try_send(ExecEvent::Exited(exited));
        }
    }
}
