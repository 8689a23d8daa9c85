//! Links over the serial ports of a virtual machine.
//!
//! A serial port has no connections: bytes of a host that died in the middle of a frame are
//! followed by those of the next host, and a guest that was paused meanwhile cannot tell them
//! apart. So there are two ports. On the turn port a host sends a random token to begin a new
//! conversation; the guest ends the old one and echoes the token. Then the host sends the token on
//! the link port and begins. Everything that arrives there before the token was sent by an earlier
//! host. A token is short enough to be sent in one piece.

use crate::state::Guest;
use crate::{sys, transport};
use motu_boot::{LINK_PORT, TOKEN_BYTES, TURN_PORT, find_port};
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
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};

/// The token that begins a conversation.
type Token = [u8; TOKEN_BYTES];

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

/// Serves one conversation after the other, forever.
pub async fn serve(ports: SerialPorts, guest: Arc<Guest>) {
    // A port that can no longer be read means the end of the machine.
    let _ = take_turns(&ports, &guest).await;
}

async fn take_turns(ports: &SerialPorts, guest: &Arc<Guest>) -> io::Result<()> {
    let now = Arc::new(AtomicU64::new(0));
    let always = Turn::default();
    let mut asked = Half::new(ports.turn.clone(), epoll::EventFlags::IN, always.clone())?;
    let mut answers = Half::new(ports.turn.clone(), epoll::EventFlags::OUT, always)?;
    let mut token = asked.next_token().await?;
    loop {
        let turn = Turn {
            number: now.fetch_add(1, Ordering::Relaxed) + 1,
            now: now.clone(),
        };
        let port = ports.link.clone();
        let conversation = tokio::spawn(converse(port, turn, token, guest.clone()));
        // A token may arrive before the kernel reports that its sender has connected: the echo
        // waits for that, but only until the next token.
        let answer = async {
            let _ = answers.write_all(&token).await;
            std::future::pending().await
        };
        token = tokio::select! {
            next = asked.next_token() => next?,
            never = answer => never,
        };
        conversation.abort();
    }
}

async fn converse(port: Arc<OwnedFd>, turn: Turn, token: Token, guest: Arc<Guest>) {
    let halves = Half::new(port.clone(), epoll::EventFlags::IN, turn.clone())
        .and_then(|read| Ok((read, Half::new(port, epoll::EventFlags::OUT, turn)?)));
    let Ok((mut read, write)) = halves else {
        return;
    };
    if skip_past(&mut read, &token).await.is_err() {
        return;
    }
    let mut both = tokio::io::join(read, write);
    if hello::guest(&mut both).await.is_ok() {
        let (read, write) = both.into_inner();
        transport::serve_link(read, write, guest).await;
    }
}

/// Reads up to the end of the token, and not a byte further.
async fn skip_past(read: &mut Half, token: &Token) -> io::Result<()> {
    let mut seen = [0u8; TOKEN_BYTES];
    let mut missing = TOKEN_BYTES;
    loop {
        read.read_exact(&mut seen[TOKEN_BYTES - missing..]).await?;
        if seen == *token {
            read.begun = true;
            return Ok(());
        }
        // Keep the longest suffix of the bytes seen that is a prefix of the token.
        missing = (1..=TOKEN_BYTES)
            .find(|cut| seen[*cut..] == token[..TOKEN_BYTES - cut])
            .unwrap_or(TOKEN_BYTES);
        seen.copy_within(missing.., 0);
    }
}

/// The number of a conversation, and the number of the current one.
#[derive(Clone, Debug, Default)]
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
    /// Whether the token of this turn has passed. Before that, a hung-up port means that its host
    /// has not connected yet, whatever an earlier one left in it.
    begun: bool,
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
            begun: false,
        })
    }

    /// Waits until something changed at the port.
    fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut changed = ready!(self.changes.poll_read_ready(context))?;
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 1];
        let no_wait = rustix::event::Timespec::default();
        // Clear the event before the port is tried again, so that no later change is missed.
        let _ = epoll::wait(self.changes.get_ref(), &mut events, Some(&no_wait));
        changed.clear_ready();
        Poll::Ready(Ok(()))
    }

    /// The next complete token; hosts may come and go meanwhile.
    async fn next_token(&mut self) -> io::Result<Token> {
        let mut token = [0u8; TOKEN_BYTES];
        let mut got = 0;
        std::future::poll_fn(|context| {
            loop {
                match rustix::io::read(&*self.port, &mut token[got..]) {
                    Ok(0) => {
                        // The host has disconnected: discard its incomplete token.
                        got = 0;
                        ready!(self.poll_change(context))?;
                    }
                    Ok(more) => {
                        got += more;
                        if got == TOKEN_BYTES {
                            return Poll::Ready(Ok(token));
                        }
                    }
                    Err(Errno::AGAIN) => ready!(self.poll_change(context))?,
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
                Ok(0) if !half.begun => ready!(half.poll_change(context))?,
                Ok(got) => {
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
