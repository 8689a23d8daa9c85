//! The unread events of a stream.
//!
//! A peer may be hostile, so everything here is bounded in bytes: data by the window, messages by
//! number and bytes. Small pieces of data are merged, so that a window of single bytes does not
//! take many times its size, and copied, so that they do not keep the large buffers they were read
//! into alive.

use super::{Event, MAX_QUEUED_MESSAGE_BYTES, MAX_QUEUED_MESSAGES, WINDOW};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// Smaller pieces of data are merged.
const SMALL: usize = 4096;
/// Largest merged buffer.
const PACKED: usize = 64 * 1024;
/// Shorter payloads are copied out of their read buffer.
const COPIED: usize = 64 * 1024;

/// The events of one stream: one task produces, one consumes.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    data_bytes: usize,
    messages: usize,
    message_bytes: usize,
    eof: bool,
    closed: bool,
}

#[derive(Debug)]
enum Waiting {
    One(Event),
    /// Small pieces of data: their channels and lengths, and all their bytes.
    Packed {
        pieces: VecDeque<(u8, u16)>,
        bytes: BytesMut,
    },
}

/// Copies a short payload.
fn compact(bytes: Bytes) -> Bytes {
    match bytes.len() < COPIED {
        true => Bytes::copy_from_slice(&bytes),
        false => bytes,
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Queues a data frame, or returns the violation.
    pub fn data(&self, channel: u8, bytes: Bytes) -> Result<(), &'static str> {
        if bytes.is_empty() {
            return Err("data without a byte");
        }
        let mut state = self.state();
        // Unread bytes plus credit never exceed the window.
        state.data_bytes += bytes.len();
        if state.data_bytes > WINDOW as usize {
            return Err("more data than there was credit for");
        }
        match bytes.len() < SMALL {
            true => state.pack(channel, &bytes),
            false => {
                let bytes = compact(bytes);
                let event = Event::Data { channel, bytes };
                state.waiting.push_back(Waiting::One(event));
            }
        }
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    pub fn message(&self, bytes: Bytes) -> Result<(), &'static str> {
        let mut state = self.state();
        state.messages += 1;
        state.message_bytes += bytes.len();
        if state.messages > MAX_QUEUED_MESSAGES || state.message_bytes > MAX_QUEUED_MESSAGE_BYTES {
            return Err("too many unread messages");
        }
        let event = Event::Message(compact(bytes));
        state.waiting.push_back(Waiting::One(event));
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    pub fn eof(&self) -> Result<(), &'static str> {
        let mut state = self.state();
        if std::mem::replace(&mut state.eof, true) {
            return Err("a second end of data");
        }
        state.waiting.push_back(Waiting::One(Event::Eof));
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Queues the last event of a stream.
    pub fn last(&self, event: Event) {
        let event = match event {
            Event::End(bytes) => Event::End(compact(bytes)),
            other => other,
        };
        self.state().waiting.push_back(Waiting::One(event));
        self.close();
    }

    /// Marks the end: nothing more will come.
    pub fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_one();
    }

    /// The next event; `None` when nothing more will come.
    pub async fn next(&self) -> Option<Event> {
        loop {
            {
                let mut state = self.state();
                if let Some(event) = state.take() {
                    return Some(event);
                }
                if state.closed {
                    return None;
                }
            }
            // A notification since the check is not lost: `Notify` stores one permit.
            self.arrived.notified().await;
        }
    }
}

impl State {
    fn pack(&mut self, channel: u8, data: &[u8]) {
        let length = data.len() as u16;
        if let Some(Waiting::Packed { pieces, bytes }) = self.waiting.back_mut()
            && bytes.len() + data.len() <= PACKED
        {
            bytes.extend_from_slice(data);
            match pieces.back_mut() {
                Some((last, total)) if *last == channel && usize::from(*total) < SMALL => {
                    *total += length;
                }
                _ => pieces.push_back((channel, length)),
            }
            return;
        }
        let packed = Waiting::Packed {
            pieces: VecDeque::from([(channel, length)]),
            bytes: BytesMut::from(data),
        };
        self.waiting.push_back(packed);
    }

    fn take(&mut self) -> Option<Event> {
        let event = match self.waiting.front_mut()? {
            Waiting::Packed { pieces, bytes } => {
                let (channel, length) = pieces.pop_front()?;
                let bytes = bytes.split_to(usize::from(length)).freeze();
                if pieces.is_empty() {
                    self.waiting.pop_front();
                }
                Event::Data { channel, bytes }
            }
            Waiting::One(_) => match self.waiting.pop_front() {
                Some(Waiting::One(event)) => event,
                _ => return None,
            },
        };
        match &event {
            Event::Data { bytes, .. } => self.data_bytes -= bytes.len(),
            Event::Message(bytes) => {
                self.messages -= 1;
                self.message_bytes -= bytes.len();
            }
            Event::Eof | Event::End(_) | Event::Reset => {}
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_goes_in_comes_out(frames in prop::collection::vec((0u8..3, 1usize..9000), 1..100)) {
            let queue = Queue::default();
            let mut sent = Vec::new();
            for (number, (channel, length)) in frames.iter().enumerate() {
                let bytes = Bytes::from(vec![number as u8; *length]);
                if queue.data(*channel, bytes.clone()).is_err() {
                    break;
                }
                sent.extend(bytes.iter().map(|byte| (*channel, *byte)));
            }
            let mut read = Vec::new();
            while let Some(Event::Data { channel, bytes }) = queue.state().take() {
                prop_assert!(!bytes.is_empty());
                read.extend(bytes.iter().map(|byte| (channel, *byte)));
            }
            prop_assert!(read == sent);
        }
    }

    #[test]
    fn a_window_of_single_bytes_is_not_many_times_its_size() {
        let queue = Queue::default();
        for at in 0..WINDOW {
            queue
                .data((at % 2) as u8, Bytes::from_static(b"x"))
                .unwrap();
        }
        assert!(queue.data(0, Bytes::from_static(b"x")).is_err());
        let state = queue.state();
        assert_eq!(state.waiting.len(), WINDOW as usize / PACKED);
        let held: usize = state
            .waiting
            .iter()
            .map(|waiting| match waiting {
                Waiting::Packed { pieces, bytes } => pieces.capacity() * 4 + bytes.capacity(),
                Waiting::One(_) => usize::MAX,
            })
            .sum();
        assert!(held < 16 * WINDOW as usize, "{held}");
    }

    #[test]
    fn messages_are_bounded_in_number_and_in_bytes() {
        let queue = Queue::default();
        for _ in 0..MAX_QUEUED_MESSAGES {
            queue.message(Bytes::from_static(b"m")).unwrap();
        }
        assert!(queue.message(Bytes::from_static(b"m")).is_err());
        let queue = Queue::default();
        let large = Bytes::from(vec![0; 256 * 1024]);
        for _ in 0..MAX_QUEUED_MESSAGE_BYTES / large.len() {
            queue.message(large.clone()).unwrap();
        }
        assert!(queue.message(large).is_err());
    }
}
