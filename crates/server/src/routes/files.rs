//! Files inside a sandbox.

use super::Answer;
use crate::app::App;
use crate::extract::{Id, Json as Json_, Params};
use crate::fault::{Failure, Fault};
use crate::stream::respond_lines;
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use motu_api::wire::{
    ChmodBody, ENTRY_HEADER, GlobQuery, ListQuery, MkdirBody, MoveBody, PathQuery, RemoveQuery,
    StatQuery, TAR_TYPE, WatchLine, WatchQuery, WriteQuery, decode_base64, guest_path, parse_mode,
};
use motu_core::files::{
    ByteStream, FileEntry, FileHash, FilePage, ListOptions, ReadRange, TreeWritten, WriteOptions,
};
use motu_core::{Error, Result};
use std::pin::Pin;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(stat, remove))
        .routes(routes!(list))
        .routes(routes!(read, write))
        .routes(routes!(mkdir))
        .routes(routes!(rename))
        .routes(routes!(chmod))
        .routes(routes!(glob))
        .routes(routes!(hash))
        .routes(routes!(watch))
        .routes(routes!(read_tree, write_tree))
}

/// One file, directory or link
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files", tag = "files",
    params(("id" = String, Path), StatQuery),
    responses((status = 200, body = FileEntry), Failure))]
async fn stat(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<StatQuery>,
) -> Answer<Json<FileEntry>> {
    let path = guest_path(query.path.as_deref(), query.path_base64.as_deref())?;
    let follow = query.follow.unwrap_or_default();
    Ok(Json(app.service.stat(&id, path, follow).await?))
}

/// One page of a directory
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/list", tag = "files",
    operation_id = "list_files", params(("id" = String, Path), ListQuery),
    responses((status = 200, body = FilePage), Failure))]
async fn list(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<ListQuery>,
) -> Answer<Json<FilePage>> {
    let path = guest_path(query.path.as_deref(), query.path_base64.as_deref())?;
    let options = ListOptions {
        depth: query.depth,
        after: query.after.as_deref().map(decode_base64).transpose()?,
        limit: query.limit,
    };
    Ok(Json(app.service.list(&id, path, options).await?))
}

/// The contents of a file
///
/// A `Range` header of one range of bytes is understood. The header `motu-entry` holds
/// the file's entry as JSON.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/content", tag = "files",
    operation_id = "read_file", params(("id" = String, Path), PathQuery),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"), Failure))]
async fn read(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<PathQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let path = guest_path(query.path.as_deref(), query.path_base64.as_deref())?;
    let asked = Range::parse(&headers)?;
    let range = match asked {
        None => ReadRange::default(),
        Some(Range::From { first, last }) => ReadRange {
            offset: first,
            length: last.map(|last| last - first + 1),
        },
        Some(Range::Last(length)) => {
            let size = app.service.stat(&id, path.clone(), true).await?.size;
            ReadRange {
                offset: size.saturating_sub(length),
                length: None,
            }
        }
    };
    let (entry, content) = app.service.read(&id, path, range).await?;
    let mut response = download(content).await?.into_response();
    if asked.is_some() {
        mark_partial(&mut response, range, entry.size)?;
    }
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    response
        .headers_mut()
        .insert(ENTRY_HEADER, entry_header(&entry)?);
    Ok(response)
}

/// Contents as a body. One that fails at once is a proper failure; later the connection breaks off.
pub(super) async fn download(content: ByteStream) -> Result<Body> {
    let mut content = content.peekable();
    match Pin::new(&mut content).next_if(Result::is_err).await {
        Some(Err(error)) => Err(error),
        _ => Ok(Body::from_stream(content)),
    }
}

/// Says which part of the file an answer holds.
fn mark_partial(response: &mut Response, range: ReadRange, size: u64) -> Answer<()> {
    if range.offset >= size {
        let error = Error::invalid(format!(
            "the range begins beyond the {size} bytes there are"
        ));
        return Err(Fault::with_status(error, StatusCode::RANGE_NOT_SATISFIABLE));
    }
    let end = range
        .length
        .map_or(size, |length| (range.offset + length).min(size));
    let text = format!("bytes {}-{}/{size}", range.offset, end - 1);
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

/// Write a file; the body is its contents
#[utoipa::path(put, path = "/v1/sandboxes/{id}/files/content", tag = "files",
    operation_id = "write_file", params(("id" = String, Path), WriteQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = FileEntry), Failure))]
async fn write(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<WriteQuery>,
    request: Request,
) -> Answer<Json<FileEntry>> {
    let path = guest_path(query.path.as_deref(), query.path_base64.as_deref())?;
    let options = WriteOptions {
        mode: query.mode.as_deref().map(parse_mode).transpose()?,
        user: query.user,
        append: query.append.unwrap_or_default(),
        create_new: query.create_new.unwrap_or_default(),
        no_parents: query.no_parents.unwrap_or_default(),
    };
    let content = upload(request.into_body());
    Ok(Json(app.service.write(&id, path, options, content).await?))
}

/// A body as it arrives. One that breaks off ends in an error, so that half a file is not taken for a whole one.
fn upload(body: Body) -> ByteStream {
    body.into_data_stream()
        .map(|chunk: std::result::Result<Bytes, _>| {
            chunk.map_err(|error| Error::transport(format!("the upload broke off: {error}")))
        })
        .boxed()
}

/// Make a directory, and those above it
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files/mkdir", tag = "files",
    params(("id" = String, Path)), request_body = MkdirBody,
    responses((status = 200, body = FileEntry), Failure))]
async fn mkdir(
    State(app): State<App>,
    Id(id): Id,
    Json_(body): Json_<MkdirBody>,
) -> Answer<Json<FileEntry>> {
    let path = guest_path(body.at.path.as_deref(), body.at.path_base64.as_deref())?;
    let mode = body.mode.as_deref().map(parse_mode).transpose()?;
    Ok(Json(app.service.mkdir(&id, path, mode).await?))
}

/// Remove a file or directory
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/files", tag = "files",
    operation_id = "remove_file", params(("id" = String, Path), RemoveQuery),
    responses((status = 204), Failure))]
async fn remove(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<RemoveQuery>,
) -> Answer<StatusCode> {
    let path = guest_path(query.path.as_deref(), query.path_base64.as_deref())?;
    let recursive = query.recursive.unwrap_or_default();
    app.service.remove(&id, path, recursive).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Move or rename
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files/move", tag = "files",
    operation_id = "move_file", params(("id" = String, Path)), request_body = MoveBody,
    responses((status = 200, body = FileEntry), Failure))]
async fn rename(
    State(app): State<App>,
    Id(id): Id,
    Json_(body): Json_<MoveBody>,
) -> Answer<Json<FileEntry>> {
    let from = guest_path(body.from.as_deref(), body.from_base64.as_deref())?;
    let to = guest_path(body.to.as_deref(), body.to_base64.as_deref())?;
    Ok(Json(
        app.service.rename(&id, from, to, body.overwrite).await?,
    ))
}

/// Set permission bits
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files/chmod", tag = "files",
    params(("id" = String, Path)), request_body = ChmodBody,
    responses((status = 200, body = FileEntry), Failure))]
async fn chmod(
    State(app): State<App>,
    Id(id): Id,
    Json_(body): Json_<ChmodBody>,
) -> Answer<Json<FileEntry>> {
    let path = guest_path(body.at.path.as_deref(), body.at.path_base64.as_deref())?;
    let mode = parse_mode(&body.mode)?;
    Ok(Json(app.service.chmod(&id, path, mode).await?))
}

/// Files whose path matches a pattern
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/glob", tag = "files",
    params(("id" = String, Path), GlobQuery),
    responses((status = 200, body = FilePage), Failure))]
async fn glob(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<GlobQuery>,
) -> Answer<Json<FilePage>> {
    let pattern = query
        .pattern
        .ok_or_else(|| Error::invalid("a pattern is missing"))?;
    Ok(Json(app.service.glob(&id, &pattern, query.limit).await?))
}

/// The SHA-256 of a file
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/hash", tag = "files",
    params(("id" = String, Path), PathQuery),
    responses((status = 200, body = FileHash), Failure))]
async fn hash(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<PathQuery>,
) -> Answer<Json<FileHash>> {
    let path = guest_path(query.path.as_deref(), query.path_base64.as_deref())?;
    Ok(Json(app.service.hash(&id, path).await?))
}

/// Changes to a file or directory as they happen
///
/// Watching has begun when the answer begins: one `WatchLine` per line.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/watch", tag = "files",
    params(("id" = String, Path), WatchQuery),
    responses((status = 200, body = WatchLine, content_type = "application/x-ndjson"), Failure))]
async fn watch(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<WatchQuery>,
) -> Answer<Response> {
    let path = guest_path(query.path.as_deref(), query.path_base64.as_deref())?;
    let recursive = query.recursive.unwrap_or_default();
    let changes = app.service.watch(&id, path, recursive).await?;
    let lines = changes.map(|change| match change {
        Ok(change) => WatchLine::Change(change),
        Err(error) => WatchLine::Error(error),
    });
    Ok(respond_lines(lines.boxed()))
}

/// A tree as a tar archive
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/tree", tag = "files",
    params(("id" = String, Path), PathQuery),
    responses((status = 200, body = Vec<u8>, content_type = "application/x-tar"), Failure))]
async fn read_tree(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<PathQuery>,
) -> Answer<Response> {
    let path = guest_path(query.path.as_deref(), query.path_base64.as_deref())?;
    let archive = app.service.read_tree(&id, path).await?;
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(TAR_TYPE));
    Ok(([kind], download(archive).await?).into_response())
}

/// Unpack a tar archive into a directory
#[utoipa::path(put, path = "/v1/sandboxes/{id}/files/tree", tag = "files",
    params(("id" = String, Path), PathQuery),
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    responses((status = 200, body = TreeWritten), Failure))]
async fn write_tree(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<PathQuery>,
    request: Request,
) -> Answer<Json<TreeWritten>> {
    let path = guest_path(query.path.as_deref(), query.path_base64.as_deref())?;
    let archive = upload(request.into_body());
    Ok(Json(app.service.write_tree(&id, path, archive).await?))
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
