//! Lines as server-sent events: one event per line, whose id is the place in the stream where the
//! next line begins, or the number that the line says it has. A client that comes back with the
//! last id it has seen misses nothing.

use crate::wording::worded;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use http::{HeaderMap, header};
use motu_core::files::ByteStream;
use motu_core::{Error, Result};
use std::collections::VecDeque;
use std::time::Duration;

const TYPE: &str = "text/event-stream";
const LAST_ID: &str = "last-event-id";
/// The longest line. What writes them keeps them far shorter.
const LINE_BYTES: usize = 256 * 1024;
/// Silence after which something is said, so that a connection that broke is noticed.
const QUIET: Duration = Duration::from_secs(15);

/// Whether a caller asks for events.
pub fn wants_events(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(header::ACCEPT).iter();
    let mut kinds = accept.filter_map(|value| value.to_str().ok());
    kinds.any(|value| value.split(',').any(|kind| kind.trim().starts_with(TYPE)))
}

/// Where a caller wants to go on, if they were here before.
pub fn last_id(headers: &HeaderMap) -> Result<Option<u64>> {
    let Some(value) = headers.get(LAST_ID) else {
        return Ok(None);
    };
    let number = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse().ok());
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(Error::invalid("Last-Event-ID is not one that was given")
            .hint("leave it out to begin at the beginning")),
    }
}

/// What the id of an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// The byte of the stream where the next line begins; the first of them is at this one.
    Bytes(u64),
    /// The `sequence` of the line.
    Sequence,
}

/// The number of a line.
#[derive(serde::Deserialize)]
struct Numbered {
    sequence: u64,
}

/// Lines as events.
pub fn respond(lines: ByteStream, ids: Ids) -> Response {
    let events = Events {
        lines,
        rest: Vec::new(),
        ids,
        id: match ids {
            Ids::Bytes(from) => Some(from),
            Ids::Sequence => None,
        },
        ready: VecDeque::new(),
        over: false,
    };
    let body = Body::from_stream(unfold(events, |mut events| async move {
        let event = events.next().await?;
        Some((Ok::<Bytes, std::convert::Infallible>(event), events))
    }));
    let headers = [
        (header::CONTENT_TYPE, TYPE),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, body).into_response()
}

struct Events {
    lines: ByteStream,
    /// The beginning of a line.
    rest: Vec<u8>,
    ids: Ids,
    /// That of the last event.
    id: Option<u64>,
    ready: VecDeque<Bytes>,
    over: bool,
}

impl Events {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            match tokio::time::timeout(QUIET, self.lines.next()).await {
                Err(_) => return Some(Bytes::from_static(b": quiet\n\n")),
                Ok(Some(Ok(piece))) => self.take(&piece),
                Ok(Some(Err(error))) => self.fail(error),
                Ok(None) => {
                    self.over = true;
                    let end = format!("{}event: end\ndata: {{}}\n\n", self.id_line());
                    self.ready.push_back(end.into());
                }
            }
        }
    }

    fn take(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(part);
            if self.rest.len() > LINE_BYTES {
                return self.fail(Error::internal("a line is too long"));
            }
            if self.rest.ends_with(b"\n") {
                self.count();
                let line = String::from_utf8_lossy(&self.rest);
                // A line of JSON holds neither of the two, whatever the guest did.
                let line = line.trim_end().replace('\r', " ");
                let event = format!("{}data: {line}\n\n", self.id_line());
                self.ready.push_back(event.into());
                self.rest.clear();
            }
        }
    }

    /// The id of the line that is there now.
    fn count(&mut self) {
        self.id = match self.ids {
            Ids::Bytes(from) => Some(self.id.unwrap_or(from) + self.rest.len() as u64),
            // A line without a number is not one to go on after.
            Ids::Sequence => match serde_json::from_slice::<Numbered>(&self.rest) {
                Ok(line) => Some(line.sequence),
                Err(_) => self.id,
            },
        };
    }

    fn id_line(&self) -> String {
        self.id.map_or(String::new(), |id| format!("id: {id}\n"))
    }

    fn fail(&mut self, error: Error) {
        self.over = true;
        let error = serde_json::to_string(&worded(error)).unwrap_or_default();
        let event = format!("event: error\ndata: {error}\n\n");
        self.ready.push_back(event.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http::HeaderValue;

    async fn told(pieces: Vec<Result<Bytes>>, from: u64) -> String {
        let response = respond(stream::iter(pieces).boxed(), Ids::Bytes(from));
        assert_eq!(response.headers()[header::CONTENT_TYPE], TYPE);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        String::from_utf8(body.expect("a body").to_vec()).expect("text")
    }

    #[tokio::test]
    async fn a_line_is_an_event_however_it_comes() {
        let whole = "{\"a\":1}\n{\"b\":2}\n";
        let expected = "id: 108\ndata: {\"a\":1}\n\nid: 116\ndata: {\"b\":2}\n\n\
                        id: 116\nevent: end\ndata: {}\n\n";
        for cut in 0..whole.len() {
            let pieces = [&whole[..cut], &whole[cut..]];
            let pieces = pieces.map(|piece| Ok(Bytes::copy_from_slice(piece.as_bytes())));
            assert_eq!(told(pieces.into(), 100).await, expected, "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn a_line_that_has_a_number_is_known_by_it() {
        let lines = "{\"sequence\":7,\"kind\":\"a\"}\n{\"kind\":\"b\"}\n";
        let lines = stream::iter([Ok(Bytes::from_static(lines.as_bytes()))]);
        let response = respond(lines.boxed(), Ids::Sequence);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        let text = String::from_utf8(body.expect("a body").to_vec()).expect("text");
        let expected = "id: 7\ndata: {\"sequence\":7,\"kind\":\"a\"}\n\n\
                        id: 7\ndata: {\"kind\":\"b\"}\n\n\
                        id: 7\nevent: end\ndata: {}\n\n";
        assert_eq!(text, expected);
    }

    #[tokio::test]
    async fn what_cannot_go_on_says_why() {
        let failed = told(vec![Err(Error::internal("no disk"))], 0).await;
        assert!(failed.starts_with("event: error\ndata: {"), "{failed}");
        assert!(failed.contains("no disk"), "{failed}");
        let endless = Bytes::from(vec![b'x'; LINE_BYTES + 1]);
        let failed = told(vec![Ok(endless)], 0).await;
        assert!(failed.contains("too long"), "{failed}");
    }

    #[test]
    fn only_ids_that_were_given_are_taken() {
        let mut headers = HeaderMap::new();
        assert!(!wants_events(&headers));
        assert_eq!(last_id(&headers), Ok(None));
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        );
        headers.insert(LAST_ID, HeaderValue::from_static("42"));
        assert!(wants_events(&headers));
        assert_eq!(last_id(&headers), Ok(Some(42)));
        headers.insert(LAST_ID, HeaderValue::from_static("-1"));
        assert!(last_id(&headers).is_err());
    }
}
