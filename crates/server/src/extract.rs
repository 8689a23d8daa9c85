//! Reading requests: everything malformed becomes the same typed error.

use crate::app::App;
use crate::fault::Fault;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request, WebSocketUpgrade};
use bytes::Bytes;
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use motu_core::exec::Selector;
use motu_core::terminal::TerminalId;
use motu_core::{Error, SandboxId, limits};
use serde::de::DeserializeOwned;

/// A JSON body. Nothing at all means `{}`.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &App) -> Result<Self, Fault> {
        read_json(request.into_body()).await.map(Json)
    }
}

/// A JSON body that carries whole texts: files, patches, secrets.
///
/// A text at its own limit may be several times as long when JSON escapes it.
pub struct Long<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for Long<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &App) -> Result<Self, Fault> {
        let most = limits::REQUEST_BODY_BYTES.max;
        read_json_up_to(request.into_body(), most).await.map(Long)
    }
}

/// Reads a body as JSON, up to the limit.
pub async fn read_json<T: DeserializeOwned>(body: Body) -> Result<T, Fault> {
    read_json_up_to(body, limits::REQUEST_BODY_BYTES.default).await
}

async fn read_json_up_to<T: DeserializeOwned>(body: Body, most: u64) -> Result<T, Fault> {
    let bytes = read_limited(body, most).await?;
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    Ok(parse_json(text)?)
}

pub fn parse_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(text)
        .map_err(|error| Error::invalid(format!("the request cannot be read: {error}")))
}

async fn read_limited(body: Body, most: u64) -> Result<Bytes, Error> {
    match Limited::new(body, most as usize).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Error::limit(format!(
            "the request is longer than {most} bytes"
        ))
        .details(serde_json::json!({
            "limit": limits::REQUEST_BODY_BYTES.name, "max": most,
        }))),
        Err(error) => Err(Error::transport(format!(
            "the request did not arrive whole: {error}"
        ))),
    }
}

/// The query of the address.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<App> for Params<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Fault> {
        let query = parts.uri.query().unwrap_or_default();
        serde_urlencoded::from_str(query)
            .map(Params)
            .map_err(|error| Error::invalid(format!("the query cannot be read: {error}")).into())
    }
}

/// One named part of the path, decoded.
async fn segment(parts: &mut Parts, app: &App, name: &str) -> Result<String, Error> {
    let params = RawPathParams::from_request_parts(parts, app)
        .await
        .map_err(|error| Error::invalid(format!("the address cannot be read: {error}")))?;
    let found = params.iter().find(|(key, _)| *key == name);
    found
        .map(|(_, value)| value.to_string())
        .ok_or_else(|| Error::internal(format!("the route has no part {name:?}")))
}

/// `{id}`: a sandbox, written out or as callers abbreviate it.
pub struct Id(pub SandboxId);

impl FromRequestParts<App> for Id {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Fault> {
        let text = segment(parts, app, "id").await?;
        let word = SandboxId::parse(&text)?;
        Ok(Id(app.service.resolve(word).await?))
    }
}

/// `{selector}`: a process.
pub struct Selected(pub Selector);

impl FromRequestParts<App> for Selected {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Fault> {
        let text = segment(parts, app, "selector").await?;
        Ok(Selected(Selector::parse(&text)?))
    }
}

/// `{name}`: an environment, a snapshot, a service.
pub struct Named(pub String);

impl FromRequestParts<App> for Named {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Fault> {
        Ok(Named(segment(parts, app, "name").await?))
    }
}

/// `{shell}`: a shell of a workspace.
pub struct ShellId(pub String);

impl FromRequestParts<App> for ShellId {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Fault> {
        Ok(ShellId(segment(parts, app, "shell").await?))
    }
}

/// `{terminal}`: a session.
pub struct Session(pub TerminalId);

impl FromRequestParts<App> for Session {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Fault> {
        let text = segment(parts, app, "terminal").await?;
        Ok(Session(TerminalId::parse(&text)?))
    }
}

/// `{port}`: a TCP port.
pub struct PortNumber(pub u16);

impl FromRequestParts<App> for PortNumber {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Fault> {
        let text = segment(parts, app, "port").await?;
        match text.parse() {
            Ok(port) if port > 0 => Ok(PortNumber(port)),
            _ => Err(Error::invalid("a port is a number from 1 to 65535").into()),
        }
    }
}

/// A connection that is to become a WebSocket.
pub struct Upgrade(pub WebSocketUpgrade);

impl FromRequestParts<App> for Upgrade {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Fault> {
        let upgrade = WebSocketUpgrade::from_request_parts(parts, app).await;
        upgrade.map(Upgrade).map_err(|rejection| {
            Error::invalid("this address takes only WebSockets")
                .details(serde_json::json!({"cause": rejection.to_string()}))
                .into()
        })
    }
}
