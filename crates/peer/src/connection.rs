//! Connections to the service: a pool of idle ones, and limits for every call.
//!
//! The service is not trusted. It may hang, die in the middle of an answer, or be another
//! program: connecting and answering have time limits, and the size of buffered answers is bounded.
//! A call is sent again only if it cannot take effect twice.

use super::address::Address;
use super::error::{PeerError, Refusal, quoted};
use super::trust;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use motu_core::limits;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// The maximum size of the key file.
const MAX_KEY_BYTES: usize = 4096;
/// The maximum of idle connections.
const MAX_IDLE: usize = 16;
/// How long a connection may be idle: services close idle connections, and a call on a connection
/// that is just being closed may be lost.
const IDLE: Duration = Duration::from_secs(5);

/// Timeouts of calls to a service.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub connect: Duration,
    pub call: Duration,
    pub spawn: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        let seconds = |limit: limits::Limit| Duration::from_secs(limit.default);
        Patience {
            connect: seconds(limits::HTTP_CONNECT_SECONDS),
            call: seconds(limits::HTTP_CALL_SECONDS),
            spawn: seconds(limits::HTTP_SPAWN_SECONDS),
        }
    }
}

/// The header of the key, and the key's file. The file is read for every call, so that a new key is
/// used at once and the key is stored nowhere else.
#[derive(Clone, Debug)]
pub struct Key {
    pub header: HeaderName,
    pub file: PathBuf,
}

/// The body of a request.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// A body that is streamed from a channel; it ends normally when the sender is dropped. To abort
/// it, drop the call first.
pub fn feed(pieces: usize) -> (mpsc::Sender<Bytes>, Body) {
    let (sender, receiver) = mpsc::channel(pieces);
    (sender, Fed(receiver).boxed_unsync())
}

struct Fed(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Fed {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let piece = self.0.poll_recv(context);
        piece.map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// One call.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What the service is asked to do, for messages.
    pub what: &'static str,
    pub method: Method,
    pub path: String,
    /// In addition to those of every call.
    pub headers: HeaderMap,
    /// JSON, unless `headers` says otherwise.
    pub body: Option<Bytes>,
    /// Whether the call is idempotent.
    pub repeatable: bool,
    /// The timeout until the answer begins; none if missing.
    pub patience: Option<Duration>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection and its I/O task; both end on drop.
#[derive(Debug)]
struct Line {
    sender: SendRequest<Body>,
    task: AbortHandle,
    since: Instant,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The connections to one service.
pub struct Connections {
    pub address: Address,
    key: Option<Key>,
    pub patience: Patience,
    ca_file: Option<PathBuf>,
    tls: OnceLock<TlsConnector>,
    idle: Arc<Mutex<Vec<Line>>>,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// An answer with an unread body. Dropping it closes the connection, which tells the service that
/// nobody waits any more.
#[derive(Debug)]
pub struct Answer {
    what: &'static str,
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    line: Option<Line>,
    idle: Arc<Mutex<Vec<Line>>>,
}

impl Connections {
    pub fn new(address: Address, key: Option<Key>, patience: Patience) -> Self {
        Connections {
            address,
            key,
            ca_file: None,
            patience,
            tls: OnceLock::new(),
            idle: Arc::default(),
        }
    }

    /// Trusts the certificates in this file instead of the host's.
    pub fn trusting(mut self, ca_file: Option<PathBuf>) -> Self {
        self.ca_file = ca_file;
        self
    }

    pub fn key_file(&self) -> Option<&Path> {
        self.key.as_ref().map(|key| key.file.as_path())
    }

    /// Sends a call; the answer may have any status.
    pub async fn send(&self, ask: &Ask) -> Result<Answer, PeerError> {
        let key = self.key()?;
        let mut again = ask.repeatable;
        loop {
            let (mut line, used) = self.line().await?;
            let body = Full::new(ask.body.clone().unwrap_or_default());
            let body = body.map_err(|never| match never {}).boxed_unsync();
            let request = self.request(ask, key.clone(), body)?;
            let sent = line.sender.try_send_request(request);
            let sent = match ask.patience {
                Some(patience) => tokio::time::timeout(patience, sent).await.map_err(|_| {
                    let what = ask.what;
                    PeerError::Slow { what, patience }
                })?,
                None => sent.await,
            };
            match sent {
                Ok(response) => return Ok(self.answer(ask.what, response, line)),
                Err(mut error) => {
                    // Nothing was sent: the service had closed an idle connection.
                    let unsent = used && error.take_message().is_some();
                    if unsent || (used && ask.repeatable) {
                        continue;
                    }
                    if std::mem::take(&mut again) {
                        continue;
                    }
                    return Err(broken(ask.what, &error.into_error()));
                }
            }
        }
    }

    /// Sends a call with a streamed body, once and on a new connection. It has no timeout: the
    /// producer of the body knows how long that takes.
    pub async fn upload(&self, ask: &Ask, body: Body) -> Result<Answer, PeerError> {
        let key = self.key()?;
        let mut line = self.connect().await?;
        let request = self.request(ask, key, body)?;
        match line.sender.send_request(request).await {
            Ok(response) => Ok(self.answer(ask.what, response, line)),
            Err(error) => Err(broken(ask.what, &error)),
        }
    }

    fn answer(&self, what: &'static str, response: http::Response<Incoming>, line: Line) -> Answer {
        let (head, body) = response.into_parts();
        Answer {
            what,
            status: head.status,
            headers: head.headers,
            body,
            line: Some(line),
            idle: self.idle.clone(),
        }
    }

    /// Sends a call that must succeed, and returns the complete body.
    pub async fn whole(&self, ask: &Ask) -> Result<Bytes, PeerError> {
        let answer = self.send(ask).await?;
        answer
            .success(self.patience.call)
            .await?
            .whole(self.patience.call)
            .await
    }

    fn request(
        &self,
        ask: &Ask,
        key: Option<(HeaderName, HeaderValue)>,
        body: Body,
    ) -> Result<Request<Body>, PeerError> {
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(self.address.path(&ask.path))
            .header(header::HOST, self.address.authority())
            .header(
                header::USER_AGENT,
                concat!("motu/", env!("CARGO_PKG_VERSION")),
            );
        if ask.body.is_some() && !ask.headers.contains_key(header::CONTENT_TYPE) {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        if let Some((name, key)) = key {
            request = request.header(name, key);
        }
        request.body(body).map_err(|error| broken(ask.what, &error))
    }

    /// Reads the key from its file.
    fn key(&self) -> Result<Option<(HeaderName, HeaderValue)>, PeerError> {
        let Some(Key { header, file: path }) = &self.key else {
            return Ok(None);
        };
        let wrong = |reason: String| PeerError::Key {
            path: path.display().to_string(),
            reason,
        };
        let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        if text.len() > MAX_KEY_BYTES {
            return Err(wrong(format!("longer than {MAX_KEY_BYTES} bytes")));
        }
        let text = text.trim_ascii();
        let mut value = HeaderValue::from_bytes(text)
            .ok()
            .filter(|value| !value.is_empty())
            .ok_or_else(|| wrong("it is no key: one line of printable characters".into()))?;
        value.set_sensitive(true);
        Ok(Some((header.clone(), value)))
    }

    /// An idle connection or a new one, and whether it was used before.
    async fn line(&self) -> Result<(Line, bool), PeerError> {
        loop {
            let waiting = lock(&self.idle).pop();
            let Some(mut line) = waiting else {
                return Ok((self.connect().await?, false));
            };
            if line.since.elapsed() < IDLE && line.sender.ready().await.is_ok() {
                return Ok((line, true));
            }
        }
    }

    async fn connect(&self) -> Result<Line, PeerError> {
        let patience = self.patience.connect;
        let connecting = async {
            let stream = self.dial().await?;
            let shaken = http1::handshake(TokioIo::new(stream)).await;
            shaken.map_err(|error| self.unreachable(error.to_string()))
        };
        let connected = tokio::time::timeout(patience, connecting).await;
        let (sender, connection) = connected
            .map_err(|_| self.unreachable(format!("no answer in {} s", patience.as_secs())))??;
        // Failures are reported by the pending request.
        let task = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Line {
            sender,
            task: task.abort_handle(),
            since: Instant::now(),
        })
    }

    async fn dial(&self) -> Result<Box<dyn Stream>, PeerError> {
        let Address {
            host, port, tls, ..
        } = &self.address;
        let stream = TcpStream::connect((host.as_str(), *port)).await;
        let stream = stream.map_err(|error| self.unreachable(error.to_string()))?;
        // Calls are small and latency matters.
        let _ = stream.set_nodelay(true);
        if !tls {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.clone())
            .map_err(|_| self.unreachable("that is no host name".to_string()))?;
        let stream = self.tls()?.connect(name, stream).await;
        Ok(Box::new(
            stream.map_err(|error| self.unreachable(error.to_string()))?,
        ))
    }

    /// The TLS connector, created on first use.
    fn tls(&self) -> Result<&TlsConnector, PeerError> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls);
        }
        let made = trust::connector(self.ca_file.as_deref());
        let made = made.map_err(|reason| self.unreachable(reason))?;
        Ok(self.tls.get_or_init(|| made))
    }

    fn unreachable(&self, reason: String) -> PeerError {
        PeerError::Unreachable {
            address: self.address.to_string(),
            reason,
        }
    }
}

impl Answer {
    /// Returns the answer if its status is a success, and an error otherwise.
    pub async fn success(self, patience: Duration) -> Result<Answer, PeerError> {
        #[derive(serde::Deserialize)]
        struct Complaint {
            /// A word, or a repetition of the status.
            #[serde(default)]
            code: serde_json::Value,
            #[serde(default)]
            message: String,
        }
        let status = self.status;
        if status.is_success() {
            return Ok(self);
        }
        let what = self.what;
        // The body of an error may be truncated or invalid: the status is enough.
        let body = self.whole(patience).await.unwrap_or_default();
        let (code, said) = match serde_json::from_slice::<Complaint>(&body) {
            Ok(found) => (
                found.code.as_str().unwrap_or_default().to_string(),
                quoted(found.message.as_bytes()),
            ),
            Err(_) => (String::new(), quoted(&body)),
        };
        let status = status.as_u16();
        let refusal = Refusal { status, code, said };
        Err(PeerError::Refused { what, refusal })
    }

    /// The next piece of the body; `None` at its end. Without a timeout.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, PeerError> {
        loop {
            match self.body.frame().await {
                None => {
                    self.give_back();
                    return Ok(None);
                }
                Some(Err(error)) => return Err(broken(self.what, &error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The next piece of the body, with a timeout.
    pub async fn piece_within(&mut self, patience: Duration) -> Result<Option<Bytes>, PeerError> {
        let what = self.what;
        let piece = tokio::time::timeout(patience, self.piece()).await;
        piece.map_err(|_| PeerError::Slow { what, patience })?
    }

    /// The complete body.
    pub async fn whole(mut self, patience: Duration) -> Result<Bytes, PeerError> {
        let most = limits::HTTP_ANSWER_BYTES.default as usize;
        let mut whole = Vec::new();
        while let Some(piece) = self.piece_within(patience).await? {
            if whole.len() + piece.len() > most {
                return Err(PeerError::TooLong { what: self.what });
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.into())
    }

    /// Returns the connection to the pool: everything on it has been read.
    fn give_back(&mut self) {
        if let Some(mut line) = self.line.take() {
            line.since = Instant::now();
            let mut idle = lock(&self.idle);
            if idle.len() < MAX_IDLE && !line.sender.is_closed() {
                idle.push(line);
            }
        }
    }
}

fn lock(idle: &Mutex<Vec<Line>>) -> MutexGuard<'_, Vec<Line>> {
    idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Includes the whole chain of causes, which hyper omits from its messages.
fn broken(what: &'static str, error: &dyn std::error::Error) -> PeerError {
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        reason = format!("{reason}: {error}");
        cause = error.source();
    }
    PeerError::Broken { what, reason }
}
