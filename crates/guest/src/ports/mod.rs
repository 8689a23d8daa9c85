//! Ports of this machine: connecting to them and listing them.

mod listening;

pub use listening::listening;

use crate::answer::{Failed, Quoted, note};
use crate::blocking;
use crate::place::Place;
use crate::state::Guest;
use bytes::{Bytes, BytesMut};
use motu_link::Event;
use motu_link::frame::CHANNEL_OUT;
use motu_link::message::{Connected, Dial, Failure, Said};
use motu_link::mux::{Receiver, Sender};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

/// Largest single read.
const READ: usize = 128 * 1024;

pub async fn dial(
    guest: &Arc<Guest>,
    request: Dial,
    tx: &Sender,
    rx: Receiver,
) -> Result<(), Failed> {
    if !request.unix.is_empty() {
        let connect = connect_unix(guest, &request.unix);
        let stream = blocking::unless_gone(tx, connect).await?;
        let (read, write) = stream.into_split();
        return relay(read, write, tx, rx).await;
    }
    let port = u16::try_from(request.port).ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| Failed::invalid(format!("{} is not a port", request.port)))?;
    let stream = blocking::unless_gone(tx, connect_tcp(port)).await?;
    // Disable Nagle's algorithm: small protocol messages must not be delayed.
    let _ = stream.set_nodelay(true);
    let (read, write) = stream.into_split();
    relay(read, write, tx, rx).await
}

async fn connect_tcp(port: u16) -> Result<TcpStream, Failed> {
    let first = match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    match TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await {
        Ok(stream) => Ok(stream),
        Err(_) => Err(refused(format!("port {port}"), &first)),
    }
}

async fn connect_unix(guest: &Arc<Guest>, path: &[u8]) -> Result<UnixStream, Failed> {
    let place = Place::parse(path)?;
    let root = guest.settings().root.clone();
    let what = Quoted(path).to_string();
    let fd = blocking::run(move || {
        root.open_at(&place, OFlags::PATH, Mode::empty())
            .map_err(|errno| place.failed(errno))
    })
    .await?;
    // The path was resolved below the root; `/proc/self/fd` leads to exactly that file.
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    UnixStream::connect(link)
        .await
        .map_err(|error| refused(what, &error))
}

fn refused(what: String, error: &std::io::Error) -> Failed {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    match errno {
        Errno::CONNREFUSED | Errno::NOENT => Failed::errno_as(Failure::NotFound, what, errno),
        errno => Failed::errno(what, errno),
    }
}

/// Relays bytes both ways until both sides are closed.
async fn relay(
    mut read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
    tx: &Sender,
    mut rx: Receiver,
) -> Result<(), Failed> {
    note(tx, Said::Connected(Connected {})).await?;
    let outward = async {
        loop {
            let bytes = match read_some(&mut read).await {
                // A reset connection counts as ended.
                Ok(bytes) if bytes.is_empty() => break,
                Err(_) => break,
                Ok(bytes) => bytes,
            };
            tx.data(CHANNEL_OUT, bytes).await?;
        }
        tx.eof().await?;
        Ok::<(), Failed>(())
    };
    let inward = async {
        loop {
            match rx.recv().await? {
                Event::Data { bytes, .. } => {
                    if write.write_all(&bytes).await.is_err() {
                        return Ok(());
                    }
                }
                Event::Eof => {
                    // The peer may be gone already.
                    let _ = write.shutdown().await;
                    return Ok(());
                }
                Event::Message(_) => {}
                Event::End(_) | Event::Reset => return Err(Failed::cancelled()),
            }
        }
    };
    tokio::select! {
        both = async { tokio::try_join!(outward, inward) } => both.map(|_| ()),
        // Notices a reset stream even while a write to the peer blocks.
        _ = tx.closed() => Err(Failed::cancelled()),
    }
}

/// Reads with a buffer that exists only while there is something to read.
async fn read_some(read: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Bytes> {
    let mut first = [0u8; 2048];
    let got = read.read(&mut first).await?;
    let start = first.get(..got).unwrap_or_default();
    if got < first.len() {
        return Ok(Bytes::copy_from_slice(start));
    }
    // There may be much more: take what has arrived, without waiting.
    let mut bytes = BytesMut::with_capacity(READ);
    bytes.extend_from_slice(start);
    tokio::select! {
        biased;
        more = read.read_buf(&mut bytes) => {
            more?;
        }
        () = std::future::ready(()) => {}
    }
    Ok(bytes.freeze())
}
