//! Standard input of a process: a pipe, a terminal or nothing.
//!
//! A write waits until the process reads. Input after the process has closed its end is dropped
//! without an error, as in a shell pipeline.

use bytes::{Buf as _, Bytes};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;

/// The end-of-file character of a terminal (VEOF).
const END_OF_INPUT: &[u8] = &[4];

/// Where input goes.
#[derive(Debug)]
enum Sink {
    Pipe(AsyncFd<OwnedFd>),
    Terminal(Arc<AsyncFd<OwnedFd>>),
    Closed,
}

/// Standard input; one writer at a time, in order.
#[derive(Debug)]
pub struct Stdin {
    sink: Mutex<Sink>,
    /// Bytes that were written so far.
    written: AtomicU64,
}

impl Stdin {
    fn new(sink: Sink) -> Stdin {
        Stdin {
            sink: Mutex::new(sink),
            written: AtomicU64::new(0),
        }
    }

    /// Bytes written so far; they have all reached the pipe or terminal.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub fn pipe(fd: AsyncFd<OwnedFd>) -> Stdin {
        Stdin::new(Sink::Pipe(fd))
    }

    pub fn terminal(fd: Arc<AsyncFd<OwnedFd>>) -> Stdin {
        Stdin::new(Sink::Terminal(fd))
    }

    pub fn none() -> Stdin {
        Stdin::new(Sink::Closed)
    }

    /// Writes all of `pending`, or as much as the process takes, then closes the input if asked to.
    /// Cancel-safe: written bytes have left `pending`.
    pub async fn feed(&self, pending: &mut VecDeque<Bytes>, end: bool) {
        let mut sink = self.sink.lock().await;
        while let Some(piece) = pending.front_mut() {
            let before = piece.len();
            let open = !piece.is_empty() && sink.write_some(piece).await;
            // Dropped input counts too: it is no longer on its way.
            let gone = if open { before - piece.len() } else { before };
            self.written.fetch_add(gone as u64, Ordering::Release);
            if !open {
                pending.pop_front();
            }
        }
        if end {
            sink.end().await;
        }
    }

    /// Closes the input, unless a writer is busy; that one notices by itself.
    pub fn close_now(&self) {
        if let Ok(mut sink) = self.sink.try_lock() {
            *sink = Sink::Closed;
        }
    }
}

impl Sink {
    /// Writes a part of the piece; false if the input is closed.
    async fn write_some(&mut self, piece: &mut Bytes) -> bool {
        let written = match self {
            Sink::Pipe(fd) => write(fd, piece).await,
            Sink::Terminal(fd) => write(fd, piece).await,
            Sink::Closed => return false,
        };
        match written {
            Ok(written) => piece.advance(written.min(piece.len())),
            Err(_) => *self = Sink::Closed,
        }
        true
    }

    /// Closes a pipe; types the end-of-file character on a terminal.
    async fn end(&mut self) {
        match self {
            Sink::Terminal(fd) => {
                // A terminal whose slave is closed has no input to end.
                let _ = write(fd, END_OF_INPUT).await;
            }
            _ => *self = Sink::Closed,
        }
    }
}

/// Writes once, when there is room. No await follows the write, so cancellation loses nothing.
async fn write(fd: &AsyncFd<OwnedFd>, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        let mut ready = fd.writable().await.map_err(|_| Errno::IO)?;
        match ready.try_io(|fd| Ok(rustix::io::write(fd, bytes)?)) {
            Ok(Ok(written)) if written > 0 => return Ok(written),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(_) => return Err(Errno::PIPE),
            // A spurious wake-up.
            Err(_) => {}
        }
    }
}
