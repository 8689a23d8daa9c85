//! Output of a command on its way to our own standard output and error.
//!
//! A reader that is slow, or stopped, must not keep signals and keys from being
//! passed on, and our outputs cannot be made non-blocking because others share
//! them. So small pieces are written directly when there is room for them, and
//! everything else by a thread, which also gathers pieces into large writes.

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use tokio::sync::{mpsc, oneshot};

/// A pipe that can be written at all takes this much.
const DIRECT_BYTES: usize = 4096;
/// Pieces waiting for the thread; with pieces of 64 KiB, two megabytes.
const QUEUE: usize = 32;
/// Pieces in one write.
const GATHER: usize = 32;

/// Where a piece goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Stdout,
    Stderr,
}

impl To {
    fn fd(self) -> BorrowedFd<'static> {
        match self {
            To::Stdout => rustix::stdio::stdout(),
            To::Stderr => rustix::stdio::stderr(),
        }
    }
}

/// The other side reads no more, or the disk is full.
#[derive(Debug)]
pub struct Broken(pub Errno);

/// Both outputs, in the order things were said.
#[derive(Debug, Default)]
pub struct Output {
    thread: Option<Thread>,
}

#[derive(Debug)]
struct Thread {
    pieces: mpsc::Sender<(To, Bytes)>,
    ended: oneshot::Receiver<Result<(), Broken>>,
}

impl Output {
    pub async fn write(&mut self, to: To, bytes: Bytes) -> Result<(), Broken> {
        if self.thread.is_none() && bytes.len() <= DIRECT_BYTES && has_room(to) {
            return write_all(to, &[bytes]);
        }
        let thread = self.thread.get_or_insert_with(Thread::start);
        if thread.pieces.send((to, bytes)).await.is_ok() {
            return Ok(());
        }
        self.finish().await
    }

    /// Waits until everything is written.
    pub async fn finish(&mut self) -> Result<(), Broken> {
        match self.thread.take() {
            None => Ok(()),
            Some(Thread { pieces, ended }) => {
                drop(pieces);
                ended.await.unwrap_or(Err(Broken(Errno::IO)))
            }
        }
    }
}

impl Thread {
    fn start() -> Thread {
        let (pieces, waiting) = mpsc::channel(QUEUE);
        let (end, ended) = oneshot::channel();
        std::thread::spawn(move || end.send(write_pieces(waiting)));
        Thread { pieces, ended }
    }
}

fn has_room(to: To) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let fd = to.fd();
    let mut wait = [PollFd::new(&fd, PollFlags::OUT)];
    matches!(poll(&mut wait, Some(&now)), Ok(1))
}

fn write_pieces(mut waiting: mpsc::Receiver<(To, Bytes)>) -> Result<(), Broken> {
    let mut next = waiting.blocking_recv();
    while let Some((to, first)) = next.take() {
        let mut pieces = vec![first];
        while pieces.len() < GATHER {
            match waiting.try_recv() {
                Ok((same, piece)) if same == to => pieces.push(piece),
                Ok(other) => {
                    next = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        write_all(to, &pieces)?;
        if next.is_none() {
            next = waiting.blocking_recv();
        }
    }
    Ok(())
}

fn write_all(to: To, pieces: &[Bytes]) -> Result<(), Broken> {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match rustix::io::writev(to.fd(), rest) {
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(Errno::INTR) => {}
            // Another process has made our output non-blocking.
            Err(Errno::AGAIN) => {
                let fd = to.fd();
                let _ = poll(&mut [PollFd::new(&fd, PollFlags::OUT)], None);
            }
            Err(error) => return Err(Broken(error)),
        }
    }
    Ok(())
}
