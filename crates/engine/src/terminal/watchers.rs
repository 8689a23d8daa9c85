//! Those who watch a session live.
//!
//! A watcher that falls behind loses output, is told of the gap, and sees the
//! whole screen again when it has caught up. It never holds up the session.

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _, unfold};
use motu_core::Result;
use motu_core::exec::{Channel, ExecEvent, Exited, Gap};
use motu_terminal::render;
use motu_terminal::session::Session;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Events a watcher may have waiting.
const QUEUE: usize = 64;
/// How often one that has fallen behind is looked after.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct Watcher {
    events: mpsc::Sender<ExecEvent>,
    /// Where what it missed begins.
    lost: Option<u64>,
}

/// All watchers of one session.
#[derive(Debug, Default)]
pub struct Watchers(Vec<Watcher>);

impl Watchers {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One more; sees `first` and then what comes.
    pub fn add(&mut self, first: Vec<ExecEvent>) -> BoxStream<'static, Result<ExecEvent>> {
        let (events, queue) = mpsc::channel(QUEUE);
        for event in first {
            // The queue is longer than any beginning.
            let _ = events.try_send(event);
        }
        self.0.push(Watcher { events, lost: None });
        let next = |mut queue: mpsc::Receiver<ExecEvent>| async move {
            queue.recv().await.map(|event| (Ok(event), queue))
        };
        unfold(queue, next).boxed()
    }

    /// Output that begins at `from`.
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

    /// Those who have read what they had see the screen as it is now.
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

    /// When somebody is to be looked after.
    pub fn wake(&self) -> Option<Instant> {
        let behind = self.0.iter().any(|watcher| watcher.lost.is_some());
        // Whoever leaves is noticed with the next output, or when the session ends.
        behind.then(|| Instant::now() + PAUSE)
    }

    /// Nothing more will come.
    pub fn end(&mut self, exit_code: i32) {
        for watcher in self.0.drain(..) {
            let exited = Exited {
                exit_code,
                ..Exited::default()
            };
            // One that is behind sees the end of its stream.
            let _ = watcher.events.try_send(ExecEvent::Exited(exited));
        }
    }
}
