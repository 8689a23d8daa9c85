//! Links over the serial ports of a virtual machine.
//!
//! A serial port has no connections: bytes of a host that died in the middle
//! of a frame are followed by those of the next host, and a guest that slept
//! meanwhile cannot see where one ends. So there are two ports. On the turn
//! port a host says one byte when it wants a new conversation; the guest hangs
//! up the old one, throws away what is left of it, and says the byte back. Only
//! then does the host greet on the link port (the greeting skips what was still
//! under way). One byte cannot be cut in half.

use crate::state::Guest;
use crate::{sys, transport};
use motu_boot::{LINK_PORT, TURN_PORT, find_port};
use motu_link::hello;
use rustix::event::epoll;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// The two ports, open.
#[derive(Debug)]
pub struct SerialPorts {
    link: Arc<OwnedFd>,
    turn: Arc<OwnedFd>,
}

impl SerialPorts {
    /// Opens the ports of this machine.
    pub fn open() -> io::Result<SerialPorts> {
        Ok(SerialPorts {
            link: Arc::new(open_port(LINK_PORT)?),
            turn: Arc::new(open_port(TURN_PORT)?),
        })
    }
}

fn open_port(number: u32) -> io::Result<OwnedFd> {
    let path = find_port(Path::new("/dev"), number).ok_or(io::ErrorKind::NotFound)?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Serves one conversation after the other, for ever.
pub async fn serve(ports: SerialPorts, guest: Arc<Guest>) {
    let now = Arc::new(AtomicU64::new(0));
    let always = Turn {
        number: 0,
        now: Arc::default(),
    };
    let Ok(mut turns) = Half::new(ports.turn.clone(), epoll::EventFlags::IN, always) else {
        return;
    };
    let mut conversation: Option<tokio::task::JoinHandle<()>> = None;
    while let Ok(asked) = turns.next_byte().await {
        if let Some(old) = conversation.take() {
            old.abort();
        }
        let turn = Turn {
            number: now.fetch_add(1, Ordering::Relaxed) + 1,
            now: now.clone(),
        };
        discard(&ports.link);
        conversation = Some(tokio::spawn(converse(
            ports.link.clone(),
            turn,
            guest.clone(),
        )));
        // A port that takes no byte now has a host that is gone; the next one asks again.
        let _ = rustix::io::write(&*ports.turn, &[asked]);
    }
}

/// Throws away what the last conversation left in the port.
fn discard(port: &OwnedFd) {
    let mut scratch = [0u8; 4096];
    while rustix::io::read(port, &mut scratch).is_ok_and(|got| got > 0) {}
}

async fn converse(port: Arc<OwnedFd>, turn: Turn, guest: Arc<Guest>) {
    let halves = Half::new(port.clone(), epoll::EventFlags::IN, turn.clone())
        .and_then(|read| Ok((read, Half::new(port, epoll::EventFlags::OUT, turn)?)));
    let Ok((read, write)) = halves else {
        return;
    };
    let mut both = tokio::io::join(read, write);
    if hello::guest(&mut both).await.is_ok() {
        let (read, write) = both.into_inner();
        transport::serve_link(read, write, guest).await;
    }
}

/// Which conversation a half belongs to, and which one it is now.
#[derive(Clone, Debug)]
struct Turn {
    number: u64,
    now: Arc<AtomicU64>,
}

impl Turn {
    fn is_over(&self) -> bool {
        self.now.load(Ordering::Relaxed) != self.number
    }
}

/// One direction of a port.
///
/// A port without a host is in a hung-up state that ends when one connects.
/// The async runtime takes a hang-up for final, so the port is watched by an
/// epoll instance of its own, and the runtime only watches that.
#[derive(Debug)]
struct Half {
    port: Arc<OwnedFd>,
    changes: AsyncFd<OwnedFd>,
    turn: Turn,
    /// Whether anything came in this turn: before that, a port without a host is one
    /// whose host is still on its way.
    heard: bool,
}

impl Half {
    fn new(port: Arc<OwnedFd>, wanted: epoll::EventFlags, turn: Turn) -> io::Result<Half> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&watch, &*port, data, wanted | epoll::EventFlags::ET)?;
        Ok(Half {
            port,
            changes: sys::watched(watch, Interest::READABLE)?,
            turn,
            heard: false,
        })
    }

    /// Waits until something changed at the port.
    fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut changed = ready!(self.changes.poll_read_ready(context))?;
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 1];
        let no_wait = rustix::event::Timespec::default();
        // Taken before the port is tried again: what happens after that is a new change.
        let _ = epoll::wait(self.changes.get_ref(), &mut events, Some(&no_wait));
        changed.clear_ready();
        Poll::Ready(Ok(()))
    }

    /// The next byte anybody sends, whoever comes and goes meanwhile.
    async fn next_byte(&mut self) -> io::Result<u8> {
        std::future::poll_fn(|context| {
            loop {
                let mut byte = [0u8; 1];
                match rustix::io::read(&*self.port, &mut byte) {
                    Ok(1..) => return Poll::Ready(Ok(byte[0])),
                    Ok(0) | Err(Errno::AGAIN) => ready!(self.poll_change(context))?,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Poll::Ready(Err(errno.into())),
                }
            }
        })
        .await
    }
}

impl AsyncRead for Half {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let half = self.get_mut();
        loop {
            if half.turn.is_over() {
                return Poll::Ready(Ok(()));
            }
            match rustix::io::read(&*half.port, buffer.initialize_unfilled()) {
                Ok(0) if !half.heard => ready!(half.poll_change(context))?,
                Ok(got) => {
                    half.heard = true;
                    buffer.advance(got);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => ready!(half.poll_change(context))?,
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }
}

impl AsyncWrite for Half {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let half = self.get_mut();
        loop {
            if half.turn.is_over() {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            match rustix::io::write(&*half.port, bytes) {
                Ok(put) => return Poll::Ready(Ok(put)),
                Err(Errno::AGAIN) => ready!(half.poll_change(context))?,
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
