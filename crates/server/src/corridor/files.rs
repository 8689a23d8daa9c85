//! The contents of files: down, up, and as they change.

use super::answers::{content_type, download, reply};
use super::{Answer, etag, from_address, with_ask};
use crate::app::App;
use crate::extract::{self, AddressParts, Introduced};
use crate::fault::Fault;
use crate::stream::respond_lines;
use crate::wording::worded;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use motu_api::wire::{ENTRY_HEADER, WatchLine};
use motu_core::files::{ByteStream, FileEntry, ReadFile, StatFile};
use motu_core::verb::{Changes, Stat, Value, Verb, Write};
use motu_core::{Error, Result};
use std::any::Any;

pub async fn file<V: Verb<Extra = (), Ask = ReadFile, Answer = (FileEntry, ByteStream)>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response> {
    let mut call: V = from_address(&parts, request.uri().query())?;
    let asked = Range::parse(request.headers())?;
    match asked {
        None => {}
        Some(Range::From { first, last }) => {
            call.ask_mut().offset = first;
            call.ask_mut().length = last.map(|last| last - first + 1);
        }
        Some(Range::Last(length)) => {
            let path = call.ask().path.clone();
            let stat: Stat = with_ask(
                &parts,
                StatFile {
                    path,
                    follow: true,
                    user: None,
                },
            )?;
            let size = app.gate.call(&caller, stat, ()).await?.size_bytes;
            call.ask_mut().offset = size.saturating_sub(length);
        }
    }
    let wanted = call.ask().clone();
    let (entry, content) = app.gate.call(&caller, call, ()).await?;
    let version = etag::of_file(&entry)?;
    if etag::is_known(request.headers(), &version) {
        return Ok(etag::not_modified(version));
    }
    let mut response = download(content).await?.into_response();
    if asked.is_some() {
        mark_partial(&mut response, &wanted, entry.size_bytes)?;
    }
    let (name, kind) = content_type(V::INFO.content);
    response.headers_mut().insert(name, kind);
    response
        .headers_mut()
        .insert(ENTRY_HEADER, entry_header(&entry)?);
    response.headers_mut().insert(header::ETAG, version);
    Ok(response)
}

pub async fn upload<V: Verb<Extra = ByteStream, Answer: Value>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response> {
    let mut call: V = from_address(&parts, request.uri().query())?;
    let mut fault: fn(Error) -> Fault = Fault::from;
    if let Some(write) = (&mut call as &mut dyn Any).downcast_mut::<Write>()
        && etag::is_conditional(request.headers())
    {
        let who = (&app, &caller);
        etag::condition(who, &parts, &mut write.ask, request.headers()).await?;
        fault = etag::late;
    }
    let content = arriving(request.into_body());
    let answer = app.gate.call(&caller, call, content).await.map_err(fault)?;
    let mut response = reply::<V>(&answer)?;
    if let Some(entry) = (&answer as &dyn Any).downcast_ref::<FileEntry>() {
        response
            .headers_mut()
            .insert(header::ETAG, etag::of_file(entry)?);
    }
    Ok(response)
}

pub async fn lines<V: Verb<Extra = (), Answer = Changes>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response> {
    let call: V = from_address(&parts, request.uri().query())?;
    let changes = app.gate.call(&caller, call, ()).await?;
    let lines = changes.map(|change| match change {
        Ok(change) => WatchLine::Change(change),
        Err(error) => WatchLine::Error(worded(error)),
    });
    let stopping = app.stopping.clone();
    let last = stream::once(async move {
        let error = Error::unavailable("the daemon leaves, and its watches with it");
        let error = error.hint("watch again in a moment");
        stopping.borrow().then(|| WatchLine::Error(worded(error)))
    });
    let last = last.filter_map(std::future::ready);
    Ok(respond_lines(
        app.while_serving(lines.boxed()).chain(last).boxed(),
    ))
}

/// A body as it arrives. One that breaks off ends in an error, so that half a file is not taken for a whole one.
fn arriving(body: Body) -> ByteStream {
    body.into_data_stream()
        .map(|chunk: std::result::Result<Bytes, _>| {
            chunk.map_err(|error| extract::broken("upload", &error))
        })
        .boxed()
}

/// Says which part of the file an answer holds.
fn mark_partial(response: &mut Response, ask: &ReadFile, size: u64) -> Answer<()> {
    let (offset, length) = (ask.offset, ask.length);
    if offset >= size {
        let error = Error::invalid(format!(
            "the range begins beyond the {size} bytes there are"
        ));
        return Err(Fault::with_status(error, StatusCode::RANGE_NOT_SATISFIABLE));
    }
    let end = length.map_or(size, |length| offset.saturating_add(length).min(size));
    let text = format!("bytes {offset}-{}/{size}", end - 1);
    let value = HeaderValue::try_from(text).map_err(|_| Error::internal("a range is no header"))?;
    response.headers_mut().insert(header::CONTENT_RANGE, value);
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    Ok(())
}

fn entry_header(entry: &FileEntry) -> Result<HeaderValue> {
    // JSON escapes every control character except this one, which headers forbid.
    let text = serde_json::to_string(entry).map(|text| text.replace('\x7f', "\\u007f"));
    let text = text.map_err(|error| Error::internal(format!("encode an entry: {error}")))?;
    HeaderValue::from_bytes(text.as_bytes())
        .map_err(|_| Error::internal("the entry of a file does not fit into a header"))
}

/// What a `Range` header asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Range {
    From { first: u64, last: Option<u64> },
    Last(u64),
}

impl Range {
    fn parse(headers: &HeaderMap) -> Result<Option<Range>> {
        let Some(value) = headers.get(header::RANGE) else {
            return Ok(None);
        };
        let wrong = || Error::invalid("the range cannot be read").hint("such as `bytes=0-1023`");
        let text = value.to_str().map_err(|_| wrong())?;
        let (first, last) = text
            .strip_prefix("bytes=")
            .and_then(|text| text.split_once('-'))
            .ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        match (first, last) {
            ("", length) => Ok(Some(Range::Last(number(length)?))),
            (first, "") => Ok(Some(Range::From {
                first: number(first)?,
                last: None,
            })),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first || last == u64::MAX {
                    return Err(wrong());
                }
                let last = Some(last);
                Ok(Some(Range::From { first, last }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let parse = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, HeaderValue::from_static(text));
            Range::parse(&headers)
        };
        let from = |first, last| Ok(Some(Range::From { first, last }));
        assert_eq!(parse("bytes=0-9"), from(0, Some(9)));
        assert_eq!(parse("bytes=5-"), from(5, None));
        assert_eq!(parse("bytes=-5"), Ok(Some(Range::Last(5))));
        for text in [
            "bytes=5-4",
            "bytes=",
            "lines=1-2",
            "bytes=a-b",
            "bytes=0-1,4-5",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
