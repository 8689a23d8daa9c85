//! The address for callers of other hosts, who send a key with every request.
//!
//! ```text
//!   accept ──► a place that waits ──► TLS ──► HTTP/1.1 or HTTP/2 ──► key ──► the routes of the socket
//!                  │ its time is over, or others come                 │ not good
//!                  ▼                                                  ▼
//!                close                                           `unauthenticated`
//! ```
//!
//! Who a key is and what it may do is the gate's matter; here it is only asked. A connection that
//! has shown no good key waits for as long as a head may take, whatever it sends meanwhile.

use crate::activity::Activity;
use crate::capsules;
use crate::connection::{Head, PREFACE, Speaks, serve_http1, serve_http2, speaks};
use crate::fault::Fault;
use crate::hosts::{self, ByName, Domain};
use crate::patience::{Patient, is_live};
use crate::places::{Bounds, Keeping, Place, Places, descriptors};
use crate::router::stamp;
use crate::tls::{Acceptor, File, Own};
use crate::vanished;
use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::Service as HyperService;
use hyper_util::service::TowerToHyperService;
use motu_core::config::{Certificate, ListenConfig};
use motu_core::{Error, ErrorKind, Result, limits};
use motu_gate::{Caller, Face, Gate};
use std::convert::Infallible;
use std::io::Cursor;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

/// Addresses that say nothing but whether the daemon is well; they need no key.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];
const GRPC: &str = "application/grpc";
/// Where clients of host agents put their key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The codes of gRPC for whoever is not known, and for whoever has no place.
const GRPC_UNAUTHENTICATED: &str = "16";
const GRPC_RESOURCE_EXHAUSTED: &str = "8";

/// Connections that the kernel holds until they are taken in. The usual 128 are few for many callers
/// at once: the next one would be tried again by its kernel, after a second.
const BACKLOG: u32 = 1024;

/// Listens on an address.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // An address that a daemon has just left can be taken at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A bound address.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    tls: Option<Acceptor>,
    head: Head,
    body: Duration,
    places: Places,
    domain: Option<Domain>,
}

/// What is behind the address.
#[derive(Clone, Debug)]
pub struct Behind {
    pub routes: Router,
    pub gate: Gate,
    pub activity: Activity,
}

impl Listener {
    /// Reads the certificates and binds the address, if one is configured.
    pub async fn bind(config: &ListenConfig, home: &Path) -> Result<Option<Listener>> {
        let Some(address) = config.address else {
            return Ok(None);
        };
        let tls = tls(config, home)?;
        let listener = bind(address).map_err(|error| {
            Error::unavailable(format!("[listen] address {address}: {error}"))
                .hint("choose a free address")
        })?;
        Ok(Some(Listener {
            listener,
            tls,
            head: Head {
                timeout: Duration::from_secs(config.head_seconds),
                bytes: limits::LISTEN_HEAD_BYTES.max as usize,
            },
            body: Duration::from_secs(config.body_seconds),
            places: places(config),
            domain: config.domain.as_deref().map(Domain::new),
        }))
    }

    /// Where callers reach it.
    pub fn url(&self) -> Result<String> {
        let address: SocketAddr = self
            .listener
            .local_addr()
            .map_err(|error| Error::io("[listen] address", &error))?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{address}"))
    }

    /// Takes connections in until `stop`, then lets open calls end.
    pub async fn serve(self, behind: Behind, mut stop: watch::Receiver<bool>) {
        let (head, body) = (self.head, self.body);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                // Out of descriptors: those that are open must go first.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    self.places.spare_one();
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let place = self.places.enter(Some(peer.ip()));
            let guard = behind.activity.enter();
            let service = Admitting {
                routes: TowerToHyperService::new(behind.routes.clone()),
                gate: behind.gate.clone(),
                head,
                body,
                peer,
                place: place.clone(),
                domain: self.domain.clone(),
            };
            let (tls, stop) = (self.tls.clone(), stop.clone());
            tokio::spawn(async move {
                let _guard = guard;
                let served = tokio::select! {
                    served = introduce(stream, tls, head, service, stop) => served,
                    // It was asked to leave, and is still there.
                    () = place.late() => Ok(()),
                };
                if let Err(error) = served {
                    tracing::debug!(%peer, %error, "a connection ended early");
                }
            });
        }
    }
}

fn places(config: &ListenConfig) -> Places {
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let wanted = Bounds {
        known: count(config.connections),
        waiting: count(config.strangers),
        patience: Some(Duration::from_secs(config.head_seconds)),
    };
    let bounds = wanted.within(descriptors());
    if bounds.known < wanted.known || bounds.waiting < wanted.waiting {
        tracing::warn!(
            known = bounds.known,
            strangers = bounds.waiting,
            "[listen] takes fewer connections: this process may not open more files"
        );
    }
    Places::new(bounds)
}

fn tls(config: &ListenConfig, home: &Path) -> Result<Option<Acceptor>> {
    let own;
    let (certificate, key) = match (&config.certificate, &config.key) {
        (None, _) => return Ok(None),
        (Some(Certificate::File(certificate)), Some(key)) => (certificate, key),
        (Some(Certificate::File(_)), None) => {
            return Err(Error::internal("[listen] was not checked"));
        }
        (Some(Certificate::Own), _) => {
            own = Own::find(home)?;
            (&own.certificate, &own.key)
        }
    };
    let section = "listen";
    let file = |name, path| File {
        section,
        name,
        path,
    };
    let certificate = file("certificate", certificate);
    let acceptor = Acceptor::new(certificate, file("key", key), None, &["h2", "http/1.1"])?;
    Ok(Some(acceptor))
}

async fn introduce(
    stream: TcpStream,
    tls: Option<Acceptor>,
    head: Head,
    service: Admitting,
    mut stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    // Small messages leave at once.
    stream.set_nodelay(true)?;
    vanished::notice(&stream);
    let mut told = stop.clone();
    let place = service.place.clone();
    let told = async {
        tokio::select! {
            _ = told.wait_for(|stop| *stop) => {}
            () = place.over() => {}
        }
    };
    let Some(tls) = tls else {
        let speaks = tokio::select! {
            biased;
            speaks = speaks(&stream, head) => speaks,
            _ = stop.wait_for(|stop| *stop) => None,
        };
        return serve(stream, speaks, head, service, told).await;
    };
    let greeted = tokio::select! {
        greeted = tokio::time::timeout(head.timeout, tls.0.accept(stream)) => greeted,
        // It has asked for nothing, so it does not hold up a server that leaves.
        _ = stop.wait_for(|stop| *stop) => return Ok(()),
    };
    let stream = greeted??;
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return serve(stream, Some(Speaks::Http1), head, service, told).await;
    }
    // HTTP/2 waits for its first bytes for ever, so they are read here first, in their time.
    let mut stream = stream;
    let mut first = [0u8; PREFACE.len()];
    tokio::select! {
        begun = tokio::time::timeout(head.timeout, stream.read_exact(&mut first)) => drop(begun??),
        _ = stop.wait_for(|stop| *stop) => return Ok(()),
    }
    let (read, write) = tokio::io::split(stream);
    let stream = tokio::io::join(Cursor::new(first).chain(read), write);
    serve(stream, Some(Speaks::Http2), head, service, told).await
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    speaks: Option<Speaks>,
    head: Head,
    service: Admitting,
    stopping: impl Future,
) -> std::io::Result<()> {
    // A connection that is taken over, by a WebSocket for example, holds its place to its end.
    let stream = Keeping::new(stream, service.place.clone());
    let served = match speaks {
        Some(Speaks::Http1) => serve_http1(stream, head, service, stopping).await,
        Some(Speaks::Http2) => serve_http2(stream, head, service, stopping).await,
        // It has said nothing in its time.
        None => return Ok(()),
    };
    served.map_err(std::io::Error::other)
}

/// The routes of one connection, behind the question who asks.
struct Admitting {
    routes: TowerToHyperService<Router>,
    gate: Gate,
    head: Head,
    body: Duration,
    peer: SocketAddr,
    place: Place,
    domain: Option<Domain>,
}

impl Admitting {
    /// Gives a request for the name of a port its address below the API.
    fn by_name(&self, request: &mut Request<Incoming>) -> Result<()> {
        let Some(domain) = &self.domain else {
            return Ok(());
        };
        if let Some(port) = domain.port(request)? {
            // HTTP/2 has the host in the address, which is replaced: the header keeps it.
            if let (None, Some(host)) = (request.headers().get(HOST), request.uri().host()) {
                let host = HeaderValue::from_str(host);
                let host = host.map_err(|_| Error::invalid("the host is no name"))?;
                request.headers_mut().insert(HOST, host);
            }
            *request.uri_mut() = port.address(request.uri())?;
            request.extensions_mut().insert(ByName);
        }
        Ok(())
    }

    /// Who asks, or that it does not matter.
    fn admit(&self, request: &Request<Incoming>) -> Result<Option<Caller>> {
        if OPEN.contains(&request.uri().path()) {
            return Ok(None);
        }
        let (scheme, sent) = credentials(request).unwrap_or_default();
        let who = match hosts::by_name(request) && scheme.eq_ignore_ascii_case("basic") {
            true => {
                let key = hosts::password(sent).unwrap_or_default();
                self.gate.introduce(&key, self.peer.ip())?
            }
            false => {
                let bearer = scheme.eq_ignore_ascii_case("bearer");
                let key = if bearer { sent } else { "" };
                self.gate.introduce(key, self.peer.ip())?
            }
        };
        let caller = Caller::new(who, Face::Http);
        self.settle(&caller)?;
        Ok(Some(caller))
    }

    /// Moves the connection among those that are known, for as long as the key is good.
    fn settle(&self, caller: &Caller) -> Result<()> {
        let project = caller.who.project().map_or("", |project| project.as_str());
        if self.place.know(project)?
            && let Some(end) = self.gate.cut(caller)
        {
            self.place.until(end);
        }
        Ok(())
    }
}

/// Who a request says it is from: the scheme, and what goes with it. `X-API-Key` is a bearer's key
/// where nothing is in `Authorization`.
fn credentials<B>(request: &Request<B>) -> Option<(&str, &str)> {
    let Some(value) = single(request, &AUTHORIZATION)? else {
        let key = single(request, &API_KEY)??.to_str().ok()?.trim();
        // What runs behind a port has keys of its own.
        let ours = !hosts::by_name(request) || key.starts_with(motu_core::key::PREFIX);
        return ours.then_some(("Bearer", key));
    };
    let (scheme, sent) = value.to_str().ok()?.split_once(' ')?;
    Some((scheme, sent.trim()))
}

/// A header that is there once, or not at all; of two, nobody knows which is meant.
fn single<'a, B>(request: &'a Request<B>, name: &HeaderName) -> Option<Option<&'a HeaderValue>> {
    let mut all = request.headers().get_all(name).iter();
    match (all.next(), all.next()) {
        (value, None) => Some(value),
        _ => None,
    }
}

impl HyperService<Request<Incoming>> for Admitting {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, std::result::Result<Response<Body>, Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if head_bytes(&request) > self.head.bytes {
            let answer = too_long();
            return Box::pin(async move { Ok(answer) });
        }
        if let Err(error) = self.by_name(&mut request) {
            let mut answer = Fault::from(error).into_response();
            stamp(answer.headers_mut(), None);
            return Box::pin(async move { Ok(answer) });
        }
        let caller = match self.admit(&request) {
            Ok(caller) => caller,
            Err(error) => {
                tracing::debug!(peer = %self.peer, %error, "a request that is not admitted");
                let answer = refusal(&request, error);
                return Box::pin(async move { Ok(answer) });
            }
        };
        // Nobody behind needs the key itself.
        if request.headers_mut().remove(AUTHORIZATION).is_none() && !hosts::by_name(&request) {
            request.headers_mut().remove(API_KEY);
        }
        let busy = caller.is_some().then(|| self.place.serve());
        if let Some(caller) = caller {
            request.extensions_mut().insert(caller);
        }
        let request = match is_live(&request) {
            true => request.map(Body::new),
            false => request.map(|body| Body::new(Patient::new(body, self.body))),
        };
        let answer = self.routes.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(answer.map(|body| Body::new(Keeping::new(body, busy))))
        })
    }
}

/// What the head of a request takes, line by line.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let fields = request.headers().iter();
    let fields: usize = fields
        .map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len())
        .sum();
    fields
        + request
            .uri()
            .path_and_query()
            .map_or(0, |text| text.as_str().len())
}

fn too_long() -> Response<Body> {
    let limit = limits::LISTEN_HEAD_BYTES;
    let message = format!("the headers are longer than {} bytes", limit.max);
    let error = Error::limit(message)
        .hint("send fewer or shorter headers")
        .details(serde_json::json!({"limit": limit.name, "max": limit.max}));
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    let mut response = Fault::with_status(error, status).into_response();
    stamp(response.headers_mut(), None);
    response
}

/// What whoever is not known or has no place gets, in the words of what they speak.
fn refusal<B>(request: &Request<B>, error: Error) -> Response<Body> {
    let kind = request.headers().get(CONTENT_TYPE);
    let grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(GRPC.as_bytes()));
    let unknown = error.kind == ErrorKind::Unauthenticated;
    let mut response = match grpc {
        true => {
            let mut response = Response::new(Body::empty());
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
            let code = HeaderValue::from_static(match unknown {
                true => GRPC_UNAUTHENTICATED,
                false => GRPC_RESOURCE_EXHAUSTED,
            });
            headers.insert(HeaderName::from_static("grpc-status"), code);
            // Percent-encoding is only asked for beyond printable ASCII, which it is without its hint.
            if let Ok(message) = HeaderValue::try_from(error.message) {
                headers.insert(HeaderName::from_static("grpc-message"), message);
            }
            response
        }
        false => {
            let response = Fault::from(error).into_response();
            match capsules::answers_for(request.uri().path()) {
                true => capsules::coded(response),
                false => response,
            }
        }
    };
    let headers = response.headers_mut();
    let challenge = match hosts::by_name(request) {
        true => hosts::CHALLENGE,
        false => "Bearer",
    };
    if unknown {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    stamp(headers, None);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(values: &[&str]) -> Option<(String, String)> {
        let mut request = Request::builder();
        for value in values {
            request = request.header(AUTHORIZATION, *value);
        }
        let request = request.body(()).unwrap();
        let (scheme, sent) = credentials(&request)?;
        Some((scheme.to_string(), sent.to_string()))
    }

    #[test]
    fn a_key_may_be_in_a_header_of_its_own() {
        let sent = |headers: &[(HeaderName, &str)], by_name: bool| {
            let mut request = Request::builder();
            for (name, value) in headers {
                request = request.header(name, *value);
            }
            let mut request = request.body(()).unwrap();
            if by_name {
                request.extensions_mut().insert(ByName);
            }
            credentials(&request).map(|(scheme, sent)| format!("{scheme} {sent}"))
        };
        let key = (API_KEY, "motu_x");
        let found = Some("Bearer motu_x".to_string());
        let alone = std::slice::from_ref(&key);
        assert_eq!(sent(alone, false), found);
        assert_eq!(sent(alone, true), found);
        // `Authorization` is what counts where both are there.
        let both = [key.clone(), (AUTHORIZATION, "Bearer motu_y")];
        assert_eq!(sent(&both, false).as_deref(), Some("Bearer motu_y"));
        assert_eq!(sent(&[key.clone(), key], false), None);
        // A key of the program behind a port is not ours to judge.
        assert_eq!(sent(&[(API_KEY, "theirs")], true), None);
    }

    #[test]
    fn one_key_is_taken_from_one_header() {
        let pair = |scheme: &str, sent: &str| Some((scheme.to_string(), sent.to_string()));
        assert_eq!(sent(&["Bearer motu_x"]), pair("Bearer", "motu_x"));
        assert_eq!(sent(&["bearer  motu_x "]), pair("bearer", "motu_x"));
        for nothing in [&[][..], &["motu_x"], &["Bearer a", "Bearer b"]] {
            assert_eq!(sent(nothing), None, "{nothing:?}");
        }
    }
}
