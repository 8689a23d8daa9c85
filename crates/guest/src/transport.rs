//! Links from connections to a Unix socket. Everything else only sees a [`Link`]; `serial` does the
//! same for virtual machines.

use crate::dispatch;
use crate::state::Guest;
use motu_link::Link;
use motu_link::hello::{self, Greeting};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// Concurrent connections; an old one may linger while a new daemon connects.
const MAX_CONNECTIONS: usize = 64;
/// How long the handshake may take.
const HELLO_TIME: Duration = Duration::from_secs(30);
/// Pause after a failed accept (out of descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub fn listener(fd: OwnedFd) -> std::io::Result<UnixListener> {
    let listener = std::os::unix::net::UnixListener::from(fd);
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Accepts connections forever.
pub async fn accept(listener: UnixListener, guest: Arc<Guest>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let guest = guest.clone();
                tokio::spawn(async move {
                    serve_connection(stream, guest).await;
                    drop(slot);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve_connection(mut stream: UnixStream, guest: Arc<Guest>) {
    match tokio::time::timeout(HELLO_TIME, hello::greeting(&mut stream)).await {
        Ok(Ok(Greeting::Link)) => {}
        Ok(Ok(Greeting::Take(token))) => return guest.lent.hand_over(&token, &stream).await,
        Ok(Err(_)) | Err(_) => return,
    }
    let (read, write) = stream.into_split();
    serve_link(read, write, guest).await;
}

/// Serves a greeted connection to its end; the link ends with this future.
pub async fn serve_link<R, W>(read: R, write: W, guest: Arc<Guest>)
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (link, mut incoming) = Link::start(read, write, true);
    let _closed = CloseOnDrop(link.clone());
    while let Some((request, stream)) = incoming.next().await {
        tokio::spawn(dispatch::converse(
            guest.clone(),
            link.clone(),
            request,
            stream,
        ));
    }
}

struct CloseOnDrop(Link);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}
