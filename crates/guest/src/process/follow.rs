//! One host following one process: output out, input and controls in.
//!
//! ```text
//!   Started ─► (Gap | data)* ─► Exited ─► end
//! ```
//!
//! A lossless follower holds the rings: its unsent output is not dropped. When the host resets the
//! stream, the hold ends at once; when the link breaks, it lasts for [`LINGER`].

use super::{signals, start, tree};
use crate::answer::{Failed, note};
use crate::running::{Channel, Found, LINGER, Process};
use crate::state::Guest;
use bytes::Bytes;
use motu_link::frame::{CHANNEL_ERR, CHANNEL_OUT, MAX_PAYLOAD};
use motu_link::message::{Control, Do, Gap, Said, Started};
use motu_link::mux::{Receiver, Sender};
use motu_link::{Event, LinkError};
use prost::Message as _;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Input buffered for a process that does not read; beyond it the host gets no more credit.
const MAX_PENDING_INPUT: usize = 256 * 1024;

static NEXT_FOLLOWER: AtomicU64 = AtomicU64::new(1);

/// How to follow.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    pub lossless: bool,
    pub kill_on_reset: bool,
    pub forget: bool,
}

/// A position in both channels, held if lossless.
#[derive(Debug)]
pub struct Follower {
    process: Arc<Process>,
    id: u64,
    out: u64,
    err: u64,
    manner: Manner,
}

/// Why following stopped before the end.
enum Stopped {
    ByHost,
    LinkBroke,
}

impl From<LinkError> for Stopped {
    fn from(error: LinkError) -> Stopped {
        match error {
            LinkError::Reset => Stopped::ByHost,
            _ => Stopped::LinkBroke,
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.release(None);
    }
}

impl Follower {
    /// Registers at a position; from now on a lossless follower misses nothing after it.
    pub fn at(process: &Arc<Process>, out: u64, err: u64, manner: Manner) -> Follower {
        let id = NEXT_FOLLOWER.fetch_add(1, Ordering::Relaxed);
        // A position beyond the end means the end.
        let (out, err) = (out.min(process.out.end()), err.min(process.err.end()));
        if manner.lossless {
            process.out.with(|ring| ring.hold(id, out));
            process.err.with(|ring| ring.hold(id, err));
            process.out.room.notify_one();
            process.err.room.notify_one();
        }
        Follower {
            process: process.clone(),
            id,
            out,
            err,
            manner,
        }
    }

    pub async fn greet(&self, tx: &Sender) -> Result<(), Failed> {
        let facts = &self.process.facts;
        let started = Started {
            pid: facts.pid,
            tag: facts.tag.clone(),
            out_from: self.out,
            err_from: self.err,
            started_unix_ms: facts.started_unix_ms,
        };
        Ok(note(tx, Said::Started(started)).await?)
    }

    /// Follows to the end, or until the host is gone.
    pub async fn follow(
        mut self,
        guest: &Arc<Guest>,
        tx: &Sender,
        rx: Receiver,
    ) -> Result<(), Failed> {
        let process = self.process.clone();
        let stopped = tokio::select! {
            delivered = self.deliver(tx) => match delivered {
                Ok(()) => {
                    if self.manner.forget {
                        forget(guest, &process);
                    }
                    return Ok(());
                }
                Err(error) => Stopped::from(error),
            },
            stopped = listen(&process, tx, rx) => stopped,
        };
        match stopped {
            Stopped::LinkBroke if self.manner.lossless => {
                self.release(Some(Instant::now() + LINGER))
            }
            Stopped::LinkBroke => {}
            Stopped::ByHost if self.manner.kill_on_reset => {
                self.release(None);
                tree::kill(&process).await;
            }
            Stopped::ByHost => {}
        }
        if self.manner.forget && process.has_exited() && matches!(stopped, Stopped::ByHost) {
            forget(guest, &process);
        }
        Err(Failed::cancelled())
    }

    async fn deliver(&mut self, tx: &Sender) -> Result<(), LinkError> {
        let process = self.process.clone();
        let mut changes = process.changes();
        loop {
            changes.borrow_and_update();
            let over = process.has_exited();
            let mut moved = send_next(&process.out, CHANNEL_OUT, &mut self.out, tx).await?;
            moved |= send_next(&process.err, CHANNEL_ERR, &mut self.err, tx).await?;
            if moved {
                if self.manner.lossless {
                    process.out.with(|ring| ring.sent(self.id, self.out));
                    process.err.with(|ring| ring.sent(self.id, self.err));
                    process.out.room.notify_one();
                    process.err.room.notify_one();
                }
            } else if over && process.out.is_drained(self.out) && process.err.is_drained(self.err) {
                break;
            } else {
                // The record holds the sender, so waiting cannot fail.
                let _ = changes.changed().await;
            }
        }
        match process.exited(self.out, self.err) {
            Some(exited) => note(tx, Said::Exited(exited)).await,
            None => Ok(()),
        }
    }

    /// Releases the rings, now or at a later time.
    fn release(&mut self, later: Option<Instant>) {
        if !std::mem::replace(&mut self.manner.lossless, false) {
            return;
        }
        for channel in [&self.process.out, &self.process.err] {
            channel.with(|ring| match later {
                Some(expires) => ring.linger(self.id, expires),
                None => ring.release(self.id),
            });
            channel.room.notify_one();
        }
    }
}

/// Sends the next piece of a channel; false if there is none.
async fn send_next(
    channel: &Channel,
    number: u8,
    cursor: &mut u64,
    tx: &Sender,
) -> Result<bool, LinkError> {
    match channel.read(*cursor, MAX_PAYLOAD) {
        Found::Nothing => Ok(false),
        Found::Gap(to) => {
            let gap = Gap {
                channel: u32::from(number),
                from: *cursor,
                to,
            };
            note(tx, Said::Gap(gap)).await?;
            *cursor = to;
            Ok(true)
        }
        Found::Data(bytes) => {
            let size = bytes.len() as u64;
            tx.data(number, bytes).await?;
            *cursor += size;
            Ok(true)
        }
    }
}

/// Handles input and controls until the host is gone.
async fn listen(process: &Arc<Process>, tx: &Sender, mut rx: Receiver) -> Stopped {
    let mut pending: VecDeque<Bytes> = VecDeque::new();
    let mut pending_bytes = 0;
    let mut ended = false;
    loop {
        let has_input = !pending.is_empty() || ended;
        tokio::select! {
            biased;
            event = rx.recv(), if pending_bytes < MAX_PENDING_INPUT => match event {
                Ok(Event::Data { bytes, .. }) => {
                    pending_bytes += bytes.len();
                    pending.push_back(bytes);
                }
                Ok(Event::Eof) => ended = true,
                Ok(Event::Message(bytes)) => control(process, bytes),
                Ok(Event::Reset | Event::End(_)) => return Stopped::ByHost,
                Err(error) => return Stopped::from(error),
            },
            // Notice a host that is gone even while the process does not read.
            error = tx.closed(), if pending_bytes >= MAX_PENDING_INPUT => return Stopped::from(error),
            () = process.stdin.feed(&mut pending, ended), if has_input => {
                pending_bytes = 0;
                ended = false;
            }
        }
        if !pending.is_empty() {
            pending_bytes = pending.iter().map(Bytes::len).sum();
        }
    }
}

fn control(process: &Arc<Process>, bytes: Bytes) {
    // Controls have no answer: one that fails is dropped.
    match Control::decode(bytes).ok().and_then(|control| control.what) {
        Some(Do::Resize(size)) => {
            if let Some(terminal) = process.terminal() {
                let _ = start::resize(terminal.get_ref(), &size);
            }
        }
        Some(Do::Signal(signal)) => {
            if signal.tree {
                // Killing a tree takes a moment, and the next control may be urgent.
                let process = process.clone();
                tokio::spawn(async move { signals::send(&process, signal.signal, true).await });
            } else {
                // Synchronously, so that it takes effect before the input that follows.
                let _ = signals::send_to_group(process, signal.signal);
            }
        }
        None => {}
    }
}

/// Drops the record of an ended process; with living descendants it is only hidden, to reach them
/// later.
pub fn forget(guest: &Guest, process: &Arc<Process>) {
    process.set_forgotten();
    if !process.may_live() {
        guest.processes.remove(process);
    }
}
