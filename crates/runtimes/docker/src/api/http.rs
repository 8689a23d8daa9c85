//! Requests to an engine: one connection each, with timeouts.
//!
//! The engine is not ours. It may hang, die in the middle of an answer, or be something else
//! altogether: every exchange has a timeout, and every answer a size limit.

use super::error::{ApiError, quoted};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use motu_core::limits;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// How often the progress of a long upload is checked.
const LOOK: Duration = Duration::from_millis(250);

/// Timeouts for an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For a ping.
    pub(crate) probe: Duration,
    /// For one call, and for accepting the next piece of an upload.
    pub(crate) call: Duration,
    /// For importing an uploaded image.
    pub(crate) import: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        let seconds = |limit: limits::Limit| Duration::from_secs(limit.default);
        Patience {
            probe: seconds(limits::ENGINE_PROBE_SECONDS),
            call: seconds(limits::ENGINE_CALL_SECONDS),
            import: seconds(limits::ENGINE_IMPORT_SECONDS),
        }
    }
}

/// The API of one engine.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    socket: PathBuf,
    pub(crate) patience: Patience,
}

/// A response with any status.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

type Body = Either<Full<Bytes>, Upload>;

impl Api {
    pub(crate) fn new(socket: &Path) -> Api {
        Api {
            socket: socket.to_path_buf(),
            patience: Patience::default(),
        }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends a request and expects success.
    pub(super) async fn ask(
        &self,
        what: &'static str,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<Answer, ApiError> {
        let patience = self.patience.call;
        self.ask_within(what, method, path, body, patience).await
    }

    pub(super) async fn ask_within(
        &self,
        what: &'static str,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
        patience: Duration,
    ) -> Result<Answer, ApiError> {
        let content = body.map(|value| Bytes::from(value.to_string()));
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::HOST, "localhost");
        if content.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Either::Left(Full::new(content.unwrap_or_default())));
        let request = request.map_err(|error| broken(what, &error))?;
        let answer = tokio::time::timeout(patience, self.exchange(what, request)).await;
        success(
            what,
            answer.map_err(|_| ApiError::Slow { what, patience })??,
        )
    }

    /// Sends a tar archive. Fails if the engine stops reading, or does not answer after the whole
    /// archive was sent.
    pub(super) async fn send_tar(
        &self,
        what: &'static str,
        path: &str,
        pieces: mpsc::Receiver<std::io::Result<Bytes>>,
    ) -> Result<Answer, ApiError> {
        let taken = Arc::new(Taken::default());
        let upload = Upload {
            pieces,
            taken: taken.clone(),
        };
        let request = Request::post(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/x-tar")
            .body(Either::Right(upload));
        let request = request.map_err(|error| broken(what, &error))?;
        tokio::select! {
            answer = self.exchange(what, request) => success(what, answer?),
            patience = taken.stuck(self.patience) => Err(ApiError::Slow { what, patience }),
        }
    }

    async fn exchange(
        &self,
        what: &'static str,
        request: Request<Body>,
    ) -> Result<Answer, ApiError> {
        let stream =
            UnixStream::connect(&self.socket)
                .await
                .map_err(|error| ApiError::Unreachable {
                    socket: self.socket.clone(),
                    error,
                })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(what, &error))?;
        // Ends with this call; failures show in the answer.
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let _ = connection.await;
        });
        let answer = sender.send_request(request).await;
        let (parts, mut body) = answer.map_err(|error| broken(what, &error))?.into_parts();
        let most = limits::ENGINE_ANSWER_BYTES.default as usize;
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| broken(what, &error))?;
            let Some(data) = frame.data_ref() else {
                continue;
            };
            if whole.len() + data.len() > most {
                return Err(ApiError::TooLong { what, most });
            }
            whole.extend_from_slice(data);
        }
        Ok(Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: whole.into(),
        })
    }
}

fn broken(what: &'static str, error: &dyn std::error::Error) -> ApiError {
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        reason = format!("{reason}: {error}");
        cause = error.source();
    }
    ApiError::Broken { what, reason }
}

/// The answer, unless the engine refuses.
fn success(what: &'static str, answer: Answer) -> Result<Answer, ApiError> {
    #[derive(serde::Deserialize)]
    struct Complaint {
        message: String,
    }
    let status = answer.status;
    if (200..400).contains(&status) {
        return Ok(answer);
    }
    let said = match serde_json::from_slice::<Complaint>(&answer.body) {
        Ok(complaint) => quoted(complaint.message.as_bytes()),
        Err(_) => quoted(&answer.body),
    };
    Err(ApiError::Refused { what, status, said })
}

/// A body produced piece by piece by a reading thread.
pub(super) struct Upload {
    pieces: mpsc::Receiver<std::io::Result<Bytes>>,
    taken: Arc<Taken>,
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.pieces.poll_recv(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                self.taken.all.store(true, Ordering::Release);
                Poll::Ready(None)
            }
            Poll::Ready(Some(piece)) => {
                let length = piece.as_ref().map_or(0, Bytes::len) as u64;
                self.taken.bytes.fetch_add(length, Ordering::AcqRel);
                Poll::Ready(Some(piece.map(Frame::data)))
            }
        }
    }
}

/// The progress of an upload.
#[derive(Debug, Default)]
struct Taken {
    bytes: AtomicU64,
    all: AtomicBool,
}

impl Taken {
    /// Returns when there was no progress for too long, with that time.
    async fn stuck(&self, patience: Patience) -> Duration {
        let state = || {
            let all = self.all.load(Ordering::Acquire);
            (all, self.bytes.load(Ordering::Acquire))
        };
        let (mut last, mut since) = (state(), Instant::now());
        loop {
            let limit = if last.0 {
                patience.import
            } else {
                patience.call
            };
            tokio::time::sleep(LOOK.min(limit)).await;
            let now = state();
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() >= limit {
                return limit;
            }
        }
    }
}
