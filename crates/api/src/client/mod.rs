//! The client: a [`motu_core::Service`] over a socket.
//!
//! Every call has its own connection, which makes cancelling simple: dropping the answer closes
//! the connection, and a closed connection ends the work. A connection whose answer was read to its
//! end is kept for a while for the next call.

mod carry;
mod kept;
mod sending;
mod session;
mod silence;

use crate::socket;
use crate::wire::{API_HEADER, API_VERSION, AUDIT_HEADER, ErrorBody, LEAVE_HEADER, VERSION_HEADER};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use kept::{Connection, Kept};
use motu_core::audit::AuditId;
use motu_core::hint;
use motu_core::hint::host;
use motu_core::{Error, ErrorKind, Leave, Result, noted};
use serde::Serialize;
use serde::de::DeserializeOwned;
use session::Opening;
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes both ways: a socket of this host, or TLS to another one.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + Any {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + Any> Duplex for T {}

/// Opens connections to the daemon.
#[async_trait]
pub trait Dial: Send + Sync + std::fmt::Debug {
    /// Connects to a daemon, and may start one.
    async fn dial(&self) -> Result<Box<dyn Duplex>>;

    /// Connects to a daemon that already runs.
    async fn look(&self) -> Result<Box<dyn Duplex>> {
        self.dial().await
    }
}

/// A socket that a daemon already listens on.
#[derive(Clone, Debug)]
pub struct SocketAt(pub PathBuf);

#[async_trait]
impl Dial for SocketAt {
    async fn dial(&self) -> Result<Box<dyn Duplex>> {
        match socket::connect(&self.0).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => {
                let path = self.0.display();
                let message = format!("no daemon answers at {path}: {error}");
                Err(Error::unavailable(message))
            }
        }
    }
}

/// A client of a daemon.
#[derive(Clone, Debug)]
pub struct Client {
    dial: Arc<dyn Dial>,
    /// Refuse daemons of any other version.
    version: Option<&'static str>,
    kept: Arc<Kept>,
    /// The key as a header, for a daemon of another host.
    authorization: Option<HeaderValue>,
    /// What every call is held to, as a header.
    leave: Option<HeaderValue>,
    /// Called when a daemon does not answer, before the call fails.
    warn: Option<fn(&str)>,
}

type Body = UnsyncBoxBody<Bytes, Error>;

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// An answer and its connection, which is closed with it.
struct Answer {
    response: Response<Incoming>,
    connection: Connection,
    client: Client,
}

/// A request under construction.
struct Call {
    method: Method,
    target: String,
    content: Content,
    headers: HeaderMap,
}

/// The body of a request.
enum Content {
    Whole(Bytes),
    /// A stream, which can be sent only once.
    Stream(Body),
    /// A stream that begins with a request.
    Opening(Opening),
}

impl Call {
    fn new(method: Method, target: impl Into<String>) -> Call {
        Call {
            method,
            target: target.into(),
            content: Content::Whole(Bytes::new()),
            headers: HeaderMap::new(),
        }
    }

    fn get(target: impl Into<String>) -> Call {
        Call::new(Method::GET, target)
    }

    fn post(target: impl Into<String>) -> Call {
        Call::new(Method::POST, target)
    }

    fn with_query(mut self, query: &str) -> Call {
        if !query.is_empty() {
            self.target.push('?');
            self.target.push_str(query);
        }
        self
    }

    fn json(mut self, body: &impl Serialize) -> Call {
        self.content = Content::Whole(crate::event::json(body));
        self.header(header::CONTENT_TYPE, "application/json")
    }

    fn body(mut self, body: Body) -> Call {
        self.content = Content::Stream(body);
        self
    }

    fn opening(mut self, opening: Opening) -> Call {
        self.content = Content::Opening(opening);
        self
    }

    fn header(mut self, name: header::HeaderName, value: &'static str) -> Call {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    fn into_request(self, client: &Client) -> Result<Request<Body>> {
        let mut request = Request::new(match self.content {
            Content::Whole(bytes) if bytes.is_empty() => empty(),
            Content::Whole(bytes) => full(bytes),
            Content::Stream(body) => body,
            Content::Opening(opening) => opening.into_body(),
        });
        *request.method_mut() = self.method;
        *request.uri_mut() = self
            .target
            .parse()
            .map_err(|_| Error::invalid("the name cannot be part of a request"))?;
        *request.headers_mut() = self.headers;
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_static("motu"));
        if let Some(authorization) = &client.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        if let Some(leave) = &client.leave {
            headers.insert(LEAVE_HEADER, leave.clone());
        }
        Ok(request)
    }
}

impl Client {
    pub fn new(dial: impl Dial + 'static) -> Client {
        Client {
            dial: Arc::new(dial),
            version: None,
            kept: Arc::default(),
            authorization: None,
            leave: None,
            warn: None,
        }
    }

    /// Refuses to talk to a daemon of another version.
    #[must_use]
    pub fn expect_version(mut self, version: &'static str) -> Client {
        self.version = Some(version);
        self
    }

    /// Sends a key with every call.
    pub fn with_key(mut self, key: &str) -> Result<Client> {
        let mut value = HeaderValue::try_from(format!("Bearer {key}"))
            .map_err(|_| Error::invalid("that is no key").hint("keys begin with `motu_`"))?;
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(self)
    }

    /// Holds every call to this: for a program that passes on what a model says.
    pub fn held_to(mut self, leave: &Leave) -> Result<Client> {
        let value = HeaderValue::try_from(leave.written().into_bytes())
            .map_err(|_| Error::invalid("the name of a directory has control characters in it"))?;
        self.leave = Some(value);
        Ok(self)
    }

    /// Whether it talks to another host, or as if it did: with a key.
    pub fn is_elsewhere(&self) -> bool {
        self.authorization.is_some()
    }

    /// Sets the function that is called when a daemon does not answer.
    #[must_use]
    pub fn warn_by(mut self, warn: fn(&str)) -> Client {
        self.warn = Some(warn);
        self
    }

    /// Sends a call and reads the head of the answer. Error statuses are returned as errors.
    async fn send(&self, call: Call) -> Result<Answer> {
        let (response, connection) = self.unless_silent(self.deliver(call)).await?;
        self.check_version(response.headers())?;
        let answer = Answer {
            response,
            connection,
            client: self.clone(),
        };
        if let Some(id) = answer.audit_id() {
            noted::note(&id);
        }
        if answer.response.status().as_u16() < 400 {
            return Ok(answer);
        }
        Err(answer.into_error().await)
    }

    fn check_version(&self, headers: &HeaderMap) -> Result<()> {
        let find = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let (theirs, ours) = match (find(API_HEADER), find(VERSION_HEADER), self.version) {
            (Some(API_VERSION), Some(theirs), Some(ours)) if theirs != ours => (theirs, ours),
            (Some(API_VERSION), _, _) => return Ok(()),
            (Some(theirs), _, _) => (theirs, API_VERSION),
            (None, _, _) => ("unknown", API_VERSION),
        };
        Err(Error::new(
            ErrorKind::Unavailable,
            format!("the running daemon has version {theirs}, this program {ours}"),
        )
        .hint(hint![
            "stop it with ",
            host("motu serve --stop"),
            "; the next command starts a new one"
        ]))
    }

    /// Sends a call whose answer is one JSON value.
    async fn fetch<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        let body = self.send(call).await?.read_all().await?;
        // An empty body means `null`.
        let body: &[u8] = if body.is_empty() { b"null" } else { &body };
        serde_json::from_slice(body)
            .map_err(|error| Error::transport(format!("the answer cannot be read: {error}")))
    }

    /// The OpenAPI document the daemon serves.
    pub async fn openapi(&self) -> Result<serde_json::Value> {
        self.fetch(Call::get("/v1/openapi.json")).await
    }
}

impl Answer {
    /// The id of the call in the audit log.
    fn audit_id(&self) -> Option<AuditId> {
        let id = self.response.headers().get(AUDIT_HEADER)?;
        AuditId::parse(id.to_str().ok()?).ok()
    }

    async fn read_all(self) -> Result<Bytes> {
        let body = self.response.into_body().collect();
        let body = async { body.await.map_err(|error| broken(&error)) };
        let body = self.client.unless_silent(body).await?;
        self.client.kept.keep(self.connection);
        Ok(body.to_bytes())
    }

    async fn into_error(self) -> Error {
        let status = self.response.status();
        match self.read_all().await {
            Ok(body) => match serde_json::from_slice::<ErrorBody>(&body) {
                Ok(body) => body.error,
                Err(_) => Error::transport(format!("the daemon answered {status}")),
            },
            Err(error) => error,
        }
    }

    /// The body as a stream.
    fn into_stream(self) -> BoxStream<'static, Result<Bytes>> {
        let chunks = self.response.into_body().into_data_stream();
        let state = (chunks, self.connection, self.client);
        futures_util::stream::unfold(state, async |(mut chunks, connection, client)| {
            let next = async { Ok(chunks.next().await) };
            let chunk = match client.unless_silent(next).await {
                Ok(chunk) => chunk?.map_err(|error| broken(&error)),
                Err(error) => Err(error),
            };
            Some((chunk, (chunks, connection, client)))
        })
        .boxed()
    }
}

fn broken(error: &hyper::Error) -> Error {
    Error::transport(format!("the connection to the daemon broke: {error}"))
        .hint("`daemon.log` in the state directory may say why")
}
