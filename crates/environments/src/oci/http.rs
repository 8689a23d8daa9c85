//! One HTTP request at a time, within limits.
//!
//! Owns connections (plain only to this host, TLS otherwise, through a proxy of the environment),
//! redirects and timeouts. Each request has its own connection: a pull makes a handful, and each is
//! judged by [`Reach`] before it is made. It knows nothing about registries beyond their name in
//! error messages.

use std::{
    env, io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};

use super::reach::{Reach, Stopped, Target};
use crate::{
    error::EnvironmentError,
    reference::{is_loopback, split_port},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 5;
/// Longest response of a proxy to CONNECT.
const MAX_PROXY_ANSWER: usize = 8 << 10;
const USER_AGENT: &str = concat!("motu/", env!("CARGO_PKG_VERSION"));

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Sends requests on behalf of one registry.
pub(crate) struct Http {
    /// For error messages, and to decide about plain connections.
    registry: String,
    idle: Duration,
    reach: Reach,
    /// What is downloaded is believed for its digest: anybody may have touched it on the way.
    plain: bool,
    tls: OnceLock<TlsConnector>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Http {
    pub fn new(registry: &str, idle: Duration, reach: Reach) -> Self {
        Self {
            registry: registry.to_owned(),
            idle,
            reach,
            plain: false,
            tls: OnceLock::new(),
        }
    }

    /// For what has a known digest and an address of the operator's: plain connections to other
    /// hosts are fine.
    pub fn plain_allowed(host: &str, idle: Duration) -> Self {
        Self {
            plain: true,
            ..Self::new(host, idle, Reach::Everything)
        }
    }

    /// Sends a request and follows redirects. The answer may have any status.
    pub async fn send(&self, mut ask: Ask) -> Result<Response<Incoming>, EnvironmentError> {
        let mut visited = vec![ask.uri.clone()];
        loop {
            let response = self.send_once(&ask).await?;
            let location = response.headers().get(header::LOCATION);
            let (true, Some(location)) = (response.status().is_redirection(), location) else {
                return Ok(response);
            };
            // A POST contains a secret for one address: do not follow its redirect.
            if ask.method == Method::POST {
                return Ok(response);
            }
            let next = location
                .to_str()
                .ok()
                .and_then(|location| absolute(&ask.uri, location))
                .ok_or_else(|| self.misled("it leads to something that is no address"))?;
            if visited.contains(&next) {
                return Err(self.misled("it leads in a circle"));
            }
            if visited.len() > MAX_REDIRECTS {
                return Err(self.misled("it leads on too often"));
            }
            // Credentials are only for the host they were made for.
            if next.authority() != ask.uri.authority() || next.scheme() != ask.uri.scheme() {
                ask.headers.remove(header::AUTHORIZATION);
            }
            visited.push(next.clone());
            ask.uri = next;
        }
    }

    /// The next piece of a body; `None` at its end.
    pub async fn piece(&self, body: &mut Incoming) -> Result<Option<Bytes>, EnvironmentError> {
        loop {
            match timeout(self.idle, body.frame()).await {
                Err(_) => return Err(self.stalled()),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(self.unreachable(error.to_string())),
                Ok(Some(Ok(frame))) => {
                    // Ignore trailers.
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// A whole body of at most `limit` bytes.
    pub async fn whole(
        &self,
        response: Response<Incoming>,
        limit: u64,
    ) -> Result<Vec<u8>, EnvironmentError> {
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece(&mut body).await? {
            if (bytes.len() + piece.len()) as u64 > limit {
                return Err(EnvironmentError::TooLarge {
                    what: "bytes in an answer",
                    limit,
                });
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    pub fn unreachable(&self, reason: impl Into<String>) -> EnvironmentError {
        EnvironmentError::Unreachable {
            registry: self.registry.clone(),
            reason: reason.into(),
        }
    }

    /// Not retried: another attempt would lead to the same address.
    fn misled(&self, reason: impl Into<String>) -> EnvironmentError {
        EnvironmentError::Malformed {
            what: format!("an address given by registry {}", self.registry),
            reason: reason.into(),
        }
    }

    fn stalled(&self) -> EnvironmentError {
        EnvironmentError::Stalled {
            registry: self.registry.clone(),
            seconds: self.idle.as_secs(),
        }
    }

    async fn send_once(&self, ask: &Ask) -> Result<Response<Incoming>, EnvironmentError> {
        let stream = self.connect(&ask.uri).await?;
        let exchange = async {
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            // The connection task ends with the body, or when the body is dropped.
            tokio::spawn(connection);
            sender.send_request(request(ask)).await
        };
        match timeout(self.idle, exchange).await {
            Ok(answer) => answer.map_err(|error| self.unreachable(describe(&error))),
            Err(_) => Err(self.stalled()),
        }
    }

    async fn connect(&self, uri: &Uri) -> Result<Box<dyn Stream>, EnvironmentError> {
        let host = uri.host().unwrap_or_default();
        let is_plain = uri.scheme_str() == Some("http");
        let is_local = is_loopback(host) && is_loopback(split_port(&self.registry).0);
        if is_plain && !is_local && !self.plain {
            return Err(self.misled(format!(
                "plain HTTP to {host} is refused; only registries on this host may do without TLS"
            )));
        }
        let usual = if is_plain { 80 } else { 443 };
        let target = Target {
            host: host.trim_matches(['[', ']']),
            port: uri.port_u16().unwrap_or(usual),
            usual,
        };
        let dialled = dial(&self.reach, target);
        let stream = match timeout(CONNECT_TIMEOUT.min(self.idle), dialled).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(Stopped::Failed(error))) => return Err(self.unreachable(error.to_string())),
            Ok(Err(Stopped::Closed)) => {
                tracing::info!(
                    registry = self.registry,
                    host,
                    "a pull led to where its caller may not reach"
                );
                return Err(EnvironmentError::OutOfReach {
                    registry: self.registry.clone(),
                    place: format!("{host}:{}", target.port),
                });
            }
            Err(_) => return Err(self.unreachable(format!("{host} does not answer"))),
        };
        if is_plain {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(target.host.to_owned())
            .map_err(|_| self.unreachable(format!("{host} is no host name")))?;
        let shaken = timeout(self.idle, self.tls()?.connect(name, stream)).await;
        match shaken {
            Ok(stream) => Ok(Box::new(
                stream.map_err(|error| self.unreachable(error.to_string()))?,
            )),
            Err(_) => Err(self.stalled()),
        }
    }

    /// TLS with this host's roots; made on first use.
    fn tls(&self) -> Result<&TlsConnector, EnvironmentError> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls);
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(self.unreachable("this host trusts nobody; install ca-certificates"));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| self.unreachable(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(self
            .tls
            .get_or_init(|| TlsConnector::from(Arc::new(config))))
    }
}

fn request(ask: &Ask) -> Request<Full<Bytes>> {
    let path = ask.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(Full::new(ask.body.clone()));
    *request.method_mut() = ask.method.clone();
    *request.uri_mut() = path.parse().unwrap_or_default();
    *request.headers_mut() = ask.headers.clone();
    let headers = request.headers_mut();
    if let Some(host) = ask.uri.authority()
        && let Ok(host) = host.as_str().parse()
    {
        headers.insert(header::HOST, host);
    }
    headers.insert(
        header::USER_AGENT,
        header::HeaderValue::from_static(USER_AGENT),
    );
    request
}

/// The target of a redirect: absolute URLs and absolute paths only.
fn absolute(from: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    if location.starts_with('/') && !location.starts_with("//") {
        let start = format!("{}://{}", from.scheme_str()?, from.authority()?);
        return format!("{start}{location}").parse().ok();
    }
    let uri: Uri = location.parse().ok()?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    (known && uri.host().is_some()).then_some(uri)
}

/// Connects, through a proxy where one is named for this host. What a proxy makes of a name is for
/// the proxy to judge, as it is for gateways; addresses are judged here either way.
async fn dial(reach: &Reach, target: Target<'_>) -> Result<TcpStream, Stopped> {
    let Some(proxy) = proxy_for(target.host, |name| env::var(name).ok()) else {
        let places = reach.addresses(target).await?;
        return Ok(TcpStream::connect(&places[..]).await?);
    };
    reach.admits_name(target)?;
    Ok(by_proxy(&proxy, target).await?)
}

async fn by_proxy(proxy: &str, target: Target<'_>) -> io::Result<TcpStream> {
    let port = target.port;
    let host = match target.host.contains(':') {
        true => format!("[{}]", target.host),
        false => target.host.to_owned(),
    };
    let invalid = || io::Error::other("the proxy's address is not understood");
    let uri: Uri = proxy.parse().map_err(|_| invalid())?;
    let authority = uri.authority().ok_or_else(invalid)?.as_str();
    let (login, authority) = match authority.rsplit_once('@') {
        Some((login, authority)) => (Some(login), authority),
        None => (None, authority),
    };
    let (proxy_host, proxy_port) = split_port(authority);
    let proxy_host = proxy_host.trim_matches(['[', ']']);
    let mut stream = TcpStream::connect((proxy_host, proxy_port.unwrap_or(80))).await?;
    let login = login.map_or(String::new(), |login| {
        format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(login))
    });
    let ask = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{login}\r\n");
    stream.write_all(ask.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= MAX_PROXY_ANSWER {
            return Err(io::Error::other("the proxy's answer does not end"));
        }
        answer.push(stream.read_u8().await?);
    }
    let status = String::from_utf8_lossy(&answer);
    let status = status.split(' ').nth(1).unwrap_or_default().to_owned();
    if status != "200" {
        return Err(io::Error::other(format!("the proxy answers {status}")));
    }
    Ok(stream)
}

/// The proxy of the environment for a host. This host is always reached directly.
fn proxy_for(host: &str, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let first = |names: [&str; 2]| {
        let values = names.into_iter().filter_map(&variable);
        values.into_iter().find(|value| !value.is_empty())
    };
    if is_loopback(host) {
        return None;
    }
    let excepted = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let is_excepted = excepted.split(',').map(str::trim).any(|rule| {
        let suffix = rule.trim_start_matches("*.").trim_start_matches('.');
        rule == "*"
            || (!suffix.is_empty() && (host == suffix || host.ends_with(&format!(".{suffix}"))))
    });
    if is_excepted {
        return None;
    }
    let proxy =
        first(["HTTPS_PROXY", "https_proxy"]).or_else(|| first(["ALL_PROXY", "all_proxy"]))?;
    Some(match proxy.contains("://") {
        true => proxy,
        false => format!("http://{proxy}"),
    })
}

/// The whole chain of causes, which hyper's message omits.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_whole_addresses_or_whole_paths() {
        let from: Uri = "https://a.example/v2/x".parse().unwrap();
        let to = |location| absolute(&from, location).map(|uri| uri.to_string());
        assert_eq!(to("/y?z#f").as_deref(), Some("https://a.example/y?z"));
        assert_eq!(
            to("https://b.example/").as_deref(),
            Some("https://b.example/")
        );
        for bad in [
            "y",
            "//b.example/",
            "ftp://b.example/",
            "",
            "file:///etc/passwd",
        ] {
            assert_eq!(to(bad), None, "{bad}");
        }
    }

    #[test]
    fn proxies_come_from_the_environment() {
        let set = |name: &str| match name {
            "https_proxy" => Some("proxy.example:3128".to_owned()),
            "NO_PROXY" => Some("inner.example, .local".to_owned()),
            _ => None,
        };
        let proxy = proxy_for("registry.example", set);
        assert_eq!(proxy.as_deref(), Some("http://proxy.example:3128"));
        for direct in ["inner.example", "a.inner.example", "x.local", "127.0.0.1"] {
            assert_eq!(proxy_for(direct, set), None, "{direct}");
        }
        assert_eq!(proxy_for("a.example", |_| None), None);
    }

    #[tokio::test]
    async fn plain_connections_stay_on_this_host() {
        let ask = |uri: &str| Ask {
            method: Method::GET,
            uri: uri.parse().unwrap(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        let patience = Duration::from_secs(1);
        let foreign = Http::new("registry.example", patience, Reach::Everything);
        for uri in ["http://registry.example/", "http://127.0.0.1:1/"] {
            let error = foreign.send(ask(uri)).await.unwrap_err().to_string();
            assert!(error.contains("plain HTTP"), "{error}");
        }
    }
}
