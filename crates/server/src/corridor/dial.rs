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
use motu_api::socket::send_file;
use motu_api::wire::{DIAL_PROTOCOL, LENT_HEADER};
use motu_core::runtime::Connection;
use motu_core::verb::Verb;
use motu_core::{Error, Result};
use motu_gate::Face;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

pub async fn dial<V: Verb<Extra = (), Answer = Connection>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    mut request: Request,
) -> Answer<Response> {
    let upgrade = upgrade(&mut request)?;
    let call: V = from_address(&parts, request.uri().query())?;
    let connection = app.gate.call(&caller, call, ()).await?;
    if connection.file.is_some() && caller.face != Face::Socket {
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
    let Connection { read, write, file } = inside;
    let lent = file.is_some();
    tokio::spawn(async move {
        let _guard = guard;
        let Ok(upgraded) = upgrade.await else { return };
        let mut inside = tokio::io::join(read, write);
        let Some(file) = file else {
            let mut outside = TokioIo::new(upgraded);
            let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
            return;
        };
        if let Ok(mut outside) = lend(upgraded, file).await {
            let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
        }
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static(DIAL_PROTOCOL)),
    ];
    let mut answer = (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response();
    if lent {
        let yes = HeaderValue::from_static("file");
        answer.headers_mut().insert(LENT_HEADER, yes);
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
