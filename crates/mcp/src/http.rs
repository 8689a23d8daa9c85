//! Clients over Streamable HTTP, at `/mcp`.
//!
//! A token guards it always: other users of this host reach loopback too, and a client acts with
//! the rights of the daemon. Whoever comes by a name that is not ours, or from a web page, is
//! turned away: a browser must not be talked into being a client.

use crate::Server;
use crate::origin::{self, Origin, Pages, Sender};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use motu_core::{Error, Result};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{SessionId, SessionManager};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The longest token that is read.
pub const MAX_TOKEN_BYTES: usize = 4096;
/// The shortest that guards anything.
const MIN_TOKEN_BYTES: usize = 16;
/// Characters of a token that we make: five random bits each.
const MADE_TOKEN_CHARS: usize = 52;
/// What a client without the token is told.
const UNAUTHORIZED: &str = "a bearer token is needed: send `Authorization: Bearer TOKEN`, with the token that \
     `motu mcp serve` was given (--token-file) or printed when it started\n";
/// One request; a patch or a file is the largest there is.
const MAX_BODY_BYTES: usize = motu_core::limits::MCP_BODY_BYTES.max as usize;
/// A client that does not finish its headers.
const HEADER_PATIENCE: Duration = Duration::from_secs(10);

type Answered = Response<BoxBody<Bytes, Infallible>>;

/// Where a server listens, and who may come.
#[derive(Clone)]
pub struct Http {
    pub address: SocketAddr,
    /// What a client must show as `Authorization: Bearer …`.
    pub token: String,
    /// Names it is reached by, besides its address and `localhost`.
    pub hosts: Vec<String>,
    /// Web pages that may be clients, besides those at its own addresses.
    pub origins: Vec<Origin>,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Http({})", self.address)
    }
}

impl Http {
    /// A token that nobody can guess, from the kernel's random source.
    pub fn made_token() -> String {
        motu_core::id::random_name(MADE_TOKEN_CHARS)
    }

    /// Refuses a token that guards nothing.
    pub fn check(&self) -> Result<()> {
        if self.token.len() < MIN_TOKEN_BYTES {
            return Err(Error::invalid("the token is too short").hint(format!(
                "at least {MIN_TOKEN_BYTES} characters; without --token and --token-file one is made"
            )));
        }
        if !self.token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::invalid(
                "the token has characters that a header cannot carry",
            ));
        }
        Ok(())
    }

    /// The names it is reached by.
    fn names(&self, address: SocketAddr) -> Vec<String> {
        let mut hosts = vec![
            "localhost".to_string(),
            "127.0.0.1".to_string(),
            "::1".to_string(),
        ];
        if !address.ip().is_unspecified() {
            hosts.push(address.ip().to_string());
        }
        hosts.extend(self.hosts.iter().cloned());
        hosts
    }

    fn pages(&self, address: SocketAddr) -> Pages {
        let names = self.names(address);
        let own = names.iter().map(|name| Origin::own(name, address.port()));
        Pages::new(own.chain(self.origins.iter().cloned()).collect())
    }

    fn config(&self, address: SocketAddr, stop: CancellationToken) -> StreamableHttpServerConfig {
        // Origins are looked at before: a page that may come has to read that in the answer.
        StreamableHttpServerConfig::default()
            .with_allowed_hosts(self.names(address))
            .disable_allowed_origins()
            .with_max_request_body_bytes(MAX_BODY_BYTES)
            .with_cancellation_token(stop)
    }
}

/// What every connection shares.
pub(crate) struct Door<H: ServerHandler> {
    service: StreamableHttpService<H, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    pages: Pages,
    /// The digest of the token: all digests are equally long, so comparing takes the same time
    /// for every guess.
    token: [u8; 32],
}

impl<H: ServerHandler> Door<H> {
    /// The door to servers that are made for each connection.
    pub(crate) fn new(
        http: &Http,
        address: SocketAddr,
        stop: CancellationToken,
        make: impl Fn() -> H + Send + Sync + 'static,
    ) -> Door<H> {
        let sessions = Arc::new(LocalSessionManager::default());
        let config = http.config(address, stop);
        Door {
            service: StreamableHttpService::new(move || Ok(make()), sessions.clone(), config),
            sessions,
            pages: http.pages(address),
            token: digest(&http.token),
        }
    }

    fn admits(&self, request: &Request<Incoming>) -> bool {
        let shown = request.headers().get(header::AUTHORIZATION);
        let shown = shown.and_then(|value| value.to_str().ok());
        let shown = shown.and_then(|value| value.split_once(' '));
        match shown {
            Some((scheme, shown)) if scheme.eq_ignore_ascii_case("bearer") => {
                digest(shown.trim()).ct_eq(&self.token).into()
            }
            _ => false,
        }
    }

    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Answered {
        let page = match self.pages.sender(request.headers()) {
            Sender::Program => return self.answered(request).await,
            Sender::Page(page) => page,
            Sender::Refused(origin) => return plain(StatusCode::FORBIDDEN, refusal(&origin)),
        };
        let question = origin::is_question(request.method(), request.headers());
        let mut answer = match question {
            true => plain(origin::MAY_SEND, ""),
            false => self.answered(request).await,
        };
        origin::tell(answer.headers_mut(), page, question);
        answer
    }

    async fn answered(&self, request: Request<Incoming>) -> Answered {
        if !self.admits(&request) {
            let mut refusal = plain(StatusCode::UNAUTHORIZED, UNAUTHORIZED);
            let challenge = header::HeaderValue::from_static("Bearer realm=\"motu\"");
            refusal
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
            return refusal;
        }
        match request.uri().path() {
            "/mcp" if request.method() == http::Method::DELETE => self.end(request).await,
            "/mcp" => self.service.handle(request).await,
            _ => plain(StatusCode::NOT_FOUND, "the server is at /mcp\n"),
        }
    }
}

impl<H: ServerHandler> Door<H> {
    /// Ends a session: 204 when it is gone, 404 when there was none.
    async fn end(&self, request: Request<Incoming>) -> Answered {
        let named = request.headers().get("mcp-session-id");
        let named = named.and_then(|value| value.to_str().ok());
        if let Some(id) = named.map(|id| SessionId::from(id.to_string()))
            && !self.sessions.has_session(&id).await.unwrap_or(false)
        {
            return plain(StatusCode::NOT_FOUND, "there is no such session\n");
        }
        let mut answer = self.service.handle(request).await;
        if answer.status() == StatusCode::ACCEPTED {
            // Completed, not only accepted.
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        answer
    }
}

/// What a web page that may not be a client is told.
fn refusal(origin: &str) -> String {
    format!(
        "web pages of {origin} may not use this server; the operator may let them: \
         `motu mcp serve --allowed-origin ORIGIN`\n"
    )
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answered {
    let mut response = Response::new(Full::new(text.into()).boxed());
    *response.status_mut() = status;
    response
}

impl Server {
    /// Serves until `stop`. Tells the address, with the port that was chosen, when it listens.
    pub async fn serve_http(
        self,
        http: Http,
        stop: impl Future<Output = ()> + Send,
        listening: impl FnOnce(SocketAddr),
    ) -> Result<()> {
        http.check()?;
        let cannot = |error: &std::io::Error| {
            Error::unavailable(format!("cannot listen on {}: {error}", http.address))
        };
        let listener = TcpListener::bind(http.address)
            .await
            .map_err(|error| cannot(&error))?;
        let address = listener.local_addr().map_err(|error| cannot(&error))?;
        let leave = CancellationToken::new();
        let shared = self.shared.clone();
        let make = move || self.for_another();
        let door = Arc::new(Door::new(&http, address, leave.child_token(), make));
        listening(address);
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    tokio::spawn(connection(door.clone(), stream, leave.clone()));
                }
                // Out of file descriptors: wait until a connection closes.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        leave.cancel();
        shared.chores.close();
        let _ = tokio::time::timeout(Duration::from_secs(3), shared.chores.wait()).await;
        Ok(())
    }
}

async fn connection(
    door: Arc<Door<Server>>,
    stream: tokio::net::TcpStream,
    leave: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let door = door.clone();
        async move { Ok::<_, Infallible>(door.answer(request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A broken connection is not our error.
        _ = serving => {}
        () = leave.cancelled() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_guards_something_or_is_refused() {
        let checked = |token: &str| {
            let http = Http {
                address: (std::net::Ipv4Addr::LOCALHOST, 0).into(),
                token: token.to_string(),
                hosts: Vec::new(),
                origins: Vec::new(),
            };
            http.check()
        };
        assert!(checked("").is_err());
        assert!(checked("short").is_err());
        assert!(checked("sixteen bytes and blanks").is_err());
        assert!(checked("0123456789abcdef").is_ok());
        let made = Http::made_token();
        assert!(checked(&made).is_ok());
        assert_ne!(made, Http::made_token());
    }
}
