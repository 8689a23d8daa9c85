//! Connections of plain bytes into a machine.

use super::{Answer, from_address};
use crate::app::App;
use crate::extract::{AddressParts, Introduced};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use motu_api::socket::{FILE_BYTE, receive_file, send_file};
use motu_api::wire::{DIAL_PROTOCOL, LENT, LENT_HEADER, WANTED};
use motu_core::runtime::Connection;
use motu_core::verb::Verb;
use motu_core::{Error, Result};
use motu_gate::Face;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a caller may take to ask for the file it is lent, or to hand over the one that is wanted.
const HANDOVER: Duration = Duration::from_secs(30);

pub async fn dial<V: Verb<Extra = (), Answer = Connection>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    mut request: Request,
) -> Answer<Response> {
    let upgrade = upgrade(&mut request)?;
    let call: V = from_address(&parts, request.uri().query())?;
    let connection = app.gate.call(&caller, call, ()).await?;
    let files = connection.file.is_some() || connection.takes.is_some();
    if files && caller.face != Face::Socket {
        let message = "files are lent on the daemon's own socket only";
        return Err(Error::unsupported(message)
            .hint("read or write its bytes")
            .into());
    }
    Ok(splice(&app, upgrade, connection))
}

/// The right to take the connection over, if the caller offers it.
fn upgrade(request: &mut Request) -> Result<OnUpgrade> {
    let offered = |headers: &HeaderMap| {
        let protocol = headers.get(header::UPGRADE);
        protocol.is_some_and(|value| value == DIAL_PROTOCOL)
    };
    let wanted = offered(request.headers());
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    upgrade.filter(|_| wanted).ok_or_else(|| {
        Error::invalid("this address takes only upgraded connections").hint(format!(
            "send `Connection: upgrade` and `Upgrade: {DIAL_PROTOCOL}`"
        ))
    })
}

/// Joins the caller's connection with the one inside, until both have ended.
fn splice(app: &App, upgrade: OnUpgrade, inside: Connection) -> Response {
    let guard = app.activity.enter_open_ended();
    let Connection {
        read,
        write,
        file,
        takes,
    } = inside;
    let lent = match (&file, &takes) {
        (Some(_), _) => Some(LENT),
        (None, Some(_)) => Some(WANTED),
        (None, None) => None,
    };
    tokio::spawn(async move {
        let _guard = guard;
        let Ok(upgraded) = upgrade.await else { return };
        let mut inside = tokio::io::join(read, write);
        let outside = match (file, takes) {
            (Some(file), _) => timeout(HANDOVER, lend(upgraded, file)).await,
            (None, Some(takes)) => timeout(HANDOVER, take(upgraded, takes)).await,
            (None, None) => {
                let mut outside = TokioIo::new(upgraded);
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                return;
            }
        };
        if let Ok(Ok(mut outside)) = outside {
            let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
        }
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static(DIAL_PROTOCOL)),
    ];
    let mut answer = (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response();
    if let Some(lent) = lent {
        let lent = HeaderValue::from_static(lent);
        answer.headers_mut().insert(LENT_HEADER, lent);
    }
    answer
}

/// Sends the file when the caller asks for it, which may be in bytes that HTTP has read already.
async fn lend(upgraded: Upgraded, file: OwnedFd) -> std::io::Result<UnixStream> {
    let parts = upgraded.downcast::<TokioIo<UnixStream>>();
    let parts = parts.map_err(|_| std::io::ErrorKind::Unsupported)?;
    let mut stream = parts.io.into_inner();
    if parts.read_buf.is_empty() {
        stream.read_u8().await?;
    }
    send_file(&stream, file.as_fd()).await?;
    Ok(stream)
}

/// Asks for the file that the caller hands over: one that came unasked might come with bytes that
/// HTTP has read already, and would be lost.
async fn take(upgraded: Upgraded, takes: oneshot::Sender<OwnedFd>) -> std::io::Result<UnixStream> {
    let parts = upgraded.downcast::<TokioIo<UnixStream>>();
    let parts = parts.map_err(|_| std::io::ErrorKind::Unsupported)?;
    let mut stream = parts.io.into_inner();
    stream.write_all(&[FILE_BYTE]).await?;
    let file = receive_file(&stream).await?;
    // Whoever wanted it may have left: the caller sees the end.
    let _ = takes.send(file);
    Ok(stream)
}
