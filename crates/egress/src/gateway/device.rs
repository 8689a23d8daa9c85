//! The frames of a sandbox: in one by one, out with a short queue where the other side is slow.

use super::{GATEWAY_MAC, GUEST_MAC};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;

/// The header of an Ethernet frame.
pub(super) const HEADER: usize = 14;
/// Frames that wait for a slow reader. Connections wait before it is half full; beyond it, answers
/// are lost, as on any link.
const WAITING: usize = 128;

#[derive(Debug)]
pub(super) struct Device {
    fd: OwnedFd,
    /// The largest packet.
    pub(super) mtu: usize,
    /// Whether it is a socket (or a device file): told apart only when reading.
    waiting: VecDeque<Vec<u8>>,
    frame: Vec<u8>,
    /// The hardware address of the sandbox, as it last used it.
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

    /// The next frame, or nothing while there is none.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.fd, buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => Ok(Some(count)),
            // The peer of a socket may come and go; a device that is down says EIO.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNREFUSED | Errno::CONNRESET) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn heard(&mut self, from: [u8; 6]) {
        // A group address is nobody's own.
        if from[0] & 1 == 0 {
            self.guest = from;
        }
    }

    /// Whether connections should wait.
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
            // Lost.
        } else if self.has_waiting() || !self.write(&frame) {
            self.waiting.push_back(frame.clone());
        }
        self.frame = frame;
        filled
    }

    /// Sends what waits, as far as it goes.
    pub(super) fn flush(&mut self) {
        while let Some(frame) = self.waiting.pop_front() {
            if !self.write(&frame) {
                self.waiting.push_front(frame);
                break;
            }
        }
    }

    /// Whether the frame is gone: taken, or refused for good.
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
