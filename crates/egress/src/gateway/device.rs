//! Reads and writes the sandbox's frames, with a short queue for a slow reader.

use super::{GATEWAY_MAC, GUEST_MAC};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;

/// The header of an Ethernet frame.
pub(super) const HEADER: usize = 14;
/// Frames queued for a slow reader. Connections pause when it is half full; beyond the limit frames
/// are dropped, as on any link.
const WAITING: usize = 128;

#[derive(Debug)]
pub(super) struct Device {
    fd: OwnedFd,
    /// The MTU.
    pub(super) mtu: usize,
    /// Frames waiting to be written.
    waiting: VecDeque<Vec<u8>>,
    frame: Vec<u8>,
    /// The sandbox's MAC address, as it last used it.
    guest: [u8; 6],
}

impl Device {
    pub(super) fn new(fd: OwnedFd, mtu: usize) -> Self {
        Self {
            fd,
            mtu,
            waiting: VecDeque::new(),
            frame: Vec::with_capacity(HEADER + mtu),
            guest: GUEST_MAC,
        }
    }

    /// The next frame; `None` if there is none now.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.fd, buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => Ok(Some(count)),
            // The peer of a socket may come and go; a device that is down returns EIO.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNREFUSED | Errno::CONNRESET) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn heard(&mut self, from: [u8; 6]) {
        // A multicast MAC address cannot be a sender's.
        if from[0] & 1 == 0 {
            self.guest = from;
        }
    }

    /// Whether connections should pause.
    pub(super) fn is_slow(&self) -> bool {
        self.waiting.len() >= WAITING / 2
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends a packet that `fill` writes.
    pub(super) fn send<R>(
        &mut self,
        kind: u16,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.extend_from_slice(&self.guest);
        frame.extend_from_slice(&GATEWAY_MAC);
        frame.extend_from_slice(&kind.to_be_bytes());
        frame.resize(HEADER + length, 0);
        let filled = fill(&mut frame[HEADER..]);
        if self.waiting.len() >= WAITING {
            // Queue full: the frame is dropped.
        } else if self.has_waiting() || !self.write(&frame) {
            self.waiting.push_back(frame.clone());
        }
        self.frame = frame;
        filled
    }

    /// Writes queued frames as far as possible.
    pub(super) fn flush(&mut self) {
        while let Some(frame) = self.waiting.pop_front() {
            if !self.write(&frame) {
                self.waiting.push_front(frame);
                break;
            }
        }
    }

    /// Whether the frame is done: written, or failed for good.
    fn write(&self, frame: &[u8]) -> bool {
        !matches!(
            rustix::io::write(&self.fd, frame),
            Err(Errno::AGAIN | Errno::NOBUFS)
        )
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
