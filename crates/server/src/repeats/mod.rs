//! `Idempotency-Key`: a request that comes twice is done once.
//!
//! ```text
//!   new key ──► begun (on the disk) ──► done ──► its answer kept (on the disk) ──► answered
//!   known   ──► another request: refused │ still being done: refused, later
//!               answered: the same answer again │ the daemon ended in between: refused, look first
//! ```
//!
//! Keys belong to their caller and are kept for a day; how many, is bounded for each project, so that
//! none makes another's forgotten. An error is not kept: nothing was made, and
//! the request may be tried again. Streams and addresses whose answers hold secrets take no key.

mod log;

use crate::extract::{limit, read_limited};
use crate::fault::Fault;
use crate::stream::wants_frames;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body_util::BodyExt;
use log::{Log, Record};
use motu_core::{Error, ErrorKind, Result, limits};
use motu_gate::Caller;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Addresses whose answers hold a secret that is stored nowhere.
const SECRETIVE: &str = "/v1/keys";
/// The headers of an answer that are kept begin so, or are its content type.
const OURS: &str = "motu-";

/// What was asked with a key, and what came of it.
#[derive(Clone, Debug)]
struct Known {
    /// The digest of the request.
    request: String,
    state: Progress,
}

#[derive(Clone, Debug)]
enum Progress {
    Begun,
    /// The daemon ended, or the answer broke off, before it was known how it went.
    Unknown,
    Answered(Arc<Answer>),
}

/// An answer that can be given again.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    /// `None`: it was too long to be kept.
    body: Option<String>,
}

/// The keys of a day, also over restarts.
#[derive(Clone, Debug)]
pub struct Repeats {
    known: Arc<Mutex<HashMap<String, Known>>>,
    log: Arc<Log>,
}

impl Repeats {
    /// Reads what is known in a state directory. A file that cannot be read is put aside.
    pub fn open(home: &Path) -> Result<Repeats> {
        let (log, records) = Log::open(&home.join("idempotency.jsonl"))?;
        let known = records.into_iter().map(|record| {
            let state = match record.answer {
                Some(answer) => Progress::Answered(Arc::new(answer)),
                None => Progress::Unknown,
            };
            let request = record.request;
            (record.id, Known { request, state })
        });
        Ok(Repeats {
            known: Arc::new(Mutex::new(known.collect())),
            log: Arc::new(log),
        })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an owner's key for a request, or gives the answer that it had.
    async fn begin(&self, key: &Identity, request: &str) -> Result<Option<Arc<Answer>>> {
        let id = key.id.as_str();
        {
            let mut known = self.known();
            if let Some(found) = known.get(id) {
                return judge(found, request);
            }
            let (request, state) = (request.to_string(), Progress::Begun);
            known.insert(id.to_string(), Known { request, state });
        }
        let record = Record::begun(key, request);
        match self.append(record).await {
            Ok(()) => Ok(None),
            Err(error) => {
                self.known().remove(id);
                Err(error)
            }
        }
    }

    /// Keeps how it went, before that is told.
    async fn end(&self, key: &Identity, request: &str, answer: Answer) -> Result<()> {
        let record = Record {
            answer: Some(answer.clone()),
            ..Record::begun(key, request)
        };
        let kept = self.append(record).await;
        if let Some(known) = self.known().get_mut(&key.id) {
            known.state = match kept {
                Ok(()) => Progress::Answered(Arc::new(answer)),
                Err(_) => Progress::Unknown,
            };
        }
        kept
    }

    /// Lets the request be tried again.
    async fn forget(&self, key: &Identity) -> Result<()> {
        self.append(Record::forgotten(key)).await?;
        self.known().remove(&key.id);
        Ok(())
    }

    /// Brings a record to the disk, and forgets the keys that were given up for it.
    async fn append(&self, record: Record) -> Result<()> {
        let log = self.log.clone();
        let dropped = tokio::task::spawn_blocking(move || log.append(record))
            .await
            .map_err(|_| Error::internal("the log of keys stopped"))??;
        let mut known = self.known();
        for id in dropped {
            known.remove(&id);
        }
        Ok(())
    }
}

fn judge(found: &Known, request: &str) -> Result<Option<Arc<Answer>>> {
    if found.request != request {
        return Err(
            Error::conflict("this Idempotency-Key was used for another request")
                .hint("use a new key for a new request"),
        );
    }
    match &found.state {
        Progress::Begun => Err(Error::conflict(
            "the request with this Idempotency-Key is still being done",
        )
        .hint("ask again in a moment")),
        Progress::Unknown => Err(Error::conflict(
            "the daemon ended while the request with this Idempotency-Key was being done, or its answer broke off",
        )
        .hint("look whether it was done, then use a new key")),
        Progress::Answered(answer) if answer.body.is_none() => Err(Error::conflict(
            "the request with this Idempotency-Key was done; its answer was too long to be kept",
        )
        .hint("ask for what it made")),
        Progress::Answered(answer) => Ok(Some(answer.clone())),
    }
}

/// Around every route: looks at requests that have a key.
pub async fn once(State(repeats): State<Repeats>, request: Request, next: Next) -> Response {
    match request.headers().get(KEY).cloned() {
        None => next.run(request).await,
        Some(key) => match repeats.once(key, request, next).await {
            Ok(response) => response,
            Err(error) => Fault::from(error).into_response(),
        },
    }
}

impl Repeats {
    async fn once(&self, key: HeaderValue, request: Request, next: Next) -> Result<Response> {
        let id = identify(&key, &request)?;
        let (parts, body) = request.into_parts();
        let body = read_limited(body, limit(true)).await?;
        let asked = digest(&[
            parts.uri.to_string().as_bytes(),
            parts
                .headers
                .get(header::ACCEPT)
                .map_or(b"", HeaderValue::as_bytes),
            &body,
        ]);
        if let Some(answer) = self.begin(&id, &asked).await? {
            return replay(&answer);
        }
        // A caller that leaves does not stop it: the next one with this key gets the answer.
        let (repeats, request) = (self.clone(), Request::from_parts(parts, Body::from(body)));
        let done = async move {
            let response = next.run(request).await;
            repeats.keep(&id, &asked, response).await
        };
        tokio::spawn(done)
            .await
            .map_err(|_| Error::internal("the call ended in a bug"))?
    }

    async fn keep(&self, key: &Identity, asked: &str, response: Response) -> Result<Response> {
        let (parts, body) = response.into_parts();
        let body = match body.collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(error) => {
                if let Some(known) = self.known().get_mut(&key.id) {
                    known.state = Progress::Unknown;
                }
                let message = format!("the answer broke off: {error}");
                return Err(Error::transport(message));
            }
        };
        if !parts.status.is_success() {
            self.forget(key).await?;
        } else {
            let answer = Answer {
                status: parts.status.as_u16(),
                headers: kept(&parts.headers),
                body: text(&body),
            };
            self.end(key, asked, answer).await?;
        }
        Ok(Response::from_parts(parts, Body::from(body)))
    }
}

/// A caller's key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    /// Whose keys it counts for.
    owner: String,
    /// What the caller and the key are known by.
    id: String,
}

/// A caller's key; why there can be none.
fn identify(key: &HeaderValue, request: &Request) -> Result<Identity> {
    let refused = |message: &str, hint: &str| {
        let error = Error::invalid(format!("Idempotency-Key {message}")).hint(hint.to_string());
        Err(error)
    };
    let most = limits::IDEMPOTENCY_KEY_BYTES.max as usize;
    let graphic = key.as_bytes().iter().all(u8::is_ascii_graphic);
    if key.is_empty() || key.len() > most || !graphic {
        let message = format!("must be 1 to {most} printable characters without spaces");
        return refused(&message, "a UUID is a good one");
    }
    let live = wants_frames(request.headers()) || request.headers().contains_key(header::UPGRADE);
    if request.method() != Method::POST || live {
        return refused("is for POST requests with one answer", "leave it out");
    }
    if request.uri().path().starts_with(SECRETIVE) {
        return refused(
            "is not for answers with secrets, which are not stored",
            "leave it out",
        );
    }
    let caller = request.extensions().get::<Caller>();
    let unknown = || "remote".to_string();
    let who = caller.map_or_else(unknown, |caller| caller.who.to_string());
    Ok(Identity {
        owner: caller.map_or_else(unknown, |caller| caller.who.owner()),
        id: digest(&[who.as_bytes(), key.as_bytes()]),
    })
}

fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    let kept = |name: &HeaderName| name == header::CONTENT_TYPE || name.as_str().starts_with(OURS);
    let pairs = headers.iter().filter(|(name, _)| kept(name));
    let text = pairs
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_string())));
    text.collect()
}

/// A body as text, if it is text and short enough.
fn text(body: &Bytes) -> Option<String> {
    let short = body.len() as u64 <= limits::IDEMPOTENCY_ANSWER_BYTES.max;
    let text = std::str::from_utf8(body).ok().filter(|_| short)?;
    Some(text.to_string())
}

fn replay(answer: &Answer) -> Result<Response> {
    let body = answer.body.clone().unwrap_or_default();
    let mut response = Response::builder().status(answer.status);
    for (name, value) in &answer.headers {
        response = response.header(name, value);
    }
    response
        .header(REPLAYED, HeaderValue::from_static("true"))
        .body(Body::from(body))
        .map_err(|error| Error::new(ErrorKind::Internal, format!("a kept answer: {error}")))
}

#[cfg(test)]
mod tests;
