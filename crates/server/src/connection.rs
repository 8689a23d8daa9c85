//! One connection: which HTTP it speaks, and serving it to its end.
//!
//! REST speaks HTTP/1.1 and gRPC HTTP/2, on the same socket; the first bytes say which.

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::os::fd::AsFd;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};

/// How long a client may take to send the head of a request, or stay silent between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection of HTTP/2 that is silent for this long is asked whether it is there, and has as long
/// to answer.
const ALIVE: Duration = Duration::from_secs(20);
/// How every connection of HTTP/2 begins; no request of HTTP/1.1 does.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What one call of HTTP/2 may have sent that nobody has read.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The same for all calls of a connection: many times that of one, so that an upload that nobody
/// reads does not hold up the calls beside it.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;

/// What answers the requests of a connection.
pub trait HttpService:
    Service<
        Request<Incoming>,
        Response = Response<Body>,
        Error = Infallible,
        Future: Send + 'static,
    > + Send
    + 'static
{
}

impl<S> HttpService for S where
    S: Service<
            Request<Incoming>,
            Response = Response<Body>,
            Error = Infallible,
            Future: Send + 'static,
        > + Send
        + 'static
{
}

/// How long and how large the head of a request may be.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub timeout: Duration,
    pub bytes: usize,
}

impl Default for Head {
    /// For callers of the local socket.
    fn default() -> Head {
        Head {
            timeout: HEAD_TIMEOUT,
            bytes: 256 * 1024,
        }
    }
}

/// Serves HTTP/1.1 until the client leaves, or lets the request end that is being served when
/// `stopping` comes.
pub async fn serve_http1<S>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    head: Head,
    service: S,
    stopping: impl Future,
) -> hyper::Result<()>
where
    S: HttpService,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head.timeout)
        .max_buf_size(head.bytes)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    tokio::select! {
        result = connection.as_mut() => result,
        _ = stopping => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

/// The same with HTTP/2, for which the requests may be many.
pub async fn serve_http2<S>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    head: Head,
    service: S,
    stopping: impl Future,
) -> hyper::Result<()>
where
    S: HttpService,
{
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(ALIVE)
        .keep_alive_timeout(ALIVE)
        .max_concurrent_streams(motu_core::limits::GRPC_STREAMS.max as u32)
        .max_header_list_size(u32::try_from(head.bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        result = connection.as_mut() => result,
        _ = stopping => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    Http1,
    Http2,
}

/// A connection whose first bytes can be looked at without taking them.
pub trait Peek: AsFd + Sync {
    fn readable(&self) -> impl Future<Output = std::io::Result<()>> + Send;
    fn try_peek(&self, first: &mut [u8]) -> std::io::Result<usize>;
}

/// Looks at the first bytes of a socket.
fn peek(socket: impl AsFd, first: &mut [u8]) -> std::io::Result<usize> {
    let (_, length) = rustix::net::recv(socket, first, rustix::net::RecvFlags::PEEK)?;
    Ok(length)
}

impl Peek for UnixStream {
    fn readable(&self) -> impl Future<Output = std::io::Result<()>> + Send {
        UnixStream::readable(self)
    }

    fn try_peek(&self, first: &mut [u8]) -> std::io::Result<usize> {
        self.try_io(Interest::READABLE, || peek(self, first))
    }
}

impl Peek for TcpStream {
    fn readable(&self) -> impl Future<Output = std::io::Result<()>> + Send {
        TcpStream::readable(self)
    }

    fn try_peek(&self, first: &mut [u8]) -> std::io::Result<usize> {
        self.try_io(Interest::READABLE, || peek(self, first))
    }
}

/// What a connection speaks, by its first bytes, none of which are taken from it. Nothing when it
/// says nothing in its time.
pub async fn speaks(stream: &impl Peek, head: Head) -> Option<Speaks> {
    let begin = Instant::now();
    let mut first = [0u8; PREFACE.len()];
    while let Some(left) = head.timeout.checked_sub(begin.elapsed()) {
        tokio::time::timeout(left, stream.readable())
            .await
            .ok()?
            .ok()?;
        let peeked = stream.try_peek(&mut first);
        match peeked {
            Ok(0) => return None,
            Ok(length) if !PREFACE.starts_with(&first[..length]) => return Some(Speaks::Http1),
            Ok(length) if length == PREFACE.len() => return Some(Speaks::Http2),
            // It has sent a part of the word: what is there already cannot be waited for.
            Ok(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
    None
}
