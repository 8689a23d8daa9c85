//! Connections of plain bytes into a machine.

use super::{Answer, from_address};
use crate::app::App;
use crate::extract::Introduced;
use axum::body::Body;
use axum::extract::{RawPathParams, Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use motu_api::wire::DIAL_PROTOCOL;
use motu_core::runtime::Connection;
use motu_core::verb::Verb;
use motu_core::{Error, Result};

pub async fn dial<V: Verb<Extra = (), Answer = Connection>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: RawPathParams,
    mut request: Request,
) -> Answer<Response> {
    let upgrade = upgrade(&mut request)?;
    let call: V = from_address(&parts, request.uri().query())?;
    let connection = app.gate.call(&caller, call, ()).await?;
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
    let guard = app.activity.enter();
    tokio::spawn(async move {
        let _guard = guard;
        let Ok(upgraded) = upgrade.await else { return };
        let mut outside = TokioIo::new(upgraded);
        let mut inside = tokio::io::join(inside.read, inside.write);
        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static(DIAL_PROTOCOL)),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response()
}
