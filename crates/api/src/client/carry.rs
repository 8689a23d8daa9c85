//! Sends calls to the daemon: one function per shape of call, none per verb.

use super::session::lines;
use super::{Body, Call, Client, Duplex};
use crate::address::{address, query};
use crate::socket::{FILE_BYTE, receive_file, send_file};
use crate::wire::{DIAL_PROTOCOL, ENTRY_HEADER, LENT, LENT_HEADER, StepLine, WANTED, WatchLine};
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderValue, Method, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use motu_core::exec::ExecSession;
use motu_core::files::{ByteStream, FileEntry, ReadFile};
use motu_core::report::ProgressSink;
use motu_core::runtime::Connection;
use motu_core::verb::{Ask, Carry, Changes, Value, Verb};
use motu_core::{Error, Result};
use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

/// What is said on a connection beside a file that is handed over fits.
const TALK: usize = 64 * 1024;

/// Builds the HTTP request of a call; an explicit body replaces the JSON one.
fn request<V: Verb>(call: &V) -> Result<Call> {
    let info = V::INFO;
    let method = Method::from_bytes(info.method.as_str().as_bytes())
        .map_err(|_| Error::internal("a verb has no method"))?;
    let request = Call::new(method, address(call)?);
    if info.asks_in_query() {
        return Ok(request.with_query(&query(call.ask())?));
    }
    Ok(match V::Ask::GUEST_PATHS {
        [] => request.json(call.ask()),
        _ => request.json(&crate::address::outward(call.ask())?),
    })
}

fn upload(content: ByteStream) -> Body {
    BodyExt::boxed_unsync(StreamBody::new(content.map(|chunk| chunk.map(Frame::data))))
}

/// The socket behind an upgraded connection, and what HTTP has read of it already.
fn own_socket(upgraded: Upgraded) -> Result<(UnixStream, Bytes)> {
    let elsewhere = || Error::unsupported("files are lent on the daemon's own socket only");
    let parts = upgraded.downcast::<TokioIo<Box<dyn Duplex>>>();
    let parts = parts.map_err(|_| elsewhere())?;
    let stream: Box<dyn Any> = parts.io.into_inner();
    let stream: Box<UnixStream> = stream.downcast().map_err(|_| elsewhere())?;
    Ok((*stream, parts.read_buf))
}

/// A connection that takes a file, and hands it over when the daemon has asked for it.
fn taking_file(upgraded: Upgraded) -> Result<Connection> {
    let (mut stream, read) = own_socket(upgraded)?;
    let (ours, mut theirs) = tokio::io::duplex(TALK);
    let (takes, file) = oneshot::channel::<OwnedFd>();
    tokio::spawn(async move {
        // Without a file the connection just closes.
        let Ok(file) = file.await else { return };
        let handed = async {
            if read.is_empty() {
                stream.read_u8().await?;
            }
            send_file(&stream, file.as_fd()).await?;
            drop(file);
            tokio::io::copy_bidirectional(&mut stream, &mut theirs).await
        };
        // Whoever reads sees the end of the connection.
        let _ = handed.await;
    });
    let (read, write) = tokio::io::split(ours);
    let mut connection = Connection::new(read, write);
    connection.takes = Some(takes);
    Ok(connection)
}

/// Receives the file that comes with a connection. It is asked for first: a file that came with
/// bytes that HTTP has read already would be lost.
async fn with_file(upgraded: Upgraded) -> Result<Connection> {
    let (mut stream, _) = own_socket(upgraded)?;
    let received = async {
        stream.write_all(&[FILE_BYTE]).await?;
        receive_file(&stream).await
    };
    let file = received.await;
    let file = file.map_err(|error| Error::transport(format!("no file was lent: {error}")))?;
    let (read, write) = stream.into_split();
    let mut connection = Connection::new(read, write);
    connection.file = Some(file);
    Ok(connection)
}

impl Carry for Client {
    async fn value<V: Verb<Extra = (), Answer: Value>>(&self, call: V) -> Result<V::Answer> {
        // Also when no daemon has answered.
        let answer = self.fetch(request(&call)?).await;
        answer.map_err(V::Ask::failed)
    }

    async fn text<V: Verb<Extra = (), Answer = String>>(&self, call: V) -> Result<String> {
        let text = self.send(request(&call)?).await?.read_all().await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    async fn open<V: Verb<Extra = (), Answer = ExecSession>>(
        &self,
        call: V,
    ) -> Result<ExecSession> {
        self.open_with(address(&call)?, call.ask()).await
    }

    async fn attach<V: Verb<Extra = (), Answer = ExecSession>>(
        &self,
        call: V,
    ) -> Result<ExecSession> {
        self.open_attached(request(&call)?).await
    }

    async fn bytes<V: Verb<Extra = (), Answer = ByteStream>>(&self, call: V) -> Result<ByteStream> {
        Ok(self.send(request(&call)?).await?.into_stream())
    }

    async fn file<V: Verb<Extra = (), Ask = ReadFile, Answer = (FileEntry, ByteStream)>>(
        &self,
        call: V,
    ) -> Result<(FileEntry, ByteStream)> {
        let answer = self.send(request(&call)?).await?;
        let entry = answer.response.headers().get(ENTRY_HEADER);
        let entry = entry
            .and_then(|value| serde_json::from_slice(value.as_bytes()).ok())
            .ok_or_else(|| Error::transport("the answer does not describe the file"))?;
        Ok((entry, answer.into_stream()))
    }

    async fn lines<V: Verb<Extra = (), Answer = Changes>>(&self, call: V) -> Result<Changes> {
        let lines = lines::<WatchLine>(self.send(request(&call)?).await?);
        let changes = lines.map(|line| match line? {
            WatchLine::Change(change) => Ok(change),
            WatchLine::Error(error) => Err(error),
        });
        Ok(changes.boxed())
    }

    /// Upgrades a connection to a plain stream of bytes.
    async fn dial<V: Verb<Extra = (), Answer = Connection>>(&self, call: V) -> Result<Connection> {
        let request = request(&call)?
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, DIAL_PROTOCOL);
        let answer = self.send(request).await?;
        let lent = answer.response.headers().get(LENT_HEADER).cloned();
        let upgraded = hyper::upgrade::on(answer.response)
            .await
            .map_err(|error| super::broken(&error))?;
        match lent.as_ref().map(HeaderValue::as_bytes) {
            Some(value) if value == LENT.as_bytes() => return with_file(upgraded).await,
            Some(value) if value == WANTED.as_bytes() => return taking_file(upgraded),
            _ => {}
        }
        let (read, write) = tokio::io::split(TokioIo::new(upgraded));
        Ok(Connection::new(read, write))
    }

    async fn upload<V: Verb<Extra = ByteStream, Answer: Value>>(
        &self,
        call: V,
        content: ByteStream,
    ) -> Result<V::Answer> {
        self.fetch(request(&call)?.body(upload(content))).await
    }

    async fn steps<V: Verb<Extra = ProgressSink, Answer: Value>>(
        &self,
        call: V,
        progress: ProgressSink,
    ) -> Result<V::Answer> {
        let mut lines = lines::<StepLine<V::Answer>>(self.send(request(&call)?).await?);
        while let Some(line) = lines.next().await {
            match line? {
                StepLine::Progress(step) => drop(progress.try_send(step)),
                StepLine::Result(answer) => return Ok(answer),
                StepLine::Error(error) => return Err(error),
            }
        }
        Err(Error::transport("the steps ended without an answer"))
    }
}
