//! Reading requests: everything malformed becomes the same typed error.

use crate::app::App;
use crate::fault::Fault;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, RawPathParams, WebSocketUpgrade};
use bytes::Bytes;
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use motu_core::shown::misread;
use motu_core::{Error, ErrorKind, limits};
use motu_gate::{Caller, Face, Ticket, Who};
use serde::de::DeserializeOwned;
use std::convert::Infallible;

/// Reads a body as JSON, up to the limit.
pub async fn read_json<T: DeserializeOwned>(body: Body) -> Result<T, Fault> {
    read_json_of(body, limit(false)).await
}

/// The same for a request that carries whole texts.
pub async fn read_long_json<T: DeserializeOwned>(body: Body) -> Result<T, Fault> {
    read_json_of(body, limit(true)).await
}

async fn read_json_of<T: DeserializeOwned>(body: Body, most: u64) -> Result<T, Fault> {
    let bytes = read_limited(body, most).await?;
    match bytes.is_empty() {
        true => Err(motu_api::address::no_body().into()),
        false => {
            motu_api::address::check_object(&bytes)?;
            Ok(parse_json(&bytes)?)
        }
    }
}

/// The most bytes of a body. A text at its own limit may be several times as long when JSON
/// escapes it.
pub fn limit(long: bool) -> u64 {
    match long {
        true => limits::REQUEST_BODY_BYTES.max,
        false => limits::REQUEST_BODY_BYTES.default,
    }
}

pub fn parse_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    motu_api::address::read_json(text)
        .map_err(|error| Error::invalid(format!("the request cannot be read: {}", misread(error))))
}

pub async fn read_limited(body: Body, most: u64) -> Result<Bytes, Error> {
    match Limited::new(body, most as usize).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Error::limit(format!(
            "the request is longer than {most} bytes"
        ))
        .details(serde_json::json!({
            "limit": limits::REQUEST_BODY_BYTES.name, "max": most,
        }))),
        Err(error) => Err(broken("request", &*error)),
    }
}

/// A body that did not arrive whole: what its sender did, not what is behind here.
pub fn broken(what: &str, error: &(dyn std::error::Error + 'static)) -> Error {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let late = causes.any(|error| error.is::<crate::patience::Late>());
    let message = format!("the {what} did not arrive whole: {error}");
    match late {
        true => Error::new(ErrorKind::Timeout, message).details(serde_json::json!({
            "limit": limits::LISTEN_BODY_SECONDS.name,
        })),
        false => Error::invalid(message).hint("send all of the body, in whole chunks"),
    }
}

/// The parts of an address, decoded.
pub struct AddressParts(RawPathParams);

impl AddressParts {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter()
    }
}

impl FromRequestParts<App> for AddressParts {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Fault> {
        let found = RawPathParams::from_request_parts(parts, app).await;
        found.map(AddressParts).map_err(|error| unreadable(&error))
    }
}

/// The parts of an address, as the types that they stand for.
pub struct At<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for At<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Fault> {
        let found = Path::<T>::from_request_parts(parts, app).await;
        found
            .map(|Path(found)| At(found))
            .map_err(|error| unreadable(&error))
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> Fault {
    Error::invalid(format!("the address cannot be read: {error}")).into()
}

/// The query of the address.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<App> for Params<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Fault> {
        let query = axum::extract::Query::try_from_uri(&parts.uri);
        query.map(|query| Params(query.0)).map_err(|error| {
            Error::invalid(format!("the query cannot be read: {}", misread(error))).into()
        })
    }
}

/// Whoever makes this request.
pub struct Introduced(pub Caller);

/// Who asks, as whoever took the connection says. A listener that says nothing serves strangers.
impl FromRequestParts<App> for Introduced {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Infallible> {
        let told = parts.extensions.get::<Caller>().map(Caller::again);
        let caller = told.unwrap_or_else(|| Caller::new(Who::Remote, Face::Http));
        let ticket = parts.extensions.get::<Ticket>().cloned();
        Ok(Introduced(caller.with_ticket(ticket.unwrap_or_default())))
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
