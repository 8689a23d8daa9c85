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
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::UnixStream;

/// How long a client may take to send the head of a request, or stay silent between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection of HTTP/2 that is silent for this long is asked whether it is there, and has as long
/// to answer.
const ALIVE: Duration = Duration::from_secs(20);
/// How every connection of HTTP/2 begins; no method of HTTP/1.1 does.
const PREFACE: &[u8] = b"PRI ";
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

/// Serves HTTP/1.1 until the client leaves, or lets the request end that is being served when
/// `stopping` comes.
pub async fn serve_http1<S>(
    stream: UnixStream,
    service: S,
    stopping: impl Future,
) -> hyper::Result<()>
where
    S: HttpService,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
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

/// What a connection speaks, by its first bytes, none of which are taken from it. Nothing when it
/// says nothing in its time.
pub async fn speaks(stream: &UnixStream) -> Option<Speaks> {
    let begin = Instant::now();
    let mut first = [0u8; PREFACE.len()];
    while let Some(left) = HEAD_TIMEOUT.checked_sub(begin.elapsed()) {
        tokio::time::timeout(left, stream.readable())
            .await
            .ok()?
            .ok()?;
        let peeked = stream.try_io(Interest::READABLE, || {
            let flags = rustix::net::RecvFlags::PEEK;
            let (_, length) = rustix::net::recv(stream, &mut first[..], flags)?;
            Ok(length)
        });
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
